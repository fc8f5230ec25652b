package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// pluginsFor runs a directory for the length of the test: a plugin for each manifest. The test fails
// if a version is not released.
func pluginsFor(t testing.TB, yaml map[string]string) *plugins.Directory {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	for name, manifest := range yaml {
		n.install(name, runtimetest.Empty(t))
		n.write(name+".yaml", []byte(manifest))
	}
	directory := openDirectory(t, openEngine(t, runtime.Config{}), n.dir, settings{tenants: []string{"t"}}, nil)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- directory.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		waiting, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		select {
		case <-ended:
		case <-waiting.Done():
			t.Error("the plugin directory did not end: a version is still held")
		}
	})
	<-directory.Ready()
	return directory
}

// newTestSource is a source that never speaks to Redis.
func newTestSource(t testing.TB) *intake {
	t.Helper()
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &intake{ahead: new(atomic.Int64), tasks: &taskSet{tasks: make(map[string]*task)}, health: newHealth(m, hclog.NewNullLogger(), func() {})}
}

// rig is a scheduler with the queues q0, q1, ... and no Redis: the test plays the intake.
type rig struct {
	*scheduler
	source  *intake
	queues  []place
	running []*task
	ended   []*task
	gauge   int
	now     time.Time // of pick
}

func newRig(t *testing.T, slots int, memory int64, directory *plugins.Directory, queues int) *rig {
	t.Helper()
	r := &rig{source: newTestSource(t)}
	r.scheduler = newScheduler(directory.Acquire, Config{Concurrency: slots, Memory: memory}.withDefaults(), func(running int) { r.gauge = running })
	for i := range queues {
		r.queues = append(r.queues, place{"t", fmt.Sprintf("q%d", i)})
		r.serve(r.queues[i], r.source)
	}
	return r
}

// answer plays Redis for one grant: it brings count tasks.
func (r *rig) answer(g *allocation, count int, batch listen.ReserveReply) []*task {
	var tasks []*task
	for range count {
		g.version.Retain()
		tasks = append(tasks, &task{slot: slot{served: g.served, version: g.version}, taken: r.now})
	}
	begun := r.close(g, tasks, batch)
	r.running = append(r.running, begun...)
	return begun
}

// pick allocates the free slots.
func (r *rig) pick() round {
	picked := r.allocate(r.now)
	for _, a := range picked.idle {
		a.release()
	}
	return picked
}

// finish ends one running task and settles it.
func (r *rig) finish(i int) {
	t := r.running[i]
	r.running = append(r.running[:i], r.running[i+1:]...)
	r.scheduler.ended(&t.slot, 0, time.Hour, 0, r.now)
	t.version.Release()
	r.settled(&t.slot)
}

// A queue that gets one task while another has a backlog is served with the next slot that is free.
func TestNextSlotGoesToWhoHasNone(t *testing.T) {
	t.Parallel()
	directory := pluginsFor(t, map[string]string{"p": "queues: [q0, q1]"})
	for _, slots := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, slots, 0, directory, 2)
			backlog := func() (served int) {
				for _, g := range r.pick().allocations {
					if g.served.place == r.queues[0] {
						r.answer(g, len(g.shares), listen.ReserveReply{})
						continue
					}
					served += len(r.answer(g, min(1, len(g.shares)), listen.ReserveReply{}))
				}
				return served
			}
			r.empty(r.queues[1], r.wakes.Load())
			for range 3 * slots { // a backlog, served for a while
				backlog()
				r.finish(0)
			}
			backlog()
			r.wake(r.queues[1])
			if backlog() != 0 {
				t.Fatal("served without a free slot")
			}
			r.finish(0)
			if backlog() != 1 {
				t.Error("the next free slot went to the backlog")
			}
			for len(r.running) > 0 {
				r.finish(0)
			}
		})
	}
}

// Many queues that all have a backlog get the same number of slots.
func TestManyQueuesShareAlike(t *testing.T) {
	t.Parallel()
	const count, rounds = 100, 10
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("q%d", i)
	}
	directory := pluginsFor(t, map[string]string{"p": "queues: [" + strings.Join(names, ", ") + "]"})
	r := newRig(t, 4, 0, directory, count)
	served := make(map[place]int)
	for total := 0; total < count*rounds; {
		for _, g := range r.pick().allocations {
			served[g.served.place] += len(g.shares)
			total += len(g.shares)
			r.answer(g, len(g.shares), listen.ReserveReply{})
		}
		r.finish(total % len(r.running))
	}
	for _, at := range r.queues {
		if served[at] < rounds-1 || served[at] > rounds+1 {
			t.Errorf("%s was served %d times, want about %d", at.queue, served[at], rounds)
		}
	}
	for len(r.running) > 0 {
		r.finish(0)
	}
}

