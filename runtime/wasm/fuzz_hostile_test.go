package wasm

import (
	"bytes"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// hostile is a file that was made to harm whoever reads it.
type hostile struct {
	name string
	file []byte
	// takes tells that it is a good module nevertheless.
	takes bool
}

// huge is the number 2^32-1.
var huge = []byte{0xff, 0xff, 0xff, 0xff, 0x0f}

// hostileFiles are the threats to a decoder that we know of.
func hostileFiles() []hostile {
	raw, module, section := runtimetest.RawSection, runtimetest.Module, runtimetest.Section
	types := section(runtimetest.TypeSection, runtimetest.FunctionType("", ""))
	function := section(runtimetest.FunctionSection, []byte{0})
	memory := section(runtimetest.MemorySection, []byte{0, 1})
	body := func(code ...byte) []byte {
		return module(types, function, memory, section(runtimetest.CodeSection, runtimetest.Body(code...)))
	}
	code := func(contents ...byte) []byte { return module(types, function, raw(runtimetest.CodeSection, contents)) }
	name := func(contents ...byte) []byte { return module(raw(0, append(runtimetest.Name("name"), contents...))) }
	files := []hostile{
		{"nothing", nil, false},
		{"header", module(), true},
		{"component", []byte("\x00asm\x0d\x00\x01\x00"), false},
		{"names of a huge number", name(append([]byte{1, 5}, huge...)...), true},
		{"names twice", name(slices.Concat([]byte{0, 2, 1, 'm'}, []byte{0, 2, 1, 'm'})...), true},
		{"a name of a huge length", name(append([]byte{1, 7, 1, 0}, huge...)...), true},
		{"a part of a huge length", name(append([]byte{1}, huge...)...), true},
		{"200 million locals", code(1, 8, 1, 0x80, 0x84, 0xaf, 0x5f, 0x7f, opEnd, opEnd), false},
		{"many groups of locals", code(append([]byte{1, 10}, append(huge, opEnd, 0, 0, 0, 0)...)...), false},
		{"huge groups of locals", code(slices.Concat([]byte{1, 20, 3}, huge, []byte{0x7f}, huge, []byte{0x7f}, huge, []byte{0x7f, opEnd})...), false},
		{"global of ours", body(opI32Const, 0, opGlobalSet, 0), false},
		{"tick of ours", body(opI32Const, 0, opCall, 1, opDrop), false},
		{"refuel of ours", body(opCall, 2), false},
		{"table of ours", body(opI32Const, 0, opTableGet, 0, opDrop), false},
		{"a name of ours", module(types, section(runtimetest.ImportSection, runtimetest.Import(HostModule, TickName, 0, 0))), false},
		{"an export of ours", module(types, function, section(runtimetest.ExportSection, runtimetest.Export(FuelExport, 0, 0)),
			section(runtimetest.CodeSection, runtimetest.Body())), false},
		{"huge br_table", body(append([]byte{opI32Const, 0, opBranchTable}, huge...)...), false},
		{"long br_table", body(append(append([]byte{opI32Const, 0, opBranchTable}, runtimetest.Number(50_000)...), make([]byte, 50_001)...)...), true},
		{"type beyond", module(types, section(runtimetest.FunctionSection, []byte{96}), section(runtimetest.CodeSection, runtimetest.Body())), false},
		{"label beyond", body(opBranch, 1), false},
		{"select of many", body(append([]byte{opSelectTyped}, huge...)...), false},
		{"end too many", body(opEnd, opEnd), false},
		{"else alone", body(opElse), false},
		{"else twice", body(opI32Const, 0, opIf, noResult, opElse, opElse, opEnd), false},
		{"no end", code(1, 2, 0, 0x01), false},
		{"empty body", code(1, 0), false},
		{"overlong numbers", body(opI32Const, 0x80, 0x80, 0x80, 0x80, 0x00, opDrop, opI32Const, 0xff, 0xff, 0xff, 0xff, 0x7f, opDrop), true},
		{"numbers too long", body(opI32Const, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00, opDrop), false},
		{"numbers too large", body(opI32Const, 0xff, 0xff, 0xff, 0xff, 0x4f, opDrop), false},
		{"index too long", body(opLocalGet, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00), false},
		{"data without a count", module(types, function, memory,
			section(runtimetest.CodeSection, runtimetest.Body(opBulk, bulkDataDrop, 0)), section(runtimetest.DataSection, []byte{1, 0})), false},
		{"data count too large", module(raw(dataCountSection, []byte{2}), section(runtimetest.DataSection, []byte{1, 0})), false},
		{"data count too small", module(raw(dataCountSection, []byte{0}), section(runtimetest.DataSection, []byte{1, 0})), false},
		{"data count missing", module(raw(dataCountSection, nil)), false},
		{"data count huge", module(raw(dataCountSection, huge)), false},
		{"data of a huge length", module(memory, section(runtimetest.DataSection, append([]byte{1}, huge...))), false},
		{"elements of a huge number", module(section(elementSection, append([]byte{1, 0}, huge...))), false},
		{"sections twice", module(types, types), false},
		{"sections out of order", module(function, types), false},
		{"section unknown", module(raw(14, nil)), false},
		{"section beyond", module([]byte{1, 0x20, 0}), false},
		{"section of a huge length", module(append([]byte{1}, huge...)), false},
		{"table bomb", module(section(runtimetest.TableSection, append([]byte{byte(FuncRef), 0}, huge...))), false},
		{"memory bomb", module(section(runtimetest.MemorySection, append([]byte{0}, huge...))), false},
		{"more functions than bodies", module(types, raw(runtimetest.FunctionSection, append(runtimetest.Number(10_000), make([]byte, 10_000)...))), false},
		{"many functions, no body", module(types, raw(runtimetest.FunctionSection, []byte{1, 0})), false},
		{"nested blocks", body(nest(19_000, opBlock, nil)...), true},
		{"nested too deep", body(nest(21_000, opBlock, nil)...), false},
		{"nested ifs", body(slices.Concat(times(15_000, []byte{opI32Const, 0, opIf, noResult}), times(15_000, []byte{opEnd}))...), true},
		{"nested loops", loopBomb(1000, 200, 3), false},
		{"nested loops with more in them", loopBomb(1000, 200, 56), false},
		{"many blocks, many locals", loopBomb(20, 40_000, 3), false},
	}
	for id, section := range []string{"types", "imports", "functions", "tables", "memories", "globals", "exports", "start", "elements", "bodies", "data"} {
		files = append(files, hostile{"a huge number of " + section, module(raw(byte(id+1), huge)), false})
		for _, n := range []uint32{900, 9_900, 99_900, 199_900} { // below the caps
			files = append(files, hostile{fmt.Sprint(n, " ", section), module(raw(byte(id+1), runtimetest.Number(n))), false})
		}
	}
	return files
}

// loopBomb is a compile bomb: loops in each other, with many locals that live through all of them.
func loopBomb(loops, locals, sets int) []byte {
	var code []byte
	for i := range loops {
		code = append(code, opLoop, noResult)
		for j := range sets {
			code = appendUnsigned(append(code, opLocalGet), uint32((i*7+j)%locals))
			code = appendUnsigned(append(code, opLocalSet), uint32((i*13+j*5)%locals))
		}
	}
	code = append(code, times(loops, []byte{opI32Const, 0, opBranchIf, 0, opEnd})...)
	body := slices.Concat([]byte{1}, runtimetest.Number(uint32(locals)), []byte{byte(I32)}, code, []byte{opEnd})
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.CodeSection, append(runtimetest.Number(uint32(len(body))), body...)))
}

