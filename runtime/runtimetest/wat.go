package runtimetest

import (
	"testing"
)

// BuildWAT translates WebAssembly's text format and returns the module. Further arguments go to wat2wasm, such as
// --enable-all or --no-check. The caller must not change the module.
func BuildWAT(t testing.TB, text string, arguments ...string) []byte {
	t.Helper()
	return build(t, "WebAssembly text", "guest.wat", text, arguments, func(dir, out string) error {
		return command(t.Context(), "wat2wasm", nil, dir, append([]string{"-o", out, "guest.wat"}, arguments...)...)
	})
}
