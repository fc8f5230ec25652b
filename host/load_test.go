package host

import (
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"
)

// drain has the host run short tasks until their queue is known, and then so many that wait for slots.
func (r *rig) drain(t *testing.T, places float64, slots int, took, waited time.Duration) {
	t.Helper()
	r.load = load{places: places}
	r.answer(r.ask(t, slots, false), slots, listen.ReserveReply{})
	r.endAll(took, waited)
	a := r.ask(t, int(min(places*float64(took)/float64(took-waited), float64(slots))), true)
	r.answer(a, len(a.shares)+a.ahead, listen.ReserveReply{})
}

// A queue of short tasks gets as many slots as keep the places for guests busy: as many as there are if its tasks compute, and
// more if they wait for others.
func TestShortTasksGetAsManySlotsAsTheyCanUse(t *testing.T) {
	t.Parallel()
	const slots, places, took = 32, 2, 100 * time.Microsecond
	for _, test := range []struct {
		waits time.Duration
		slots int
	}{{0, places}, {took / 2, 2 * places}, {took * 9 / 10, 10 * places}, {took * 99 / 100, slots}} {
		r := newRig(t, slots, 0, pluginsFor(t, map[string]string{"p": "queues: [q0]"}), 1)
		r.drain(t, places, slots, took, test.waits)
		for range 2 {
			r.endAll(took, test.waits)
			if len(r.running) != test.slots {
				t.Errorf("%d slots run tasks that wait for %s of %s, want %d", len(r.running), test.waits, took, test.slots)
			}
		}
		r.leave(r.queues[0])
		r.giveUp()
	}
}

// Beside long tasks, which keep places busy as well, as many short ones more have slots and wait at the gate.
func TestShortTasksBesideLongOnes(t *testing.T) {
	t.Parallel()
	const slots, places, long, took = 16, 2, 5, 100 * time.Microsecond
	r := newRig(t, slots, 0, pluginsFor(t, map[string]string{"p": "queues: [q0]"}), 1)
	r.drain(t, places, slots, took, 0)
	r.endAll(took, 0)
	short := r.running
	var others []*share
	for range long {
		others = append(others, r.takeSlot(&served{source: r.source}, short[0].version, r.now))
	}
	begun := r.pick().begun
	if len(short) != places || len(begun) != long {
		t.Errorf("%d short tasks have slots, and %d more beside long ones, want %d and %d", len(short), len(begun), places, long)
	}
	for _, other := range others {
		r.freeSlot(&served{}, short[0].version, other)
	}
	r.running = slices.Concat(short, begun)
	r.leave(r.queues[0])
	r.giveUp()
}

// Short tasks do not wait for a long one of theirs while slots are free.
func TestALongTaskAmongShortOnes(t *testing.T) {
	t.Parallel()
	const slots, places, took = 4, 2, 100 * time.Microsecond
	r := newRig(t, slots, 0, pluginsFor(t, map[string]string{"p": "queues: [q0]"}), 1)
	r.drain(t, places, slots, took, 0)
	long := r.running
	if begun := r.pick().begun; len(begun) != 0 || r.overdue == nil {
		t.Fatalf("%d more tasks have begun, want none, and another pick soon: %t", len(begun), r.overdue != nil)
	}
	r.now = r.now.Add(aheadTime)
	if r.running = r.pick().begun; len(r.running) != places {
		t.Fatalf("%d tasks have begun beside the long ones, want %d", len(r.running), places)
	}
	r.endAll(took, 0)
	if len(r.running) != places {
		t.Errorf("%d of these slots went on, want %d", len(r.running), places)
	}
	r.running = append(r.running, long...)
	r.leave(r.queues[0])
	r.giveUp()
}
