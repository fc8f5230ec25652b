package queue

import (
	"errors"
	"testing"
)

// A task that is deleted and enqueued again under its ID, by the same node in run 1 again, is another task: what is
// said of the old one, because the answer to it was lost, is not meant for it.
func TestAnIDEnqueuedAnewIsAnotherTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		take := func(result string) Claim {
			w.enqueue(t, "q", result, Options{ID: "x"})
			got := w.reserve(t, node, "q", true)
			return got.Claim()
		}
		old := take("old")
		first := Settlement{Claim: old, Result: []byte("old")}
		w.settle(t, node, "q", first)
		if err := w.Queue("q").Delete(w.ctx, "x"); err != nil {
			t.Fatal(err)
		}
		now := take("new")
		if now.Run != old.Run {
			t.Fatalf("run %d, then %d: this tests nothing", old.Run, now.Run)
		}
		errs := must[[]error](t)(node.Settle(w.ctx, "q", []Settlement{first}))
		released := must[[]error](t)(node.Release(w.ctx, "q", []Claim{old}))
		for what, err := range map[string]error{
			"settle": errs[0], "release": released[0], "start": second(node.Start(w.ctx, "q", old)),
			"progress":   node.Progress(w.ctx, []ProgressReport{{Claim: old, Queue: "q"}})[0],
			"checkpoint": node.Checkpoint(w.ctx, "q", old, []byte("old")),
			"log":        node.AppendLogs(w.ctx, []LogBatch{{Claim: old, Lines: []string{"old"}}})[0],
		} {
			if !errors.Is(err, ErrLost) {
				t.Errorf("%s with the hold of the task before: %v", what, err)
			}
		}
		w.settle(t, node, "q", Settlement{Claim: now, Result: []byte("new")})
		if task := w.task(t, "x"); task.Status != Complete || string(task.Result) != "new" {
			t.Errorf("%s with %q", task.Status, task.Result)
		}
		w.depth(t, "q", map[Status]int64{Complete: 1})
	})
}

// The letter of a task that failed does not stand for that of a later one of the same ID.
func TestAnIDEnqueuedAnewHasItsOwnLetter(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		for _, payload := range []string{"old", "new"} {
			w.enqueue(t, "q", payload, Options{ID: "x"})
			batch := node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 1, Start: true, FailurePolicy: FailurePolicy{Dead: "dead"}}})[0]
			w.settle(t, node, "q", Settlement{Claim: batch.Tasks[0].Claim(), Failure: &Failure{}})
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
		w.depth(t, "dead", map[Status]int64{Pending: 2})
	})
}
