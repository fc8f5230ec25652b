package queue_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/worker"
)

// child is a task that comes of another one.
func child(name, id, parameters string, options queue.Options) listen.Child {
	options.ID = id
	return listen.Child{Queue: name, Spec: queue.Spec{Parameters: []byte(parameters), Options: options}}
}

// begun is a task of the queue that a node holds.
func (w *world) begun(t testing.TB, name string) (*listen.Node, listen.Claim) {
	t.Helper()
	w.enqueue(t, name, "", queue.Options{})
	return w.held(t, name)
}

// Children come into being with the completion of their parent, each as if it had been enqueued.
func TestChildrenOfACompleteTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		priority := 80
		node, hold := w.begun(t, "q")
		children := []listen.Child{
			child("b", "plain", "1", queue.Options{Parent: hold.ID, Depth: 3, Traceparent: trace}),
			child("b", "bytes", "\xff\x00", queue.Options{Key: "k", Labels: map[string]string{"a": "b"}}),
			child("b", "urgent", "3", queue.Options{Priority: &priority}),
			child("c", "later", "4", queue.Options{Delay: time.Hour}),
			child("q", "next", "5", queue.Options{Retry: queue.Retry{MaxAttempts: 7}}),
		}
		settlement := listen.Settlement{Claim: hold, Result: []byte("done"), Children: children}
		for range 2 { // a repeat finds its own mark
			w.settle(t, node, "q", settlement)
		}
		w.depth(t, "b", map[queue.Status]int64{queue.Pending: 3})
		w.depth(t, "c", map[queue.Status]int64{queue.Scheduled: 1})
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1, queue.Pending: 1})
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
		stats := must[manage.Stats](t)(manage.New(w.Client).Queue("b").Stats(w.ctx))
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
		for i, s := range []listen.Settlement{
			{Failure: &queue.Failure{Message: "no"}},
			{Failure: &queue.Failure{Message: "no"}, Requeue: listen.RequeueRetry, Delay: time.Hour},
			{Failure: &queue.Failure{Message: "no"}, Requeue: listen.RequeueReschedule, Delay: time.Hour},
		} {
			name := fmt.Sprintf("q%d", i)
			node, hold := w.begun(t, name)
			s.Claim, s.Children = hold, []listen.Child{child("b", "never", "", queue.Options{})}
			w.settle(t, node, name, s)
		}
		node, hold := w.begun(t, "lost")
		hold.Run++
		errs, err := node.Settle(w.ctx, "lost", []listen.Settlement{{Claim: hold, Children: []listen.Child{child("b", "never", "", queue.Options{})}}})
		if err != nil || !errors.Is(errs[0], queue.ErrLost) {
			t.Error(errs, err)
		}
		w.depth(t, "b", nil)
	})
}

// What exists, or is held by a uniqueness, is left as it is.
func TestChildrenThatExist(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "b", "first", queue.Options{ID: "same"})
		holder := w.enqueue(t, "b", "holds", queue.Options{Unique: &queue.Unique{Key: "k"}})
		node, hold := w.begun(t, "q")
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Children: []listen.Child{
			child("b", "same", "second", queue.Options{}),
			child("b", "other", "", queue.Options{Unique: &queue.Unique{Key: "k"}}),
			child("c", "one", "", queue.Options{Unique: &queue.Unique{Key: "l"}}),
			child("c", "two", "", queue.Options{Unique: &queue.Unique{Key: "l"}}),
		}})
		w.depth(t, "b", map[queue.Status]int64{queue.Pending: 2})
		w.depth(t, "c", map[queue.Status]int64{queue.Pending: 1})
		if got := w.task(t, "same"); string(got.Parameters) != "first" {
			t.Errorf("the child has replaced %+v", got)
		}
		if got := w.task(t, holder); got.Status != queue.Pending {
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
		w.enqueue(t, "b", "", queue.Options{})
		node, hold := w.begun(t, "q")
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Children: []listen.Child{child("b", "one", "", queue.Options{}), child("b", "two", "", queue.Options{})}})
		w.depth(t, "b", map[queue.Status]int64{queue.Pending: 3})
		if _, err := w.Queue("b").Enqueue(w.ctx, nil, queue.Options{}); !errors.Is(err, queue.ErrQueueFull) {
			t.Errorf("a producer: %v", err)
		}
	})
}

