package runtimetest

import (
	"os"
	"path/filepath"
	"testing"
)

// BuildGo compiles one Go source, a package main of the standard library alone, to a WASI command and returns
// the module. The caller does not change what is returned.
func BuildGo(t testing.TB, source string) []byte {
	t.Helper()
	binary, err := guests.get("go\x00"+source, func() ([]byte, error) {
		return inTemporary(func(dir, out string) error {
			if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
				return err
			}
			// A module of its own needs nothing else of this repository.
			if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module guest\n\ngo 1.26\n"), 0o600); err != nil {
				return err
			}
			env := append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
			return command(t.Context(), "go", env, dir, "build", "-trimpath", "-ldflags=-s -w", "-o", out, ".")
		})
	})
	if err != nil {
		t.Fatalf("build Go guest: %v", err)
	}
	return binary
}
