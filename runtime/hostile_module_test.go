package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/wasi"
	"github.com/quern-project/quern/runtime/wasm"
)

// TestHostileNames: a module cannot name what the host adds to it.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	exports := func(kind string) func(name string) []byte {
		return func(name string) []byte {
			return runtimetest.BuildWAT(t, fmt.Sprintf(`(module (memory 1) (table 1 funcref) (global $g (mut i32) (i32.const 0))
				(func $f (export "_start")) (export %q (%s 0)))`, name, kind))
		}
	}
	imports := func(module, name string) []byte {
		return importing(module, name, runtimetest.FunctionKind, 0)
	}
	tests := map[string][]byte{
		"tick":            imports(wasm.HostModule, wasm.TickName),
		"another":         imports(wasm.HostModule, "other"),
		"another module":  imports(wasm.Prefix, ""),
		"imported global": importing(wasm.HostModule, wasm.FuelExport, runtimetest.GlobalKind, 0x7f, 1),
	}
	for _, name := range []string{wasm.FuelExport, wasm.StartExport, wasm.GlobalExport(0), wasm.Prefix} {
		for _, kind := range []string{"global", "func", "memory", "table"} {
			tests[kind+" "+name] = exports(kind)(name)
		}
	}
	for name, binary := range tests {
		_, err := engine.Load(t.Context(), binary)
		if err == nil || !strings.Contains(err.Error(), `names that begin with "quern:" are the host's own`) {
			t.Errorf("%s: Load = %v, want a refusal of the name", name, err)
		}
	}
	for _, name := range []string{"quern", "Quern:fuel", " quern:fuel", "quern.fuel"} {
		if _, err := engine.Inspect(t.Context(), exports("global")(name)); err != nil {
			t.Errorf("%q: Inspect = %v, it is nobody's name", name, err)
		}
	}
}

// TestHostileSignatures imports each function of WASI with wrong types.
func TestHostileSignatures(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	for name, signature := range signatures()["wasi_snapshot_preview1"] {
		params, results := slices.Clone(signature.Params), slices.Clone(signature.Results)
		for what, wrong := range map[string]wasm.Signature{
			"one parameter more": {Params: append(slices.Clone(params), wasm.I32), Results: results},
			"one result more":    {Params: params, Results: append(slices.Clone(results), wasm.I32)},
			"references":         {Params: []wasm.Type{wasm.ExternRef}, Results: results},
		} {
			_, err := engine.Load(t.Context(), callingWith(name, wrong, 0))
			want := fmt.Sprintf("import %s.%s is %s instead of %s", wasi.ModuleName, name, wrong, signature)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %s: Load = %v, want %s", name, what, err, want)
			}
		}
	}
}

// sample is a small module with something in every section, which writes "fine" and returns.
const sample = `(module
  (type $v (func))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (table $t 4 8 funcref)
  (memory (export "memory") 1 2)
  (global $g (mut i32) (i32.const 3))
  (export "_start" (func $main))
  (start $before)
  (elem (i32.const 1) $helper $before)
  (func $before (global.set $g (i32.const 2)))
  (func $helper (loop $l (br_if $l (global.get $g) (global.set $g (i32.sub (global.get $g) (i32.const 1))))))
  (func $main (local i64 f64)
    (call_indirect (type $v) (i32.const 1))
    (memory.init $late (i32.const 12) (i32.const 0) (i32.const 2))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 20))))
  (data (i32.const 0) "\08\00\00\00\04\00\00\00fi")
  (data $late "??")
  (data (i32.const 10) "ne"))`

func buildSample(t *testing.T) []byte {
	t.Helper()
	binary := runtimetest.BuildWAT(t, sample)
	if got := complete(t, call(t, load(t, binary), "", Limits{})); got != "fine" {
		t.Fatalf("output = %q", got)
	}
	return binary
}

// survive loads a file and runs it, if it can be. Whatever it is, the host refuses it or it ends, and no error
// is the host's. It returns whether it was run.
func survive(t *testing.T, engine *Engine, name string, binary []byte) bool {
	t.Helper()
	module, err := engine.Load(t.Context(), binary)
	if err != nil {
		var refused *RefusedError
		if !errors.As(err, &refused) {
			t.Errorf("%s: Load = %v, want a refusal", name, err)
		}
		return false
	}
	got := call(t, module, "", Limits{Timeout: patience, CPU: time.Millisecond})
	if got.Kind == HostFault || got.Kind == Cancelled || got.Limit.Name == "timeout" {
		t.Errorf("%s: outcome = %+v", name, got)
	}
	if err := module.Close(t.Context()); err != nil {
		t.Errorf("%s: Close: %v", name, err)
	}
	return true
}

// TestHostileTruncated cuts a module off at every byte.
func TestHostileTruncated(t *testing.T) {
	t.Parallel()
	engine, binary := setup(t), buildSample(t)
	for n := range binary {
		if survive(t, engine, fmt.Sprintf("%d bytes", n), binary[:n]) {
			t.Errorf("%d of %d bytes were taken for a module", n, len(binary))
		}
	}
}

// TestHostileFlipped flips bits in each byte of a module.
func TestHostileFlipped(t *testing.T) {
	t.Parallel()
	engine, binary := setup(t), buildSample(t)
	ran := 0
	for i := range binary {
		for _, mask := range []byte{1 << (i % 8), 0x80, 0xff} {
			flipped := bytes.Clone(binary)
			flipped[i] ^= mask
			if survive(t, engine, fmt.Sprintf("byte %d ^ %#x", i, mask), flipped) {
				ran++
			}
		}
	}
	if ran == 0 || ran == 3*len(binary) {
		t.Errorf("%d of %d were run", ran, 3*len(binary))
	}
}

// TestHostileRandom puts random bytes behind a right header, and into a section with a right length.
func TestHostileRandom(t *testing.T) {
	t.Parallel()
	engine, random := setup(t), rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		contents := make([]byte, random.IntN(200))
		for j := range contents {
			contents[j] = byte(random.Uint32())
		}
		survive(t, engine, fmt.Sprintf("random %d", i), runtimetest.Module(contents))
		survive(t, engine, fmt.Sprintf("random section %d", i), runtimetest.Module(runtimetest.RawSection(byte(i%14), contents)))
	}
}

// TestHostileSpliced puts pieces of a module together anew.
func TestHostileSpliced(t *testing.T) {
	t.Parallel()
	engine, binary, random := setup(t), buildSample(t), rand.New(rand.NewPCG(3, 4))
	for i := range 500 {
		from, to, n := 8+random.IntN(len(binary)-8), 8+random.IntN(len(binary)-8), random.IntN(24)
		spliced := slices.Concat(binary[:to], binary[from:min(from+n, len(binary))], binary[min(to+random.IntN(24), len(binary)):])
		survive(t, engine, fmt.Sprintf("splice %d", i), spliced)
	}
}
