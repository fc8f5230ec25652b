package runtimetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BuildWAT translates WebAssembly's text format and returns the module. Further arguments go to wat2wasm, such
// as --enable-all or --no-check. The caller does not change what is returned.
func BuildWAT(t testing.TB, text string, arguments ...string) []byte {
	t.Helper()
	key := "wat\x00" + text + "\x00" + strings.Join(arguments, "\x00")
	binary, err := guests.get(key, func() ([]byte, error) {
		return inTemporary(func(dir, out string) error {
			in := filepath.Join(dir, "guest.wat")
			if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
				return err
			}
			return command(t.Context(), "wat2wasm", nil, dir, append([]string{"-o", out, in}, arguments...)...)
		})
	})
	if err != nil {
		t.Fatalf("translate WebAssembly text: %v", err)
	}
	return binary
}
