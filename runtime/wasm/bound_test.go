package wasm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// program makes a module with one function () -> () for each piece of code, exported as f0, f1, ... Each has two locals
// of type i32.
func program(code ...[]byte) []byte {
	var functions, exports, bodies [][]byte
	for i, c := range code {
		body := slices.Concat([]byte{1, 2, byte(I32)}, c, []byte{opEnd})
		functions = append(functions, []byte{0})
		exports = append(exports, slices.Concat(runtimetest.Name(fmt.Sprint("f", i)), []byte{0}, runtimetest.Number(uint32(i))))
		bodies = append(bodies, append(runtimetest.Number(uint32(len(body))), body...))
	}
	exports = append(exports, runtimetest.Export("condition", runtimetest.GlobalKind, 0))
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, functions...),
		runtimetest.Section(runtimetest.TableSection, []byte{byte(FuncRef), 0, 1}),
		runtimetest.Section(runtimetest.MemorySection, []byte{1, 1, 2}),
		runtimetest.Section(globalSection, []byte{byte(I32), 1, opI32Const, 0, opEnd}),
		runtimetest.Section(runtimetest.ExportSection, exports...),
		runtimetest.Section(elementSection, []byte{0, opI32Const, 0, opEnd, 1, 0}),
		runtimetest.Section(runtimetest.CodeSection, bodies...))
}

// line is a straight line of n instructions.
func line(n int) []byte { return bytes.Repeat([]byte{0x01}, n) }

func times(n int, code ...[]byte) []byte { return bytes.Repeat(slices.Concat(code...), n) }

// condition pushes an i32 that the host has set.
var condition = []byte{opGlobalGet, 0}

// counted goes round the innermost loop, n times in all.
func counted(n int) []byte {
	code := []byte{opLocalGet, 0, opI32Const, 1, opI32Add, opLocalTee, 0, opI32Const}
	return append(appendSigned(code, int64(n)), opI32LtU, opBranchIf, 0)
}

func callOf(function int) []byte { return appendUnsigned([]byte{opCall}, uint32(function)) }

// nest puts code into n blocks.
func nest(n int, op byte, code []byte) []byte {
	return slices.Concat(times(n, []byte{op, noResult}), code, times(n, []byte{opEnd}))
}