// A plugin's own bound holds for all its queues together, also when they are left and come back.
func TestBoundOfAPlugin(t *testing.T) {
	t.Parallel()
	r := newRig(t, 10, 0, pluginsFor(t, map[string]string{"p": "{queues: [q0, q1], concurrency: 3}"}), 2)
	all := func() (shares int) {
		for _, g := range r.pick().allocations {
			shares += len(r.answer(g, len(g.shares), listen.ReserveReply{}))
		}
		return shares
	}
	if got := all(); got != 3 {
		t.Errorf("%d slots for a plugin that may have 3", got)
	}
	for _, at := range r.queues {
		r.leave(at)
		r.serve(at, r.source)
	}
	if got := all(); got != 0 {
		t.Errorf("%d more slots after the queues came back", got)
	}
	r.finish(0)
	if got := all(); got != 1 {
		t.Errorf("%d slots after one task has ended, want 1", got)
	}
	for len(r.running) > 0 {
		r.finish(0)
	}
}

// Results that Redis does not take hold back new tasks, so that they do not pile up; those of a
// blocked queue hold back that queue alone.
func TestUnsettledTasksHoldBackNewOnes(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, slots, 0, pluginsFor(t, map[string]string{"p": "queues: [q0, q1]"}), 2)
	take := func(at place) (taken int) {
		for _, g := range r.pick().allocations {
			if g.served.place != at {
				r.answer(g, 0, listen.ReserveReply{})
				continue
			}
			taken += len(r.answer(g, len(g.shares), listen.ReserveReply{}))
		}
		for _, task := range r.running { // they end, and are not settled
			r.scheduler.ended(&task.slot, 0, time.Hour, 0, r.now)
			task.version.Release()
			r.ended = append(r.ended, task)
		}
		r.running = nil
		return taken
	}
	taken := 0
	for range 10 {
		taken += take(r.queues[0])
	}
	if taken != 2*slots {
		t.Errorf("%d tasks were begun on %d slots, though none is settled; want %d", taken, slots, 2*slots)
	}
	r.block(r.queues[0], true)
	r.wake(r.queues[1])
	if got := take(r.queues[1]); got != slots {
		t.Errorf("another queue got %d slots beside a blocked one, want %d", got, slots)
	}
	if got := take(r.queues[0]); got != 0 {
		t.Errorf("a blocked queue got %d slots", got)
	}
	for _, task := range r.ended {
		r.settled(&task.slot)
	}
	r.block(r.queues[0], false)
	r.wake(r.queues[0])
	if got := take(r.queues[0]); got == 0 {
		t.Error("nothing is taken after all was settled")
	}
	for _, task := range r.ended[len(r.ended)-slots:] {
		r.settled(&task.slot)
	}
}

// IDs that are dropped may hide tasks behind them.
func TestLooksBehindDroppedIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, 0, pluginsFor(t, map[string]string{"q0": "{}"}), 1)
	r.answer(r.pick().allocations[0], 0, listen.ReserveReply{Dropped: 1000})
	grants := r.pick().allocations
	if len(grants) == 0 {
		t.Fatal("the queue is taken for empty")
	}
	r.answer(grants[0], 0, listen.ReserveReply{})
	if len(r.pick().allocations) != 0 {
		t.Error("an empty queue is asked again")
	}
}

// The poll's word that a queue is empty is not believed if it was asked before a message came.
func TestEmptyFromAnOldPoll(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, 0, pluginsFor(t, map[string]string{"q0": "{}"}), 1)
	asked := r.wakes.Load()
	r.wake(r.queues[0])
	r.empty(r.queues[0], asked)
	grants := r.pick().allocations
	if len(grants) != 1 {
		t.Fatal("a message was forgotten")
	}
	asked = r.wakes.Load()
	r.wake(r.queues[0]) // while the reserve is on its way
	r.answer(grants[0], 0, listen.ReserveReply{})
	if grants = r.pick().allocations; len(grants) != 1 {
		t.Fatal("a message that came during a reserve was forgotten")
	}
	r.answer(grants[0], 4, listen.ReserveReply{}) // full: there is more, of which a poll from before does not know
	r.empty(r.queues[0], asked)
	r.finish(0)
	if grants = r.pick().allocations; len(grants) != 1 {
		t.Fatal("a backlog was forgotten")
	}
	r.answer(grants[0], 0, listen.ReserveReply{})
	for len(r.running) > 0 {
		r.finish(0)
	}
}

