package runtime

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// soaking tells whether the long versions of tests are wanted, which `make soak` runs.
func soaking() bool { return os.Getenv("QUERN_SOAK") == "full" }

// seeded is the seed of a test's plan. What the goroutines of a test do is planned by it; how they meet is not.
func seeded(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("QUERN_SOAK_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("QUERN_SOAK_SEED=%d", seed)
	return seed
}

// residueTasks is how many tasks each rung gets, of all guests of a test together.
func residueTasks() int {
	if soaking() {
		return 100_000
	}
	return 400
}

// place is one of the four pools of a module: two of each of two tenants. All canaries of its tasks are its own, so
// that who finds one can say whose it is.
type place struct{ tenant, pool string }

var places = []place{{"acme", "cold"}, {"acme", "warm"}, {"zebra", "cold"}, {"zebra", "warm"}}

// crowd is several goroutines that run tasks of one module, and in between do what takes its instances away.
type crowd struct {
	engine *Engine
	module *Module
	seed   uint64
	tasks  int
}

const (
	crowdSize = 3
	// calm is after how many tasks something is taken away, on average.
	calm = 40
)

// run runs the tasks, or until one of them fails.
func (c *crowd) run(t *testing.T, task func(random *rand.Rand) (ok bool)) {
	t.Helper()
	var left atomic.Int64
	left.Store(int64(c.tasks))
	var group sync.WaitGroup
	for worker := range crowdSize {
		group.Go(func() {
			random := rand.New(rand.NewPCG(c.seed, uint64(worker)))
			for left.Add(-1) >= 0 {
				if random.IntN(calm) == 0 {
					c.disturb(t.Context(), random)
				}
				if !task(random) {
					left.Store(0)
				}
			}
		})
	}
	group.Wait()
	if held := c.engine.Holdings(); held.Busy != 0 || held.Stacks != 0 {
		t.Errorf("nothing runs any more, and %+v", held)
	}
}

// disturb takes instances, images and code away, or what they hold.
func (c *crowd) disturb(ctx context.Context, random *rand.Rand) {
	switch random.IntN(5) {
	case 0:
		c.module.Retire("cold")
	case 1:
		c.module.Retire("warm")
	case 2:
		for range 3 { // the third gives back what instances hold that were not needed meanwhile
			c.engine.tidy(ctx, time.Now())
		}
	case 3:
		c.engine.tidy(ctx, time.Now().Add(time.Hour))
	case 4:
		c.engine.Relieve(ctx, 1<<random.IntN(30))
	}
}

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
	// steady guests burn the same fuel for the same ending, whatever instance they get.
	steady bool
	// slow ones are compiled for so long with the race detector that they are left out there. It looks at no guest.
	slow bool
}

