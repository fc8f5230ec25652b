package runtimetest

import (
	"os"
	"path/filepath"
	"testing"
)

var rustc = compiler("rustc")

// BuildRust compiles one Rust source of the 2021 edition, without crates, to a WASI command and returns the
// module. The caller does not change what is returned.
func BuildRust(t testing.TB, source string) []byte {
	t.Helper()
	binary, err := guests.get("rust\x00"+source, func() ([]byte, error) {
		rustc, err := rustc()
		if err != nil {
			return nil, err
		}
		return inTemporary(func(dir, out string) error {
			in := filepath.Join(dir, "guest.rs")
			if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
				return err
			}
			args := []string{"--edition=2021", "-Copt-level=2", "-Cstrip=symbols", "-o", out, in}
			return command(t.Context(), rustc[0], nil, dir, append(args, rustc[1:]...)...)
		})
	})
	if err != nil {
		t.Fatalf("build Rust guest: %v", err)
	}
	return binary
}