// hostilePrograms hide work from whoever counts in the order of the text, or charges too late.
func hostilePrograms() map[string][]byte {
	cat, block, end := slices.Concat[[]byte], []byte{opBlock, noResult}, []byte{opEnd}
	loop, when, otherwise := []byte{opLoop, noResult}, cat(condition, []byte{opIf, noResult}), []byte{opElse}
	branchIf := func(label byte) []byte { return cat(condition, []byte{opBranchIf, label}) }
	skipped := cat(block, branchIf(0), line(400), end)
	fan := func(n int, between []byte) []byte {
		code := cat(condition, runtimetest.Number(uint32(n)))
		code = slices.Insert(code, len(condition), opBranchTable)
		for i := range n + 1 {
			code = appendUnsigned(code, uint32(i%n))
		}
		code = cat(times(n, block), code)
		for range n {
			code = append(append(code, opEnd), between...)
		}
		return code
	}
	programs := map[string][]byte{
		"nothing":          program(nil),
		"straight line":    program(line(100_000)),
		"skipped arms":     program(cat(loop, times(50, skipped, line(20)), branchIf(0), end)),
		"skipped ifs":      program(cat(loop, times(50, when, line(300), end, line(30)), branchIf(0), end)),
		"either arm":       program(times(60, when, line(100), otherwise, line(3), end)),
		"other arm":        program(times(60, when, line(3), otherwise, line(100), end)),
		"short arms":       program(times(500, when, otherwise, line(1), end)),
		"deep ifs":         program(cat(times(1000, when, line(3)), times(1000, otherwise, line(2), end))),
		"fan":              program(fan(300, line(50))),
		"fan in a loop":    program(cat(loop, fan(100, cat(line(20), branchIf(0))), branchIf(0), end)),
		"empty fan":        program(fan(1000, nil)),
		"branches out":     program(nest(600, opBlock, times(600, branchIf(200), line(1)))),
		"branches all out": program(nest(60, opBlock, cat(times(60, branchIf(59), line(40)))), nil),
		"loops in loops":   program(nest(250, opLoop, cat(line(10), branchIf(7)))),
		"loops behind":     program(times(300, loop, line(200), end)),
		"loops in arms":    program(times(30, when, line(200), loop, branchIf(0), end, line(200), otherwise, line(250), end)),
		"loop over calls":  program(cat(loop, callOf(1), []byte{opBranch, 0}, end), nil),
		"long tails":       program(cat(callOf(1), line(1000)), cat(when, callOf(0), end, line(500))),
		"tails in arms":    program(cat(callOf(0), when, line(50), otherwise, line(40), end, when, line(20), end)),
		"indirect":         program(cat(times(40, []byte{opI32Const, 0, opCallIndirect, 0, 0}, line(30)))),
		"tail in loop":     program(cat(loop, callOf(1), branchIf(0), end, line(31)), when[:0]),
		"gathers for a loop": program(cat(times(3, []byte{opLocalGet, 0}, []byte{opDrop}), loop,
			block, branchIf(0), end, line(250), loop, end, counted(1000), end)),
		"pays for another loop": program(cat(loop, loop, line(200), []byte{opGlobalGet, 0, opBranchIf, 1}, counted(1000), end, end)),
		"gathers for a return":  program(cat(loop, callOf(1), counted(1000), end), cat(block, branchIf(0), end, line(250))),
		"dead": program(
			cat(block, []byte{opBranch, 0}, loop, line(500), branchIf(0), end, end, line(300)),
			cat([]byte{opReturn}, when, line(10), otherwise, loop, []byte{opBranch, 0}, end, end, line(300)),
			cat(block, block, []byte{opBranch, 1}, end, line(300), end, line(10)),
			cat(block, when, []byte{opBranch, 1}, otherwise, []byte{opBranch, 1}, end, line(700), end, line(250)),
			cat(loop, []byte{opBranch, 0}, end, line(700)),
			cat(block, condition, []byte{opBranchTable, 0, 0}, loop, end, callOf(0), end, line(260)),
			cat(when, []byte{opUnreachable}, otherwise, line(255), end, line(255), branchIf(0), line(255)),
			cat(when, []byte{opUnreachable}, end, line(255), []byte{opUnreachable}, line(1000), times(9, block, end))),
	}
	var tree, looped [][]byte
	for i := range 40 {
		tree = append(tree, cat(callOf(i+1), line(15), callOf(i+1)))
		looped = append(looped, cat(loop, callOf(i+1), callOf(i+1), end))
	}
	programs["tree of calls"] = program(append(tree, line(3))...)
	programs["tree in loops"] = program(append(looped, nil)...)
	programs["recursion in a loop"] = program(cat(loop, block, callOf(0), end, end))
	chain := [][]byte{}
	for i := range 100 {
		chain = append(chain, cat(callOf(i+1), line(40)))
	}
	programs["chain of calls"] = program(append(chain, nil)...)
	return programs
}

// boundEvery are the values of Options.Every that the verifier looks at: exact, the default.
var boundEvery = []int{1, 0}

func TestBound(t *testing.T) {
	t.Parallel()
	for name, file := range hostilePrograms() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, every := range boundEvery {
				m, err := Rewrite(file, Options{Every: every})
				if err != nil {
					t.Fatal(err)
				}
				if found := verify(t, m, every == 1); found.charges == 0 && name != "nothing" {
					t.Errorf("every %d: %s", every, found)
				} else {
					t.Logf("every %d: %s", every, found)
				}
			}
		})
	}
}