// A queue that Redis refuses is left alone for a while, and does not hold up others.
func TestRefusedQueuePauses(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, 0, pluginsFor(t, map[string]string{"p": "queues: [q0, q1]"}), 2)
	for _, g := range r.pick().allocations {
		if g.served.place != r.queues[0] {
			r.answer(g, 0, listen.ReserveReply{})
		} else {
			r.answer(g, 0, listen.ReserveReply{Err: errors.New("WRONGTYPE")})
		}
	}
	r.wake(r.queues[0])
	r.wake(r.queues[1])
	for _, g := range r.pick().allocations {
		if g.served.place == r.queues[0] {
			t.Error("a refused queue is asked again at once")
		}
		r.answer(g, 0, listen.ReserveReply{})
	}
}

// What is granted, runs or waits to be settled is counted right whatever happens in whatever order,
// never above the bounds, and nothing is left in the end.
func TestCountsStayRight(t *testing.T) {
	t.Parallel()
	const queues, bound = 4, 3
	directory := pluginsFor(t, map[string]string{
		"small":   "{queues: [q0, q1], limits: {memory: 1MiB, input: 1MiB, output: 1MiB}}",
		"big":     "{queues: [q2], limits: {memory: 8MiB, input: 1MiB, output: 1MiB}}",
		"bounded": fmt.Sprintf("{queues: [q3], concurrency: %d, limits: {memory: 1MiB, input: 1MiB, output: 1MiB}}", bound),
	})
	rapid.Check(t, func(rt *rapid.T) {
		slots := rapid.IntRange(1, 8).Draw(rt, "slots")
		total := rapid.Int64Range(10<<20, 30<<20).Draw(rt, "memory")
		r := newRig(t, slots, total, directory, queues)
		r.now = time.Now()
		at := func(t *rapid.T) place { return rapid.SampledFrom(r.queues).Draw(t, "queue") }
		round := func() []*allocation { // with what was reserved ahead
			picked := r.pick()
			r.running = append(r.running, picked.begun...)
			for _, t := range picked.late {
				t.version.Release()
			}
			r.ended = append(r.ended, picked.late...)
			return picked.allocations
		}
		rt.Repeat(map[string]func(*rapid.T){
			"round": func(t *rapid.T) {
				for _, g := range round() {
					switch rapid.SampledFrom([]string{"tasks", "unavailable", "refused", "untried"}).Draw(t, "answer") {
					case "tasks":
						r.answer(g, rapid.IntRange(0, len(g.shares)+g.ahead).Draw(t, "tasks"), listen.ReserveReply{})
					case "unavailable":
						r.answer(g, 0, listen.ReserveReply{Err: io.EOF})
					case "refused":
						r.answer(g, 0, listen.ReserveReply{Err: errors.New("WRONGTYPE")})
					case "untried":
						r.cancel(g)
					}
				}
			},
			"end": func(t *rapid.T) {
				if len(r.running) == 0 {
					t.Skip("nothing runs")
				}
				i := rapid.IntRange(0, len(r.running)-1).Draw(t, "task")
				ended := r.running[i]
				r.running = append(r.running[:i], r.running[i+1:]...)
				took := rapid.SampledFrom([]time.Duration{unknown, 10 * time.Microsecond, 10 * time.Microsecond, shortTask, time.Hour}).Draw(t, "took")
				waited := time.Duration(rapid.Int64Range(0, max(0, int64(took))).Draw(t, "waited"))
				if next := r.scheduler.ended(&ended.slot, rapid.IntRange(0, 2<<20).Draw(t, "result"), took, waited, r.now); next != nil {
					r.running = append(r.running, next)
				}
				ended.version.Release()
				r.ended = append(r.ended, ended)
			},
			"pass": func(t *rapid.T) {
				r.now = r.now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, aheadTime, aheadWait}).Draw(t, "time"))
			},
			"abandon": func(*rapid.T) {
				r.abandon(r.source)
				for _, at := range r.queues {
					r.serve(at, r.source)
				}
			},
			"settle": func(t *rapid.T) {
				if len(r.ended) == 0 {
					t.Skip("nothing has ended")
				}
				r.settled(&r.ended[0].slot)
				r.ended = r.ended[1:]
			},
			"wake":      func(t *rapid.T) { r.wake(at(t)) },
			"empty":     func(t *rapid.T) { r.empty(at(t), r.wakes.Load()) },
			"reconcile": func(t *rapid.T) { r.reconcile(at(t), r.source) },
			"block":     func(t *rapid.T) { r.block(at(t), rapid.Bool().Draw(t, "blocked")) },
			"again":     func(t *rapid.T) { at := at(t); r.leave(at); r.serve(at, r.source) },
			"":          func(t *rapid.T) { r.check(t, bound) },
		})
		for _, at := range r.queues {
			r.block(at, true)
		}
		for _, g := range round() {
			r.cancel(g)
		}
		for len(r.running) > 0 {
			r.finish(0)
		}
		for _, t := range r.ended {
			r.settled(&t.slot)
		}
		r.ended = nil
		r.check(rt, bound)
		if r.ahead != 0 || r.inUse != 0 || r.scheduler.running.Load() != 0 || r.gauge != 0 || r.admission.used != 0 || len(r.plugins) != 0 {
			rt.Fatalf("left: %d ahead, %d slots, %d running, gauge %d, %d bytes, plugins %v", r.ahead, r.inUse, r.scheduler.running.Load(), r.gauge, r.admission.used, r.plugins)
		}
		for _, q := range r.scheduler.queues {
			if q.running != 0 || q.unsettled != 0 {
				rt.Fatalf("%s is left with %d running, %d unsettled", q.queue, q.running, q.unsettled)
			}
		}
	})
}

