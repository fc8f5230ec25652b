package wasm

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// Sizes of the module of bulkModule, beyond what its instructions move at once.
const (
	bulkBytes   = 4 << 20
	bulkEntries = 300_000
	bulkSegment = 5 << 19 // bytes of its data segment
	bulkElement = 200_000 // entries of its element segment
)

// bulkModule exports each bulk instruction as a function of its name. The entries of its tables are functions that
// return different numbers; "sum" computes a number of all of them.
func bulkModule() []byte {
	data := make([]byte, bulkSegment)
	for i := range data {
		data[i] = byte(i*7 ^ i>>9)
	}
	element := runtimetest.Number(bulkElement)
	for i := range bulkElement {
		element = append(element, byte(i*i%3))
	}
	three := []byte{opLocalGet, 0, opLocalGet, 1, opLocalGet, 2, opBulk}
	with := func(code ...byte) []byte { return runtimetest.Body(append(three[:7:7], code...)...) }
	names := []string{
		"0", "1", "2", "memory.fill", "memory.copy", "memory.init", "table.fill", "table.copy", "table.across", "table.init",
		"data.drop", "elem.drop", "sum",
	}
	bodies := [][]byte{
		runtimetest.Body(opI32Const, 11), runtimetest.Body(opI32Const, 5), runtimetest.Body(opI32Const, 3),
		with(bulkMemoryFill, 0), with(bulkMemoryCopy, 0, 0), with(bulkMemoryInit, 0, 0),
		runtimetest.Body(opLocalGet, 0, opRefFunc, 1, opLocalGet, 2, opBulk, bulkTableFill, 0),
		with(bulkTableCopy, 0, 0), with(bulkTableCopy, 1, 0), with(bulkTableInit, 0, 0),
		runtimetest.Body(opBulk, bulkDataDrop, 0), runtimetest.Body(opBulk, bulkElemDrop, 0), sumBody(),
	}
	number, three32, nothing := []byte{0}, []byte{1}, []byte{2}
	types := [][]byte{number, number, number, three32, three32, three32, three32, three32, three32, three32, nothing, nothing, number}
	var exports [][]byte
	for i, name := range names {
		exports = append(exports, runtimetest.Export(name, runtimetest.FunctionKind, byte(i)))
	}
	exports = append(exports, runtimetest.Export("memory", runtimetest.MemoryKind, 0))
	table := append([]byte{byte(FuncRef), 0}, runtimetest.Number(bulkEntries)...)
	segment := append(append([]byte{1}, runtimetest.Number(bulkSegment)...), data...)
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "\x7f"), runtimetest.FunctionType("\x7f\x7f\x7f", ""), runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, types...),
		runtimetest.Section(runtimetest.TableSection, table, table),
		runtimetest.Section(runtimetest.MemorySection, []byte{1, bulkBytes / PageSize, bulkBytes / PageSize}),
		runtimetest.Section(runtimetest.ExportSection, exports...),
		runtimetest.Section(elementSection, append([]byte{1, 0}, element...)),
		runtimetest.RawSection(dataCountSection, []byte{1}),
		runtimetest.Section(runtimetest.CodeSection, bodies...),
		runtimetest.Section(runtimetest.DataSection, segment))
}

// sumBody goes through both tables: sum = sum*31 + (null ? 1 : what the function returns).
func sumBody() []byte {
	var code []byte
	for table := range byte(2) {
		code = append(code, opI32Const, 0, opLocalSet, 0, opLoop, noResult)
		code = append(code, opLocalGet, 0, opTableGet, table, opRefIsNull, opIf, byte(I32), opI32Const, 1, opElse,
			opLocalGet, 0, opCallIndirect, 0, table, opEnd)
		code = append(code, opLocalGet, 1, opI32Const, 31, opI32Mul, opI32Add, opLocalSet, 1)
		code = append(code, opLocalGet, 0, opI32Const, 1, opI32Add, opLocalTee, 0, opI32Const)
		code = append(appendSigned(code, bulkEntries), opI32LtU, opBranchIf, 0, opEnd)
	}
	code = append(code, opLocalGet, 1, opEnd)
	code = append([]byte{1, 2, byte(I32)}, code...)
	return append(runtimetest.Number(uint32(len(code))), code...)
}

const opI32Mul = 0x6c

// bulkCase is a call with a place to write to, one to read from or a value, and a length.
type bulkCase struct {
	name        string
	to, from, n uint32
}

