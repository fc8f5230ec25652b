package queue

import (
	"fmt"
	"strings"
	"testing"
)

// failWithLetter runs the queue's next task, which fails for good and leaves a letter in dead.
func (w *world) failWithLetter(t testing.TB, queue, dead string, reason Reason) string {
	t.Helper()
	node := w.node(t, queue)
	batch := node.Reserve(w.ctx, []Want{{Queue: queue, Count: 1, Start: true, Terms: Terms{Dead: dead}}})[0]
	if len(batch.Tasks) != 1 {
		t.Fatalf("%+v", batch)
	}
	got := batch.Tasks[0]
	w.settle(t, node, queue, Settlement{Hold: Hold{ID: got.ID, Run: got.Run}, Failure: &Failure{Reason: reason, Message: "no"}})
	return got.ID
}

func TestDeadLetters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, parameters := range map[string]string{"text": "grüße", "bytes": "\xff\xd8", "empty": "", "large": strings.Repeat("x", inlineBytes+1)} {
			dead := "dead-" + name
			for _, forget := range []bool{false, true} {
				id := w.enqueue(t, name, parameters, Options{})
				w.failWithLetter(t, name, dead, ReasonTrap)
				failed := w.task(t, id)
				letter := w.task(t, failed.DeadID)
				if failed.Status != Failed || letter.Status != Pending || letter.Queue != dead || letter.LiveID != id || string(letter.Parameters) != parameters {
					t.Errorf("%s: %+v, letter %+v", name, failed, letter)
				}
				if forget { // the letter takes over what it refers to
					if err := w.Queue(name).Delete(w.ctx, id); err != nil {
						t.Fatal(err)
					}
				}
				node := w.node(t, dead)
				got := w.reserve(t, node, dead, true)
				text := string(got.Parameters)
				if got.Large {
					text = string(must[[]byte](t)(w.Parameters(w.ctx, got.ID)))
				}
				if got.ID != letter.ID || text != parameters || int(got.Size) != len(parameters) {
					t.Errorf("%s, forgotten %v: %d bytes, size %d", name, forget, len(text), got.Size)
				}
				w.settle(t, node, dead, Settlement{Hold: Hold{ID: got.ID, Run: got.Run}})
				if forget {
					if n := w.rdb.Exists(w.ctx, w.keys.task(id)).Val(); n != 0 {
						t.Error("the mark brought a deleted task back")
					}
				} else if task := w.task(t, id); task.Handled != letter.ID || task.Status != Failed {
					t.Errorf("%s: %+v", name, task)
				}
				if err := w.Queue(dead).Delete(w.ctx, letter.ID); err != nil {
					t.Fatal(err)
				}
				if n := w.rdb.Exists(w.ctx, w.keys.task(letter.ID), w.keys.bytes(letter.ID)).Val(); n != 0 {
					t.Error("something of the letter is left")
				}
			}
		}
	})
}

func TestWhatHasNoDeadLetter(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", Options{})
		w.failWithLetter(t, "q", "dead", ReasonCancelled)
		w.enqueue(t, "own", "", Options{})
		w.failWithLetter(t, "own", "own", ReasonTrap)
		w.enqueue(t, "damaged", "", Options{})
		w.rdb.Set(w.ctx, w.keys.priorities("dead"), "x", 0)
		w.failWithLetter(t, "damaged", "dead", ReasonTrap)
		w.rdb.Del(w.ctx, w.keys.priorities("dead"))
		w.depth(t, "dead", nil)
		w.depth(t, "own", map[Status]int64{Failed: 1})
		w.depth(t, "damaged", map[Status]int64{Failed: 1})
	})
}

// A letter that fails has one of the first task, and a task that is retried by hand and fails again too.
func TestDeadOfDead(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		live := w.enqueue(t, "q", "\xff", Options{})
		w.failWithLetter(t, "q", "dead", ReasonTrap)
		first := w.failWithLetter(t, "dead", "deader", ReasonTrap)
		second := w.task(t, w.task(t, first).DeadID)
		if second.LiveID != live || string(second.Parameters) != "\xff" || second.Queue != "deader" || w.task(t, live).DeadID != second.ID {
			t.Errorf("%+v", second)
		}
		if err := w.Queue("q").Delete(w.ctx, live); err != nil {
			t.Fatal(err)
		}
		if task := w.task(t, second.ID); string(task.Parameters) != "\xff" {
			t.Errorf("%+v", task)
		}
		for i := range 2 { // each failure has a letter of its own, once
			id := w.enqueue(t, "again", fmt.Sprint(i), Options{ID: "again"})
			w.rdb.HSet(w.ctx, w.keys.task(id), "dead", "morgue")
			w.failWithLetter(t, "again", "morgue", ReasonTrap)
			if err := w.Queue("again").Retry(w.ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		w.depth(t, "morgue", map[Status]int64{Pending: 2})
	})
}
