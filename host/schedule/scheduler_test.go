package schedule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/host/schedule"
)

// While the tasks of queues have cost the same, free slots go one at a time to the queue with the fewest running tasks, and among
// equals to the one served longest ago; what a queue does not take goes to the others.
func TestSlotsGoToTheFewestRunning(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		slots, running int // of these tasks of q0 run already
		gone           bool
		other          bool // the last queue is of another source
		want           []int
	}{
		"Even":   {6, 2, false, false, []int{0, 2, 2}},
		"Turns":  {2, 0, false, false, []int{1, 1, 0}},
		"Gone":   {4, 0, true, false, []int{0, 2, 2}},
		"Half":   {8, 0, false, true, []int{2, 2, 4}},
		"NoSlot": {2, 2, false, false, []int{0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, schedule.Config{Slots: test.slots}, 3)
			for _, at := range r.queues[1:] {
				r.PolledEmpty(at, r.Wakes())
			}
			if test.running > 0 {
				r.answer(r.ask(test.slots, false), test.running, schedule.Reply{})
			}
			if test.other {
				r.Leave(r.queues[2])
				r.Serve(r.queues[2], new(source))
			}
			r.plugins["q0"] = r.install("p", schedule.Version{Memory: small})
			r.plugins["q0"].gone = test.gone
			for _, at := range r.queues {
				r.Announced(at)
			}
			begun := r.fill()
			got := []int{begun["q0"], begun["q1"], begun["q2"]}
			if name == "Turns" { // none was served before
				slices.SortFunc(got, func(a, b int) int { return b - a })
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("given %v, want %v", got, test.want)
			}
		})
	}
}

// A queue that gets one task while another has a backlog is served with the next slot that is free.
func TestNextSlotGoesToWhoHasNone(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, schedule.Config{Slots: slots}, 2)
			backlog := func() (served int) {
				_, allocations := r.plan()
				for _, a := range allocations {
					if a.Queue == r.queues[0] {
						r.answer(a, a.Slots(), schedule.Reply{})
						continue
					}
					served += r.answer(a, min(1, a.Slots()), schedule.Reply{})
				}
				return served
			}
			r.PolledEmpty(r.queues[1], r.Wakes())
			for range 3 * slots { // a backlog, served for a while
				backlog()
				r.finish(0)
			}
			backlog()
			r.Announced(r.queues[1])
			if backlog() != 0 {
				t.Fatal("served without a free slot")
			}
			r.finish(0)
			if backlog() != 1 {
				t.Error("the next free slot went to the backlog")
			}
		})
	}
}

// Many queues that all have a backlog get the same number of slots.
func TestManyQueuesShareAlike(t *testing.T) {
	t.Parallel()
	const count, rounds = 100, 10
	r := newRig(t, schedule.Config{Slots: 4}, count)
	served := make(map[string]int)
	for total := 0; total < count*rounds; {
		for name, n := range r.fill() {
			served[name] += n
			total += n
		}
		r.finish(total % len(r.running))
	}
	for _, at := range r.queues {
		if n := served[at.Name]; n < rounds-1 || n > rounds+1 {
			t.Errorf("%s was served %d times, want about %d", at.Name, n, rounds)
		}
	}
}

// A plugin's own bound holds for all its queues together, also when they are left and come back.
func TestBoundOfAPlugin(t *testing.T) {
	t.Parallel()
	r := newRig(t, schedule.Config{Slots: 10}, 2)
	r.install("p", schedule.Version{Memory: small, Concurrency: 3}, "q0", "q1")
	all := func() int { r.fill(); return r.Status().InUse }
	if got := all(); got != 3 {
		t.Errorf("%d slots for a plugin that may have 3", got)
	}
	for _, at := range r.queues {
		r.Leave(at)
		r.Serve(at, r.source)
	}
	if got := all(); got != 3 {
		t.Errorf("%d slots after the queues came back", got)
	}
	r.finish(0)
	if got := all(); got != 3 {
		t.Errorf("%d slots after one task has ended and another could begin", got)
	}
}