func bulkCases() (all []bulkCase) {
	const mib = 1 << 20
	for _, n := range []uint32{0, 1, 63, 64, mib - 1, mib, mib + 1, 5 * mib / 2, 3 * mib} {
		for _, places := range [][2]uint32{{0, 0}, {0, 1}, {1, 0}, {70_000, 0}, {0, 70_000}, {mib - 1, 2}, {2, mib + 3}} {
			all = append(all, bulkCase{"memory.copy", places[0], places[1], n})
		}
		all = append(all,
			bulkCase{"memory.fill", 3, 0x1a5, n}, bulkCase{"memory.init", 9, 0, n}, bulkCase{"memory.init", 1, 77, n},
			// The ends of the memory and of the segment, and one behind them.
			bulkCase{"memory.fill", bulkBytes - n, 7, n}, bulkCase{"memory.fill", bulkBytes - n + 1, 8, n},
			bulkCase{"memory.copy", bulkBytes - n, 5, n}, bulkCase{"memory.copy", bulkBytes - n + 1, 5, n},
			bulkCase{"memory.copy", 5, bulkBytes - n, n}, bulkCase{"memory.copy", 5, bulkBytes - n + 1, n},
			bulkCase{"memory.init", 5, bulkSegment - n, n}, bulkCase{"memory.init", 5, bulkSegment - n + 1, n},
			bulkCase{"memory.init", bulkBytes - n, 0, n}, bulkCase{"memory.init", bulkBytes - n + 1, 0, n})
	}
	const piece = 1 << 17
	for _, n := range []uint32{0, 1, 8, piece - 1, piece, piece + 1, 180_000} {
		for _, places := range [][2]uint32{{0, 0}, {0, 1}, {1, 0}, {9000, 0}, {0, 9000}, {bulkEntries - n, 0}, {bulkEntries - n + 1, 0}, {0, bulkEntries - n + 1}} {
			all = append(all, bulkCase{"table.copy", places[0], places[1], n}, bulkCase{"table.across", places[0], places[1], n})
		}
		all = append(all,
			bulkCase{"table.init", 0, bulkElement - n, n}, bulkCase{"table.init", 0, bulkElement - n + 1, n},
			bulkCase{"table.init", 33, 0, n}, bulkCase{"table.init", bulkEntries - n + 1, 0, n},
			bulkCase{"table.fill", 100_000, 0, n}, bulkCase{"table.fill", bulkEntries - n + 1, 0, n})
	}
	for _, name := range []string{"memory.fill", "memory.copy", "memory.init", "table.fill", "table.copy", "table.init"} {
		for _, far := range []bulkCase{
			{"", 0, 0, 1<<32 - 1},
			{"", 1<<32 - 1, 0, 2},
			{"", 0, 1<<32 - 1, 2},
			{"", 1<<32 - 1, 1<<32 - 1, 1<<32 - 1},
			{"", 1 << 31, 0, 1 << 31},
			{"", 0, 1 << 31, 1 << 31},
			{"", 1<<32 - 3<<20, 0, 3 << 20},
			{"", 0, 1<<32 - 3<<20, 3 << 20},
			{"", 1<<32 - 1, 0, 0},
			{"", 0, 1<<32 - 1, 0},
		} {
			far.name = name
			all = append(all, far)
		}
	}
	return append(all, bulkCase{name: "data.drop"}, bulkCase{"memory.init", 0, 0, 0}, bulkCase{"memory.init", 0, 0, 1}, bulkCase{"memory.init", 0, 0, 2 << 20},
		bulkCase{name: "elem.drop"}, bulkCase{"table.init", 0, 0, 0}, bulkCase{"table.init", 0, 0, 1}, bulkCase{"table.init", 0, 0, 180_000})
}

// TestBulk calls all bulk instructions as they are and rewritten, one after the other, and looks at all of memory and
// tables after each.
func TestBulk(t *testing.T) {
	t.Parallel()
	plain, rewritten := worlds(t, api.CoreFeaturesV2, Options{Caps: wide})
	file := bulkModule()
	var instances [2]*instance
	for i, w := range []*world{plain, rewritten} {
		var err error
		if instances[i], err = w.instantiate(t.Context(), file, ""); err != nil {
			t.Fatal(err)
		}
	}
	traps := 0
	for _, c := range bulkCases() {
		t.Logf("%s %d %d %d", c.name, c.to, c.from, c.n)
		var args []uint64
		if c.name != "data.drop" && c.name != "elem.drop" {
			args = []uint64{uint64(c.to), uint64(c.from), uint64(c.n)}
		}
		var said [2]string
		before := instances[1].spent()
		for i, in := range instances {
			_, err := in.ExportedFunction(c.name).Call(t.Context(), args...)
			said[i] = trapText(err)
			if i == 1 && err == nil {
				checkPrice(t, c, in.spent()-before)
			}
			if c.name[0] != 'm' {
				sum, err := in.ExportedFunction("sum").Call(t.Context())
				said[i] += fmt.Sprint(" sum ", sum, err)
			}
		}
		if said[0] != said[1] {
			t.Fatalf("%s, rewritten %s", said[0], said[1])
		}
		if difference := sameState(instances[0], instances[1]); difference != "" {
			t.Fatal(difference)
		}
		if said[1] != "" && c.name[0] == 'm' {
			traps++
		}
	}
	if traps < 50 {
		t.Errorf("%d traps", traps)
	}
}

// checkPrice: a unit of fuel is 64 bytes or 8 entries, and some are for the instructions around.
func checkPrice(t *testing.T, c bulkCase, spent int64) {
	t.Helper()
	price := int64(c.n / 64)
	if c.name[0] == 't' {
		price = int64(c.n / 8)
	}
	if spent < price || spent > price+30 {
		t.Errorf("%s of %d: %d charged, want %d", c.name, c.n, spent, price)
	}
}

// TestBulkIsCut: a fill that is long for its fuel ends between two pieces.
func TestBulkIsCut(t *testing.T) {
	t.Parallel()
	_, w := worlds(t, api.CoreFeaturesV2, Options{Caps: wide})
	i, err := w.instantiate(t.Context(), bulkModule(), "")
	if err != nil {
		t.Fatal(err)
	}
	w.quantum, w.most = pieceBytes>>shiftBytes+10, 2
	for name, args := range map[string][]uint64{"memory.fill": {0, 1, 4 << 20}, "table.fill": {0, 0, bulkEntries}} {
		w.ticks = 0
		if _, err = i.ExportedFunction(name).Call(t.Context(), args...); !errors.Is(err, errOutOfFuel) {
			t.Errorf("%s: %v", name, err)
		}
	}
	memory := memoryOf(i)
	filled := 0
	for filled < len(memory) && memory[filled] == 1 {
		filled++
	}
	if filled%pieceBytes != 0 || filled == 0 || filled == len(memory) {
		t.Errorf("%d bytes were filled", filled)
	}
}
