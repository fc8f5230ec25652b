package runtimetest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Packages is the folder node_modules with the compiler of AssemblyScript.
func Packages(t testing.TB) string {
	t.Helper()
	asc, err := installed("assemblyscript")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(asc)
}

// BuildAssemblyScript compiles one source of AssemblyScript, with the library's shim for WASI, to a WASI command
// and returns the module. The caller does not change what is returned.
func BuildAssemblyScript(t testing.TB, source string) []byte {
	t.Helper()
	return buildAssemblyScript(t, source)
}

// BuildAssemblyScriptHandler compiles one source of AssemblyScript to a handler, in the same way: what stands at
// the top level of the source is its _initialize.
func BuildAssemblyScriptHandler(t testing.TB, source string) []byte {
	t.Helper()
	return buildAssemblyScript(t, source, "--exportStart", "_initialize")
}

func buildAssemblyScript(t testing.TB, source string, arguments ...string) []byte {
	t.Helper()
	key := "assemblyscript\x00" + source + "\x00" + strings.Join(arguments, "\x00")
	binary, err := guests.get(key, func() ([]byte, error) {
		asc, err := installed("assemblyscript/bin/asc.js")
		if err != nil {
			return nil, err
		}
		return inTemporary(func(dir, out string) error {
			// The compiler finds the library for WASI below the source's folder only.
			modules := filepath.Dir(filepath.Dir(filepath.Dir(asc)))
			if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, "guest.ts"), []byte(source), 0o600); err != nil {
				return err
			}
			args := []string{
				asc, "guest.ts", "--optimize",
				"--config", "node_modules/@assemblyscript/wasi-shim/asconfig.json", "--outFile", filepath.Base(out),
			}
			return command(t.Context(), "node", nil, dir, slices.Concat(args, arguments)...)
		})
	})
	if err != nil {
		t.Fatalf("build AssemblyScript guest: %v", err)
	}
	return binary
}
