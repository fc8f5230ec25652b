package queue_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func TestCrashesAreCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		terms  listen.FailurePolicy
		asked  int            // of whoever reclaims
		states []queue.Status // after each crash
		delays []int          // seconds
	}{
		{"default", listen.FailurePolicy{}, 0, []queue.Status{queue.Pending, queue.Scheduled, queue.Failed}, []int{0, 1, 0}},
		{"the host's", listen.FailurePolicy{}, 2, []queue.Status{queue.Pending, queue.Failed}, []int{0, 0}},
		{"the host's is less", listen.FailurePolicy{MaxCrashes: 1_000_000}, 5, []queue.Status{queue.Pending, queue.Scheduled, queue.Scheduled, queue.Scheduled, queue.Failed}, []int{0, 1, 2, 4, 0}},
		{"the manifest's is less", listen.FailurePolicy{MaxCrashes: 2}, 5, []queue.Status{queue.Pending, queue.Failed}, []int{0, 0}},
		{"once", listen.FailurePolicy{MaxCrashes: 1}, 0, []queue.Status{queue.Failed}, []int{0}},
		{"must not run twice", listen.FailurePolicy{NoRerun: true, MaxCrashes: 9}, 0, []queue.Status{queue.Failed}, []int{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				second := 0.0
				w.at(second)
				id := w.enqueue(t, "q", "", queue.Options{})
				for i, want := range c.states {
					node := w.node(t, "q")
					batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: true, FailurePolicy: c.terms}})[0]
					if len(batch.Tasks) != 1 || batch.Tasks[0].ID != id {
						t.Fatalf("run %d: %+v", i+1, batch)
					}
					w.die(t, node)
					got := must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), c.asked))
					if got.Sum() != 1 {
						t.Errorf("crash %d: %+v", i+1, got)
					}
					task := w.task(t, id)
					if task.Status != want || task.Crashes != i+1 || task.Attempts != 0 {
						t.Fatalf("crash %d: %+v, want %s", i+1, task, want)
					}
					if want == queue.Scheduled {
						if wait := task.ETA.Sub(task.Updated); wait != time.Duration(c.delays[i])*time.Second {
							t.Errorf("crash %d: waits %s, want %d s", i+1, wait, c.delays[i])
						}
						second += float64(c.delays[i])
						w.at(second)
						must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
					}
				}
				task := w.task(t, id)
				if task.Reason != queue.ReasonCrashed || task.Failure().Reason != queue.ReasonCrashed || task.FinishedAt.IsZero() || task.Node == "" {
					t.Errorf("at the end: %+v", task)
				}
				history := must[[]manage.Attempt](t)(manage.New(w.Client).History(w.ctx, task))
				if len(history) != len(c.states) {
					t.Errorf("%d attempts in the history, want %d", len(history), len(c.states))
				}
				for i, attempt := range history {
					last := i == len(history)-1
					if attempt.Run != int64(i+1) || !last && (attempt.Outcome != "crashed" || attempt.Failure != nil) ||
						last && (attempt.Outcome != string(queue.Failed) || attempt.Failure.Reason != queue.ReasonCrashed) {
						t.Errorf("attempt %d: %+v", i+1, attempt)
					}
				}
				w.depth(t, "q", map[queue.Status]int64{queue.Failed: 1})
			})
		})
	}
}

func TestTheLongestPauseAfterACrash(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		id := w.enqueue(t, "q", "", queue.Options{})
		w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "crashes", 50)
		node := w.node(t, "q")
		node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: true}})
		w.die(t, node)
		must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 1000))
		if task := w.task(t, id); task.ETA.Sub(task.Updated) != time.Minute {
			t.Errorf("%+v", task)
		}
	})
}

// What an older manifest said does not hold for a run that began without it.
func TestTermsOfAnOlderManifest(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, start := range map[string]func(node *listen.Node, queue string) error{
			"reserve": func(node *listen.Node, queue string) error {
				return node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: queue, Count: 1, Start: true}})[0].Err
			},
			"start": func(node *listen.Node, queue string) error {
				got := w.reserve(t, node, queue, false)
				return second(node.Start(w.ctx, queue, listen.Claim{ID: got.ID, Run: got.Run}))
			},
			"adopt": func(node *listen.Node, queue string) error {
				got := w.reserve(t, node, queue, false)
				return node.Adopt(w.ctx, listen.ReserveRequest{Queue: queue, Start: true}, []string{got.ID}).Err
			},
		} {
			for before, prepare := range map[string]func(queue, id string) error{
				"ran": func(queue, id string) error {
					node := w.node(t, queue)
					got := node.Reserve(w.ctx, []listen.ReserveRequest{{
						Queue: queue, Count: 1, Start: true, FailurePolicy: listen.FailurePolicy{NoRerun: true, MaxCrashes: 1, Dead: "dead"},
					}})[0].Tasks[0]
					errs, err := node.Release(w.ctx, queue, []listen.Claim{{ID: id, Run: got.Run}})
					return errors.Join(append(errs, err)...)
				},
				"expired": func(queue, id string) error {
					w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "created", 1)
					_, err := expire(w.ctx, w.Queue(queue), time.Hour, "dead")
					return errors.Join(err, w.Queue(queue).Retry(w.ctx, id))
				},
			} {
				target := name + "-" + before
				id := w.enqueue(t, target, "", queue.Options{})
				node := w.node(t, target)
				if err := errors.Join(prepare(target, id), start(node, target)); err != nil {
					t.Fatal(target, err)
				}
				if got := w.rdb.HMGet(w.ctx, w.Store().Keys.Task(id), "on_crash", "max_crashes", "dead").Val(); !slices.Equal(got, make([]any, 3)) {
					t.Errorf("%s: %v", target, got)
				}
				if got := w.reclaimFrom(t, node); got.Returned != 1 {
					t.Errorf("%s: %+v", target, got)
				}
			}
		}
	})
}
