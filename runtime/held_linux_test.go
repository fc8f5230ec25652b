package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// heaped is what a loaded module takes of Go's heap, and what is said that it takes beside its machine code.
type heaped struct {
	Name       string
	Heap, Held int64
}

// TestHeldOfCode: what is said to be held of a loaded module is not less than what is, whatever the module has much of,
// nor a multiple of it for programs as compilers write them.
func TestHeldOfCode(t *testing.T) {
	t.Parallel()
	var found []heaped
	if alone(t, &found) {
		for _, h := range found {
			t.Logf("%-12s %8d KiB on the heap, %8d KiB held", h.Name, h.Heap>>10, h.Held>>10)
			if h.Held < h.Heap {
				t.Errorf("%s: %d bytes are on the heap, %d are said to be held", h.Name, h.Heap, h.Held)
			}
			if h.Name == "Go" && h.Held > 2*h.Heap {
				t.Errorf("%s: %d bytes are on the heap, %d are said to be held", h.Name, h.Heap, h.Held)
			}
		}
		return
	}
	measure := func(dir string, binary []byte) (grown, held int64) {
		engine, err := newEngine(t.Context(), Config{CacheDir: dir}, testVersion)
		if err != nil {
			t.Fatal(err)
		}
		before := heap()
		module, err := engine.Load(t.Context(), binary)
		if err != nil {
			t.Fatal(err)
		}
		grown, held = heap()-before, module.code.Bytes()
		entries, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
		if err != nil || len(entries) != 1 {
			t.Fatalf("entries = %v, %v, want 1", entries, err)
		}
		entry, err := os.Stat(entries[0])
		if err != nil {
			t.Fatal(err)
		}
		held -= entry.Size()
		if err := errors.Join(module.Close(context.WithoutCancel(t.Context())), engine.Close(context.WithoutCancel(t.Context()))); err != nil {
			t.Fatal(err)
		}
		return grown, held
	}
	for name, binary := range abundant(t) {
		dir := filepath.Join(t.TempDir(), "cache")
		measure(dir, binary) // compiles it
		h := heaped{Name: name}
		h.Heap, h.Held = measure(dir, binary)
		found = append(found, h)
	}
	tell(t, found)
}

// abundant are commands that each have much of something that is kept while they are loaded.
func abundant(t *testing.T) map[string][]byte {
	command := func(id byte, extra ...[]byte) []byte {
		sections := map[byte][]byte{
			runtimetest.TypeSection:     runtimetest.FunctionType("", ""),
			runtimetest.FunctionSection: {0},
			runtimetest.ExportSection:   runtimetest.Export("_start", runtimetest.FunctionKind, 0),
			runtimetest.CodeSection:     runtimetest.Body(),
		}
		var module [][]byte
		for n := range byte(runtimetest.DataSection + 1) {
			var elements [][]byte
			if first, ok := sections[n]; ok {
				elements = append(elements, first)
			}
			if n == id {
				elements = append(elements, extra...)
			}
			if len(elements) > 0 {
				module = append(module, runtimetest.Section(n, elements...))
			}
		}
		return runtimetest.Module(module...)
	}
	var exports [][]byte
	for i := range 50_000 {
		exports = append(exports, runtimetest.Export(strconv.Itoa(i), runtimetest.FunctionKind, 0))
	}
	var types [][]byte
	for i := range 8000 {
		types = append(types, runtimetest.FunctionType(strings.Repeat(i32, i%3), ""))
	}
	references := append(append([]byte{1, 0}, runtimetest.Number(90_000)...), make([]byte, 90_000)...)
	return map[string][]byte{
		"Go":        runtimetest.EmptyGo(t),
		"locals":    manyLocals(1_000_000),
		"functions": bodies(50_000, []byte{0x01}),
		"exports":   command(runtimetest.ExportSection, exports...),
		"types":     command(runtimetest.TypeSection, types...),
		"globals":   command(globalSection, slices.Repeat([][]byte{{0x7f, 1, 0x41, 0, 0x0b}}, 8000)...),
		"elements":  command(elementSection, references),
		"data":      command(runtimetest.DataSection, slices.Repeat([][]byte{{1, 1, 0}}, 50_000)...),
	}
}

// heap is what lives on Go's heap.
func heap() int64 {
	goruntime.GC()
	goruntime.GC()
	var stats goruntime.MemStats
	goruntime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