// Results that Redis does not accept hold back new tasks, so that they do not pile up; those of a blocked queue hold
// back that queue alone.
func TestUnsettledTasksHoldBackNewOnes(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, schedule.Config{Slots: slots}, 2)
	begin := func(at schedule.Queue) (begun int) {
		_, allocations := r.plan()
		for _, a := range allocations {
			if a.Queue != at {
				r.answer(a, 0, schedule.Reply{})
				continue
			}
			begun += r.answer(a, a.Slots(), schedule.Reply{})
		}
		for _, t := range r.running { // they end, and are not settled
			r.endTask(t, time.Hour, 0)
			r.ended = append(r.ended, t)
		}
		r.running = nil
		return begun
	}
	begun := 0
	for range 10 {
		begun += begin(r.queues[0])
	}
	if begun != 2*slots {
		t.Errorf("%d tasks were begun on %d slots, though none is settled; want %d", begun, slots, 2*slots)
	}
	r.Block(r.queues[0], true)
	r.Announced(r.queues[1])
	if got := begin(r.queues[1]); got != slots {
		t.Errorf("another queue got %d slots beside a blocked one, want %d", got, slots)
	}
	if got := begin(r.queues[0]); got != 0 {
		t.Errorf("a blocked queue got %d slots", got)
	}
	r.finishAll()
	r.Block(r.queues[0], false)
	r.Announced(r.queues[0])
	if got := begin(r.queues[0]); got == 0 {
		t.Error("nothing is begun after all was settled")
	}
}

// IDs that are dropped may hide tasks behind them.
func TestLooksBehindDroppedIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, schedule.Config{Slots: 4}, 1)
	r.answer(r.ask(4, false), 0, schedule.Reply{More: true})
	r.answer(r.ask(4, false), 0, schedule.Reply{})
	if _, allocations := r.plan(); len(allocations) != 0 {
		t.Error("an empty queue is asked again")
	}
}

// A poll that found a queue empty is not believed if it was asked before a message came.
func TestEmptyFromAnOldPoll(t *testing.T) {
	t.Parallel()
	r := newRig(t, schedule.Config{Slots: 4}, 1)
	asked := r.Wakes()
	r.Announced(r.queues[0])
	r.PolledEmpty(r.queues[0], asked)
	a := r.ask(4, false)
	asked = r.Wakes()
	r.Announced(r.queues[0]) // while the reserve is on its way
	r.answer(a, 0, schedule.Reply{})
	a = r.ask(4, false)
	r.answer(a, 4, schedule.Reply{}) // full: there is more, of which a poll from before does not know
	r.PolledEmpty(r.queues[0], asked)
	r.finish(0)
	r.answer(r.ask(1, false), 0, schedule.Reply{})
}

// What polls see and reserves bring decides what is asked, and which queues are looked at: Idle lists those that wait.
func TestBacklog(t *testing.T) {
	t.Parallel()
	r := newRig(t, schedule.Config{Slots: 2}, 1)
	at := r.queues[0]
	state := func(what string, wantAsked, wantEmpty, wantStalled bool) {
		t.Helper()
		empty, stalled := r.Idle("t")
		if asked := r.Status().Busy == 1; asked != wantAsked || len(empty) == 1 != wantEmpty || len(stalled) == 1 != wantStalled {
			t.Errorf("%s: asked %t, empty %t, stalled %t", what, asked, len(empty) == 1, len(stalled) == 1)
		}
	}
	state("a new queue", true, false, false)
	r.answer(r.ask(2, false), 0, schedule.Reply{})
	state("no task came", false, true, false)
	if !r.Polled(at) {
		t.Error("a poll saw tasks that a message had announced")
	}
	state("a poll saw tasks", true, false, false)
	r.answer(r.ask(2, false), 0, schedule.Reply{})
	state("it saw some, but none came", false, false, true)
	if r.Polled(at) {
		t.Error("tasks of a stalled queue count as unannounced")
	}
	r.answer(r.ask(2, false), 1, schedule.Reply{})
	state("one came", false, true, false)
	r.finish(0)
	r.Polled(at)
	r.answer(r.ask(2, false), 0, schedule.Reply{})
	r.Announced(at)
	r.answer(r.ask(2, false), 0, schedule.Reply{})
	state("none came after a message either", false, false, true)
	r.PolledEmpty(at, r.Wakes())
	state("a poll saw none", false, true, false)
	r.Reconcile(at, r.source)
	state("to be reconciled", true, true, false)
	a := r.ask(2, false)
	if !a.Reconcile {
		t.Error("it is not reconciled")
	}
	r.Cancel(a)
	if a = r.ask(2, false); !a.Reconcile {
		t.Error("it is not reconciled after a reserve that was not sent")
	}
	r.answer(a, 0, schedule.Reply{})
	state("reconciled", true, false, false)
	r.Leave(at)
	state("left", true, false, false)
	r.answer(r.ask(0, false), 0, schedule.Reply{})
	if n := r.Status().Queues; n != 0 {
		t.Errorf("%d queues after the last was left and reconciled", n)
	}
}

