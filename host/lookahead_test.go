package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// ask returns the one allocation of a round, which has so many shares and tasks ahead.
func (r *rig) ask(t *testing.T, shares int, ahead bool) *allocation {
	t.Helper()
	all := r.pick().allocations
	if len(all) != 1 || len(all[0].shares) != shares || all[0].ahead > 0 != ahead {
		t.Fatalf("%+v, want %d shares, and tasks ahead: %t", all, shares, ahead)
	}
	return all[0]
}

// settleAll ends and settles what runs. What gets a slot at once runs then.
func (r *rig) settleAll(took time.Duration) { r.endAll(took, 0) }

// endAll does so with tasks that waited for a part of the time.
func (r *rig) endAll(took, waited time.Duration) {
	running := r.running
	r.running = nil
	for _, task := range running {
		if next := r.scheduler.ended(&task.slot, 0, took, waited, r.now); next != nil {
			r.running = append(r.running, next)
		}
		task.version.Release()
		r.settled(&task.slot)
	}
}

// Tasks of a queue are reserved ahead of free slots once its tasks are known to be short, and not after a long one.
func TestShortTasksAreReservedAhead(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, slots, 0, pluginsFor(t, map[string]string{"p": "queues: [q0]"}), 1)
	r.answer(r.ask(t, slots, false), slots, listen.ReserveReply{})
	r.settleAll(100 * time.Microsecond)

	a := r.ask(t, slots, true)
	if begun := r.answer(a, slots+a.ahead, listen.ReserveReply{}); len(begun) != slots {
		t.Fatalf("%d tasks have begun on %d slots", len(begun), slots)
	}
	if now := r.pick(); len(now.begun)+len(now.allocations)+len(now.late) > 0 {
		t.Fatalf("%+v while no slot is free and enough tasks wait", now)
	}
	r.settleAll(100 * time.Microsecond)
	if len(r.running) != slots {
		t.Fatalf("%d of those that waited have begun, want %d", len(r.running), slots)
	}
	r.settleAll(time.Second)

	r.now = r.now.Add(aheadWait)
	late := r.pick()
	if len(late.late) != a.ahead-slots || len(late.begun) > 0 {
		t.Fatalf("%d are late and %d have begun, want %d and 0", len(late.late), len(late.begun), a.ahead-slots)
	}
	for _, task := range late.late {
		task.version.Release()
		r.settled(&task.slot)
	}
	for _, a := range late.allocations {
		if a.ahead > 0 {
			t.Errorf("%d tasks are reserved ahead after a long one", a.ahead)
		}
		r.answer(a, 0, listen.ReserveReply{})
	}
	if r.ahead != 0 || r.inUse != 0 || r.queues[0] == (place{}) {
		t.Errorf("%d wait, %d slots are in use at the end", r.ahead, r.inUse)
	}
}

// However short a queue's tasks are, no more than mostAhead wait, reserved in batches of maxBatch.
func TestMostAhead(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, slots, 0, pluginsFor(t, map[string]string{"p": "queues: [q0]"}), 1)
	r.answer(r.ask(t, slots, false), slots, listen.ReserveReply{})
	r.settleAll(time.Microsecond)
	most := 0
	for range 8 {
		for _, a := range r.pick().allocations {
			if len(a.shares)+a.ahead > maxBatch {
				t.Errorf("a reserve of %d tasks", len(a.shares)+a.ahead)
			}
			r.answer(a, len(a.shares)+a.ahead, listen.ReserveReply{})
		}
		most = max(most, r.ahead)
	}
	if most <= maxBatch || most > mostAhead {
		t.Errorf("%d tasks waited, want more than a batch and at most %d", most, mostAhead)
	}
	for r.ahead+len(r.running) > 0 {
		now := r.pick()
		r.running = append(r.running, now.begun...)
		for _, a := range now.allocations {
			r.answer(a, 0, listen.ReserveReply{})
		}
		r.settleAll(time.Microsecond)
	}
}