// Children may exceed the quotas of what waits by as much again, whatever waits already; a task that has more is still held.
func TestChildrenOverAQuota(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		node, hold := w.begun(t, "q")
		w.quotas(t, manage.Quotas{"tasks_waiting": "2", "bytes_waiting": "100", "enqueue_rate": "1/h"})
		children := func(n, bytes int) (list []listen.Child) {
			for i := range n {
				list = append(list, child("b", fmt.Sprint(n, "-", bytes, "-", i), strings.Repeat("x", bytes), queue.Options{}))
			}
			return list
		}
		for _, over := range []struct {
			children    []listen.Child
			name, limit string
		}{{children(5, 1), "tasks_waiting", "2"}, {children(2, 101), "bytes_waiting", "100"}} {
			errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: hold, Children: over.children}})
			if err != nil {
				t.Fatal(err)
			}
			refused(t, errs[0], over.name, over.limit, 0)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Started: 1})
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Children: children(4, 50)})
		w.depth(t, "b", map[queue.Status]int64{queue.Pending: 4})
		w.at(2)
		_, err := w.Queue("b").Enqueue(w.ctx, nil, queue.Options{})
		refused(t, err, "tasks_waiting", "2", 4)
	})
}

// A queue that somebody damaged keeps the task of which children come from being settled, and no other one.
func TestChildrenOfADamagedQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		must[int64](t)(w.rdb.SAdd(w.ctx, w.Store().Keys.Pending("b"), "no list").Result())
		node := w.node(t, "q")
		var settlements []listen.Settlement
		for i := range 3 {
			w.enqueue(t, "q", "", queue.Options{})
			task := w.reserve(t, node, "q", true)
			settlements = append(settlements, listen.Settlement{Claim: listen.Claim{ID: task.ID, Run: task.Run}})
			if i == 1 {
				settlements[i].Children = []listen.Child{child("c", "good", "", queue.Options{}), child("b", "bad", "", queue.Options{})}
			}
		}
		errs, err := node.Settle(w.ctx, "q", settlements)
		if err != nil || errs[0] != nil || !errors.Is(errs[1], queue.ErrDamaged) || errs[2] != nil {
			t.Fatal(errs, err)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 2, queue.Started: 1})
		w.depth(t, "c", nil)
		w.settle(t, node, "q", listen.Settlement{Claim: settlements[1].Claim, Failure: &queue.Failure{Message: errs[1].Error()}})
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 2, queue.Failed: 1})
	})
}

// A block of settlements with as many children as there may be.
func TestManyChildren(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		var settlements []listen.Settlement
		var want []string
		for i := range 3 {
			w.enqueue(t, "q", "", queue.Options{})
			task := w.reserve(t, node, "q", true)
			s := listen.Settlement{Claim: listen.Claim{ID: task.ID, Run: task.Run}}
			for n := range listen.MaxChildren {
				s.Children = append(s.Children, child("b", fmt.Sprintf("%d-%03d", i, n), "x", queue.Options{Parent: task.ID}))
				want = append(want, s.Children[n].ID)
			}
			settlements = append(settlements, s)
		}
		errs, err := node.Settle(w.ctx, "q", settlements)
		if err != nil || errors.Join(errs...) != nil {
			t.Fatal(errs, err)
		}
		got := must[[]string](t)(w.rdb.LRange(w.ctx, w.Store().Keys.Pending("b"), 0, -1).Result())
		slices.Reverse(got)
		if !slices.Equal(got, want) {
			t.Errorf("%d tasks of %d, or in another order", len(got), len(want))
		}
	})
}

// Children wake whoever listens to their queue.
func TestChildrenWake(t *testing.T) {
	w := setup(t)
	listener := must[*worker.Listener](t)(worker.NewListener(w.ctx, w.Client, "b"))
	t.Cleanup(func() { _ = listener.Close(w.ctx) })
	got := make(chan *queue.Task, 1)
	go func() {
		task, err := listener.Listen(w.ctx)
		if err != nil {
			t.Error(err)
		}
		got <- task
	}()
	w.subscribed(t, w.Store().Keys.Channel("b"))
	node, hold := w.begun(t, "q")
	w.settle(t, node, "q", listen.Settlement{Claim: hold, Children: []listen.Child{child("b", "one", "", queue.Options{})}})
	if task := receive(t, "the child", got); task == nil || task.ID != "one" {
		t.Errorf("%+v", task)
	}
}

func TestValidateChild(t *testing.T) {
	t.Parallel()
	for _, wrong := range []listen.Child{
		child("", "id", "", queue.Options{}), child("b", "", "", queue.Options{}), child("b c", "id", "", queue.Options{}), child("b", "i d", "", queue.Options{}),
		child("b", "id", "", queue.Options{Depth: -1}), child("b", "id", "", queue.Options{Traceparent: "00-1"}), child("b", "id", "", queue.Options{Delay: -1}),
	} {
		if err := wrong.Validate(); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	good := child("b", "id", "", queue.Options{Depth: 1, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}
