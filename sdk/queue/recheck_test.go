package queue_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// A producer that dies while it names what its task waits for leaves one that fails after a minute, if nobody goes on.
func TestAProducerThatDies(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		q := w.Queue("q")
		after := []string{"first"}
		for i := range 2 * queue.BlockDependencies {
			after = append(after, fmt.Sprint("d", i))
		}
		if _, err := q.Enqueue(w.ctx, nil, queue.Options{ID: "refused", After: after}); !errors.Is(err, queue.ErrDependency) {
			t.Error(err)
		}
		if _, err := w.Task(w.ctx, "refused"); !errors.Is(err, queue.ErrNoTask) {
			t.Errorf("a task that was refused: %v", err)
		}
		for _, id := range after {
			w.enqueue(t, "q", "", queue.Options{ID: id})
		}
		specs := []queue.Spec{{Options: queue.Options{ID: "half", After: after}}}
		for _, id := range []string{"half", "whole"} {
			specs[0].ID = id
			if err := q.Client().Commits.Write(w.ctx, q.Blocks(specs, []queue.Receipt{{ID: id}})); err != nil {
				t.Fatal(err)
			}
			if err := q.Await(w.ctx, id, after[:queue.BlockDependencies]...); err != nil {
				t.Fatal(err)
			}
		}
		w.at(50)
		must[listen.Block](t)(listen.NewFleet(q.client).Recheck(w.ctx, q.Name()))
		if receipts := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, specs)); !receipts[0].Existed { // somebody goes on
			t.Errorf("%+v", receipts)
		}
		w.at(70)
		must[listen.Block](t)(listen.NewFleet(q.client).Recheck(w.ctx, q.Name()))
		w.at(200)
		must[listen.Block](t)(listen.NewFleet(q.client).Recheck(w.ctx, q.Name()))
		w.is(t, map[string]string{"half": "failed dependency", "whole": "scheduled"})
		if got := *w.task(t, "whole").After; got != (queue.After{When: queue.WhenComplete, Blocked: true, Of: len(after)}) {
			t.Errorf("%+v", got)
		}
		// It stays failed, whatever ends, is repeated or retried.
		node := w.node(t, "q")
		w.run(t, node, "first", "", nil)
		w.advance(t)
		if _, err := q.Enqueue(w.ctx, nil, queue.Options{ID: "half", After: after}); !errors.Is(err, queue.ErrDependency) {
			t.Errorf("repeated: %v", err)
		}
		if err := q.Retry(w.ctx, "half"); err != nil {
			t.Fatal(err)
		}
		w.at(300)
		must[listen.Block](t)(listen.NewFleet(q.client).Recheck(w.ctx, q.Name()))
		w.is(t, map[string]string{"half": "failed dependency"})
		// What exists is not asked for its dependencies again.
		if err := q.Delete(w.ctx, "first"); err != nil {
			t.Fatal(err)
		}
		if receipts, err := q.EnqueueMany(w.ctx, []queue.Spec{{Options: queue.Options{ID: "whole", After: after}}}); err != nil || !receipts[0].Existed {
			t.Errorf("%+v, %v", receipts, err)
		}
	})
}

// Keys that somebody deleted let nobody wait for ever.
func TestRecheckRepairs(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		q, node := w.Queue("q"), w.node(t, "q")
		w.enqueue(t, "q", "", queue.Options{ID: "a"})
		w.enqueue(t, "q", "", queue.Options{ID: "b", Priority: new(int)})
		for _, id := range []string{"untold", "unknown", "unlisted"} {
			w.after(t, id, queue.WhenComplete, "a")
		}
		for i := range 500 {
			w.after(t, fmt.Sprint("other", i), queue.WhenComplete, "b")
		}
		got := w.reserve(t, node, "q", true)
		w.settle(t, node, "q", listen.Settlement{Claim: got.Claim()})
		w.rdb.Del(w.ctx, w.Store().Keys.Ended(), w.Store().Keys.Children("a"), w.Store().Keys.After("unknown"), w.Store().Keys.Task("unlisted"))
		w.advance(t)
		if block := must[listen.Block](t)(listen.NewFleet(q.client).Recheck(w.ctx, q.Name())); block.Tasks != 0 {
			t.Errorf("looked at once at %+v", block)
		}
		w.at(listen.RecheckAge.Seconds() + 1)
		if block := must[listen.Block](t)(listen.NewFleet(q.client).Recheck(w.ctx, q.Name())); block.Tasks != 503 || block.More {
			t.Errorf("looked at %+v", block)
		}
		w.is(t, map[string]string{"untold": "pending", "unknown": "failed dependency"})
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1, queue.Pending: 2, queue.Failed: 1, queue.Scheduled: 500})
	})
}

// Of a damaged list of dependencies each look makes the same.
func TestRecheckOfWhatIsLost(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		q := w.Queue("q")
		var ids []string
		for i := range 10 {
			ids = append(ids, w.enqueue(t, "q", "", queue.Options{ID: fmt.Sprint("d", i)}))
		}
		w.after(t, "ended", queue.WhenEnded, ids...)
		w.after(t, "any", queue.WhenAny, ids...)
		must[bool](t)(q.Cancel(w.ctx, "d0"))
		w.advance(t)
		for _, id := range []string{"ended", "any"} {
			w.rdb.HDel(w.ctx, w.Store().Keys.After(id), ids[8:]...)
		}
		for look := range 6 {
			w.at(float64(look+1) * (listen.RecheckAge.Seconds() + 1))
			must[listen.Block](t)(listen.NewFleet(q.client).Recheck(w.ctx, q.Name()))
			w.is(t, map[string]string{"ended": "scheduled", "any": "scheduled"})
			if got := *w.task(t, "ended").After; got != (queue.After{When: queue.WhenEnded, Blocked: true, Of: 10, Ended: 3, Failed: 3}) {
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
		w.enqueue(t, "q", "", queue.Options{ID: "a"})
		w.enqueue(t, "bad", "", queue.Options{ID: "b", After: []string{"a"}})
		w.after(t, "c", queue.WhenComplete, "a")
		w.rdb.Set(w.ctx, w.Store().Keys.Stats("bad"), "", 0)
		w.run(t, node, "a", "", nil)
		w.is(t, map[string]string{"b": "scheduled", "c": "pending"})
		w.rdb.Del(w.ctx, w.Store().Keys.Stats("bad"))
		w.at(listen.RecheckAge.Seconds() + 1)
		must[listen.Block](t)(listen.NewFleet(w.Client).Recheck(w.ctx, "bad"))
		w.is(t, map[string]string{"b": "pending"})
	})
}
