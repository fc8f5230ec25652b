package runtimetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	rustc = compiler("rustc")
	cargo = compiler("cargo")
)

// Cargo returns the environment in which a cargo builds crates for WebAssembly: RUSTC and CARGO, its path.
func Cargo(t testing.TB) map[string]string {
	t.Helper()
	found, err := cargo()
	if err != nil {
		t.Fatalf("find cargo: %v", err)
	}
	return map[string]string{"RUSTC": strings.TrimPrefix(found[0], "RUSTC="), "CARGO": found[1]}
}

// RustWASI is the name that the rustc of Cargo gives to the target WASI preview 1.
func RustWASI(t testing.TB) string {
	t.Helper()
	const name = "wasm32-wasip1"
	known, err := exec.CommandContext(t.Context(), Cargo(t)["RUSTC"], "--print=target-list").Output()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(strings.Fields(string(known)), name) {
		return name
	}
	return "wasm32-wasi" // its old name
}

// BuildRust compiles one Rust source of the 2021 edition, without crates, to a WASI command and returns the
// module. The caller does not change what is returned.
func BuildRust(t testing.TB, source string) []byte {
	t.Helper()
	return buildRust(t, source)
}

// BuildRustHandler compiles one Rust source to a handler, a cdylib, in the same way. It has an _initialize only
// if the source defines one: rustc makes none, and the linker calls what is to be initialized from each export.
func BuildRustHandler(t testing.TB, source string) []byte {
	t.Helper()
	return buildRust(t, source, "--crate-type=cdylib")
}

func buildRust(t testing.TB, source string, arguments ...string) []byte {
	t.Helper()
	key := "rust\x00" + source + "\x00" + strings.Join(arguments, "\x00")
	binary, err := guests.get(key, func() ([]byte, error) {
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
			return command(t.Context(), rustc[0], nil, dir, slices.Concat(args, arguments, rustc[1:])...)
		})
	})
	if err != nil {
		t.Fatalf("build Rust guest: %v", err)
	}
	return binary
}
