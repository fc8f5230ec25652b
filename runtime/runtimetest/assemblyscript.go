package runtimetest

import (
	"os"
	"path/filepath"
	"testing"
)

// BuildAssemblyScript compiles one source of AssemblyScript, with the library's shim for WASI, to a WASI command
// and returns the module. The caller does not change what is returned.
func BuildAssemblyScript(t testing.TB, source string) []byte {
	t.Helper()
	binary, err := guests.get("assemblyscript\x00"+source, func() ([]byte, error) {
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
			return command(t.Context(), "node", nil, dir, asc, "guest.ts", "--optimize",
				"--config", "node_modules/@assemblyscript/wasi-shim/asconfig.json", "--outFile", filepath.Base(out))
		})
	})
	if err != nil {
		t.Fatalf("build AssemblyScript guest: %v", err)
	}
	return binary
}
