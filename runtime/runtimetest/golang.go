package runtimetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BuildGo compiles one Go source, a package main of the standard library alone, to a WASI command and returns
// the module. The caller does not change what is returned.
func BuildGo(t testing.TB, source string) []byte {
	t.Helper()
	return buildGo(t, source)
}

// BuildGoHandler compiles one Go source to a handler, in the same way. It exports quern_handle by a line
// //go:wasmexport, and its main is not called.
func BuildGoHandler(t testing.TB, source string) []byte {
	t.Helper()
	return buildGo(t, source, "-buildmode=c-shared")
}

func buildGo(t testing.TB, source string, arguments ...string) []byte {
	t.Helper()
	key := "go\x00" + source + "\x00" + strings.Join(arguments, "\x00")
	binary, err := guests.get(key, func() ([]byte, error) {
		return inTemporary(func(dir, out string) error {
			if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
				return err
			}
			// A module of its own needs nothing else of this repository.
			if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module guest\n\ngo 1.26\n"), 0o600); err != nil {
				return err
			}
			env := append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
			args := append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", out}, arguments...)
			return command(t.Context(), "go", env, dir, append(args, ".")...)
		})
	})
	if err != nil {
		t.Fatalf("build Go guest: %v", err)
	}
	return binary
}
