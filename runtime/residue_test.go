package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
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

// residueTasks is how many tasks each reset mode gets, of all guests of a test together.
func residueTasks() int {
	switch {
	case soaking():
		return 100_000
	case slowdown > 1:
		return 200
	default:
		return 400
	}
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
	// peace is after how many tasks something is taken away, on average.
	peace = 40
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
				if random.IntN(peace) == 0 {
					c.disturb(t.Context(), random)
				}
				if !task(random) {
					left.Store(0)
				}
			}
		})
	}
	group.Wait()
	calm(t, c.engine)
}

// calm waits until nothing runs any more, and nothing is held for what ran. A snapshot is built to its end, or for a while, also
// when the calls that waited for it are gone: it is no busy call, but has a stack.
func calm(t *testing.T, engine *Engine) {
	t.Helper()
	until(t, func() bool { held := engine.Holdings(); return held.Busy == 0 && held.Stacks == 0 })
}

// disturb takes instances, snapshots and code away, or what they hold.
func (c *crowd) disturb(ctx context.Context, random *rand.Rand) {
	switch random.IntN(5) {
	case 0:
		retire(c.module, "cold")
	case 1:
		retire(c.module, "warm")
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

// TestResidue: a task finds nothing of any other one, whatever those did, however they ended, and whatever became
// of instances in between. It looks in its memory, also where that grows, and in its globals and tables.
func TestResidue(t *testing.T) {
	t.Parallel()
	seed := seeded(t)
	fuel := newFuels()
	t.Cleanup(func() { fuel.check(t) }) // after all resetModes
	guests := residueGuests()
	var binaries [][]byte
	for _, guest := range guests {
		if !guest.leftOut() {
			binaries = append(binaries, guest.build(t))
		}
	}
	eachResetMode(t, func(t *testing.T, engine *Engine) {
		for n, guest := range guests {
			t.Run(guest.name, func(t *testing.T) {
				if guest.leftOut() {
					t.Skip("with the race detector it is compiled for too long")
				}
				r := &residueRun{
					guest: guest, ends: guest.endsOf(), fuel: fuel, ended: map[end]int{},
					crowd: crowd{engine, loadInto(t, engine, guest.build(t)), seed + uint64(n), residueTasks() * guest.share / 100},
				}
				r.price = r.pilot(t)
				if r.module.Info().ResetMode != ResetNew {
					r.isFound(t)
				}
				if n == 0 {
					r.overflows(t)
				}
				r.run(t, func(random *rand.Rand) bool { return r.task(t, random) })
				t.Logf("reset mode %s: %s", r.module.Info().ResetMode, r.summary())
			})
		}
	}, binaries...)
}

// residueRun is a crowd of tasks of one guest.
// placedCall is a call in the pool of a place. Its limits may differ from those that the pool was bound with, as the fuel does.
type placedCall struct {
	Call
	Profile
	pool string
}

// run runs the call, in the next pool if the one of its place was closed before it began.
func (c *placedCall) run(ctx context.Context, m *Module) Outcome {
	for {
		p := bound(m, c.pool, c.Profile)
		limits := p.limitsOf(&c.Call)
		limits.CPU = c.Limits.CPU
		if got := p.run(ctx, &c.Call, limits); !errors.Is(got.Err, errPoolClosed) || got.Kind != HostFault {
			return got
		}
	}
}

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
	got := bound(r.module, "", Profile{Limits: Limits{Memory: r.guest.memory}}).Run(t.Context(), Call{Input: runtimetest.ResidueInput(1, runtimetest.EndComplete)})
	complete(t, got)
	return got.Fuel
}

// task runs one task of the plan, and is false if it was not as it should be.
func (r *residueRun) task(t *testing.T, random *rand.Rand) bool {
	t.Helper()
	where, ending := random.IntN(len(places)), r.ending(random)
	c := r.call(where, 1+random.IntN(63), ending)
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	want := []end{r.ends[ending]}
	if ending == runtimetest.EndLoop || random.IntN(8) == 0 {
		interrupted := r.interrupt(random, &c, stop)
		if want = append(want, interrupted); ending == runtimetest.EndLoop {
			want = want[1:]
		}
	}
	return r.runs(ctx, t, c, want...)
}

// call is one of those in a place.
func (r *residueRun) call(where, number int, ending runtimetest.Ending) placedCall {
	number |= where << 6
	c := placedCall{
		Call:    Call{TaskID: fmt.Sprint(number), Plugin: "residue", Input: runtimetest.ResidueInput(byte(number), ending)},
		Profile: Profile{Tenant: places[where].tenant, Limits: Limits{Memory: r.guest.memory}},
		pool:    places[where].pool,
	}
	if c.pool == "warm" && r.module.Info().Kind == Handler {
		c.Warm = []byte{0}
	}
	return c
}

// runs runs a task, and is false if it did not end in one of the ways that it may.
func (r *residueRun) runs(ctx context.Context, t *testing.T, c placedCall, want ...end) bool {
	t.Helper()
	got := c.run(ctx, r.module)
	r.count(endOf(got))
	if !slices.Contains(want, endOf(got)) || len(got.Output) > 0 || strings.Contains(got.Stderr, "canary") {
		t.Errorf("task %s of pool %s of %s, told to end with %q, ended in another way: %+v, output %q%s",
			c.TaskID, c.pool, c.Tenant, c.Input[1], got, got.Output, whose(got))
		return false
	}
	if r.guest.steady && len(want) == 1 && want[0] == r.ends[runtimetest.Ending(c.Input[1])] {
		r.fuel.note(r.guest.name, c.Input[1], got.Fuel)
	}
	return true
}

// overflows runs a task that overflows its stack, and another one after it.
func (r *residueRun) overflows(t *testing.T) {
	t.Helper()
	for number, ending := range []runtimetest.Ending{runtimetest.EndRecursion, runtimetest.EndComplete} {
		r.runs(t.Context(), t, r.call(0, 1+number, ending), r.ends[ending])
	}
}

// interrupt makes a call one that is ended early, maybe, and tells how it ends then.
func (r *residueRun) interrupt(random *rand.Rand, c *placedCall, stop context.CancelCauseFunc) end {
	switch random.IntN(4) {
	case 0:
		c.Timeout = time.Duration(1 + random.Int64N(int64(2*time.Millisecond)))
		return byTimeout
	case 1:
		time.AfterFunc(time.Duration(random.Int64N(int64(2*time.Millisecond))), func() { stop(errDrain) })
		return byCaller
	default:
		// From where it looks to where it is in its loop. A pool's snapshot is built within the limits
		// that the pool was bound with: this one is far above what any guest begins with.
		c.Limits.CPU = time.Duration(r.price/4 + random.Int64N(r.price))
		return byFuel
	}
}

// ending chooses one by the odds.
func (r *residueRun) ending(random *rand.Rand) runtimetest.Ending {
	var all []runtimetest.Ending
	for _, ending := range slices.Sorted(maps.Keys(residueOdds)) {
		if slowdown > 1 && ending == runtimetest.EndRecursion {
			continue // it takes a second with the race detector
		}
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
		what := string(e.kind)
		if e.what != "" {
			what += " (" + e.what + ")"
		} else if e.code != 0 {
			what += fmt.Sprintf(" (%d)", e.code)
		}
		parts = append(parts, fmt.Sprintf("%s %d", what, n))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d tasks: %s", total, strings.Join(parts, ", "))
}

var canaryFound = regexp.MustCompile(`(?:canary of task|new memory): (\d+|0x[0-9a-f]+)`)

// whose says of canaries that a task has found by whom they were left.
func whose(o Outcome) string {
	var text strings.Builder
	for _, found := range canaryFound.FindAllStringSubmatch(o.Message+o.Stderr+string(o.Output), -1) {
		number, err := strconv.ParseUint(found[1], 0, 8)
		if err != nil {
			continue
		}
		p := places[number>>6]
		fmt.Fprintf(&text, "\nit found a canary of task %d of pool %s of %s", number, p.pool, p.tenant)
	}
	return text.String()
}

// fuels is what steady guests burned for each ending, on all resetModes: a task that finds its instance in another state
// than the one before is likely to take another way, also where it does not know.
type fuels struct {
	mu     sync.Mutex
	burned map[string]map[int64]int // how many tasks, by guest and ending
}

func newFuels() *fuels { return &fuels{burned: map[string]map[int64]int{}} }

func (f *fuels) note(guest string, ending byte, fuel int64) {
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

// isFound holds the guest to what it is there for: in an instance that is not reset it finds what the task before it has
// left, and says whose it is.
func (r *residueRun) isFound(t *testing.T) {
	t.Helper()
	p, c := r.module.Bind(Profile{Tenant: "acme", Limits: Limits{Memory: r.guest.memory}}), Call{}
	i, _, ended := p.acquire(t.Context(), &c, time.Now())
	if ended != nil {
		t.Fatalf("%+v", ended)
	}
	run := func(task byte) Outcome {
		c.Input = runtimetest.ResidueInput(task, runtimetest.EndComplete)
		now := time.Now()
		once := p.newRun(t.Context(), &c, p.limits, nil, abi.Running, now)
		var err error
		i, _, err = p.invoke(once, &c, i, now, (*instance).callTask)
		return once.finish(err)
	}
	complete(t, run(200))
	got := run(1)
	found := got.Message + got.Stderr
	switch {
	case r.guest.finds == nil:
		if got.Kind == Complete {
			t.Errorf("outcome = %+v without a reset", got)
		}
	case got.Kind == Complete || !r.guest.finds.MatchString(found):
		t.Errorf("outcome = %+v without a reset, want %s found", got, r.guest.finds)
	case strings.Contains(found, "task:") && !strings.Contains(whose(got), "task 200 of pool warm of zebra"):
		t.Errorf("it does not say whose it is: %+v", got)
	}
	p.release(i, false, 0, time.Now())
}
