package schedule_test

import (
	"testing"
	"time"

	"github.com/quern-project/quern/host/schedule"
)

// Tasks of a queue are reserved ahead of free slots once its tasks are known to be short, and not after a long one.
func TestShortTasksAreReservedAhead(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, schedule.Config{Slots: slots}, 1)
	a := r.learn(short, 0, slots)
	ahead := a.Tasks() - slots
	if begun := r.answer(a, a.Tasks(), schedule.Reply{}); begun != slots {
		t.Fatalf("%d tasks have begun on %d slots", begun, slots)
	}
	if round := r.planOnly(); len(round.Work) > 0 {
		t.Fatalf("%+v while no slot is free and enough tasks wait", round.Work)
	}
	r.endAll(short, 0)
	if len(r.running) != slots {
		t.Fatalf("%d of those that waited have begun, want %d", len(r.running), slots)
	}
	r.endAll(time.Second, 0)

	r.now = r.now.Add(aheadWait)
	_, allocations := r.plan()
	if len(r.ended) != ahead-slots || len(r.running) > 0 {
		t.Fatalf("%d are late and %d have begun, want %d and 0", len(r.ended), len(r.running), ahead-slots)
	}
	for _, a := range allocations {
		if a.Tasks() > a.Slots() {
			t.Errorf("%d tasks are reserved ahead after a long one", a.Tasks()-a.Slots())
		}
		r.answer(a, 0, schedule.Reply{})
	}
	if s := r.Status(); s.Ahead != 0 || s.InUse != 0 {
		t.Errorf("at the end %+v", s)
	}
}

// However short a queue's tasks are, the number that wait is bounded, and so is that of one reserve.
func TestMostAhead(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, schedule.Config{Slots: slots}, 1)
	r.answer(r.ask(slots, false), slots, schedule.Reply{})
	r.endAll(time.Microsecond, 0)
	most := 0
	for range 8 {
		_, allocations := r.plan()
		for _, a := range allocations {
			if a.Tasks() > maxReserve {
				t.Errorf("a reserve of %d tasks", a.Tasks())
			}
			r.answer(a, a.Tasks(), schedule.Reply{})
		}
		most = max(most, r.Status().Ahead)
	}
	if most <= maxReserve || most > maxAhead {
		t.Errorf("%d tasks waited, want more than one reserve and at most %d", most, maxAhead)
	}
}

// One task that was held up for some milliseconds does not keep the next ones from being reserved ahead.
func TestOneHeldUpTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, schedule.Config{Slots: 1}, 1)
	a := r.learn(short, 0, 1)
	r.answer(a, a.Tasks(), schedule.Reply{})
	for took := 5 * time.Millisecond; len(r.running) > 0; took = short {
		r.endAll(took, 0)
	}
	r.answer(r.ask(1, true), 0, schedule.Reply{})
}

// A slot goes on to the next task of its queue only while no other queue has work.
func TestASlotGoesOnFairly(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, schedule.Config{Slots: slots}, 2)
	r.PolledEmpty(r.queues[1], r.Wakes())
	a := r.learn(short, 0, slots)
	r.answer(a, a.Tasks(), schedule.Reply{})
	r.planOnly()
	r.endAll(short, 0)
	if len(r.running) != slots {
		t.Fatalf("%d slots went on, want %d", len(r.running), slots)
	}
	r.Announced(r.queues[1])
	r.planOnly()
	r.endAll(short, 0)
	if len(r.running) != 0 {
		t.Fatalf("%d slots went on while another queue had work", len(r.running))
	}
	_, allocations := r.plan()
	if len(r.running) != 1 || len(allocations) == 0 {
		t.Errorf("%d tasks have begun on %d slots, and %d queues reserve", len(r.running), slots, len(allocations))
	}
	for _, a := range allocations {
		r.answer(a, 0, schedule.Reply{})
	}
}

