package queue_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Of many tasks only those change that are as they were read.
func TestChangeAll(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		fail := func(id string) {
			w.enqueue(t, "q", "", queue.Options{ID: id})
			w.failNext(t, "q")
		}
		for change, c := range map[queue.Change]struct{ prepare, alter func(id string) }{
			queue.ChangeCancel: {
				prepare: func(id string) { w.enqueue(t, "q", "", queue.Options{ID: id}) },
				alter: func(id string) {
					if _, err := q.Cancel(w.ctx, id); err != nil {
						t.Fatal(err)
					}
					if err := q.Delete(w.ctx, id); err != nil {
						t.Fatal(err)
					}
					w.enqueue(t, "q", "", queue.Options{ID: id})
				},
			},
			queue.ChangeRetry: {prepare: fail, alter: func(id string) {
				if err := q.Retry(w.ctx, id); err != nil {
					t.Fatal(err)
				}
				w.failNext(t, "q")
			}},
			queue.ChangeDelete: {prepare: fail, alter: func(id string) {
				if err := q.Retry(w.ctx, id); err != nil {
					t.Fatal(err)
				}
				node, hold := w.held(t, "q")
				w.settle(t, node, "q", listen.Settlement{Claim: hold, Result: []byte("precious")})
			}},
		} {
			same, other := string(change)+"-same", string(change)+"-other"
			w.at(1)
			c.prepare(same)
			c.prepare(other)
			tasks, read, _, err := w.Summaries(w.ctx, "", "", []string{same, "gone", other}, 0)
			if err != nil || len(tasks) != 2 || read != 3 {
				t.Fatalf("%d tasks of %d, %v", len(tasks), read, err)
			}
			w.at(2)
			c.alter(other)
			before := w.task(t, other)
			got := w.ChangeAll(w.ctx, change, tasks)
			if got[0].Err != nil || !errors.Is(got[1].Err, queue.ErrChanged) {
				t.Errorf("%s: %v and %v", change, got[0].Err, got[1].Err)
			}
			if after := w.task(t, other); after.Status != before.Status || after.Run != before.Run {
				t.Errorf("%s changed %+v to %+v", change, before, after)
			}
			if one := w.Change(w.ctx, change, same); !errors.Is(one.Err, queue.ErrStatus) && !errors.Is(one.Err, queue.ErrNoTask) {
				t.Errorf("%s once more: %v", change, one.Err)
			}
			if _, err := w.rdb.Del(w.ctx, w.Store().Keys.Pending("q")).Result(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A hash that names no queue belongs to none: nothing changes it.
func TestChangeOfATaskWithoutAQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.rdb.HSet(w.ctx, w.Store().Keys.Task("bare"), "status", "failed", "created", "1")
		for _, change := range []queue.Change{queue.ChangeCancel, queue.ChangeRetry, queue.ChangeDelete} {
			if one := w.Change(w.ctx, change, "bare"); !errors.Is(one.Err, queue.ErrInvalid) {
				t.Errorf("%s: %v", change, one.Err)
			}
		}
		if fields := w.rdb.HLen(w.ctx, w.Store().Keys.Task("bare")).Val(); fields != 2 {
			t.Errorf("it has %d fields", fields)
		}
	})
}

// failNext runs the queue's next task, which fails.
func (w *world) failNext(t testing.TB, name string) {
	t.Helper()
	node, hold := w.held(t, name)
	w.settle(t, node, name, listen.Settlement{Claim: hold, Failure: &queue.Failure{}})
}

// A task that failed because of another one can be retried when that is enqueued anew, and else the refusal names the culprit.
func TestRetryOfADependent(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		for _, ends := range []bool{false, true} { // before the retry, or after it
			w.enqueue(t, "q", "", queue.Options{ID: "a"})
			w.enqueue(t, "q", "", queue.Options{ID: "b", After: []string{"a"}})
			w.failNext(t, "q")
			if err := w.Store().AdvanceAll(w.ctx); err != nil {
				t.Fatal(err)
			}
			refused := func(words string) {
				t.Helper()
				if err := q.Retry(w.ctx, "b"); !errors.Is(err, queue.ErrStatus) || !strings.Contains(err.Error(), "task a, which "+words) {
					t.Errorf("%v, want that a %s", err, words)
				}
			}
			refused("failed: retry task ")
			if err := q.Delete(w.ctx, "a"); err != nil {
				t.Fatal(err)
			}
			refused("does not exist any more: enqueue both anew")
			w.enqueue(t, "q", "", queue.Options{ID: "a"})
			complete := func() {
				node, hold := w.held(t, "q")
				w.settle(t, node, "q", listen.Settlement{Claim: hold, Result: []byte("of a")})
			}
			if ends {
				complete()
			}
			if err := q.Retry(w.ctx, "b"); err != nil {
				t.Fatal(err)
			}
			if !ends {
				if task := w.task(t, "b"); task.Status != queue.Scheduled {
					t.Errorf("before a has ended: %+v", task)
				}
				complete()
				if err := w.Store().AdvanceAll(w.ctx); err != nil {
					t.Fatal(err)
				}
			}
			if task := w.task(t, "b"); task.Status != queue.Pending || string(task.Parameters) != "of a" {
				t.Errorf("b is %s with %q", task.Status, task.Parameters)
			}
			w.failNext(t, "q")
			for _, id := range []string{"a", "b"} {
				if err := q.Delete(w.ctx, id); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
