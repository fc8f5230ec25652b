package host

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// bulkyManifest lets a bulky handler have 6 MiB in all.
const bulkyManifest = "limits: {memory: 5MiB, input: 512KiB, output: 512KiB}"

// bulkyNode serves so many bulky handlers, each on a queue of its own.
func bulkyNode(t *testing.T, handlers int, config Config) (n *node, queues []string) {
	t.Helper()
	s := settings{Config: config, engine: runtime.Config{IdleUnload: -1}, guests: make(map[string][]byte), yaml: make(map[string]string)}
	for i := range handlers {
		name := fmt.Sprint("q", i+1)
		queues = append(queues, name)
		s.guests[name], s.yaml[name] = bulky(t, fmt.Sprint(i+1)), bulkyManifest
	}
	n = start(t, s)
	n.settled(queues...)
	return n, queues
}

// What is idle makes room for tasks, and only that: four handlers of which each keeps 4 MiB between
// its tasks run in a budget that holds three.
func TestIdleMemoryMakesRoom(t *testing.T) {
	t.Parallel()
	const budget = 15 << 20
	n, queues := bulkyNode(t, 4, Config{Memory: budget, Concurrency: 8})
	for round := range 3 {
		for _, name := range queues {
			n.enqueueMany(name, 3, "")
		}
		for _, name := range queues {
			n.count(name, queue.Complete, int64(3*(round+1)))
		}
	}
	n.eventually("idle memory is given back", func() bool { return n.log.has("evicted idle memory") })
	n.eventually("the budget holds", func() bool { return n.engine.Held() <= budget })
}

// A budget that holds a task, but not what is kept beside it, is enough, however slow.
func TestMemoryForNothingBesideATask(t *testing.T) {
	t.Parallel()
	n, queues := bulkyNode(t, 2, Config{Memory: 6 << 20, Concurrency: 4})
	for _, name := range queues {
		n.enqueueMany(name, 10, "")
	}
	for _, name := range queues {
		n.count(name, queue.Complete, 10)
	}
}

// stubborn is a cache where nothing is idle, ever.
type stubborn int64

func (s stubborn) Held() int64                          { return int64(s) }
func (s stubborn) Relieve(context.Context, int64) int64 { return 0 }

// Where what is held cannot be given back and leaves no room, tasks run all the same. That is said once.
func TestMemoryThatIsNotGivenBack(t *testing.T) {
	t.Parallel()
	n, queues := bulkyNode(t, 2, Config{Memory: 15 << 20, Concurrency: 4, Cache: stubborn(10 << 20)})
	for _, name := range queues {
		n.enqueueMany(name, 4, "")
	}
	for _, name := range queues {
		n.count(name, queue.Complete, 4)
	}
	if got := n.log.lines("memory is too small"); got != 1 {
		t.Errorf("it was said %d times that the memory is too small", got)
	}
}

// What is loaded counts without any task as well: of plugins whose code takes more than the budget, each runs
// all the same.
func TestBudgetWithoutTasks(t *testing.T) {
	t.Parallel()
	const plugins, budget = 100, 70 << 10
	s := settings{
		Config: Config{Memory: budget}, engine: runtime.Config{IdleUnload: -1},
		guests: make(map[string][]byte), yaml: make(map[string]string),
	}
	var queues []string
	for i := range plugins {
		name := fmt.Sprint("q", i)
		queues = append(queues, name)
		s.guests[name], s.yaml[name] = tiny(i), "limits: {memory: 64KiB, input: 1KiB, output: 1KiB}"
	}
	n := start(t, s)
	n.serving(queues...)
	n.eventually("the budget holds", func() bool { return n.engine.Held() <= budget })
	n.eventually("idle memory is given back", func() bool { return n.log.has("evicted idle memory") })
	for _, name := range queues[:10] {
		n.enqueue(name, "")
	}
	for _, name := range queues[:10] {
		n.count(name, queue.Complete, 1)
	}
	n.eventually("the budget holds again", func() bool { return n.engine.Held() <= budget })
}

