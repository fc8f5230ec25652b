package queue_test

import (
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// What is counted as running and does not run must not keep others from running for ever.
func TestMaxRunningCountsWhatRuns(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, w *world, node *listen.Node, hold listen.Claim){
		"settled by who lost it": func(t *testing.T, w *world, node *listen.Node, hold listen.Claim) {
			w.rdb.LRem(w.ctx, w.Store().Keys.Reserved("q", node.ID()), 0, hold.ID)
			must[[]error](t)(node.Settle(w.ctx, "q", []listen.Settlement{{Claim: hold}}))
		},
		"released by who lost it": func(t *testing.T, w *world, node *listen.Node, hold listen.Claim) {
			w.rdb.LRem(w.ctx, w.Store().Keys.Reserved("q", node.ID()), 0, hold.ID)
			must[[]error](t)(node.Release(w.ctx, "q", []listen.Claim{hold}))
		},
		"dropped when it is adopted": func(t *testing.T, w *world, node *listen.Node, hold listen.Claim) {
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(hold.ID), "status", "complete")
			if batch := node.Adopt(w.ctx, listen.ReserveRequest{Queue: "q"}, []string{hold.ID}); batch.Err != nil || batch.Dropped != 1 {
				t.Fatalf("%+v", batch)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				w.enqueue(t, "q", "", queue.Options{})
				node, hold := w.held(t, "q")
				leave(t, w, node, hold)
				if left := must[[]string](t)(w.rdb.SMembers(w.ctx, w.Store().Keys.Started("q")).Result()); len(left) > 0 {
					t.Errorf("started are %v", left)
				}
				w.runsOne(t)
			})
		})
	}
	t.Run("damaged by hand", func(t *testing.T) {
		everywhere(t, func(t *testing.T, w *world) {
			w.rdb.SAdd(w.ctx, w.Store().Keys.Started("q"), "gone~01234567_8 8 x", "gone_8 8 y", "z")
			w.runsOne(t)
		})
	})
	t.Run("what runs counts", func(t *testing.T) {
		everywhere(t, func(t *testing.T, w *world) {
			w.enqueue(t, "q", "", queue.Options{})
			w.held(t, "q")
			w.enqueue(t, "q", "", queue.Options{})
			batch := w.node(t, "q").Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: true, MaxRunning: 1}})[0]
			if batch.Err != nil || len(batch.Tasks) != 0 {
				t.Errorf("%+v", batch)
			}
			w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1, queue.Started: 1})
		})
	})
}

// runsOne checks that a new host gets a task of a plugin of which one may run.
func (w *world) runsOne(t *testing.T) {
	t.Helper()
	w.enqueue(t, "q", "", queue.Options{ID: "new"})
	batch := w.node(t, "q").Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: true, MaxRunning: 1}})[0]
	if batch.Err != nil || len(batch.Tasks) != 1 {
		t.Errorf("%+v; started are %v", batch, w.rdb.SMembers(w.ctx, w.Store().Keys.Started("q")).Val())
	}
}
