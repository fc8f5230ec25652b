package abi

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"go.uber.org/goleak"

	"github.com/quern-project/quern/runtime/runtimetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// newSystem returns the system of one call.
func newSystem(c Config) *System {
	s := &System{}
	s.Init(c)
	return s
}

// account is a Host that keeps books: it takes output up to a limit, and ends the guest when its budget is
// spent.
type account struct {
	spent, most int // in all, and at once
	budget      int // if it is positive: panics with errBroke when more is spent
	output      bytes.Buffer
	writes      int
	limit       int // of output
	reserved    int
	fuel        int64
	lines       []string // logged
	told        []string // progress
	waited      time.Duration
	refused     []string
	revealed    []string
	failed      error
	code        uint32 // of Exit
}

func (h *account) Log(text, fields string) { h.lines = append(h.lines, text+fields) }
func (h *account) Progress(fraction float64, m string) {
	h.told = append(h.told, fmt.Sprint(fraction, " ", m))
}
func (h *account) Wait(d time.Duration)           { h.waited += d }
func (h *account) Do(f func(ctx context.Context)) { f(context.Background()) }
func (h *account) Reveal(name string, value []byte) {
	h.revealed = append(h.revealed, name+"="+string(value))
}
func (h *account) Fail(err error)   { h.failed = err; panic(errBroke) }
func (h *account) Exit(code uint32) { h.code = code; panic(errBroke) }
func (h *account) Refused(function string, err error) string {
	h.refused = append(h.refused, fmt.Sprint(function, ": ", err))
	return ModuleName + "." + h.refused[len(h.refused)-1]
}

const errBroke = "the guest has spent all that it had"

func (h *account) Spend(n int) {
	h.most = max(h.most, n)
	if h.spent += n; h.budget > 0 && h.spent > h.budget {
		panic(errBroke)
	}
}

func (h *account) Output(p []byte) bool {
	h.writes++
	if h.output.Len()+h.reserved+len(p) > h.limit {
		return false
	}
	h.output.Write(p)
	return true
}

func (h *account) Reserve(n int) bool {
	if h.output.Len()+h.reserved+n > h.limit {
		return false
	}
	h.reserved += n
	return true
}

func (h *account) FuelLeft() int64 { return h.fuel }

// guest calls functions as a guest does.
type guest struct {
	t         testing.TB
	system    *System
	host      *account
	mem       api.Memory
	functions map[string]Function
}

// setup makes a guest with so many pages of real memory, whose output is at most 1 MiB.
func setup(t testing.TB, pages uint32, c Config) *guest {
	t.Helper()
	g := &guest{t: t, host: &account{limit: 1 << 20}, mem: newMemory(t, pages), functions: map[string]Function{}}
	c.Host, c.Reporter = g.host, g.host
	g.system = newSystem(c)
	for _, f := range Functions() {
		g.functions[f.Name] = f
	}
	return g
}

// newMemory is the memory of an instance.
func newMemory(t testing.TB, pages uint32) api.Memory {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	t.Cleanup(func() {
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	module, err := rt.Instantiate(ctx, runtimetest.Module(
		runtimetest.Section(runtimetest.MemorySection, append([]byte{0}, runtimetest.Number(pages)...)),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("memory", runtimetest.MemoryKind, 0)),
	))
	if err != nil {
		t.Fatal(err)
	}
	return module.Memory()
}

// call calls a function and returns its answer.
func (g *guest) call(name string, arguments ...uint64) errno {
	g.t.Helper()
	f, ok := g.functions[name]
	if !ok || len(arguments) != len(f.Params) {
		g.t.Fatalf("%s has %d parameters", name, len(f.Params))
	}
	stack := append(make([]uint64, 0, 4), arguments...)[:max(1, len(arguments))]
	f.Call(g.system, g.mem, stack)
	if stack[0]>>32 != 0 {
		g.t.Errorf("%s%d answers %#x, which is no i32", name, arguments, stack[0])
	}
	return errno(int32(uint32(stack[0])))
}

// answers compares an answer.
func (g *guest) answers(want errno, name string, arguments ...uint64) {
	g.t.Helper()
	if e := g.call(name, arguments...); e != want {
		g.t.Errorf("%s%d = %d, want %d", name, arguments, e, want)
	}
}

// put writes into the guest's memory and returns pointer and length.
func (g *guest) put(at uint32, text string) (pointer, length uint64) {
	g.t.Helper()
	if !g.mem.WriteString(at, text) {
		g.t.Fatalf("%d bytes at %d do not fit", len(text), at)
	}
	return uint64(at), uint64(len(text))
}

// get returns what lies in memory.
func (g *guest) get(at, n uint32) []byte {
	g.t.Helper()
	b, ok := g.mem.Read(at, n)
	if !ok {
		g.t.Fatalf("no %d bytes at %d", n, at)
	}
	return bytes.Clone(b)
}

func (g *guest) get64(at uint32) int64 {
	g.t.Helper()
	return int64(binary.LittleEndian.Uint64(g.get(at, 8)))
}

// holds compares what lies in memory, and that nothing but it is written: all else is zero.
func (g *guest) holds(at int, want string) {
	g.t.Helper()
	all := g.get(0, g.mem.Size())
	expected := make([]byte, len(all))
	copy(expected[at:], want)
	if i := mismatch(all, expected); i >= 0 {
		g.t.Errorf("memory differs at %d from %.20q at %d", i, want, at)
	}
}

// mismatch is where two of the same length first differ, -1 if they do not.
func mismatch(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	i := 0
	for a[i] == b[i] {
		i++
	}
	return i
}

// clear makes all of the memory zero.
func (g *guest) clear() {
	g.t.Helper()
	all, ok := g.mem.Read(0, g.mem.Size())
	if !ok {
		g.t.Fatal("no memory")
	}
	clear(all)
}

// ending runs f and returns what it panicked with.
func ending(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}
