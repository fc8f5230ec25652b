package runtimetest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Packages returns the folder node_modules that contains the compiler of AssemblyScript.
func Packages(t testing.TB) string {
	t.Helper()
	asc, err := installed("assemblyscript")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(asc)
}

// BuildAssemblyScript compiles one AssemblyScript source, with AssemblyScript's shim for WASI, to a WASI command and
// returns the module. The caller must not change the module.
func BuildAssemblyScript(t testing.TB, source string, arguments ...string) []byte {
	t.Helper()
	return build(t, "AssemblyScript", "guest.ts", source, arguments, func(dir, out string) error {
		asc, err := installed("assemblyscript/bin/asc.js")
		if err != nil {
			return err
		}
		// The compiler looks for the library for WASI only below the source's folder.
		modules := filepath.Dir(filepath.Dir(filepath.Dir(asc)))
		if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
			return err
		}
		args := []string{
			asc, "guest.ts", "--optimize",
			"--config", "node_modules/@assemblyscript/wasi-shim/asconfig.json", "--outFile", filepath.Base(out),
		}
		return command(t.Context(), "node", nil, dir, slices.Concat(args, arguments)...)
	})
}
