package runtime

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// bomb is a file that was made to take the host's time or memory while it is loaded.
type bomb struct {
	name string
	file func() []byte
	// want begins the refusal; "" is a module that may be served, for what it costs.
	want string
}

// endBytes closes so many blocks.
func endBytes(n int) []byte { return bytes.Repeat([]byte{0x0b}, n) }

// nest is so many of a block in each other, each with some code at its beginning.
func nest(depth int, block []byte, code func(i int) []byte) []byte {
	var nested []byte
	for i := range depth {
		nested = append(append(nested, block...), code(i)...)
	}
	return append(nested, endBytes(depth)...)
}

// increment adds one to a local.
func increment(local int) []byte {
	n := runtimetest.Number(uint32(local))
	return slices.Concat([]byte{0x20}, n, []byte{0x41, 1, 0x6a, 0x21}, n)
}

// loops are loops in each other, each of which changes another local, and goes on on a condition.
func loops(locals, depth int) []byte {
	code := bytes.TrimSuffix(nest(depth, []byte{0x03, 0x40}, func(i int) []byte { return increment(i % locals) }), endBytes(depth))
	return runtimetest.Locals(locals, append(code, bytes.Repeat([]byte{0x20, 0, 0x0d, 0, 0x0b}, depth)...))
}

// branches leave one block in so many places, with so many locals changed before each.
func branches(locals, places int) []byte {
	code := []byte{0x02, 0x40}
	for i := range places {
		code = append(append(code, increment(i%locals)...), 0x20, 0, 0x0d, 0)
	}
	return runtimetest.Locals(locals, append(code, 0x0b))
}

// manyValues calls a function of 1,000 parameters and results, one time after the other.
func manyValues(calls int) []byte {
	const values = 1000
	types := strings.Repeat(i32, values)
	code := append(bytes.Repeat([]byte{0x41, 0}, values), bytes.Repeat([]byte{0x10, 1}, calls)...)
	through := make([]byte, 0, 3*values)
	for i := range values {
		through = append(append(through, 0x20), runtimetest.Number(uint32(i))...)
	}
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", ""), runtimetest.FunctionType(types, types)),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}, []byte{1}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection,
			runtimetest.Body(append(code, bytes.Repeat([]byte{0x1a}, values)...)...), runtimetest.Body(through...)),
	)
}

// before puts sections into a command in front of its code, in their places.
func before(t testing.TB, sections ...[]byte) []byte {
	t.Helper()
	module := command(nil)
	code := bytes.LastIndexByte(module, runtimetest.CodeSection)
	return slices.Concat(module[:code], slices.Concat(sections...), module[code:])
}

// elements is a passive segment of so many references to function 0.
func elements(n int) []byte {
	contents := append([]byte{1, 0}, runtimetest.Number(uint32(n))...)
	return runtimetest.Section(elementSection, append(contents, make([]byte, n)...))
}

func bombs(t testing.TB) []bomb {
	raw := func(id byte, contents ...byte) []byte {
		return runtimetest.Module(runtimetest.RawSection(id, contents))
	}
	one := func(code ...byte) []byte { return runtimetest.Locals(1, code) }
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	const large = "a module that is too large to serve: "
	return []bomb{
		{"an import count", func() []byte { return raw(runtimetest.ImportSection, huge...) }, "a damaged WebAssembly module: 4294967295 imports do not fit"},
		{"an import count of 14 bytes", func() []byte { return raw(runtimetest.ImportSection, huge...)[:14] }, "a truncated WebAssembly module"},
		{"locals of 29 bytes", func() []byte {
			return runtimetest.Module(
				runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
				runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
				runtimetest.Section(runtimetest.CodeSection, []byte{7, 1, 0x80, 0x84, 0xaf, 0x5f, 0x7f, 0x0b}))
		}, large + "200000000 locals"},
		{"1,000 loops × 200 locals", func() []byte { return loops(200, 1000) }, large},
		{"4,300 loops × 200 locals", func() []byte { return loops(200, 4300) }, large},
		{"700 loops × 214 locals", func() []byte { return loops(214, 700) }, large},
		{"256 loops × 585 locals", func() []byte { return loops(585, 256) }, ""},
		{"8,000 branches × 1,000 locals", func() []byte { return branches(1000, 8000) }, ""},
		{"200,000 functions", func() []byte { return bodies(200_000, bytes.Repeat([]byte{0x01}, 12)) }, ""},
		{"200,001 functions", func() []byte { return bodies(200_001, nil) }, large + "200001 functions"},
		{"a br_table of a huge number", func() []byte { return one(append([]byte{0x41, 0, 0x0e}, huge...)...) }, "a damaged WebAssembly module: 4294967295 labels"},
		{"a br_table of 20,000 labels", func() []byte { return one(branchTable(20_000)...) }, ""},
		{"20,000 blocks", func() []byte {
			return one(nest(20_000, []byte{0x02, 0x40}, func(int) []byte { return nil })...)
		}, large + "20001 blocks in each other"},
		{"19,999 blocks", func() []byte {
			return one(nest(19_999, []byte{0x02, 0x40}, func(int) []byte { return nil })...)
		}, ""},
		{"60,000 types", func() []byte {
			return raw(runtimetest.TypeSection, append(runtimetest.Number(60_000), bytes.Repeat([]byte{0x60, 0, 0}, 60_000)...)...)
		}, large + "60000 types"},
		{"10,000 calls with 1,000 values", func() []byte { return manyValues(10_000) }, ""},
		{"1,000,000 elements", func() []byte { return before(t, elements(1_000_000)) }, large + "1000000 elements"},
		{"names of 64 KB", func() []byte {
			name := runtimetest.Export(strings.Repeat("n", 64_000), runtimetest.FunctionKind, 0)
			exports := [][]byte{runtimetest.Export("_start", runtimetest.FunctionKind, 0)}
			for i := range 400 {
				name[5], name[6], name[7] = byte('a'+i%26), byte('a'+i/26%26), byte('a'+i/676)
				exports = append(exports, slices.Clone(name))
			}
			return runtimetest.Module(
				runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
				runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
				runtimetest.Section(runtimetest.ExportSection, exports...),
				runtimetest.Section(runtimetest.CodeSection, runtimetest.Body()))
		}, ""},
		{"data far outside", func() []byte {
			at := []byte{0, 0x41, 0xff, 0xff, 0xff, 0xff, 0x07, 0x0b}
			return append(command(nil), runtimetest.Section(runtimetest.DataSection, append(at, runtimetest.Name("x")...))...)
		}, "the module cannot be instantiated: "},
	}
}

