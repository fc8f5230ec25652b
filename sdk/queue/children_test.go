package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// child is a task that comes of another one.
func child(queue, id, parameters string, options Options) Child {
	options.ID = id
	return Child{Queue: queue, Spec: Spec{Parameters: []byte(parameters), Options: options}}
}

// begun is a task of the queue that a node holds.
func (w *world) begun(t testing.TB, queue string) (*Node, Claim) {
	t.Helper()
	w.enqueue(t, queue, "", Options{})
	return w.held(t, queue)
}

// Children come into being with the completion of their parent, each as if it had been enqueued.
func TestChildrenOfACompleteTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		priority := 80
		node, hold := w.begun(t, "q")
		children := []Child{
			child("b", "plain", "1", Options{Parent: hold.ID, Depth: 3, Traceparent: trace}),
			child("b", "bytes", "\xff\x00", Options{Key: "k", Labels: map[string]string{"a": "b"}}),
			child("b", "urgent", "3", Options{Priority: &priority}),
			child("c", "later", "4", Options{Delay: time.Hour}),
			child("q", "next", "5", Options{Retry: Retry{MaxAttempts: 7}}),
		}
		settlement := Settlement{Claim: hold, Result: []byte("done"), Children: children}
		for range 2 { // a repeat finds its own mark
			w.settle(t, node, "q", settlement)
		}
		w.depth(t, "b", map[Status]int64{Pending: 3})
		w.depth(t, "c", map[Status]int64{Scheduled: 1})
		w.depth(t, "q", map[Status]int64{Complete: 1, Pending: 1})
		for _, c := range children {
			task := w.task(t, c.ID)
			if string(task.Parameters) != string(c.Parameters) || task.Queue != c.Queue || task.Key != c.Key || task.Parent != c.Parent ||
				task.Depth != c.Depth || task.Traceparent != c.Traceparent || !maps.Equal(task.Labels, c.Labels) {
				t.Errorf("child %+v", task)
			}
		}
		if task := w.task(t, "next"); task.MaxAttempts != 7 {
			t.Errorf("child %+v", task)
		}
		stats := must[Stats](t)(w.Queue("b").Stats(w.ctx))
		if stats.Totals["enqueued"] != 3 {
			t.Errorf("stats %+v", stats)
		}

		other := w.node(t, "b")
		if got := w.reserve(t, other, "b", true); got.ID != "urgent" {
			t.Errorf("first %+v", got)
		}
		if got := w.reserve(t, other, "b", true); got.ID != "plain" || got.Parent != hold.ID || got.Depth != 3 || got.Traceparent != trace {
			t.Errorf("then %+v", got)
		}
	})
}

// A task that does not complete has no children, nor has one that is another's by now.
func TestChildrenOfOthers(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for i, s := range []Settlement{
			{Failure: &Failure{Message: "no"}},
			{Failure: &Failure{Message: "no"}, Requeue: RequeueRetry, Delay: time.Hour},
			{Failure: &Failure{Message: "no"}, Requeue: RequeueReschedule, Delay: time.Hour},
		} {
			queue := fmt.Sprintf("q%d", i)
			node, hold := w.begun(t, queue)
			s.Claim, s.Children = hold, []Child{child("b", "never", "", Options{})}
			w.settle(t, node, queue, s)
		}
		node, hold := w.begun(t, "lost")
		hold.Run++
		errs, err := node.Settle(w.ctx, "lost", []Settlement{{Claim: hold, Children: []Child{child("b", "never", "", Options{})}}})
		if err != nil || !errors.Is(errs[0], ErrLost) {
			t.Error(errs, err)
		}
		w.depth(t, "b", nil)
	})
}

// What exists, or is held by a uniqueness, is left as it is.
func TestChildrenThatExist(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "b", "first", Options{ID: "same"})
		holder := w.enqueue(t, "b", "holds", Options{Unique: &Unique{Key: "k"}})
		node, hold := w.begun(t, "q")
		w.settle(t, node, "q", Settlement{Claim: hold, Children: []Child{
			child("b", "same", "second", Options{}),
			child("b", "other", "", Options{Unique: &Unique{Key: "k"}}),
			child("c", "one", "", Options{Unique: &Unique{Key: "l"}}),
			child("c", "two", "", Options{Unique: &Unique{Key: "l"}}),
		}})
		w.depth(t, "b", map[Status]int64{Pending: 2})
		w.depth(t, "c", map[Status]int64{Pending: 1})
		if got := w.task(t, "same"); string(got.Parameters) != "first" {
			t.Errorf("the child has replaced %+v", got)
		}
		if got := w.task(t, holder); got.Status != Pending {
			t.Errorf("%+v", got)
		}
	})
}