// One task that was held up for some milliseconds does not keep the next ones from being reserved ahead.
func TestOneHeldUpTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 0, pluginsFor(t, map[string]string{"p": "queues: [q0]"}), 1)
	r.answer(r.ask(t, 1, false), 1, listen.ReserveReply{})
	r.settleAll(100 * time.Microsecond)
	a := r.ask(t, 1, true)
	r.answer(a, 1+a.ahead, listen.ReserveReply{})
	for took := 5 * time.Millisecond; len(r.running) > 0; took = 100 * time.Microsecond {
		r.settleAll(took)
	}
	r.answer(r.ask(t, 1, true), 0, listen.ReserveReply{})
}

// A slot goes on to the next task of its queue only while no other queue has work.
func TestASlotGoesOnFairly(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, slots, 0, pluginsFor(t, map[string]string{"p": "queues: [q0, q1]"}), 2)
	for _, a := range r.pick().allocations {
		count := 0
		if a.served.place == r.queues[0] {
			count = len(a.shares)
		}
		r.answer(a, count, listen.ReserveReply{})
	}
	r.settleAll(100 * time.Microsecond)
	a := r.ask(t, slots, true)
	r.answer(a, slots+a.ahead, listen.ReserveReply{})
	r.pick()
	r.settleAll(100 * time.Microsecond)
	if len(r.running) != slots {
		t.Fatalf("%d slots went on, want %d", len(r.running), slots)
	}
	r.wake(r.queues[1])
	r.pick()
	r.settleAll(100 * time.Microsecond)
	if len(r.running) != 0 {
		t.Fatalf("%d slots went on while another queue had work", len(r.running))
	}
	now := r.pick()
	r.running = now.begun
	if len(now.begun) != 1 || len(now.allocations) == 0 {
		t.Errorf("%d tasks have begun on %d slots, and %d queues reserve", len(now.begun), slots, len(now.allocations))
	}
	r.leave(r.queues[0])
	for _, a := range now.allocations {
		r.answer(a, 0, listen.ReserveReply{})
	}
	r.settleAll(time.Microsecond)
	for _, task := range r.pick().late {
		task.version.Release()
		r.settled(&task.slot)
	}
}

// With more queues than slots a slot goes on to the next task of its queue until the queue's turn is over.
func TestASlotGoesOnForATurn(t *testing.T) {
	t.Parallel()
	const turn, took = int(aheadTime / (100 * time.Microsecond)), 100 * time.Microsecond
	r := newRig(t, 1, 0, pluginsFor(t, map[string]string{"p": "queues: [q0, q1]"}), 2)
	r.step(t, took)
	r.step(t, took)
	longest := 0
	for range 4 * turn {
		now := r.pick()
		r.running = append(r.running, now.begun...)
		for _, a := range now.allocations {
			r.answer(a, len(a.shares)+a.ahead, listen.ReserveReply{})
		}
		ran := make(map[*served]int)
		for ; len(r.running) > 0; r.settleAll(took) {
			ran[r.running[0].served]++
		}
		if len(ran) > 1 {
			t.Fatal("a slot went on to another queue")
		}
		for _, count := range ran {
			longest = max(longest, count)
		}
	}
	if longest < turn/2 || longest > turn {
		t.Errorf("a slot went on for %d tasks, want a turn of %d", longest, turn)
	}
	for at := range r.scheduler.queues {
		r.leave(at)
	}
	r.giveUp()
}

// No task is reserved ahead where it would take a place of the fleet, or must not be started twice; and a queue that is left
// keeps none.
func TestNothingAhead(t *testing.T) {
	t.Parallel()
	const slots = 2
	for _, rule := range []string{"max_running: 5", "on_crash: fail", "max_crashes: 1"} {
		bounded := newRig(t, slots, 0, pluginsFor(t, map[string]string{"p": "{queues: [q0], " + rule + "}"}), 1)
		bounded.answer(bounded.ask(t, slots, false), slots, listen.ReserveReply{})
		bounded.settleAll(time.Microsecond)
		bounded.answer(bounded.ask(t, slots, false), 0, listen.ReserveReply{})
	}

	r := newRig(t, slots, 0, pluginsFor(t, map[string]string{"p": "queues: [q0]"}), 1)
	r.answer(r.ask(t, slots, false), slots, listen.ReserveReply{})
	r.settleAll(time.Microsecond)
	a := r.ask(t, slots, true)
	r.answer(a, slots+a.ahead, listen.ReserveReply{})
	r.leave(r.queues[0])
	now := r.pick()
	if len(now.late) != a.ahead {
		t.Errorf("%d tasks of a queue that is left are given back, want %d", len(now.late), a.ahead)
	}
	for _, task := range now.late {
		task.version.Release()
		r.settled(&task.slot)
	}
	r.settleAll(time.Microsecond)
}

