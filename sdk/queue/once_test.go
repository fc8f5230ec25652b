package queue

import (
	"errors"
	"testing"
)

func TestEnqueueOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		a, b := Spec{Options: Options{ID: q.OnceID("event", "s", "1")}}, Spec{Options: Options{ID: q.OnceID("event", "s", "2")}}
		if got := must[[]Receipt](t)(q.EnqueueOnce(w.ctx, []Spec{a, a})); got[0].Existed || !got[1].Existed {
			t.Errorf("the same twice: %+v", got)
		}
		if _, err := q.Cancel(w.ctx, a.ID); err != nil {
			t.Fatal(err)
		}
		if err := q.Delete(w.ctx, a.ID); err != nil {
			t.Fatal(err)
		}
		got := must[[]Receipt](t)(q.EnqueueOnce(w.ctx, []Spec{a, b}))
		if got[0] != (Receipt{ID: a.ID, Existed: true}) || got[1] != (Receipt{ID: b.ID}) {
			t.Errorf("a deleted one and a new one: %+v", got)
		}
		if _, err := w.Task(w.ctx, a.ID); !errors.Is(err, ErrNoTask) {
			t.Errorf("the deleted task is back: %v", err)
		}
		if life := w.rdb.TTL(w.ctx, w.keys.once(a.ID)).Val(); life <= 0 || life > OnceLife {
			t.Errorf("it is remembered for %s", life)
		}
	})
}

// Another body under the ID of a task does not become the one that is remembered.
func TestOnceRemembersTheTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "one", Options{ID: "k"}) // whose producer died before it was remembered
		for _, c := range []struct {
			body  string
			taken bool
		}{{"two", true}, {"two", true}, {"one", false}, {"two", true}} {
			got := must[[]Receipt](t)(w.Queue("q").EnqueueOnce(w.ctx, []Spec{{Parameters: []byte(c.body), Options: Options{ID: "k"}}}))
			if got[0].Taken != c.taken || !c.taken && !got[0].Existed {
				t.Errorf("%s: %+v, want taken %t", c.body, got[0], c.taken)
			}
		}
	})
}

// What was refused is not remembered: it may be sent again.
func TestRefusedIsNotOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		if err := q.SetLimit(w.ctx, 1); err != nil {
			t.Fatal(err)
		}
		specs := []Spec{{Options: Options{ID: "a"}}, {Options: Options{ID: "b"}}}
		if _, err := q.EnqueueOnce(w.ctx, specs); !errors.Is(err, ErrQueueFull) {
			t.Fatalf("%v, want ErrQueueFull", err)
		}
		if err := q.SetLimit(w.ctx, 0); err != nil {
			t.Fatal(err)
		}
		if got := must[[]Receipt](t)(q.EnqueueOnce(w.ctx, specs)); got[0].Existed || got[1].Existed {
			t.Errorf("%+v", got)
		}
	})
}

func TestOnceID(t *testing.T) {
	w := setup(t)
	ids := map[string]bool{}
	for _, id := range []string{
		w.Queue("q").OnceID("a", "bc"), w.Queue("q").OnceID("ab", "c"), w.Queue("r").OnceID("a", "bc"), w.Queue("q").OnceID("a", "b", "c"),
	} {
		if ids[id] = true; ValidID(id) != nil {
			t.Errorf("%q is no ID", id)
		}
	}
	if len(ids) != 4 || !ids[w.Queue("q").OnceID("a", "bc")] {
		t.Errorf("%v", ids)
	}
}

func TestPage(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(t, "q", "", Options{ID: id})
		}
		w.rdb.Del(w.ctx, w.keys.task("b")) // vanished, and still in its lists
		if task := must[*Task](t)(w.Summary(w.ctx, "a")); task.Queue != "q" || task.Status != Pending || task.Parameters != nil {
			t.Errorf("%+v", task)
		}
		if _, err := w.Summary(w.ctx, "b"); !errors.Is(err, ErrNoTask) {
			t.Errorf("%v, want ErrNoTask", err)
		}
		page := must[TaskPage](t)(q.Page(w.ctx, ListOptions{Status: Pending, Limit: 3}))
		if len(page.Tasks) != 2 || page.Read != 3 || page.End {
			t.Errorf("%+v; want 2 tasks of 3 entries", page)
		}
		if page = must[TaskPage](t)(q.Page(w.ctx, ListOptions{Offset: 2, Limit: 3})); page.Read != 1 || !page.End {
			t.Errorf("the last page: %+v", page)
		}
		must[TaskPage](t)(q.Page(w.ctx, ListOptions{})) // the default limit
		if _, err := q.Page(w.ctx, ListOptions{Limit: maxPage + 1}); !errors.Is(err, ErrInvalid) {
			t.Errorf("a limit too high: %v", err)
		}
	})
}