// A queue that Redis refuses is left alone for a while, and does not hold up others.
func TestRefusedQueuePauses(t *testing.T) {
	t.Parallel()
	r := newRig(t, schedule.Config{Slots: 4}, 2)
	_, allocations := r.plan()
	for _, a := range allocations {
		refused := a.Queue == r.queues[0]
		r.answer(a, 0, schedule.Reply{Failed: refused, Refused: refused})
	}
	r.Announced(r.queues[0])
	r.Announced(r.queues[1])
	round, allocations := r.plan()
	for _, a := range allocations {
		if a.Queue == r.queues[0] {
			t.Error("a refused queue is asked again at once")
		}
		r.answer(a, 0, schedule.Reply{})
	}
	r.now = r.now.Add(round.Next)
	if a := r.ask(4, false); a.Queue != r.queues[0] || !a.Reconcile {
		t.Errorf("after the pause %+v", a)
	} else {
		r.answer(a, 0, schedule.Reply{})
	}
}

// A queue that has only tasks for other hosts is asked less and less often, also if messages come; until it has a task.
func TestQueueForOtherHostsPauses(t *testing.T) {
	t.Parallel()
	r := newRig(t, schedule.Config{Slots: 4}, 1)
	var before time.Duration
	for range 4 {
		r.answer(r.ask(4, false), 0, schedule.Reply{More: true, Elsewhere: true})
		r.Announced(r.queues[0])
		round, allocations := r.plan()
		if len(allocations) > 0 || round.Next <= before {
			t.Fatalf("%d allocations; asks again in %s, after %s the time before", len(allocations), round.Next, before)
		}
		before = round.Next
		r.now = r.now.Add(round.Next)
	}
	for range 3 { // tasks for this host may be behind them
		r.answer(r.ask(4, false), 0, schedule.Reply{More: true, Elsewhere: true, Early: true})
		round, allocations := r.plan()
		if len(allocations) > 0 || round.Next > before/4 {
			t.Errorf("%d allocations; asks again in %s, want a short pause", len(allocations), round.Next)
		}
		r.now = r.now.Add(round.Next)
	}
	r.answer(r.ask(4, false), 1, schedule.Reply{More: true})
	r.answer(r.ask(3, false), 0, schedule.Reply{})
}

