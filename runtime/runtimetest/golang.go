package runtimetest

import (
	"os"
	"path/filepath"
	"testing"
)

// BuildGo compiles one Go source, a package main that imports only the standard library, to a WASI command and returns
// the module. The caller must not change the module.
func BuildGo(t testing.TB, source string, arguments ...string) []byte {
	t.Helper()
	return build(t, "Go", "main.go", source, arguments, func(dir, out string) error {
		// As a separate module, the guest needs nothing else from this repository.
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module guest\n\ngo 1.26\n"), 0o600); err != nil {
			return err
		}
		env := append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
		args := append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", out}, arguments...)
		return command(t.Context(), "go", env, dir, append(args, ".")...)
	})
}
