package runtime

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

const page = 64 << 10

func TestMemory(t *testing.T) {
	t.Parallel()
	m := &memory{limit: 3 * page, declared: MaxMemory}
	linear := m.Allocate(page, 100*page)
	first := linear.Reallocate(page)
	if len(first) != page {
		t.Fatalf("%d bytes, want a page", len(first))
	}
	first[0] = 1
	grown := linear.Reallocate(3 * page)
	if len(grown) != 3*page || &grown[0] != &first[0] {
		t.Fatalf("%d bytes, want three pages at the same place", len(grown))
	}
	if m.refused != 0 || linear.Reallocate(3*page+1) != nil || m.refused != 3*page+1 {
		t.Errorf("refused = %d, want a refusal over the limit and none below", m.refused)
	}
	linear.Free()
	if grown[0] != 1 {
		t.Error("Free has taken the memory from under a call")
	}
	if err := m.release(); err != nil {
		t.Error(err)
	}
	if err := m.release(); err != nil {
		t.Errorf("second release: %v", err)
	}
}

func TestMemoryDeclaredMaximum(t *testing.T) {
	t.Parallel()
	m := &memory{limit: 100 * page, declared: 2 * page}
	linear := m.Allocate(page, 3*page)
	if len(m.space.Bytes()) != 2*page {
		t.Errorf("%d bytes are reserved, want the declared maximum", len(m.space.Bytes()))
	}
	if linear.Reallocate(3*page) != nil || m.refused != 0 {
		t.Errorf("refused = %d, want a growth above the maximum refused, and not for the limit", m.refused)
	}
	if err := m.release(); err != nil {
		t.Error(err)
	}
}

func TestMemoryNone(t *testing.T) {
	t.Parallel()
	m := &memory{limit: page, declared: page}
	if got := m.Allocate(0, 0).Reallocate(0); len(got) != 0 || m.refused != 0 || m.err != nil {
		t.Errorf("%d bytes, %+v, want none", len(got), m)
	}
	if err := m.release(); err != nil {
		t.Error(err)
	}
}

// TestMemoryIsReleased: however a call ends, its memory is given back. Each call reserves a GiB of
// addresses, so a leak shows in the size of the process at once.
func TestMemoryIsReleased(t *testing.T) {
	engine := setup(t) // not parallel: other tests map memory too
	exit, loop := loadInto(t, engine, runtimetest.Exit(t)), loadInto(t, engine, runtimetest.Loop(t))
	trap := loadInto(t, engine, runtimetest.Trap(t))
	limits := Limits{Memory: 1 << 30}
	before := addresses(t)
	for range 20 {
		call(t, exit, "0", limits)
		call(t, exit, "1", limits)
		call(t, trap, "unreachable", limits)
		call(t, loop, "", Limits{Memory: 1 << 30, Timeout: 1})
	}
	if after := addresses(t); after > before+20<<30 {
		t.Errorf("%d bytes of addresses before, %d after 80 calls", before, after)
	}
}

// addresses is the size of this process in bytes, where the system tells it. (The number of its
// mappings would tell nothing: the kernel makes one of those that touch.)
func addresses(t *testing.T) int {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[0])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestMemoryAll: a guest gets all that a memory may have and no page more, whatever its limit says, and uses it.
func TestMemoryAll(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildWAT(t, `(module (memory (export "memory") 1) (func (export "quern_handle") (result i32)
		(if (i32.ne (memory.grow (i32.const 32767)) (i32.const 1)) (then unreachable))
		(if (i32.ne (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
		(i32.store (i32.const 0x7ffffffc) (i32.const 1))
		(i32.store (i32.const 0) (i32.const 1))
		(i32.const 0)))`))
	p := module.Bind(Profile{Limits: Limits{Memory: 4 << 30}})
	for range 3 {
		complete(t, p.Run(t.Context(), Call{}))
	}
	if p.resetMode != ResetNew && len(p.idle) != 1 {
		t.Errorf("%d instances are idle, want the one", len(p.idle))
	}
}

// TestMemoryCannotBeMapped: a mapping that fails is no refusal that a guest is to blame for.
func TestMemoryCannotBeMapped(t *testing.T) {
	t.Parallel()
	const most = 1 << 62 // no system has as many addresses
	m := &memory{limit: most, declared: most}
	if got := m.Allocate(0, most).Reallocate(page); got != nil || m.err == nil || m.refused != 0 {
		t.Fatalf("%d bytes, %+v, want an error and no refusal", len(got), m)
	}
}