// What is allocated, runs or waits to be settled is counted right whatever happens in whatever order, never above the
// bounds, and nothing is left in the end.
func TestCountsStayRight(t *testing.T) {
	t.Parallel()
	const bound, mib = 3, 1 << 20
	rapid.Check(t, func(rt *rapid.T) {
		total := rapid.Int64Range(10*mib, 30*mib).Draw(rt, "memory")
		r := newRig(t, schedule.Config{Slots: rapid.IntRange(1, 8).Draw(rt, "slots"), Memory: total}, 4)
		r.install("big", schedule.Version{Memory: 10 * mib, MayWait: true}, "q2")
		bounded := r.install("bounded", schedule.Version{Memory: small, MayWait: true, Concurrency: bound}, "q3")
		kept := make(map[*task]int64) // memory of results
		ahead := 0
		at := func(t *rapid.T) schedule.Queue { return rapid.SampledFrom(r.queues).Draw(t, "queue") }
		round := func() []*schedule.Allocation {
			round, allocations := r.plan()
			for _, w := range round.Work {
				ahead -= len(w.Begin) + len(w.Return)
			}
			return allocations
		}
		check := func(t *rapid.T) {
			var bytes int64
			ofBounded := 0
			for _, task := range r.running {
				bytes += task.plugin.Memory
				if task.plugin == bounded {
					ofBounded++
				}
			}
			for _, task := range r.ended {
				bytes += kept[task]
			}
			s, n := r.Status(), len(r.running)
			if s.InUse != n || s.Running != n || r.shown != n || n > r.config.Slots || ofBounded > bound {
				t.Fatalf("%d of %d slots run a task, %d of the bounded plugin: %+v, %d shown", n, r.config.Slots, ofBounded, s, r.shown)
			}
			if s.Memory != bytes || bytes > total {
				t.Fatalf("memory %d of %d, the tasks have %d", s.Memory, total, bytes)
			}
			if r.source.ahead != s.Ahead {
				t.Fatalf("%d tasks wait, the source counts %d", s.Ahead, r.source.ahead)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"round": func(t *rapid.T) {
				for _, a := range round() {
					switch rapid.SampledFrom([]string{"tasks", "unavailable", "refused", "untried"}).Draw(t, "answer") {
					case "tasks":
						count := rapid.IntRange(0, a.Tasks()).Draw(t, "tasks")
						ahead += count - r.answer(a, count, schedule.Reply{})
					case "unavailable":
						r.answer(a, 0, schedule.Reply{Failed: true})
					case "refused":
						r.answer(a, 0, schedule.Reply{Failed: true, Refused: true})
					case "untried":
						r.Cancel(a)
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
				took := rapid.SampledFrom([]time.Duration{schedule.Unknown, 10 * time.Microsecond, 10 * time.Microsecond, shortTask, time.Hour}).Draw(t, "took")
				waited := time.Duration(rapid.Int64Range(0, max(0, int64(took))).Draw(t, "waited"))
				result := rapid.IntRange(0, 2*mib).Draw(t, "result")
				if next := r.Ended(&ended.Slot, schedule.Run{Took: took, Waited: waited, Computed: max(0, took-waited), Result: result}, r.now); next != nil {
					r.running = append(r.running, next.(*task))
				}
				kept[ended] = min(int64(result), ended.plugin.Memory)
				ended.plugin.Release()
				r.ended = append(r.ended, ended)
			},
			"pass": func(t *rapid.T) {
				r.now = r.now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, aheadTime, aheadWait}).Draw(t, "time"))
			},
			"abandon": func(*rapid.T) {
				r.Abandon(r.source)
				for _, at := range r.queues {
					r.Serve(at, r.source)
				}
			},
			"settle": func(t *rapid.T) {
				if len(r.ended) == 0 {
					t.Skip("nothing has ended")
				}
				r.Settled(&r.ended[0].Slot)
				r.ended = r.ended[1:]
			},
			"announce":  func(t *rapid.T) { r.Announced(at(t)) },
			"poll":      func(t *rapid.T) { r.Polled(at(t)) },
			"empty":     func(t *rapid.T) { r.PolledEmpty(at(t), r.Wakes()) },
			"reconcile": func(t *rapid.T) { r.Reconcile(at(t), r.source) },
			"block":     func(t *rapid.T) { r.Block(at(t), rapid.Bool().Draw(t, "blocked")) },
			"anew":      func(t *rapid.T) { at := at(t); r.Leave(at); r.Serve(at, r.source) },
			"":          check,
		})
		for _, at := range r.queues {
			r.Block(at, true)
		}
		for _, a := range round() {
			r.Cancel(a)
		}
		r.finishAll()
		check(rt)
	})
}

