package queue_test

import (
	"errors"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// A task that is deleted and enqueued again under its ID, by the same node in run 1 again, is another task: what is
// said of the old one, because the answer to it was lost, is not meant for it.
func TestAnIDEnqueuedAnewIsAnotherTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		take := func(result string) listen.Claim {
			w.enqueue(t, "q", result, queue.Options{ID: "x"})
			got := w.reserve(t, node, "q", true)
			return got.Claim()
		}
		old := take("old")
		first := listen.Settlement{Claim: old, Result: []byte("old")}
		w.settle(t, node, "q", first)
		if err := w.Queue("q").Delete(w.ctx, "x"); err != nil {
			t.Fatal(err)
		}
		now := take("new")
		if now.Run != old.Run {
			t.Fatalf("run %d, then %d: this tests nothing", old.Run, now.Run)
		}
		errs := must[[]error](t)(node.Settle(w.ctx, "q", []listen.Settlement{first}))
		released := must[[]error](t)(node.Release(w.ctx, "q", []listen.Claim{old}))
		for what, err := range map[string]error{
			"settle": errs[0], "release": released[0], "start": second(node.Start(w.ctx, "q", old)),
			"progress":   node.Progress(w.ctx, []listen.ProgressReport{{Claim: old, Queue: "q"}})[0],
			"checkpoint": node.Checkpoint(w.ctx, "q", old, []byte("old")),
			"log":        node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: old, Lines: []string{"old"}}})[0],
		} {
			if !errors.Is(err, queue.ErrLost) {
				t.Errorf("%s with the hold of the task before: %v", what, err)
			}
		}
		w.settle(t, node, "q", listen.Settlement{Claim: now, Result: []byte("new")})
		if task := w.task(t, "x"); task.Status != queue.Complete || string(task.Result) != "new" {
			t.Errorf("%s with %q", task.Status, task.Result)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1})
	})
}

// The letter of a task that failed does not stand for that of a later one of the same ID.
func TestAnIDEnqueuedAnewHasItsOwnLetter(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		for _, payload := range []string{"old", "new"} {
			w.enqueue(t, "q", payload, queue.Options{ID: "x"})
			batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: true, FailurePolicy: listen.FailurePolicy{Dead: "dead"}}})[0]
			w.settle(t, node, "q", listen.Settlement{Claim: batch.Tasks[0].Claim(), Failure: &queue.Failure{}})
			letter := w.task(t, "x").DeadID
			if letter == "" {
				t.Errorf("the %s task has no letter", payload)
				continue
			}
			if got := string(must[[]byte](t)(w.Parameters(w.ctx, letter))); got != payload {
				t.Errorf("the letter of the %s task has %q", payload, got)
			}
			if err := w.Queue("q").Delete(w.ctx, "x"); err != nil {
				t.Fatal(err)
			}
		}
		w.depth(t, "dead", map[queue.Status]int64{queue.Pending: 2})
	})
}
