package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/wasi"
	"github.com/quern-project/quern/runtime/wasm"
)

// TestLimitsOfFiles reads for each cap of the decoder a file that has as much, and one that has one more.
func TestLimitsOfFiles(t *testing.T) {
	t.Parallel()
	rows, files := limitRows(t, "Of a file"), cappedFiles()
	delete(rows, "Code") // TestLimitOfCode
	sameNames(t, rows, files)
	answered := limitRows(t, "Of a call to the host")
	for _, field := range reflect.VisibleFields(reflect.TypeFor[wasm.Caps]()) {
		_, refused := rows[field.Name]
		if _, ok := answered[field.Name]; !ok && !refused && field.Name != "Code" {
			t.Errorf("LIMITS.md does not know wasm.Caps.%s", field.Name)
		}
	}
	engine := setup(t)
	for name, file := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := rows[name].number(t)
			if _, err := decode(file(limit)); err != nil {
				t.Errorf("%d: %v", limit, err)
			}
			_, err := engine.Load(t.Context(), file(limit+1))
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("%d: Load = %v, want a refusal", limit+1, err)
			}
			last := refused.Refusals[len(refused.Refusals)-1]
			rows[name].check(t, rows[name].fallback, "refused", last.What)
		})
	}
}

// TestLimitOfCode: charges, of which there is one behind each call, may make only so much of code.
func TestLimitOfCode(t *testing.T) {
	t.Parallel()
	row := limitRows(t, "Of a file")["Code"]
	calls := func(n int) []byte { return bodies(1, bytes.Repeat([]byte{0x10, 0}, n)) }
	if _, err := decode(calls(1000)); err != nil {
		t.Error(err)
	}
	const many = 1_000_000
	_, err := wasm.Rewrite(calls(many), wasm.Options{})
	var over *wasm.CapError
	if !errors.As(err, &over) {
		t.Fatalf("Rewrite = %v, want a cap", err)
	}
	code := len(runtimetest.Body(bytes.Repeat([]byte{0x10, 0}, many)...))
	if want := uint64(row.number(t)*code + 1<<20); over.Cap != want {
		t.Errorf("%d bytes of code may become %d, LIMITS.md says %d", code, over.Cap, want)
	}
	refused := regexp.MustCompile(`\d+`).ReplaceAllString("a module that is too large to serve: "+over.Error(), "N")
	row.check(t, row.fallback, "refused", refused)
}