// How long granting takes on a host that is near its bound, beside few plugins and beside many.
func BenchmarkGrantNearTheBound(b *testing.B) {
	for _, modules := range []int{1, 1000} {
		b.Run(fmt.Sprintf("plugins=%d", modules), func(b *testing.B) { benchmarkGrant(b, modules) })
	}
}

// benchmarkGrant grants and takes back, while the evictor measures as often as it may.
func benchmarkGrant(b *testing.B, modules int) {
	engine := openEngine(b, runtime.Config{CacheDir: b.TempDir(), IdleUnload: -1})
	for i := range modules {
		module, err := engine.Load(b.Context(), tiny(i))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = module.Close(context.Background()) })
		if got := module.Bind(runtime.Profile{Tenant: "tenant"}).Run(b.Context(), runtime.Call{}); got.Kind != runtime.Complete {
			b.Fatalf("%+v", got)
		}
	}
	cache := &counting{Engine: engine}
	version, listener := schedule.Version{Code: noCode{}, Plugin: schedule.Plugin{Name: "p"}, Memory: 96 << 20}, noListener{}
	scheduler := schedule.New(schedule.Config{
		Slots: 8, Guests: 2, Memory: 16 * 96 << 20, Account: account.New(0), MaxReserve: listen.MaxReserve, MaxSettle: batchTasks,
		Acquire: func(schedule.Queue) *schedule.Version { return &version }, Running: func(int) {}, Wake: func() {},
	})
	scheduler.Serve(schedule.Queue{Tenant: "t", Name: "q0"}, listener)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { schedule.NewEvictor(scheduler, cache).Run(ctx); close(ended) }()
	begun, slowest := time.Now(), time.Duration(0)
	for b.Loop() {
		at := time.Now()
		round := scheduler.Plan(at)
		slowest = max(slowest, time.Since(at))
		for _, work := range round.Work {
			for _, a := range work.Allocations {
				var tasks []schedule.Task
				for range a.Slots() {
					tasks = append(tasks, &task{Slot: a.Slot(at)})
				}
				for _, t := range scheduler.Reserved(a, tasks, schedule.Reply{}, at) {
					scheduler.Ended(&taskOf(t).Slot, schedule.Run{Took: time.Hour, Computed: time.Hour}, at)
					scheduler.Settled(&taskOf(t).Slot)
				}
			}
		}
	}
	b.ReportMetric(float64(cache.measured.Load())/time.Since(begun).Seconds(), "measured/s")
	b.ReportMetric(float64(cache.took.Load())/float64(time.Since(begun))*100, "%measuring")
	b.ReportMetric(float64(slowest.Microseconds()), "slowest-µs")
	stop()
	<-ended
}

// noCode is a plugin that keeps nothing, noListener one that reserves whatever the test answers.
type (
	noCode     struct{}
	noListener struct{}
)

func (noCode) PendingSnapshot() int64                          { return 0 }
func (noCode) Release()                                        {}
func (noListener) State(time.Time) (available, reserving bool) { return true, false }
func (noListener) AddAhead(int)                                {}

// counting counts how often an engine is measured, and how long that takes.
type counting struct {
	*runtime.Engine
	measured, took atomic.Int64
}

func (c *counting) Held() int64 {
	begun := time.Now()
	defer func() { c.measured.Add(1); c.took.Add(int64(time.Since(begun))) }()
	return c.Engine.Held()
}

// tiny is a handler that is made without a compiler, each number another one.
func tiny(number int) []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "\x7f")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.MemorySection, []byte{0, 1}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("quern_handle", 0, 0), runtimetest.Export("memory", 2, 0)),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(0x41, 0)),
		runtimetest.Section(runtimetest.DataSection, append([]byte{0, 0x41, 0, 0x0b}, runtimetest.Name(fmt.Sprint(number))...)),
	)
}