// With more queues than slots a slot goes on to the next task of its queue until the queue's turn is over.
func TestASlotGoesOnForATurn(t *testing.T) {
	t.Parallel()
	const turn = int(aheadTime / short)
	r := newRig(t, schedule.Config{Slots: 1}, 2)
	r.step(short)
	r.step(short)
	longest := 0
	for range 4 * turn {
		r.fill()
		ran := make(map[schedule.Queue]int)
		for ; len(r.running) > 0; r.endAll(short, 0) {
			ran[r.running[0].Queue]++
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
}

// No task is reserved ahead of a plugin whose tasks may not wait; and a queue that is left keeps none.
func TestNothingAhead(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, schedule.Config{Slots: slots}, 1)
	r.install("p", schedule.Version{Memory: small}, "q0")
	r.answer(r.ask(slots, false), slots, schedule.Reply{})
	r.endAll(time.Microsecond, 0)
	r.answer(r.ask(slots, false), 0, schedule.Reply{})

	r = newRig(t, schedule.Config{Slots: slots}, 1)
	a := r.learn(time.Microsecond, 0, slots)
	r.answer(a, a.Tasks(), schedule.Reply{})
	r.Leave(r.queues[0])
	if r.planOnly(); len(r.ended) != a.Tasks()-slots {
		t.Errorf("%d tasks of a queue that is left are given back, want %d", len(r.ended), a.Tasks()-slots)
	}
}

// step has Redis answer one plan with all that is asked for, ends what runs, and returns which queues got slots, for
// how many tasks.
func (r *rig) step(took time.Duration) (served map[string]int, reserves int) {
	r.t.Helper()
	_, allocations := r.plan()
	if len(r.ended) > 0 {
		r.t.Fatalf("%d tasks are late", len(r.ended))
	}
	for _, a := range allocations {
		r.answer(a, a.Tasks(), schedule.Reply{})
	}
	served = make(map[string]int)
	for _, task := range r.running {
		served[task.Queue.Name]++
	}
	r.endAll(took, 0)
	return served, len(allocations)
}

// Queues of short tasks get slots in turns of several tasks, the same number for each, so that few scripts reserve and
// settle them; and what all of them together reserve ahead is bounded.
func TestTurnsOfShortTasks(t *testing.T) {
	t.Parallel()
	const slots, count, rounds = 2, 50, 4
	const turn, most = int(aheadTime / short), int(aheadTime * slots / short)
	r := newRig(t, schedule.Config{Slots: slots}, count)
	tasks, total, reserves := make(map[string]int), 0, 0
	for total < rounds*count*turn {
		served, asked := r.step(short)
		if total > count { // all are known
			reserves += asked
		}
		for name, n := range served {
			tasks[name] += n
			total += n
		}
		if ahead := r.Status().Ahead; ahead > most {
			t.Fatalf("%d tasks wait, of queues whose tasks take %s, on %d slots", ahead, short, slots)
		}
	}
	if many := 2 * total / turn; reserves > many {
		t.Errorf("%d reserves for %d tasks in turns of %d", reserves, total, turn)
	}
	for _, at := range r.queues {
		if n := tasks[at.Name]; n < (rounds-1)*turn || n > (rounds+1)*turn {
			t.Errorf("%s ran %d tasks in %d turns of %d", at.Name, n, rounds, turn)
		}
	}
}

// A queue of short tasks loses its turn with the first long one.
func TestLongTaskEndsTheTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, schedule.Config{Slots: 1}, 2)
	last := ""
	next := func(took time.Duration) (name string) {
		served, _ := r.step(took)
		for name = range served {
		}
		return name
	}
	for steps, repeats := 0, 0; repeats < 2; steps++ { // until one is in the middle of its turn
		name := next(time.Microsecond)
		if repeats++; name == "" || name != last {
			repeats = 0
		}
		if name != "" {
			last = name
		}
		if steps == 20 {
			t.Fatal("no queue keeps its turn")
		}
	}
	next(time.Second)
	if name := next(time.Microsecond); name == "" || name == last {
		t.Errorf("after a long task of %s the slot goes to %q", last, name)
	}
}

// A task that was stopped before its guest began does not change what is known of its queue's tasks.
func TestNoSampleOfWhatDidNotRun(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, schedule.Config{Slots: slots}, 1)
	for range 3 {
		r.answer(r.ask(slots, false), slots, schedule.Reply{})
		r.endAll(schedule.Unknown, 0)
	}
	r.answer(r.ask(slots, false), slots, schedule.Reply{})
	r.endAll(short, 0)
	r.answer(r.ask(slots, true), slots, schedule.Reply{})
	r.endAll(schedule.Unknown, 0)
	r.Announced(r.queues[0])
	r.answer(r.ask(slots, true), slots, schedule.Reply{})
}

