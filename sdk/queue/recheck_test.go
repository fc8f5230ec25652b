package queue

import (
	"errors"
	"fmt"
	"testing"
)

// A producer that dies while it names what its task waits for leaves one that fails after a minute, if nobody goes on.
func TestAProducerThatDies(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		q := w.Queue("q")
		after := []string{"first"}
		for i := range 2 * blockDependencies {
			after = append(after, fmt.Sprint("d", i))
		}
		if _, err := q.Enqueue(w.ctx, nil, Options{ID: "refused", After: after}); !errors.Is(err, ErrDependency) {
			t.Error(err)
		}
		if _, err := w.Task(w.ctx, "refused"); !errors.Is(err, ErrNoTask) {
			t.Errorf("a task that was refused: %v", err)
		}
		for _, id := range after {
			w.enqueue(t, "q", "", Options{ID: id})
		}
		specs := []Spec{{Options: Options{ID: "half", After: after}}}
		for _, id := range []string{"half", "whole"} {
			specs[0].ID = id
			if err := q.client.commits.write(w.ctx, q.blocks(specs, []Receipt{{ID: id}})); err != nil {
				t.Fatal(err)
			}
			if err := q.Await(w.ctx, id, after[:blockDependencies]...); err != nil {
				t.Fatal(err)
			}
		}
		w.at(50)
		must[Block](t)(q.client.Fleet().Recheck(w.ctx, q.name))
		if receipts := must[[]Receipt](t)(q.EnqueueMany(w.ctx, specs)); !receipts[0].Existed { // somebody goes on
			t.Errorf("%+v", receipts)
		}
		w.at(70)
		must[Block](t)(q.client.Fleet().Recheck(w.ctx, q.name))
		w.at(200)
		must[Block](t)(q.client.Fleet().Recheck(w.ctx, q.name))
		w.is(t, map[string]string{"half": "failed dependency", "whole": "scheduled"})
		if got := *w.task(t, "whole").After; got != (After{When: WhenComplete, Blocked: true, Of: len(after)}) {
			t.Errorf("%+v", got)
		}
		// It stays failed, whatever ends, is repeated or retried.
		node := w.node(t, "q")
		w.run(t, node, "first", "", nil)
		w.advance(t)
		if _, err := q.Enqueue(w.ctx, nil, Options{ID: "half", After: after}); !errors.Is(err, ErrDependency) {
			t.Errorf("repeated: %v", err)
		}
		if err := q.Retry(w.ctx, "half"); err != nil {
			t.Fatal(err)
		}
		w.at(300)
		must[Block](t)(q.client.Fleet().Recheck(w.ctx, q.name))
		w.is(t, map[string]string{"half": "failed dependency"})
		// What exists is not asked for its dependencies again.
		if err := q.Delete(w.ctx, "first"); err != nil {
			t.Fatal(err)
		}
		if receipts, err := q.EnqueueMany(w.ctx, []Spec{{Options: Options{ID: "whole", After: after}}}); err != nil || !receipts[0].Existed {
			t.Errorf("%+v, %v", receipts, err)
		}
	})
}

// Keys that somebody deleted let nobody wait for ever.
func TestRecheckRepairs(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		q, node := w.Queue("q"), w.node(t, "q")
		w.enqueue(t, "q", "", Options{ID: "a"})
		w.enqueue(t, "q", "", Options{ID: "b", Priority: new(int)})
		for _, id := range []string{"untold", "unknown", "unlisted"} {
			w.after(t, id, WhenComplete, "a")
		}
		for i := range 500 {
			w.after(t, fmt.Sprint("other", i), WhenComplete, "b")
		}
		got := w.reserve(t, node, "q", true)
		w.settle(t, node, "q", Settlement{Claim: got.Claim()})
		w.rdb.Del(w.ctx, w.store.keys.ended(), w.store.keys.children("a"), w.store.keys.after("unknown"), w.store.keys.task("unlisted"))
		w.advance(t)
		if block := must[Block](t)(q.client.Fleet().Recheck(w.ctx, q.name)); block.Tasks != 0 {
			t.Errorf("looked at once at %+v", block)
		}
		w.at(RecheckAge.Seconds() + 1)
		if block := must[Block](t)(q.client.Fleet().Recheck(w.ctx, q.name)); block.Tasks != 503 || block.More {
			t.Errorf("looked at %+v", block)
		}
		w.is(t, map[string]string{"untold": "pending", "unknown": "failed dependency"})
		w.depth(t, "q", map[Status]int64{Complete: 1, Pending: 2, Failed: 1, Scheduled: 500})
	})
}

// Of a damaged list of dependencies each look makes the same.
func TestRecheckOfWhatIsLost(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		q := w.Queue("q")
		var ids []string
		for i := range 10 {
			ids = append(ids, w.enqueue(t, "q", "", Options{ID: fmt.Sprint("d", i)}))
		}
		w.after(t, "ended", WhenEnded, ids...)
		w.after(t, "any", WhenAny, ids...)
		must[bool](t)(q.Cancel(w.ctx, "d0"))
		w.advance(t)
		for _, id := range []string{"ended", "any"} {
			w.rdb.HDel(w.ctx, w.store.keys.after(id), ids[8:]...)
		}
		for look := range 6 {
			w.at(float64(look+1) * (RecheckAge.Seconds() + 1))
			must[Block](t)(q.client.Fleet().Recheck(w.ctx, q.name))
			w.is(t, map[string]string{"ended": "scheduled", "any": "scheduled"})
			if got := *w.task(t, "ended").After; got != (After{When: WhenEnded, Blocked: true, Of: 10, Ended: 3, Failed: 3}) {
				t.Errorf("look %d: %+v", look, got)
			}
		}
	})
}

// A key of another type in a dependent's queue costs no other dependent anything, and is tried again.
func TestADamagedQueueOfADependent(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		node := w.node(t, "q")
		w.enqueue(t, "q", "", Options{ID: "a"})
		w.enqueue(t, "bad", "", Options{ID: "b", After: []string{"a"}})
		w.after(t, "c", WhenComplete, "a")
		w.rdb.Set(w.ctx, w.store.keys.stats("bad"), "", 0)
		w.run(t, node, "a", "", nil)
		w.is(t, map[string]string{"b": "scheduled", "c": "pending"})
		w.rdb.Del(w.ctx, w.store.keys.stats("bad"))
		w.at(RecheckAge.Seconds() + 1)
		must[Block](t)(w.Fleet().Recheck(w.ctx, "bad"))
		w.is(t, map[string]string{"b": "pending"})
	})
}