// The first task of a plugin has room booked for the snapshot that the others begin with too, until that is there and
// held, or the task has ended without one.
func TestSnapshotIsExpected(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	r := newRig(t, schedule.Config{Slots: 2, Memory: 64 * mib}, 1)
	evictor := schedule.NewEvictor(r.Scheduler, fixed(mib))
	p := r.plugins["q0"]
	p.pending = mib
	used := func(want int64, when string) {
		t.Helper()
		if got := r.Status().Memory; got != want {
			t.Errorf("%d bytes are booked %s, want %d", got, when, want)
		}
	}
	r.fill()
	used(2*small+mib, "for two tasks and a snapshot")
	evictor.Measure()
	used(2*small+mib, "before it is built")
	r.finish(0) // without having built it
	r.finish(0)
	used(0, "after the tasks")
	r.fill()
	used(2*small+mib, "for two more")
	p.pending = 0
	evictor.Measure()
	used(2*small, "when the snapshot is there")
	evictor.Measure()
	used(2*small, "after another measurement")
	r.finish(0)
	r.fill()
	used(2*small, "with a snapshot")
}

// A session that reserves nothing more, and one whose tasks cannot be settled, keep nobody else waiting.
func TestSessionsKeepNoOtherWaiting(t *testing.T) {
	t.Parallel()
	const large = 70 << 20
	setup := func(t *testing.T, slots int, memory int64) (r *rig, other *source) {
		r, other = newRig(t, schedule.Config{Slots: slots, Memory: memory}, 1), new(source)
		at := schedule.Queue{Tenant: "t", Name: "q1"}
		r.install("large", schedule.Version{Memory: large}, at.Name)
		r.queues = append(r.queues, at)
		r.Serve(at, other)
		return r, other
	}
	t.Run("Memory", func(t *testing.T) {
		t.Parallel()
		r, other := setup(t, 1, large-1)
		r.fill()
		for len(r.running) > 0 {
			r.finish(0)
		}
		r.Announced(r.queues[0])
		r.Announced(r.queues[1])
		if got := r.fill(); len(got) > 0 {
			t.Fatalf("begun %v beside what waits", got)
		}
		other.closed = true
		if got := r.fill(); got["q0"] == 0 {
			t.Errorf("begun %v", got)
		}
	})
	t.Run("Unsettled", func(t *testing.T) {
		t.Parallel()
		r, _ := setup(t, 4, 0)
		r.PolledEmpty(r.queues[0], r.Wakes())
		for len(r.ended) < 8 {
			r.Announced(r.queues[1])
			r.fill()
			for _, task := range r.running {
				r.endTask(task, time.Hour, 0)
				r.ended = append(r.ended, task)
			}
			r.running = nil
		}
		r.Announced(r.queues[0])
		r.Announced(r.queues[1])
		if got := r.fill(); got["q0"] == 0 || got["q1"] != 0 {
			t.Errorf("begun %v", got)
		}
	})
	t.Run("Half", func(t *testing.T) {
		t.Parallel()
		r, _ := setup(t, 8, 0)
		r.PolledEmpty(r.queues[0], r.Wakes())
		if got := r.fill(); got["q1"] != 4 {
			t.Errorf("begun %v", got)
		}
	})
	t.Run("Reserving", func(t *testing.T) {
		t.Parallel()
		r, other := setup(t, 8, 0)
		other.reserving = true
		if got := r.fill(); got["q0"] != 4 || got["q1"] != 0 {
			t.Errorf("begun %v", got)
		}
	})
}

// BenchmarkPlan measures a plan that finds one queue with work among many.
func BenchmarkPlan(b *testing.B) {
	for _, idle := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprintf("idle=%d", idle), func(b *testing.B) {
			r := newRig(b, schedule.Config{Slots: 2}, 1+idle)
			for _, at := range r.queues[1:] {
				r.PolledEmpty(at, r.Wakes())
			}
			for b.Loop() {
				r.fill()
				r.endAll(time.Hour, 0)
			}
		})
	}
}

// BenchmarkPlanBusy measures a plan that gives 16 slots among many queues with work.
func BenchmarkPlanBusy(b *testing.B) {
	for _, queues := range []int{10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			r := newRig(b, schedule.Config{Slots: 16}, queues)
			for b.Loop() {
				r.fill()
				r.endAll(time.Hour, 0)
			}
		})
	}
}