// residueGuests are the same in several languages, as handlers and as commands.
func residueGuests() []residueGuest {
	goHandler := map[runtimetest.Ending]end{
		runtimetest.EndDivide: {Trap, 0, "unreachable"}, runtimetest.EndRecursion: {LimitExceeded, 0, "memory"}, runtimetest.EndDescent: {},
	}
	goCommand := maps.Clone(goHandler)
	goCommand[runtimetest.EndDivide] = end{Failed, 2, ""}
	noDescent := map[runtimetest.Ending]end{runtimetest.EndDescent: {}}
	return []residueGuest{
		{name: "C", build: runtimetest.C.Residue, memory: 16 << 20, share: 30, steady: true},
		{name: "C command", build: residueCommandInC, memory: 16 << 20, share: 20, steady: true},
		{
			name: "WAT", build: func(t testing.TB) []byte { return runtimetest.ResidueWAT(t, false) },
			memory: 16 << 20, ends: noDescent, share: 30, steady: true,
		},
		{
			name: "WAT with tables", build: func(t testing.TB) []byte { return runtimetest.ResidueWAT(t, true) },
			memory: 16 << 20, ends: noDescent, share: 6, steady: true,
		},
		{name: "Go", build: runtimetest.Go.Residue, memory: 32 << 20, ends: goHandler, share: 8, slow: true},
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
		#define HANDLER
		static int32_t input_read(uint32_t offset, void *to, uint32_t capacity) { return read(0, to, capacity); }
		static int32_t output_write(const void *from, uint32_t size) { return write(1, from, size); }
		static int32_t error_set(const void *text, uint32_t size) { return write(2, text, size); }
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
	return runtimetest.BuildGo(t, replaced(
		t, runtimetest.Go.HandlerSource(t, "residue"),
		"//go:wasmimport quern_v1 input_read\n", "",
		"to unsafe.Pointer, capacity uint32) int32\n",
		"to unsafe.Pointer, capacity uint32) int32 {\n n, _ := os.Stdin.Read(unsafe.Slice((*byte)(to), capacity))\n return int32(n)\n}\n",
		"//go:wasmimport quern_v1 output_write\n", "",
		"func outputWrite(from unsafe.Pointer, size uint32) int32\n",
		"func outputWrite(from unsafe.Pointer, size uint32) int32 {\n n, _ := os.Stdout.Write(unsafe.Slice((*byte)(from), size))\n return int32(n)\n}\n",
		"//go:wasmimport quern_v1 error_set\n", "",
		"func errorSet(from unsafe.Pointer, size uint32) int32\n",
		"func errorSet(from unsafe.Pointer, size uint32) int32 {\n n, _ := os.Stderr.Write(unsafe.Slice((*byte)(from), size))\n return int32(n)\n}\n",
		"//go:wasmexport quern_handle\n", "",
		"func main() {}", "func main() { os.Exit(int(handle())) }",
	))
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

// TestResidue: a task finds nothing of any other one, whatever those did, however they ended, and whatever became
// of instances in between. It looks in its memory, also where that grows, and in its globals and tables.
func TestResidue(t *testing.T) {
	t.Parallel()
	seed := seeded(t)
	fuel := &fuels{burned: map[string]map[int64]int{}}
	cache := filepath.Join(t.TempDir(), "cache")
	for _, rung := range []Rung{RungScan, RungPagemap, RungCopy, RungNew} {
		t.Run(string(rung), func(t *testing.T) {
			if !works(rung) {
				t.Skip("this rung does not work here")
			}
			engine := setupWith(t, Config{Rung: rung, CacheDir: cache})
			for n, guest := range residueGuests() {
				t.Run(guest.name, func(t *testing.T) {
					if guest.slow && slowdown > 1 {
						t.Skip("with the race detector it is compiled for too long")
					}
					r := &residueRun{
						guest: guest, ends: guest.endsOf(), fuel: fuel, ended: map[end]int{},
						crowd: crowd{engine, loadInto(t, engine, guest.build(t)), seed + uint64(n), residueTasks() * guest.share / 100},
					}
					r.price = r.pilot(t)
					r.run(t, func(random *rand.Rand) bool { return r.task(t, random) })
					t.Logf("rung %s: %s", r.module.Info().Rung, r.summary())
				})
			}
		})
	}
	fuel.check(t)
}

// residueRun is a crowd of tasks of one guest.
type residueRun struct {
	crowd
	guest residueGuest
	ends  map[runtimetest.Ending]end
	price int64 // of a task that completes, in fuel
	fuel  *fuels

	mu    sync.Mutex
	ended map[end]int // how many tasks
}

// pilot runs a task in an instance of its own.
func (r *residueRun) pilot(t *testing.T) (price int64) {
	t.Helper()
	c := Call{Input: runtimetest.ResidueInput(1, runtimetest.EndComplete), Limits: Limits{Memory: r.guest.memory}}
	got := r.module.Run(t.Context(), c)
	complete(t, got)
	return got.Fuel
}

// task runs one task, and is false if it was not as it should be.
func (r *residueRun) task(t *testing.T, random *rand.Rand) bool {
	t.Helper()
	where := random.IntN(len(places))
	number := byte(where<<6 + 1 + random.IntN(63))
	ending := r.ending(random)
	c := Call{
		TaskID: fmt.Sprint(number), Plugin: "residue", Tenant: places[where].tenant, Pool: places[where].pool,
		Input: runtimetest.ResidueInput(number, ending), Limits: Limits{Memory: r.guest.memory},
	}
	if c.Pool == "warm" && r.module.Info().Kind == Handler {
		c.Warm = []byte{0}
	}
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	want := []end{r.ends[ending]}
	if ending == runtimetest.EndLoop || random.IntN(8) == 0 {
		interrupted := r.interrupt(random, &c, stop)
		if want = append(want, interrupted); ending == runtimetest.EndLoop {
			want = want[1:]
		}
	}
	got := r.module.Run(ctx, c)
	r.count(endOf(got))
	if !slices.Contains(want, endOf(got)) || len(got.Output) > 0 || strings.Contains(got.Stderr, "canary") {
		t.Errorf("task %d of pool %s of %s, told to end with %q, ended in another way: %+v, output %q%s",
			number, c.Pool, c.Tenant, ending, got, got.Output, whose(got))
		return false
	}
	if r.guest.steady && len(want) == 1 && ending != runtimetest.EndLoop {
		r.fuel.note(r.guest.name, ending, got.Fuel)
	}
	return true
}

// interrupt makes a call one that is ended early, maybe, and tells how it ends then.
func (r *residueRun) interrupt(random *rand.Rand, c *Call, stop context.CancelCauseFunc) end {
	switch random.IntN(4) {
	case 0:
		c.Timeout = time.Duration(1 + random.Int64N(int64(2*time.Millisecond)))
		return byTimeout
	case 1:
		time.AfterFunc(time.Duration(random.Int64N(int64(2*time.Millisecond))), func() { stop(errDrain) })
		return byCaller
	default: // up to what takes it into its loop
		c.Limits.CPU = time.Duration(1 + random.Int64N(r.price*5/4))
		return byFuel
	}
}

// ending chooses one by the odds.
func (r *residueRun) ending(random *rand.Rand) runtimetest.Ending {
	var all []runtimetest.Ending
	for _, ending := range slices.Sorted(maps.Keys(residueOdds)) {
		if _, has := r.ends[ending]; has || ending == runtimetest.EndLoop {
			all = append(all, slices.Repeat([]runtimetest.Ending{ending}, residueOdds[ending])...)
		}
	}
	return all[random.IntN(len(all))]
}

func (r *residueRun) count(e end) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[e]++
}

func (r *residueRun) summary() string {
	total, parts := 0, []string{}
	for e, n := range r.ended {
		total += n
		parts = append(parts, fmt.Sprintf("%s %d", strings.TrimSpace(fmt.Sprintf("%s %s", e.kind, e.what)), n))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d tasks: %s", total, strings.Join(parts, ", "))
}

var canaryFound = regexp.MustCompile(`canary of task: (\d+)`)

// whose says of canaries that a task has found by whom they were left.
func whose(o Outcome) string {
	var text strings.Builder
	for _, found := range canaryFound.FindAllStringSubmatch(o.Message+o.Stderr+string(o.Output), -1) {
		number, err := strconv.Atoi(found[1])
		if err != nil || number > 0xff {
			continue
		}
		p := places[number>>6]
		fmt.Fprintf(&text, "\nit found a canary of task %d of pool %s of %s", number, p.pool, p.tenant)
	}
	return text.String()
}

// fuels is what steady guests burned for each ending, on all rungs: a task that finds its instance in another state
// than the one before is likely to take another way, also where it does not know.
type fuels struct {
	mu     sync.Mutex
	burned map[string]map[int64]int // how many tasks, by guest and ending
}

func (f *fuels) note(guest string, ending runtimetest.Ending, fuel int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := fmt.Sprintf("%s told to end with %q", guest, ending)
	if f.burned[key] == nil {
		f.burned[key] = map[int64]int{}
	}
	f.burned[key][fuel]++
}

func (f *fuels) check(t *testing.T) {
	t.Helper()
	for key, burned := range f.burned {
		if len(burned) != 1 {
			t.Errorf("%s: fuel = %v, want always the same", key, burned)
		}
	}
}

// TestResidueIsFound: the guests do find what is left. In an instance that is not reset each finds what the task
// before it has left, and those that can say whose it is.
func TestResidueIsFound(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	for _, guest := range residueGuests() {
		t.Run(guest.name, func(t *testing.T) {
			if guest.slow && slowdown > 1 {
				t.Skip("with the race detector it is compiled for too long")
			}
			module := loadInto(t, engine, guest.build(t))
			if module.Info().Rung == RungNew {
				t.Skip("no instance is kept")
			}
			c := Call{Tenant: "acme", Pool: "cold", Limits: Limits{Memory: guest.memory}}
			p := module.pool(&c, c.limits())
			i, ended, _ := p.take(t.Context(), &c)
			if ended != nil {
				t.Fatalf("%+v", ended)
			}
			run := func(task byte) Outcome {
				c.Input = runtimetest.ResidueInput(task, runtimetest.EndComplete)
				r := module.newRun(t.Context(), &c, c.limits(), nil, abi.Running)
				r.meter.start()
				var err error
				i, err = p.call(r, i)
				r.meter.stop()
				return r.finish(err)
			}
			complete(t, run(200))
			got := run(1)
			if (got.Kind != Failed || got.Code != 1) && got.Kind != Trap || !strings.Contains(got.Message+got.Stderr, "canary") {
				t.Errorf("outcome = %+v, want a canary found", got)
			}
			if !strings.HasPrefix(guest.name, "WAT") && !strings.Contains(whose(got), "task 200 of pool warm of zebra") {
				t.Errorf("it found%s in %+v", whose(got), got)
			}
			p.give(i, false)
		})
	}
}