func (r *rig) check(t *rapid.T, bound int) {
	var bytes int64
	byPlugin, load, loads := make(map[plugin]int), 0.0, 0
	for _, task := range r.running {
		bytes += task.share.bytes
		if task.share.load > 0 {
			load, loads = load+task.share.load, loads+1
		}
		byPlugin[pluginOf(task.version)]++
	}
	for _, e := range r.ended {
		bytes += e.share.bytes
	}
	if n := len(r.running); r.inUse != n || int(r.scheduler.running.Load()) != n || r.gauge != n || n > r.slots {
		t.Fatalf("%d of %d slots run a task; in use %d, running %d, gauge %d", n, r.slots, r.inUse, r.scheduler.running.Load(), r.gauge)
	}
	ahead := 0
	for _, q := range r.scheduler.queues {
		ahead += len(q.ahead)
	}
	if r.ahead != ahead || int(r.source.ahead.Load()) != ahead {
		t.Fatalf("%d tasks are reserved ahead, counted %d and %d", ahead, r.ahead, r.source.ahead.Load())
	}
	if r.load.count != loads || math.Abs(r.load.taken-load) > 1e-9 {
		t.Fatalf("%d short tasks keep %v places busy, counted %d and %v", loads, load, r.load.count, r.load.taken)
	}
	if r.admission.used != bytes || bytes > r.admission.total {
		t.Fatalf("memory %d of %d, the shares sum up to %d", r.admission.used, r.admission.total, bytes)
	}
	if got := byPlugin[plugin{"", "bounded"}]; got > bound {
		t.Fatalf("%d tasks of a plugin that may run %d", got, bound)
	}
	for p, n := range byPlugin {
		if r.plugins[p] != n {
			t.Fatalf("plugin %v has %d slots, counted %d", p, n, r.plugins[p])
		}
	}
}

