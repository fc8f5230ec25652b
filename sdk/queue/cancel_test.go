package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/worker"
)

// A task that runs is marked, and whoever ends its run first has the word.
func TestCancelOfWhatRuns(t *testing.T) {
	t.Parallel()
	trap := &queue.Failure{Reason: queue.ReasonTrap}
	for name, c := range map[string]struct {
		end    func(w *world, n *listen.Node, h listen.Claim) error
		status queue.Status
		reason queue.Reason
	}{
		"complete": {settleAs(listen.Settlement{}), queue.Complete, ""},
		"failed":   {settleAs(listen.Settlement{Failure: trap}), queue.Failed, queue.ReasonTrap},
		"retry":    {settleAs(listen.Settlement{Failure: trap, Requeue: listen.RequeueRetry, Delay: time.Minute}), queue.Failed, queue.ReasonCancelled},
		"at once":  {settleAs(listen.Settlement{Failure: trap, Requeue: listen.RequeueReschedule}), queue.Failed, queue.ReasonCancelled},
		"reject":   {settleAs(listen.Settlement{Failure: trap, Requeue: listen.RequeueReject, Delay: time.Second}), queue.Failed, queue.ReasonCancelled},
		"release": {func(w *world, n *listen.Node, h listen.Claim) error {
			errs, err := n.Release(w.ctx, "q", []listen.Claim{h})
			return errors.Join(append(errs, err)...)
		}, queue.Failed, queue.ReasonCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				id := w.enqueue(t, "q", "", queue.Options{})
				node, hold := w.held(t, "q")
				control := w.rdb.Subscribe(w.ctx, w.Store().Keys.Control())
				defer control.Close()
				messages := control.Channel()
				w.subscribed(t, w.Store().Keys.Control())
				for range 2 {
					if done, err := w.Queue("q").Cancel(w.ctx, id); done || err != nil {
						t.Fatal(done, err)
					}
				}
				if message := receive(t, "a message", messages); message.Payload != "" {
					t.Errorf("the message is %q", message.Payload)
				}
				if task := w.task(t, id); task.Status != queue.Started || !task.CancelAsked {
					t.Errorf("%+v", task)
				}
				if marked, _, err := node.Marks(w.ctx, []string{"none", id}); len(marked) != 1 || marked[0] != id || err != nil {
					t.Errorf("marked are %v, %v", marked, err)
				}
				if err := c.end(w, node, hold); err != nil && !errors.Is(err, queue.ErrCancelled) {
					t.Fatal(err)
				}
				task := w.task(t, id)
				if task.Status != c.status || task.Reason != c.reason || task.CancelAsked {
					t.Errorf("%+v", task)
				}
				w.depth(t, "q", map[queue.Status]int64{c.status: 1})
				if name != "release" { // the repeat of a settle finds its mark
					if err := c.end(w, node, hold); err != nil && !errors.Is(err, queue.ErrCancelled) {
						t.Errorf("once more: %v", err)
					}
				}
				w.depth(t, "q", map[queue.Status]int64{c.status: 1})
			})
		})
	}
}

func settleAs(s listen.Settlement) func(*world, *listen.Node, listen.Claim) error {
	return func(w *world, n *listen.Node, h listen.Claim) error {
		settlement := s // tests share s
		settlement.Claim = h
		errs, err := n.Settle(w.ctx, "q", []listen.Settlement{settlement})
		return errors.Join(append(errs, err)...)
	}
}

func TestCancelOfWhatPythonHolds(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		w.rdb.LMove(w.ctx, w.Store().Keys.Pending("q"), w.Store().Keys.Reserved("q", "host_1"), "right", "left")
		for _, status := range []queue.Status{queue.Reserved, queue.Started} {
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "status", string(status), "node", "host_1")
			if done, err := w.Queue("q").Cancel(w.ctx, id); done || !errors.Is(err, queue.ErrStatus) {
				t.Errorf("%s: %v, %v", status, done, err)
			}
		}
		if w.task(t, id).CancelAsked {
			t.Error("it is marked")
		}
		// What nobody holds, whatever its hash says, is failed.
		w.rdb.LRem(w.ctx, w.Store().Keys.Reserved("q", "host_1"), 1, id)
		if done, err := w.Queue("q").Cancel(w.ctx, id); !done || err != nil || w.task(t, id).Reason != queue.ReasonCancelled {
			t.Errorf("%v, %v: %+v", done, err, w.task(t, id))
		}
	})
}