// compilerEnv names the compile child of a test that runs in a process of its own.
const compilerEnv = "QUERN_TEST_COMPILER"

// cost is what became of a bomb.
type cost struct {
	Name, Refused string
	Processor     time.Duration // of the host and the child
	Host, Child   int64         // the peak of resident memory so far, in bytes
}

const (
	// bombTime is what the compiler may take for a bomb.
	bombTime = 2 * time.Second
	// bombMemory is what a bomb may take of the host and of its compile child, each.
	bombMemory = 1 << 30
)

// TestHostileFiles: a file that was made to take the host's time or memory while it is loaded is refused, or
// taken, within 1 GiB of memory in the host and in its compile child each, and the processor time that the
// compiler may take. That is less here than by default, where it is 5 s up to 170 KiB (TestCompileBudget); a
// second more is for what the host does itself, and for how the system counts.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	var costs []cost
	compiler := os.Getenv(compilerEnv)
	if compiler == "" {
		compiler = compileChild(t)
	}
	if alone(t, &costs, compilerEnv+"="+compiler) {
		for i, b := range bombs(t) {
			c := costs[i]
			t.Logf("%-32s %8v, host %4d MiB, child %4d MiB: %.100s", c.Name, c.Processor.Round(time.Millisecond), c.Host>>20, c.Child>>20, c.Refused)
			if !strings.HasPrefix(c.Refused, b.want) {
				t.Errorf("%s: %s, want %s", b.name, c.Refused, b.want)
			}
			if c.Processor > bombTime+time.Second*slowdown || max(c.Host, c.Child) > bombMemory {
				t.Errorf("%s: it took %v, %d MiB in the host, %d MiB in the compile child", b.name, c.Processor, c.Host>>20, c.Child>>20)
			}
		}
		return
	}
	for _, b := range bombs(t) {
		c := cost{Name: b.name}
		file := b.file()
		before := processorOf(t)
		engine := setupWith(t, Config{Compiler: []string{compiler}, CompileTime: bombTime})
		module, err := engine.Load(context.WithoutCancel(t.Context()), file)
		if err != nil {
			c.Refused = err.Error()
		} else if err := module.Close(t.Context()); err != nil {
			t.Error(err)
		}
		c.Processor = processorOf(t) - before
		c.Host, c.Child = resident(t, "VmHWM"), peakOfChildren(t)
		costs = append(costs, c)
	}
	tell(t, costs)
}

// processorOf is the processor time of this process and of its children that have ended.
func processorOf(t testing.TB) (total time.Duration) {
	t.Helper()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		u := usage(t, who)
		total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return total
}

// peakOfChildren is the most memory that one of the children that have ended had, in bytes.
func peakOfChildren(t testing.TB) int64 {
	t.Helper()
	u := usage(t, syscall.RUSAGE_CHILDREN)
	return int64(u.Maxrss) << 10 //nolint:unconvert // it has 32 bits on other machines
}

func usage(t testing.TB, who int) (u syscall.Rusage) {
	t.Helper()
	if err := syscall.Getrusage(who, &u); err != nil {
		t.Fatal(fmt.Errorf("getrusage: %w", err))
	}
	return u
}
