package queue

import "testing"

// What is counted as running and does not run must not keep others from running for ever.
func TestMaxRunningCountsWhatRuns(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, w *world, node *Node, hold Claim){
		"settled by who lost it": func(t *testing.T, w *world, node *Node, hold Claim) {
			w.rdb.LRem(w.ctx, w.store.keys.reserved("q", node.id), 0, hold.ID)
			must[[]error](t)(node.Settle(w.ctx, "q", []Settlement{{Claim: hold}}))
		},
		"released by who lost it": func(t *testing.T, w *world, node *Node, hold Claim) {
			w.rdb.LRem(w.ctx, w.store.keys.reserved("q", node.id), 0, hold.ID)
			must[[]error](t)(node.Release(w.ctx, "q", []Claim{hold}))
		},
		"dropped when it is adopted": func(t *testing.T, w *world, node *Node, hold Claim) {
			w.rdb.HSet(w.ctx, w.store.keys.task(hold.ID), "status", "complete")
			if batch := node.Adopt(w.ctx, ReserveRequest{Queue: "q"}, []string{hold.ID}); batch.Err != nil || batch.Dropped != 1 {
				t.Fatalf("%+v", batch)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				w.enqueue(t, "q", "", Options{})
				node, hold := w.held(t, "q")
				leave(t, w, node, hold)
				if left := must[[]string](t)(w.rdb.SMembers(w.ctx, w.store.keys.started("q")).Result()); len(left) > 0 {
					t.Errorf("started are %v", left)
				}
				w.runsOne(t)
			})
		})
	}
	t.Run("damaged by hand", func(t *testing.T) {
		everywhere(t, func(t *testing.T, w *world) {
			w.rdb.SAdd(w.ctx, w.store.keys.started("q"), "gone~01234567_8 8 x", "gone_8 8 y", "z")
			w.runsOne(t)
		})
	})
	t.Run("what runs counts", func(t *testing.T) {
		everywhere(t, func(t *testing.T, w *world) {
			w.enqueue(t, "q", "", Options{})
			w.held(t, "q")
			w.enqueue(t, "q", "", Options{})
			batch := w.node(t, "q").Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 1, Start: true, MaxRunning: 1}})[0]
			if batch.Err != nil || len(batch.Tasks) != 0 {
				t.Errorf("%+v", batch)
			}
			w.depth(t, "q", map[Status]int64{Pending: 1, Started: 1})
		})
	})
}

// runsOne checks that a new host gets a task of a plugin of which one may run.
func (w *world) runsOne(t *testing.T) {
	t.Helper()
	w.enqueue(t, "q", "", Options{ID: "new"})
	batch := w.node(t, "q").Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 1, Start: true, MaxRunning: 1}})[0]
	if batch.Err != nil || len(batch.Tasks) != 1 {
		t.Errorf("%+v; started are %v", batch, w.rdb.SMembers(w.ctx, w.store.keys.started("q")).Val())
	}
}
