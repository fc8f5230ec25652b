package runtimetest

import (
	"strings"
	"testing"
)

// Ending is how a task of a residue guest ends after it has left its canaries.
type Ending byte

// The endings. EndGrowth determines how much memory a guest needs: 9 MB more than at its start.
const (
	EndComplete  Ending = 'c' // returns 0
	EndFatal     Ending = 'f' // returns 65
	EndTrap      Ending = 't' // executes unreachable
	EndDivide    Ending = 'd' // divides by zero; Go panics at that, and a handler in Go then executes unreachable
	EndRecursion Ending = 'r' // calls itself until the WebAssembly stack overflows; in Go, until memory is used up
	EndDescent   Ending = 's' // uses up C's stack, which overwrites what lies below it; C only
	EndExit      Ending = 'e' // exits with 7
	EndLoop      Ending = 'l' // does not end
	EndMemory    Ending = 'm' // takes memory until there is none left; then returns 1, or in Go panics
	EndGrowth    Ending = 'g' // takes and fills 9 MB more and returns 0
)

// Endings returns all endings that a guest in the language has.
func (l Language) Endings() []Ending {
	all := []Ending{
		EndComplete, EndFatal, EndTrap, EndDivide, EndRecursion, EndExit, EndLoop, EndMemory, EndGrowth,
	}
	if l == C {
		all = append(all, EndDescent)
	}
	return all
}

// Residue returns a handler in C or Go that proves whether its instance is pristine. A task with ResidueInput looks at
// all of linear memory for canaries of an earlier task. It also looks at its static data, its globals, its stack
// pointer and the memory that it grows into, since it knows their pristine state. If it finds anything, it returns 1,
// with the findings as output and as error. Otherwise it writes canaries with its own number to the stack, to static
// data, to memory from malloc that it frees or keeps, to pages that it grows and to its globals (in Go also to maps,
// stacks of goroutines that wait or run, and the environment). Then it ends as its input says.
//
// With an input of less than two bytes, the handler does nothing and returns 0: such an input serves for the warm call.
func (l Language) Residue(t testing.TB) []byte {
	t.Helper()
	return l.BuildHandler(t, l.HandlerSource(t, "residue"))
}

// ResidueWAT returns a guest like Residue's that is written in WebAssembly's text format. It has mutable globals of all
// number types, both exported and not exported. If tables is true, it also sets and grows a table, drops segments, and
// has globals of vectors and references.
func ResidueWAT(t testing.TB, tables bool) []byte {
	t.Helper()
	text, err := handlers.ReadFile("guests/handlers/residue.wat")
	if err != nil {
		t.Fatalf("read guest: %v", err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if tables || !strings.HasSuffix(line, ";; tables\n") {
			lines = append(lines, line)
		}
	}
	return BuildWAT(t, strings.Join(lines, ""))
}

// ResidueInput returns the input for a task of a residue guest. task is the number of the task, from 1.
func ResidueInput(task byte, ending Ending) []byte { return []byte{task, byte(ending)} }