// step has Redis answer one pick with all that is asked for, tells which queues got slots, and ends what runs.
func (r *rig) step(t *testing.T, took time.Duration) (served []*served, reserves int) {
	t.Helper()
	now := r.pick()
	if len(now.late) > 0 {
		t.Fatalf("%d tasks are late", len(now.late))
	}
	r.running = append(r.running, now.begun...)
	for _, a := range now.allocations {
		r.answer(a, len(a.shares)+a.ahead, listen.ReserveReply{})
	}
	for _, task := range r.running {
		served = append(served, task.served)
	}
	r.settleAll(took)
	return served, len(now.allocations)
}

// Queues of short tasks get slots in turns of several tasks, the same number for each, so that few scripts reserve and settle
// them; and what all of them together reserve ahead is bounded.
func TestTurnsOfShortTasks(t *testing.T) {
	t.Parallel()
	const slots, count, rounds, took = 2, 50, 4, 100 * time.Microsecond
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprint("q", i)
	}
	r := newRig(t, slots, 0, pluginsFor(t, map[string]string{"p": "queues: [" + strings.Join(names, ", ") + "]"}), count)
	const turn, most = int(aheadTime / took), int(aheadTime * slots / took)
	tasks, total, reserves := make(map[string]int), 0, 0
	for total < rounds*count*turn {
		served, asked := r.step(t, took)
		if total > count { // all are known
			reserves += asked
		}
		for _, q := range served {
			tasks[q.queue]++
		}
		total += len(served)
		if r.ahead > most {
			t.Fatalf("%d tasks wait, of queues whose tasks take %s, on %d slots", r.ahead, took, slots)
		}
	}
	if many := 2 * total / turn; reserves > many {
		t.Errorf("%d reserves for %d tasks in turns of %d", reserves, total, turn)
	}
	for _, name := range names {
		if n := tasks[name]; n < (rounds-1)*turn || n > (rounds+1)*turn {
			t.Errorf("%s ran %d tasks in %d turns of %d", name, n, rounds, turn)
		}
	}
	for at := range r.scheduler.queues {
		r.leave(at)
	}
	r.giveUp()
}

// A queue of short tasks loses its turn with the first long one.
func TestLongTaskEndsTheTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, 0, pluginsFor(t, map[string]string{"p": "queues: [q0, q1]"}), 2)
	var last *served
	for steps, again := 0, 0; again < 2; steps++ { // until one is in the middle of its turn
		served, _ := r.step(t, time.Microsecond)
		if again++; len(served) != 1 || served[0] != last {
			again = 0
		}
		if len(served) > 0 {
			last = served[0]
		}
		if steps == 20 {
			t.Fatal("no queue keeps its turn")
		}
	}
	r.step(t, time.Second)
	if served, _ := r.step(t, time.Microsecond); len(served) != 1 || served[0] == last {
		t.Errorf("after a long task of %s the slot goes to %+v", last.queue, served)
	}
	for at := range r.scheduler.queues {
		r.leave(at)
	}
	r.giveUp()
}

// giveUp ends what runs, in queues that are left, and gives back what waits for a slot.
func (r *rig) giveUp() {
	r.settleAll(time.Microsecond)
	for _, task := range r.pick().late {
		task.version.Release()
		r.settled(&task.slot)
	}
}

// A task that was stopped before its guest began says nothing of how long its queue's tasks take.
func TestNoSampleOfWhatDidNotRun(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, slots, 0, pluginsFor(t, map[string]string{"p": "queues: [q0]"}), 1)
	for range 3 {
		r.answer(r.ask(t, slots, false), slots, listen.ReserveReply{})
		r.settleAll(unknown)
	}
	r.answer(r.ask(t, slots, false), slots, listen.ReserveReply{})
	r.settleAll(100 * time.Microsecond)
	r.answer(r.ask(t, slots, true), slots, listen.ReserveReply{})
	r.settleAll(unknown)
	r.wake(r.queues[0])
	r.answer(r.ask(t, slots, true), slots, listen.ReserveReply{})
	r.leave(r.queues[0])
	r.giveUp()
}