// cappedFiles make files with n of what a cap bounds.
func cappedFiles() map[string]func(n int) []byte {
	types := runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", ""))
	function := runtimetest.Section(runtimetest.FunctionSection, []byte{0})
	main := runtimetest.Section(runtimetest.CodeSection, runtimetest.Body())
	many := func(id byte, n int, one []byte) []byte {
		return runtimetest.RawSection(id, append(runtimetest.Number(uint32(n)), bytes.Repeat(one, n)...))
	}
	memory := func(limits ...byte) []byte { return runtimetest.Section(runtimetest.MemorySection, limits) }
	table := func(n int) []byte {
		return runtimetest.Section(runtimetest.TableSection, append([]byte{0x70, 0}, runtimetest.Number(uint32(n))...))
	}
	return map[string]func(n int) []byte{
		"Size": func(n int) []byte {
			const headers = 8 + 1 + 4 // of the module, and of a section without a name and of more than 2 MiB
			return runtimetest.Module(runtimetest.RawSection(0, make([]byte, n-headers)))
		},
		"Types": func(n int) []byte {
			return runtimetest.Module(many(runtimetest.TypeSection, n, runtimetest.FunctionType("", "")))
		},
		"Imports": func(n int) []byte {
			return runtimetest.Module(types, many(runtimetest.ImportSection, n, runtimetest.Import(wasi.ModuleName, "sched_yield", 0, 0)))
		},
		"Exports": func(n int) []byte {
			return runtimetest.Module(types, function, many(runtimetest.ExportSection, n, runtimetest.Export("e", 0, 0)), main)
		},
		"Names": func(n int) []byte {
			exports := [][]byte{runtimetest.Export("_start", runtimetest.FunctionKind, 0)}
			for n -= len("_start"); n > 0; n -= 60_000 {
				name := strings.Repeat("n", min(n, 60_000)-8) + fmt.Sprintf("%08d", n)
				exports = append(exports, runtimetest.Export(name, runtimetest.FunctionKind, 0))
			}
			return runtimetest.Module(types, function, runtimetest.Section(runtimetest.ExportSection, exports...), main)
		},
		"Globals": func(n int) []byte { return runtimetest.Module(many(globalSection, n, []byte{0x7f, 1, 0x41, 0, 0x0b})) },
		"Elements": func(n int) []byte {
			return runtimetest.Module(table(0), many(elementSection, n, []byte{0, 0x41, 0, 0x0b, 0}))
		},
		"References": func(n int) []byte {
			contents := append([]byte{1, 1, 0}, runtimetest.Number(uint32(n))...)
			return runtimetest.Module(types, function, runtimetest.RawSection(elementSection, append(contents, make([]byte, n)...)), main)
		},
		"Data": func(n int) []byte {
			return runtimetest.Module(memory(0, 1), many(runtimetest.DataSection, n, []byte{1, 0}))
		},
		"Functions": func(n int) []byte { return bodies(n, bytes.Repeat([]byte{0x01}, 12)) },
		"Values": func(n int) []byte {
			return runtimetest.Module(runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType(strings.Repeat(i32, n), "")))
		},
		"AllValues": func(n int) []byte {
			const most = 100
			full := runtimetest.FunctionType(strings.Repeat(i32, most), "")
			rest := runtimetest.FunctionType(strings.Repeat(i32, n%most), "")
			return runtimetest.Module(runtimetest.Section(runtimetest.TypeSection, append(slices.Repeat([][]byte{full}, n/most), rest)...))
		},
		"Helpers": func(n int) []byte {
			var code []byte
			for i := range n - 1 { // refuel is one
				code = slices.Concat(code, []byte{0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 0x0c}, runtimetest.Number(uint32(i)), []byte{0})
			}
			return runtimetest.Module(types, function, table(0), many(elementSection, n, []byte{1, 0, 0}),
				runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(code...)))
		},
		"Body": func(n int) []byte {
			code := bytes.Repeat([]byte{0x01}, n)
			code[0], code[n-1] = 0, 0x0b
			return runtimetest.Module(types, function, runtimetest.Section(runtimetest.CodeSection, append(runtimetest.Number(uint32(n)), code...)))
		},
		"Locals":    func(n int) []byte { return runtimetest.Locals(n, nil) },
		"AllLocals": manyLocals,
		"Nesting": func(n int) []byte {
			return runtimetest.Locals(1, slices.Concat(bytes.Repeat([]byte{0x02, 0x40}, n-1), bytes.Repeat([]byte{0x0b}, n-1)))
		},
		"Operands": func(n int) []byte {
			return runtimetest.Locals(1, slices.Concat(bytes.Repeat([]byte{0x41, 0}, n), bytes.Repeat([]byte{0x1a}, n)))
		},
		"Work": func(n int) []byte { return runtimetest.Locals(1, bytes.Repeat([]byte{0x02, 0x40, 0x0b}, n)) },
		"Loops": func(n int) []byte {
			return runtimetest.Locals(1, slices.Concat(bytes.Repeat([]byte{0x03, 0x40}, n), bytes.Repeat([]byte{0x0b}, n)))
		},
		"Targets": func(n int) []byte { return runtimetest.Locals(1, branchTable(n)) },
		"AllTargets": func(n int) []byte {
			const most = 50_000
			return runtimetest.Locals(1, slices.Concat(bytes.Repeat(branchTable(most), n/most), branchTable(n%most)))
		},
		"Rewritten": charged,
		"Tables":    func(n int) []byte { return runtimetest.Module(many(runtimetest.TableSection, n, []byte{0x70, 0, 0})) },
		"Entries":   func(n int) []byte { return runtimetest.Module(table(n)) },
		"name": func(n int) []byte {
			return runtimetest.Module(runtimetest.RawSection(0, runtimetest.Name(strings.Repeat("n", n))))
		},
		"memory pages": func(n int) []byte {
			return runtimetest.Module(memory(append([]byte{0}, runtimetest.Number(uint32(n))...)...))
		},
	}
}

// manyLocals is a command whose functions have so many locals together, as many in each as one may have.
func manyLocals(n int) []byte {
	const most = 50_000
	var functions [][]byte
	for ; n > 0; n -= most {
		locals := append(append([]byte{1}, runtimetest.Number(uint32(min(n, most)))...), 0x7f, 0x0b)
		functions = append(functions, append(runtimetest.Number(uint32(len(locals))), locals...))
	}
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, slices.Repeat([][]byte{{0}}, len(functions))...),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection, functions...),
	)
}

// charged is a module whose sections take so many bytes when its code, a seventh of that, is written anew. Data
// fills them up.
func charged(n int) []byte { return filled(tooFull + n - whenTooFull()) }

const tooFull = 48 << 20 // bytes of data

func filled(data int) []byte {
	segment := append([]byte{1}, runtimetest.Name(string(make([]byte, data)))...)
	return slices.Concat(bodies(16, bytes.Repeat([]byte{0x10, 0, 0x01}, 280_000)), runtimetest.Section(runtimetest.DataSection, segment))
}

// whenTooFull is how many bytes are counted with that much data.
var whenTooFull = sync.OnceValue(func() int {
	_, err := wasm.Rewrite(filled(tooFull), wasm.Options{})
	var over *wasm.CapError
	if !errors.As(err, &over) {
		panic(err)
	}
	return int(over.Count)
})

// Sections that runtimetest does not name.
const (
	globalSection  = 6
	elementSection = 9
)

// branchTable is a br_table with so many labels beside the default.
func branchTable(labels int) []byte {
	return slices.Concat([]byte{0x41, 0, 0x0e}, runtimetest.Number(uint32(labels)), make([]byte, labels+1))
}

// bodies is a module of so many functions with the same code, and one of them a command.
func bodies(n int, code []byte) []byte {
	body := runtimetest.Body(code...)
	contents := runtimetest.Number(uint32(n))
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.RawSection(runtimetest.FunctionSection, append(contents, make([]byte, n)...)),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.RawSection(runtimetest.CodeSection, append(slices.Clone(contents), bytes.Repeat(body, n)...)),
	)
}