// The mark outlives the host: what was to be cancelled does not run again.
func TestCancelOfWhatADeadHostHolds(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, start := range []bool{true, false} {
			id := w.enqueue(t, "q", "", queue.Options{})
			node := w.node(t, "q")
			w.reserve(t, node, "q", start)
			if _, err := w.Queue("q").Cancel(w.ctx, id); err != nil {
				t.Fatal(err)
			}
			if got := w.reclaimFrom(t, node); got.Failed != 1 {
				t.Errorf("%+v", got)
			}
			if task := w.task(t, id); task.Status != queue.Failed || task.Reason != queue.ReasonCancelled {
				t.Errorf("%+v", task)
			}
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Failed: 2})
	})
}

func TestWorkStopsWhatIsCancelled(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		started := make(chan struct{}, 1)
		causes := make(chan error, 1)
		w.working(t, "q", func(ctx context.Context, task *queue.Task) ([]byte, error) {
			if string(task.Parameters) == "next" {
				return nil, nil
			}
			started <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		})
		w.subscribed(t, w.Store().Keys.Control())
		id := w.enqueue(t, "q", "", queue.Options{Retry: queue.Retry{MaxAttempts: 9}})
		receive(t, "the start", started)
		if done, err := w.Queue("q").Cancel(w.ctx, id); done || err != nil {
			t.Fatal(done, err)
		}
		if cause := receive(t, "the end of the handler", causes); !errors.Is(cause, queue.ErrCancelled) {
			t.Errorf("ended with %v", cause)
		}
		if task := w.finished(t, id); task.Status != queue.Failed || task.Reason != queue.ReasonCancelled {
			t.Errorf("%+v", task)
		}
		if task := w.finished(t, w.enqueue(t, "q", "next", queue.Options{})); task.Status != queue.Complete {
			t.Errorf("the next: %+v", task)
		}
	})
}

// The worker hears of the cancel only when it would have the task tried again, and goes on.
func TestWorkOutlivesACancelThatItDidNotSee(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.working(t, "q", func(ctx context.Context, task *queue.Task) ([]byte, error) {
			if string(task.Parameters) == "next" {
				return nil, nil
			}
			if _, err := w.Queue("q").Cancel(w.ctx, task.ID); err != nil {
				t.Error(err)
			}
			return nil, errors.New("not today")
		})
		for range 5 {
			task := w.finished(t, w.enqueue(t, "q", "", queue.Options{Retry: queue.Retry{MaxAttempts: 9}}))
			if task.Status != queue.Failed || task.Reason != queue.ReasonCancelled {
				t.Errorf("%+v", task)
			}
		}
		if task := w.finished(t, w.enqueue(t, "q", "next", queue.Options{})); task.Status != queue.Complete {
			t.Errorf("the next: %+v", task)
		}
	})
}

func TestWorkRetries(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.working(t, "q", func(_ context.Context, task *queue.Task) ([]byte, error) {
			err := errors.New("not today")
			switch string(task.Parameters) {
			case "permanent":
				return nil, worker.Permanent(err)
			case "later":
				if task.Reschedules == 0 {
					return nil, worker.Later(err, time.Millisecond)
				}
				return []byte("now"), nil
			case "third":
				if task.Attempts == 2 {
					return []byte("third time"), nil
				}
			}
			return nil, err
		})
		soon := queue.Retry{MaxAttempts: 3, Base: time.Millisecond, Min: time.Millisecond}
		ids := make(map[string]string)
		for _, name := range []string{"permanent", "later", "third", "never"} {
			ids[name] = w.enqueue(t, "q", name, queue.Options{Retry: soon})
		}
		finished := func(name string) *queue.Task {
			var task *queue.Task
			eventually(t, name, func() bool { // no host is here that moves what is due
				must[int](t)(enqueueDue(w.ctx, w.Queue("q")))
				task = w.task(t, ids[name])
				return task.Status.Finished()
			})
			return task
		}
		if task := finished("permanent"); task.Status != queue.Failed || task.Attempts != 1 || task.Reason != queue.ReasonError || task.Failure().Message != "not today" {
			t.Errorf("%+v", task)
		}
		if task := finished("later"); task.Status != queue.Complete || task.Attempts != 1 || task.Reschedules != 1 {
			t.Errorf("%+v", task)
		}
		if task := finished("third"); task.Status != queue.Complete || task.Attempts != 3 || string(task.Result) != "third time" {
			t.Errorf("%+v", task)
		}
		if task := finished("never"); task.Status != queue.Failed || task.Attempts != 3 || task.Reason != queue.ReasonExhausted {
			t.Errorf("%+v", task)
		}
		if err := worker.Permanent(context.Canceled); !errors.Is(err, context.Canceled) || err.Error() != context.Canceled.Error() {
			t.Errorf("%v", err)
		}
	})
}