// What waits for a slot when the scheduler ends, and what a reserve brings after it, is given back: pluginsFor misses no version.
func TestEndGivesBackWhatWaits(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, slots, 0, pluginsFor(t, map[string]string{"p": "queues: [q0]"}), 1)
	r.source.runner = &runner{tasks: r.source.tasks, settler: &settler{ahead: r.source.ahead, poke: make(chan struct{}, 1)}}
	r.answer(r.ask(t, slots, false), slots, listen.ReserveReply{})
	r.settleAll(100 * time.Microsecond)
	a := r.ask(t, slots, true)
	r.answer(a, slots+a.ahead, listen.ReserveReply{})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	r.Run(ctx)
	if got := len(r.source.runner.settler.waiting); got != a.ahead || r.ahead != 0 {
		t.Errorf("%d tasks were given back, and %d still wait, want %d and none", got, r.ahead, a.ahead)
	}
	r.settleAll(unknown)
}

// BenchmarkPick is what a pick takes that finds one queue with work among so many.
func BenchmarkPick(b *testing.B) {
	for _, idle := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprintf("idle=%d", idle), func(b *testing.B) {
			directory := pluginsFor(b, map[string]string{"p": "queues: [q0]"})
			r := &rig{source: newTestSource(b), scheduler: newScheduler(directory.Acquire, Config{Concurrency: 2}.withDefaults(), func(int) {})}
			for i := range 1 + idle {
				at := place{"t", fmt.Sprintf("q%d", i)}
				r.serve(at, r.source)
				if i > 0 {
					r.empty(at, r.wakes.Load())
				}
			}
			for b.Loop() {
				for _, a := range r.pick().allocations {
					r.answer(a, len(a.shares), listen.ReserveReply{})
				}
				r.settleAll(time.Hour)
			}
		})
	}
}

// What is reserved ahead does not wait for a long task: another host may have it.
func TestNothingWaitsBehindALongTask(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Concurrency: 1, Grace: time.Nanosecond, Poll: never}, hclog: hclog.Info, idle: true,
		guests: map[string][]byte{"a": runtimetest.Sleep(t)},
	})
	const short = 200 // then a long one in the middle of the last batch
	n.enqueueMany("a", short, "0")
	long := n.enqueue("a", "3600000")
	behind := n.enqueueMany("a", 50, "0")
	n.run()
	n.eventually("the long one runs", func() bool { return n.log.has("plugin says", "task_id="+long, "line=ready") })
	n.eventually("the others are complete or wait in Redis", func() bool {
		depth := n.depth("a")
		return depth[queue.Pending]+depth[queue.Complete] == int64(short+len(behind)) && depth[queue.Started] == 1
	})
	pending := n.pending("a") // a short one may be among them that the machine held up for long
	pending = slices.DeleteFunc(pending, func(id string) bool { return !slices.Contains(behind, id) })
	if !slices.Equal(pending, behind) {
		t.Errorf("the tasks behind it wait in the order %q, want %q", pending, behind)
	}
}

// What a host gave back it takes again when a slot is free, though no message tells it: Pub/Sub is forbidden, and the poll far.
func TestTakesAgainWhatItGaveBack(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	if err := server.Client(t).ACLSetUser(t.Context(), "mute", "on", ">mute", "~*", "&*", "+@all", "-publish", "-subscribe").Err(); err != nil {
		t.Fatal(err)
	}
	n := start(t, settings{
		Config: Config{Concurrency: 1, Poll: never}, server: server, user: "mute", hclog: hclog.Info, idle: true,
		guests: map[string][]byte{"a": runtimetest.Sleep(t)},
	})
	const short = 200 // then one that is longer than others may wait, in the middle of the last batch
	n.enqueueMany("a", short, "0")
	n.enqueue("a", "200")
	n.enqueueMany("a", 5, "0")
	n.run()
	n.count("a", queue.Complete, short+6)
}
