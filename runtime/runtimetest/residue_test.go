package runtimetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// endings are what becomes of a call, and goEndings where it is another in Go.
var (
	endings = map[Ending]string{
		EndComplete: "0", EndFatal: "65", EndTrap: "unreachable", EndDivide: "integer divide by zero",
		EndRecursion: "stack overflow", EndDescent: "out of bounds memory access", EndExit: "exit_code(7)",
		EndLoop: "deadline exceeded", EndMemory: "1", EndGrowth: "0",
	}
	// A library in Go ends its process with a trap after a panic.
	goEndings = map[Ending]string{EndDivide: "unreachable", EndRecursion: "unreachable", EndMemory: "unreachable"}
)

// end calls a residue guest as task 7, and tells its result or its error.
func (i *instance) end(t *testing.T, ending Ending) string {
	t.Helper()
	ctx := t.Context()
	if ending == EndLoop {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	code, output, err := i.handle(ctx, ResidueInput(7, ending))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d%s", code, output)
}

// TestResidue: a residue guest finds nothing in a new instance, ends as it is told, and finds what it left if the
// instance is used again.
func TestResidue(t *testing.T) {
	t.Parallel()
	for name, guest := range map[string]struct {
		build   func(t testing.TB) []byte
		endings []Ending
		finds   []string // after EndComplete, among others
		traps   bool     // when it is used again
	}{
		"C": {C.Residue, C.Endings(), []string{
			"canary of task: 7 at", "pages of memory: ", "static zeros: 512 ", "static values: 512 ", "kept: 6 ",
			"\nglobal: 32 ", "\nglobal: 64 ", "float global: 32 ", "float global: 64 ",
		}, false},
		"Go": {Go.Residue, Go.Endings(), []string{"canary of task: 7 at", "static data", "kept: 6 6, spun"}, true},
		"WAT": {
			func(t testing.TB) []byte { return ResidueWAT(t, false) }, Go.Endings(),
			[]string{"canary", "size", "i32 ", "i64 ", "f32 ", "f64 ", "i32 ex", "i64 ex", "f32 ex", "f64 ex"},
			false,
		},
		"tables": {
			func(t testing.TB) []byte { return ResidueWAT(t, true) }, Go.Endings(), nil, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			binary, cache := guest.build(t), compilations(t)
			for _, ending := range guest.endings {
				t.Run(string(ending), func(t *testing.T) {
					t.Parallel()
					once := instantiate(t, cache, binary)
					first := once.end(t, ending)
					want := endings[ending]
					if name == "Go" && goEndings[ending] != "" {
						want = goEndings[ending]
					}
					if !strings.Contains(first, want) || want == "" {
						t.Errorf("ended with %q, want %q", first, want)
					}
					if once.module.IsClosed() {
						return
					}
					code, output, err := once.handle(t.Context(), ResidueInput(8, EndComplete))
					traps := guest.traps || ending == EndDescent // which leaves no stack
					if err == nil && code != 1 || err != nil && !traps {
						t.Errorf("again: %d with %q, %v", code, output, err)
					}
					for _, what := range guest.finds {
						if ending == EndComplete && !strings.Contains(string(output), what) {
							t.Errorf("did not find %q: %q", what, output)
						}
					}
				})
			}
			warmed := instantiate(t, cache, binary)
			for _, input := range []string{"", "7"} {
				if code, output, err := warmed.handle(t.Context(), []byte(input)); code != 0 || len(output) > 0 || err != nil {
					t.Errorf("warmed with %q: %d with %q, %v", input, code, output, err)
				}
			}
			if got := warmed.end(t, EndComplete); got != endings[EndComplete] {
				t.Errorf("after it was warmed: %q", got)
			}
		})
	}
}