// TestBoundPrograms verifies random programs, and with options under which much is charged.
func TestBoundPrograms(t *testing.T) {
	t.Parallel()
	var worst bounds
	for seed := range uint64(150) {
		file := forge(smithBytes(seed, 12_000))
		for _, every := range boundEvery {
			m, err := Rewrite(file, Options{Every: every})
			if err != nil {
				t.Fatal(err)
			}
			found := verify(t, m, every == 1)
			worst.run, worst.tail, worst.exit = max(worst.run, found.run), max(worst.tail, found.tail), max(worst.exit, found.exit)
			worst.charges += found.charges
			worst.functions += found.functions
			if t.Failed() {
				t.Fatalf("seed %d, every %d: %s", seed, every, found)
			}
		}
	}
	t.Log(worst)
}

// TestBoundRuns runs the programs with exact charges and with those of the default. Those that do not end are cut off by
// tick, after which the instance works as before.
func TestBoundRuns(t *testing.T) {
	t.Parallel()
	for name, file := range hostilePrograms() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, condition := range []uint64{0, 1} {
				exact, ended := boundRun(t, file, Options{Every: 1}, condition)
				usual, usualEnded := boundRun(t, file, Options{}, condition)
				t.Logf("condition %d: %d executed, %d charged by default, ended: %t", condition, exact, usual, ended)
				if ended != usualEnded {
					t.Errorf("condition %d: ended %t with exact charges, %t by default", condition, ended, usualEnded)
				}
				// What ran is paid for but for little, and more than that where paths of different lengths meet.
				if ended && (usual < exact/16 || usual > (exact+1)*256) {
					t.Errorf("condition %d: %d charged for %d", condition, usual, exact)
				}
				if want, ok := executed[name]; ok && want[condition] != exact {
					t.Errorf("condition %d: %d executed, want %d", condition, exact, want[condition])
				}
			}
		})
	}
}

// executed are the instructions of some programs, for each condition.
var executed = map[string][2]int64{
	"nothing":       {0, 0},
	"straight line": {100_000, 100_000},
	"either arm":    {60 * 5, 60 * 102},
	"short arms":    {500 * 3, 500 * 2},
	"deep ifs":      {2 + 2, 1000 * 5},
	// 40 functions, of which each calls the next once.
	"chain of calls":       {100 * 41, 100 * 41},
	"gathers for a loop":   {6 + 1000*(2+250+7), 6 + 1000*(2+250+7)},
	"gathers for a return": {1000 * (1 + 2 + 250 + 7), 1000 * (1 + 2 + 250 + 7)},
}

// boundRun calls the first function of a program. It returns the fuel that was spent, and whether the program ended.
func boundRun(t *testing.T, file []byte, o Options, condition uint64) (spent int64, ended bool) {
	t.Helper()
	plain, w := worlds(t, api.CoreFeaturesV2, o)
	defer plain.runtime.Close(t.Context())
	defer w.runtime.Close(t.Context())
	w.quantum, w.most = 10_000, 60
	i, err := w.instantiate(t.Context(), file, "")
	if err != nil {
		t.Fatal(err)
	}
	global, ok := i.ExportedGlobal("condition").(api.MutableGlobal)
	if !ok {
		t.Fatal("the condition is not exported")
	}
	global.Set(condition)
	for range 2 {
		w.ticks = 0
		before := i.spent()
		_, err = i.ExportedFunction("f0").Call(t.Context())
		switch {
		case errors.Is(err, errOutOfFuel) && w.ticks == w.most+1:
			ended = false
		case err == nil, strings.HasPrefix(err.Error(), "wasm error: unreachable"), strings.HasPrefix(err.Error(), "stack overflow"):
			ended = true
		default:
			t.Fatal(err)
		}
		if first := spent; spent > 0 && i.spent()-before != first && ended {
			t.Errorf("%d spent at first, %d then", first, i.spent()-before)
		}
		spent = i.spent() - before
	}
	return spent, ended
}
