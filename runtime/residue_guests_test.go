package runtime

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// end is how a call ended, without what differs from one to the next.
type end struct {
	kind OutcomeKind
	code int
	what string // the name of the limit or trap
}

func endOf(o Outcome) end { return end{o.Kind, o.Code, o.Limit.Name + o.Trap} }

// residueEnds are how a residue guest ends that found nothing.
var residueEnds = map[runtimetest.Ending]end{
	runtimetest.EndComplete:  {kind: Complete},
	runtimetest.EndGrowth:    {kind: Complete},
	runtimetest.EndFatal:     {Fatal, exitFatal, ""},
	runtimetest.EndExit:      {Failed, 7, ""},
	runtimetest.EndTrap:      {Trap, 0, "unreachable"},
	runtimetest.EndDivide:    {Trap, 0, "integer divide by zero"},
	runtimetest.EndRecursion: {Trap, 0, "stack overflow"},
	runtimetest.EndDescent:   {Trap, 0, "out of bounds memory access"},
	runtimetest.EndMemory:    {LimitExceeded, 0, "memory"},
}

// The ways in which a task is interrupted.
var (
	byFuel    = end{LimitExceeded, 0, "cpu"}
	byTimeout = end{LimitExceeded, 0, "timeout"}
	byCaller  = end{Cancelled, 0, ""}
)

// residueOdds says how often tasks end in which way. A stack overflow takes 80 MB, the end of memory all that there is.
var residueOdds = map[runtimetest.Ending]int{
	runtimetest.EndComplete: 20, runtimetest.EndFatal: 8, runtimetest.EndTrap: 10, runtimetest.EndDivide: 5,
	runtimetest.EndExit: 8, runtimetest.EndLoop: 6, runtimetest.EndGrowth: 4, runtimetest.EndDescent: 3,
	runtimetest.EndMemory: 1, runtimetest.EndRecursion: 1,
}

// residueGuest is one of those that look for what others have left, and leave all that they can.
type residueGuest struct {
	name   string
	build  func(t testing.TB) []byte
	memory int64
	// ends are those of residueEnds in which this one is different, or has none of.
	ends map[runtimetest.Ending]end
	// share is its part of all tasks.
	share int
	// finds is what it says that it has found in an instance that was not reset; nil if it does not get that far.
	finds *regexp.Regexp
	// steady guests burn the same fuel for the same ending, whatever instance they get.
	steady bool
	// slow ones are compiled for so long with the race detector that they are left out there. It looks at no guest.
	slow bool
}

func (g *residueGuest) leftOut() bool { return g.slow && slowdown > 1 }

// residueGuests are the same in several languages, as handlers and as commands.
func residueGuests() []residueGuest {
	goHandler := map[runtimetest.Ending]end{
		runtimetest.EndDivide: {Trap, 0, "unreachable"}, runtimetest.EndRecursion: {LimitExceeded, 0, "memory"},
		runtimetest.EndDescent: {},
	}
	goCommand := maps.Clone(goHandler)
	goCommand[runtimetest.EndDivide] = end{Failed, 2, ""}
	canary := regexp.MustCompile("canary")
	noDescent := map[runtimetest.Ending]end{runtimetest.EndDescent: {}}
	return []residueGuest{
		{name: "C", build: runtimetest.C.Residue, memory: 16 << 20, share: 30, steady: true, finds: canary},
		{name: "C command", build: residueCommandInC, memory: 16 << 20, share: 20, steady: true, finds: canary},
		{
			name: "WAT", build: func(t testing.TB) []byte { return runtimetest.ResidueWAT(t, false) },
			memory: 16 << 20, ends: noDescent, share: 30, steady: true, finds: canary,
		},
		{
			name: "WAT with tables", build: func(t testing.TB) []byte { return runtimetest.ResidueWAT(t, true) },
			memory: 16 << 20, ends: noDescent, share: 6, steady: true,
		},
		{name: "Go", build: runtimetest.Go.Residue, memory: 32 << 20, ends: goHandler, share: 8, slow: true, finds: canary},
		{name: "Go command", build: residueCommandInGo, memory: 32 << 20, ends: goCommand, share: 6, slow: true},
	}
}

// residueCommandInC is the handler in C as a command. Its own _start takes the stack pointer before anything is on
// the stack.
func residueCommandInC(t testing.TB) []byte {
	t.Helper()
	source := replaced(t, runtimetest.C.HandlerSource(t, "residue"), `#include "quern.h"`, `
		#include <stdint.h>
		#include <unistd.h>
		#define QUERN_HANDLER
		static int32_t quern_input_read(uint32_t offset, void *to, uint32_t capacity) { return read(0, to, capacity); }
		static int32_t quern_output_write(const void *from, uint32_t size) { return write(1, from, size); }
		static int32_t quern_error_set(const void *text, uint32_t size) { return write(2, text, size); }
		void __wasm_call_ctors(void);`)
	return runtimetest.BuildC(t, source+`
		__attribute__((export_name("_start"))) void _start(void) {
			uint32_t stack_pointer;
			__asm__ volatile(".globaltype __stack_pointer, i32\nglobal.get __stack_pointer\nlocal.set %0" : "=r"(stack_pointer));
			__wasm_call_ctors();
			int code = run(stack_pointer);
			if (code) exit(code);
		}`, "-nostartfiles")
}

// residueCommandInGo is the handler in Go as a command.
func residueCommandInGo(t testing.TB) []byte {
	t.Helper()
	source := replaced(
		t, runtimetest.Go.HandlerSource(t, "residue"),
		"//go:wasmexport quern_handle\n", "", "func main() {}", "func main() { os.Exit(int(handle())) }",
		"//go:wasmimport quern_v1 input_read\n", "", "//go:wasmimport quern_v1 output_write\n", "", "//go:wasmimport quern_v1 error_set\n", "",
		"func inputRead(offset uint32, to unsafe.Pointer, capacity uint32) int32\n", "",
		"func outputWrite(from unsafe.Pointer, size uint32) int32\n", "", "func errorSet(from unsafe.Pointer, size uint32) int32\n", "",
	)
	return runtimetest.BuildGo(t, source+`
		func moved(n int, _ error) int32 { return int32(n) }
		func inputRead(_ uint32, p unsafe.Pointer, n uint32) int32 { return moved(os.Stdin.Read(unsafe.Slice((*byte)(p), n))) }
		func outputWrite(p unsafe.Pointer, n uint32) int32 { return moved(os.Stdout.Write(unsafe.Slice((*byte)(p), n))) }
		func errorSet(p unsafe.Pointer, n uint32) int32 { return moved(os.Stderr.Write(unsafe.Slice((*byte)(p), n))) }
	`)
}

// replaced is a source with some of its texts replaced, each of which it has once.
func replaced(t testing.TB, source string, oldNew ...string) string {
	t.Helper()
	for pair := range slices.Chunk(oldNew, 2) {
		if strings.Count(source, pair[0]) != 1 {
			t.Fatalf("the source does not have %q once", pair[0])
		}
		source = strings.Replace(source, pair[0], pair[1], 1)
	}
	return source
}

// endsOf are how a guest ends that found nothing, by what it is told.
func (g *residueGuest) endsOf() map[runtimetest.Ending]end {
	ends := maps.Clone(residueEnds)
	maps.Copy(ends, g.ends)
	maps.DeleteFunc(ends, func(_ runtimetest.Ending, e end) bool { return e == end{} })
	return ends
}