// allocated is what a call takes from the heap in all, in bytes. Nothing else may run.
func allocated(call func()) uint64 {
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	call()
	goruntime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// allowance is what rewriting a file of so many bytes may take from the heap, with what is given back at once: 20 times its
// size and a constant. That is mostly for blocks in each other, of which each takes more than its bytes and Caps.Nesting
// bounds the number.
func allowance(size int) uint64 { return 20*uint64(size) + 64<<10 + min(128*uint64(size), 8<<20) }

// TestHostile is not parallel: it looks at the heap.
func TestHostile(t *testing.T) {
	for _, h := range hostileFiles() {
		t.Run(h.name, func(t *testing.T) {
			kept := bytes.Clone(h.file)
			var m *Rewritten
			var err error
			if got := allocated(func() { m, err = Rewrite(h.file, Options{}) }); got > allowance(len(h.file)) {
				t.Errorf("%d bytes were allocated for %d", got, len(h.file))
			}
			if !bytes.Equal(kept, h.file) {
				t.Error("the file was changed")
			}
			var bad *Error
			if (err == nil) != h.takes || err != nil && (m == nil || m.Binary != nil || !errors.As(err, &bad)) {
				t.Errorf("Rewrite = %+v, %v", m, err)
			}
			t.Log(err)
		})
	}
}