func TestWorkIsDrained(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Lease = time.Second
		started, end := make(chan string, 1), make(chan struct{})
		errs := make(chan error, 1)
		go func() {
			errs <- worker.Run(w.ctx, w.Client, "q", func(_ context.Context, task *queue.Task) ([]byte, error) {
				started <- task.Node
				<-end
				return []byte("done"), nil
			})
		}()
		first := w.enqueue(t, "q", "", queue.Options{})
		node := receive(t, "the start", started)
		second := w.enqueue(t, "q", "", queue.Options{})
		if err := manage.New(w.Client).Drain(w.ctx, node); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the listener to drain", func() bool {
			nodes := must[[]listen.NodeInfo](t)(listen.NewFleet(w.Client).Nodes(w.ctx))
			return len(nodes) == 1 && nodes[0].About["draining"] == "true" && nodes[0].Draining
		})
		close(end)
		if err := receive(t, "the end of Work", errs); err != nil {
			t.Errorf("ended with %v", err)
		}
		if a, b := w.task(t, first), w.task(t, second); a.Status != queue.Complete || b.Status != queue.Pending {
			t.Errorf("%s, %s", a.Status, b.Status)
		}
		if nodes := must[[]listen.NodeInfo](t)(listen.NewFleet(w.Client).Nodes(w.ctx)); len(nodes) != 0 {
			t.Errorf("%+v", nodes)
		}
		if err := manage.New(w.Client).Drain(w.ctx, node); !errors.Is(err, listen.ErrNoNode) {
			t.Errorf("of one that left: %v", err)
		}
	})
}

// An idle worker ends at once when it is drained.
func TestAnIdleWorkerIsDrained(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Lease = time.Hour // so that no renewal is due
		errs := make(chan error, 1)
		go func() { errs <- worker.Run(w.ctx, w.Client, "q", nil) }()
		w.subscribed(t, w.Store().Keys.Channel("q"))
		if err := manage.New(w.Client).Drain(w.ctx, must[[]listen.NodeInfo](t)(listen.NewFleet(w.Client).Nodes(w.ctx))[0].ID); err != nil {
			t.Fatal(err)
		}
		if err := receive(t, "the end of Work", errs); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestCancelWaitingTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		pending := w.enqueue(t, "q", "", queue.Options{})
		scheduled := w.enqueue(t, "q", "", queue.Options{Delay: time.Hour})
		for _, id := range []string{pending, scheduled} {
			if _, err := q.Cancel(w.ctx, id); err != nil {
				t.Fatal(err)
			}
			if task := w.task(t, id); task.Status != queue.Failed || task.Reason != queue.ReasonCancelled || task.Failure().Reason != queue.ReasonCancelled {
				t.Errorf("cancelled: %+v", task)
			}
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Failed: 2})
		if _, err := q.Cancel(w.ctx, pending); !errors.Is(err, queue.ErrStatus) {
			t.Errorf("twice: %v", err)
		}
		if _, err := q.Cancel(w.ctx, "none"); !errors.Is(err, queue.ErrNoTask) {
			t.Errorf("no task: %v", err)
		}
		running := w.enqueue(t, "q", "", queue.Options{})
		w.reserve(t, w.node(t, "q"), "q", true)
		if err := q.Delete(w.ctx, running); !errors.Is(err, queue.ErrStatus) {
			t.Errorf("delete of a running task: %v", err)
		}
	})
}
