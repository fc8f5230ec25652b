package runtimetest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

var (
	rustc = compiler("rustc")
	cargo = compiler("cargo")
)

// Cargo returns environment variables for building crates for WebAssembly: CARGO is the path of cargo, and RUSTC the
// path of the compiler that cargo must use.
func Cargo(t testing.TB) map[string]string {
	t.Helper()
	found, err := cargo()
	if err != nil {
		t.Fatalf("find cargo: %v", err)
	}
	return map[string]string{"RUSTC": strings.TrimPrefix(found[0], "RUSTC="), "CARGO": found[1]}
}

// RustWASI returns the name that Cargo's rustc uses for the target WASI preview 1.
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

// BuildRust compiles one Rust source of the 2021 edition, without crates, to a WASI command and returns the module. The
// caller must not change the module.
func BuildRust(t testing.TB, source string, arguments ...string) []byte {
	t.Helper()
	return build(t, "Rust", "guest.rs", source, arguments, func(dir, out string) error {
		rustc, err := rustc()
		if err != nil {
			return err
		}
		args := []string{"--edition=2021", "-Copt-level=2", "-Cstrip=symbols", "-o", out, "guest.rs"}
		return command(t.Context(), rustc[0], nil, dir, slices.Concat(args, arguments, rustc[1:])...)
	})
}
