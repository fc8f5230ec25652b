package peers

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	quern "github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// pdks build plugins with PDKs of Extism, by the sources in pdks.
var pdks = map[string]func(t *testing.T) []byte{
	"go": func(t *testing.T) []byte {
		out := filepath.Join(t.TempDir(), "plugin.wasm")
		build(t, "pdks/go", []string{"GOOS=wasip1", "GOARCH=wasm"}, "go", "build", "-buildmode=c-shared", "-o", out, ".")
		return read(t, out)
	},
	"rust":     func(t *testing.T) []byte { return rustPDK(t, "pdk1") },
	"rust 0.x": func(t *testing.T) []byte { return rustPDK(t, "pdk0") },
	"assemblyscript": func(t *testing.T) []byte {
		packages, out := runtimetest.Packages(t), filepath.Join(t.TempDir(), "plugin.wasm")
		build(t, "pdks/assemblyscript", nil, "node", filepath.Join(packages, "assemblyscript", "bin", "asc.js"), "plugin.ts",
			"--path", packages, "--use", "abort=plugin/abort", "--optimize", "--outFile", out)
		return read(t, out)
	},
}

// pdkCalls are calls of a plugin that a PDK built.
var pdkCalls = []struct {
	entry, input string
	config       map[string]string
}{
	{"echo", "", nil},
	{"echo", strings.Repeat("a MiB, in pieces of eight bytes.", 32<<10), nil},
	{"words", "one two three", nil},
	{"words", "one,two", map[string]string{"separator": ","}},
	{"words", "one", nil},
}

// TestExtismPDKs: what PDKs of Extism build does here what it does there.
func TestExtismPDKs(t *testing.T) {
	engine, err := quern.New(t.Context(), quern.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(context.WithoutCancel(t.Context()))
	for pdk, source := range pdks {
		t.Run(pdk, func(t *testing.T) {
			plugin := source(t)
			module, err := engine.Load(t.Context(), plugin)
			if err != nil {
				t.Fatal(err)
			}
			defer module.Close(context.WithoutCancel(t.Context()))
			theirs, changed := renamed(t, plugin)
			if changed != (pdk == "rust 0.x") {
				t.Fatalf("imports %v, want %t for names of the 0.x line", module.Info().Imports, !changed)
			}
			for _, call := range pdkCalls {
				code, want, said := inExtism(t, theirs, call.entry, call.config, call.input)
				if code == 0 && len(want) != len(call.input) && call.entry == "echo" {
					t.Fatalf("Extism answers %d bytes to %d", len(want), len(call.input))
				}
				pool := module.Bind(quern.Profile{Tenant: "acme", Entry: call.entry, Config: call.config})
				for range 3 {
					got := pool.Run(t.Context(), quern.Call{Input: []byte(call.input)})
					if got.Code != code || code == 0 && !alike(got.Output, want) || !strings.Contains(got.Message, said) {
						t.Errorf("%s(%.20q): %+v\nExtism: %d %.40q %s", call.entry, call.input, got, code, want, said)
					}
				}
				pool.Close()
			}
		})
	}
}

// rustPDK builds a member of pdks/rust with the crates that make deps has downloaded.
func rustPDK(t *testing.T, member string) []byte {
	t.Helper()
	crates, err := filepath.Abs("../../build/pdks")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(crates, "installed.lock")); err != nil {
		t.Fatalf("%v: run make deps", err)
	}
	cargo, target := runtimetest.Cargo(t), filepath.Join(crates, "target")
	build(t, "pdks/rust", []string{"RUSTC=" + cargo["RUSTC"]}, cargo["CARGO"],
		"build", "--quiet", "--locked", "--offline", "--release", "--target=wasm32-unknown-unknown", "--package="+member,
		"--target-dir="+target, "--config", `source.crates-io.replace-with="vendored"`,
		"--config", fmt.Sprintf("source.vendored.directory=%q", filepath.Join(crates, "vendor")))
	return read(t, filepath.Join(target, "wasm32-unknown-unknown", "release", member+".wasm"))
}

// build runs a compiler in a folder.
func build(t *testing.T, dir string, env []string, name string, arguments ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, arguments...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, said)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// renamed is a module whose imports have the names of Extism's line 1.x, which its host knows, and whether it had others.
func renamed(t *testing.T, module []byte) ([]byte, bool) {
	t.Helper()
	out, rest, changed := slices.Clone(module[:8]), module[8:], false
	for len(rest) > 0 {
		id := rest[0]
		size, header := number(t, rest[1:])
		section := rest[1+header:][:size]
		rest = rest[1+header+size:]
		if id == 2 {
			section, changed = renamedImports(t, section)
		}
		out = append(binary.AppendUvarint(append(out, id), uint64(len(section))), section...)
	}
	return out, changed
}

func renamedImports(t *testing.T, section []byte) (out []byte, changed bool) {
	t.Helper()
	count, n := number(t, section)
	out = binary.AppendUvarint(nil, uint64(count))
	rest := section[n:]
	name := func() string {
		size, n := number(t, rest)
		s := string(rest[n:][:size])
		rest = rest[n+size:]
		return s
	}
	for range count {
		from, function := name(), name()
		if old, ok := strings.CutPrefix(function, abi.ExtismOldPrefix); ok && from == abi.ExtismOldModule {
			from, function, changed = abi.ExtismModule, old, true
		}
		for _, s := range []string{from, function} {
			out = append(binary.AppendUvarint(out, uint64(len(s))), s...)
		}
		if rest[0] != 0 {
			t.Fatalf("%s.%s is no function", from, function)
		}
		_, n := number(t, rest[1:])
		out, rest = append(out, rest[:1+n]...), rest[1+n:]
	}
	return out, changed
}

// number reads a number of a module, and tells how many bytes it takes.
func number(t *testing.T, p []byte) (value, size int) {
	t.Helper()
	u, size := binary.Uvarint(p)
	if size <= 0 {
		t.Fatal("expected a number of a module")
	}
	return int(u), size
}