// What waits for a slot at the end, and what a reserve brings after it, is given back.
func TestEndGivesBackWhatWaits(t *testing.T) {
	t.Parallel()
	const slots = 2
	r := newRig(t, schedule.Config{Slots: slots}, 1)
	a := r.learn(short, 0, slots)
	r.answer(a, a.Tasks(), schedule.Reply{})
	returned := r.End()[r.source]
	if len(returned) != a.Tasks()-slots || r.Status().Ahead != 0 {
		t.Errorf("%d tasks are given back, and %d still wait, want %d and none", len(returned), r.Status().Ahead, a.Tasks()-slots)
	}
	for _, task := range returned {
		r.giveBack(task)
	}
}

// A queue of short tasks gets as many slots as keep the places for guests busy: as many as there are if its tasks
// compute, and more if they wait for others.
func TestShortTasksGetAsManySlotsAsTheyCanUse(t *testing.T) {
	t.Parallel()
	const slots, places = 32, 2
	for _, test := range []struct {
		waits time.Duration
		slots int
	}{{0, places}, {short / 2, 2 * places}, {short * 9 / 10, 10 * places}, {short * 99 / 100, slots}} {
		r := newRig(t, schedule.Config{Slots: slots, Guests: places}, 1)
		a := r.learn(short, test.waits, test.slots)
		r.answer(a, a.Tasks(), schedule.Reply{})
		for range 2 {
			r.endAll(short, test.waits)
			if len(r.running) != test.slots {
				t.Errorf("%d slots run tasks that wait for %s of %s, want %d", len(r.running), test.waits, short, test.slots)
			}
		}
	}
}

// Beside long tasks, which keep places busy as well, as many short ones more have slots and wait at the gate.
func TestShortTasksBesideLongOnes(t *testing.T) {
	t.Parallel()
	const slots, places, long = 16, 2, 5
	r := newRig(t, schedule.Config{Slots: slots, Guests: places}, 2)
	r.install("long", schedule.Version{Memory: small, Concurrency: long}, "q1")
	r.PolledEmpty(r.queues[1], r.Wakes())
	a := r.learn(short, 0, places)
	r.answer(a, a.Tasks(), schedule.Reply{})
	r.endAll(short, 0)
	if n := len(r.running); n != places {
		t.Fatalf("%d short tasks have slots, want %d", n, places)
	}
	r.Announced(r.queues[1])
	_, allocations := r.plan()
	for _, a := range allocations {
		if a.Queue == r.queues[1] {
			r.answer(a, a.Slots(), schedule.Reply{})
		} else {
			r.answer(a, 0, schedule.Reply{})
		}
	}
	r.planOnly()
	running := make(map[string]int)
	for _, task := range r.running {
		running[task.Queue.Name]++
	}
	if running["q0"] != places+long || running["q1"] != long {
		t.Errorf("%v run, want %d short tasks beside %d long ones", running, places+long, long)
	}
}

// Short tasks do not wait for a long one of theirs while slots are free.
func TestALongTaskAmongShortOnes(t *testing.T) {
	t.Parallel()
	const slots, places = 4, 2
	r := newRig(t, schedule.Config{Slots: slots, Guests: places}, 1)
	a := r.learn(short, 0, places)
	r.answer(a, a.Tasks(), schedule.Reply{})
	r.endAll(short, 0)
	round := r.planOnly()
	if len(r.running) != places || round.Next == 0 || round.Next > aheadTime {
		t.Fatalf("%d tasks run, want %d, and another plan after %s", len(r.running), places, round.Next)
	}
	r.now = r.now.Add(aheadTime)
	r.planOnly()
	if len(r.running) != 2*places {
		t.Fatalf("%d tasks run with the long ones, want %d", len(r.running), 2*places)
	}
	long := r.running[:places]
	r.running = r.running[places:]
	r.endAll(short, 0)
	if len(r.running) != places {
		t.Errorf("%d of these slots went on, want %d", len(r.running), places)
	}
	r.running = append(r.running, long...)
}
