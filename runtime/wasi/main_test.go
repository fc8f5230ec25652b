package wasi

import (
	"bytes"
	"context"
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

// exited is what recorder.Exit panics with.
type exited uint32

// recorder is a Host that writes down what it is asked for, and does not sleep.
type recorder struct {
	spent          int
	waited         []time.Duration
	stdout, stderr bytes.Buffer
	writes         int
	budget         int // if it is positive: panics with errBroke when more is spent
}

const errBroke = "the guest has spent all that it had"

func (r *recorder) Spend(n int) {
	if r.spent += n; r.budget > 0 && r.spent > r.budget {
		panic(errBroke)
	}
}

func (r *recorder) Wait(d time.Duration) { r.waited = append(r.waited, d) }
func (r *recorder) Exit(code uint32)     { panic(exited(code)) }
func (r *recorder) Stdout(p []byte)      { r.stdout.Write(p); r.writes++ }
func (r *recorder) Stderr(p []byte)      { r.stderr.Write(p); r.writes++ }

// guest calls functions as a guest does.
type guest struct {
	t         testing.TB
	system    *System
	host      *recorder
	mem       api.Memory
	functions map[string]Function
}

// setup makes a guest with so many pages of real memory.
func setup(t testing.TB, pages byte, c Config) *guest {
	t.Helper()
	g := &guest{t: t, host: &recorder{}, mem: newMemory(t, pages), functions: map[string]Function{}}
	c.Host = g.host
	g.system = newSystem(c)
	for _, f := range Functions() {
		g.functions[f.Name] = f
	}
	return g
}

// newMemory is the memory of an instance.
func newMemory(t testing.TB, pages byte) api.Memory {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	t.Cleanup(func() {
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	module, err := rt.Instantiate(ctx, runtimetest.Module(
		runtimetest.Section(runtimetest.MemorySection, []byte{0, pages}),
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
	f := g.functions[name]
	if len(arguments) != len(f.Params) {
		g.t.Fatalf("%s has %d parameters", name, len(f.Params))
	}
	stack := append(make([]uint64, 0, 9), arguments...)[:max(1, len(arguments))]
	f.Call(g.system, g.mem, stack)
	if stack[0] > 76 {
		g.t.Errorf("%s%d answers %d", name, arguments, stack[0])
	}
	return errno(stack[0])
}

// must calls a function that has to succeed.
func (g *guest) must(name string, arguments ...uint64) {
	g.t.Helper()
	if e := g.call(name, arguments...); e != errnoSuccess {
		g.t.Fatalf("%s%d = %d", name, arguments, e)
	}
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

// vectors writes an array of vectors, each a pointer and a length.
func (g *guest) vectors(at uint32, vectors ...[2]uint32) (pointer, count uint64) {
	g.t.Helper()
	for i, v := range vectors {
		g.u32(at+uint32(i)*8, v[0])
		g.u32(at+uint32(i)*8+4, v[1])
	}
	return uint64(at), uint64(len(vectors))
}

func (g *guest) u32(at, value uint32) {
	g.t.Helper()
	if !g.mem.WriteUint32Le(at, value) {
		g.t.Fatalf("no memory at %d", at)
	}
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

func (g *guest) get32(at uint32) uint32 { g.t.Helper(); return le.Uint32(g.get(at, 4)) }
func (g *guest) get64(at uint32) uint64 { g.t.Helper(); return le.Uint64(g.get(at, 8)) }

// open opens a path below the root for reading.
func (g *guest) open(path string) uint64 {
	g.t.Helper()
	at, n := g.put(60000, path)
	g.must("path_open", 3, 0, at, n, 0, rightFdRead, 0, 0, 59996)
	return uint64(g.get32(59996))
}

// tree has a file in the root, two in a directory, and one that is empty further down.
func tree(t testing.TB) *Files {
	t.Helper()
	files, err := NewFiles(map[string][]byte{
		"/a":           []byte("alpha"),
		"/dir/one":     []byte("0123456789"),
		"/dir/two":     []byte("2"),
		"/dir/sub/nil": nil,
		"/ä ö":         []byte("ü"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// ending runs f and returns what it panicked with.
func ending(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}