// The first task of a plugin has room booked for the image that the others begin with too, until that is there and held,
// or the task has ended without one.
func TestSnapshotIsExpected(t *testing.T) {
	t.Parallel()
	const task, total = 3 << 20, 64 << 20
	directory := pluginsFor(t, map[string]string{"p": "queues: [q0]\nlimits: {memory: 1MiB, input: 1MiB, output: 1MiB}"})
	version := directory.Acquire("t", "q0")
	defer version.Release()
	if version.Info().ResetMode == runtime.ResetNew {
		t.Skip("there are no images here")
	}
	r := newRig(t, 2, total, directory, 1)
	begin := func() {
		for _, g := range r.pick().allocations {
			r.answer(g, len(g.shares), listen.ReserveReply{})
		}
	}
	used := func(want int64, when string) {
		t.Helper()
		if r.admission.used != want {
			t.Errorf("%d bytes are booked %s, want %d", r.admission.used, when, want)
		}
	}
	begin()
	used(2*task+1<<20, "for two tasks and an image")
	if parts := r.admission.arrived(); len(parts) != 0 {
		t.Errorf("%d images are there", len(parts))
	}
	r.finish(0) // without having made it
	r.finish(0)
	used(0, "after the tasks")
	begin()
	used(2*task+1<<20, "for two more")
	if got := version.Run(t.Context(), "t", runtime.Call{}); got.Kind != runtime.Complete {
		t.Fatalf("%+v", got)
	}
	parts := r.admission.arrived()
	if len(parts) != 1 {
		t.Fatalf("%d images are there, want 1", len(parts))
	}
	r.admission.measured(1<<20, parts)
	used(2*task, "when the image is there")
	r.admission.measured(1<<20, parts)
	used(2*task, "after another measurement")
	r.finish(0)
	begin()
	used(2*task, "with an image")
	for len(r.running) > 0 {
		r.finish(0)
	}
	used(0, "at the end")
	if len(r.admission.snapshots) != 0 {
		t.Errorf("%d shares wait for an image", len(r.admission.snapshots))
	}
}

// A session that takes nothing more, and one whose tasks cannot be settled, keep nobody else waiting.
func TestSessionsKeepNoOtherWaiting(t *testing.T) {
	t.Parallel()
	directory := pluginsFor(t, map[string]string{"small": "queues: [q0]\nlimits: {memory: 1MiB}", "large": "queues: [q1]\nlimits: {memory: 64MiB}"})
	setup := func(t *testing.T, slots int, memory int64) (r *rig, other *intake) {
		r, other = newRig(t, slots, memory, directory, 1), newTestSource(t)
		r.serve(place{"t", "q1"}, other)
		t.Cleanup(func() {
			for len(r.running) > 0 {
				r.finish(0)
			}
		})
		return r, other
	}
	granted := func(r *rig) map[string]int {
		slots := make(map[string]int)
		for _, g := range r.pick().allocations {
			slots[g.served.queue] += len(g.shares)
			r.answer(g, len(g.shares), listen.ReserveReply{})
		}
		return slots
	}
	t.Run("Memory", func(t *testing.T) {
		t.Parallel()
		large := directory.Acquire("t", "q1")
		r, other := setup(t, 1, large.Footprint("t")-1)
		large.Release()
		granted(r)
		for len(r.running) > 0 {
			r.finish(0)
		}
		r.wake(place{"t", "q0"})
		r.wake(place{"t", "q1"})
		if got := granted(r); len(got) > 0 {
			t.Fatalf("granted %v beside what waits", got)
		}
		other.tasks.close()
		if got := granted(r); got["q0"] == 0 {
			t.Errorf("granted %v", got)
		}
	})
	t.Run("Unsettled", func(t *testing.T) {
		t.Parallel()
		r, _ := setup(t, 4, 0)
		r.empty(place{"t", "q0"}, r.wakes.Load())
		for ended := 0; ended < 8; ended = len(r.ended) {
			r.wake(place{"t", "q1"})
			granted(r)
			for i := len(r.running) - 1; i >= 0; i-- {
				if task := r.running[i]; task.served.queue == "q1" {
					r.running = slices.Delete(r.running, i, i+1)
					r.scheduler.ended(&task.slot, 0, time.Hour, 0, r.now)
					task.version.Release()
					r.ended = append(r.ended, task)
				}
			}
		}
		r.wake(place{"t", "q0"})
		r.wake(place{"t", "q1"})
		if got := granted(r); got["q0"] == 0 || got["q1"] != 0 {
			t.Errorf("granted %v", got)
		}
	})
	t.Run("Half", func(t *testing.T) {
		t.Parallel()
		r, _ := setup(t, 8, 0)
		r.empty(place{"t", "q0"}, r.wakes.Load())
		if got := granted(r); got["q1"] != 4 {
			t.Errorf("granted %v", got)
		}
	})
}