// A result does not wait for room.
func TestChildrenOfAFullQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if err := w.Queue("b").SetLimit(w.ctx, 1); err != nil {
			t.Fatal(err)
		}
		w.enqueue(t, "b", "", Options{})
		node, hold := w.begun(t, "q")
		w.settle(t, node, "q", Settlement{Claim: hold, Children: []Child{child("b", "one", "", Options{}), child("b", "two", "", Options{})}})
		w.depth(t, "b", map[Status]int64{Pending: 3})
		if _, err := w.Queue("b").Enqueue(w.ctx, nil, Options{}); !errors.Is(err, ErrQueueFull) {
			t.Errorf("a producer: %v", err)
		}
	})
}

// A queue that somebody damaged keeps the task of which children come from being settled, and no other one.
func TestChildrenOfADamagedQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		must[int64](t)(w.rdb.SAdd(w.ctx, w.store.keys.pending("b"), "no list").Result())
		node := w.node(t, "q")
		var settlements []Settlement
		for i := range 3 {
			w.enqueue(t, "q", "", Options{})
			task := w.reserve(t, node, "q", true)
			settlements = append(settlements, Settlement{Claim: Claim{ID: task.ID, Run: task.Run}})
			if i == 1 {
				settlements[i].Children = []Child{child("c", "good", "", Options{}), child("b", "bad", "", Options{})}
			}
		}
		errs, err := node.Settle(w.ctx, "q", settlements)
		if err != nil || errs[0] != nil || !errors.Is(errs[1], ErrDamaged) || errs[2] != nil {
			t.Fatal(errs, err)
		}
		w.depth(t, "q", map[Status]int64{Complete: 2, Started: 1})
		w.depth(t, "c", nil)
		w.settle(t, node, "q", Settlement{Claim: settlements[1].Claim, Failure: &Failure{Message: errs[1].Error()}})
		w.depth(t, "q", map[Status]int64{Complete: 2, Failed: 1})
	})
}

// A block of settlements with as many children as there may be.
func TestManyChildren(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		var settlements []Settlement
		var want []string
		for i := range 3 {
			w.enqueue(t, "q", "", Options{})
			task := w.reserve(t, node, "q", true)
			s := Settlement{Claim: Claim{ID: task.ID, Run: task.Run}}
			for n := range MaxChildren {
				s.Children = append(s.Children, child("b", fmt.Sprintf("%d-%03d", i, n), "x", Options{Parent: task.ID}))
				want = append(want, s.Children[n].ID)
			}
			settlements = append(settlements, s)
		}
		errs, err := node.Settle(w.ctx, "q", settlements)
		if err != nil || errors.Join(errs...) != nil {
			t.Fatal(errs, err)
		}
		got := must[[]string](t)(w.rdb.LRange(w.ctx, w.store.keys.pending("b"), 0, -1).Result())
		slices.Reverse(got)
		if !slices.Equal(got, want) {
			t.Errorf("%d tasks of %d, or in another order", len(got), len(want))
		}
	})
}

// Children wake whoever listens to their queue.
func TestChildrenWake(t *testing.T) {
	w := setup(t)
	listener := must[*Listener](t)(w.Listener(w.ctx, "b"))
	t.Cleanup(func() { _ = listener.Close(w.ctx) })
	got := make(chan *Task, 1)
	go func() {
		task, err := listener.Listen(w.ctx)
		if err != nil {
			t.Error(err)
		}
		got <- task
	}()
	w.subscribed(t, w.store.keys.channel("b"))
	node, hold := w.begun(t, "q")
	w.settle(t, node, "q", Settlement{Claim: hold, Children: []Child{child("b", "one", "", Options{})}})
	if task := receive(t, "the child", got); task == nil || task.ID != "one" {
		t.Errorf("%+v", task)
	}
}

func TestValidateChild(t *testing.T) {
	t.Parallel()
	for _, wrong := range []Child{
		child("", "id", "", Options{}), child("b", "", "", Options{}), child("b c", "id", "", Options{}), child("b", "i d", "", Options{}),
		child("b", "id", "", Options{Depth: -1}), child("b", "id", "", Options{Traceparent: "00-1"}), child("b", "id", "", Options{Delay: -1}),
	} {
		if err := wrong.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	good := child("b", "id", "", Options{Depth: 1, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}
