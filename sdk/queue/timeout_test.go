package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/worker"
)

func TestWorkTimeout(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.working(t, "q", func(ctx context.Context, task *queue.Task) ([]byte, error) {
			<-ctx.Done()
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				t.Errorf("the context ended with %v, %v", ctx.Err(), context.Cause(ctx))
			}
			switch string(task.Parameters) {
			case "result":
				return []byte("all the same"), nil
			case "panic":
				panic("late")
			case "permanent":
				return nil, worker.Permanent(ctx.Err())
			case "cause":
				return nil, context.Cause(ctx)
			}
			return nil, ctx.Err()
		})
		const exceeded = "timeout of 50ms exceeded"
		for name, c := range map[string]struct {
			attempts int
			status   queue.Status
			reason   queue.Reason
			message  string
		}{
			"error":     {1, queue.Failed, queue.ReasonTimeout, exceeded + ": context deadline exceeded"},
			"cause":     {1, queue.Failed, queue.ReasonTimeout, exceeded},
			"panic":     {1, queue.Failed, queue.ReasonTimeout, exceeded + ": panic: late"},
			"result":    {1, queue.Complete, "", ""},
			"permanent": {2, queue.Scheduled, queue.ReasonTimeout, exceeded + ": context deadline exceeded"},
		} {
			id := w.enqueue(t, "q", name, queue.Options{Timeout: 50 * time.Millisecond, Retry: queue.Retry{MaxAttempts: c.attempts}})
			var task *queue.Task
			eventually(t, "the end of "+name, func() bool {
				task = w.task(t, id)
				return task.Attempts == 1
			})
			if task.Status != c.status {
				t.Errorf("%s: %+v", name, task)
			}
			if c.status == queue.Complete {
				if string(task.Result) != "all the same" {
					t.Errorf("%s: %+v", name, task)
				}
				continue
			}
			failure := task.Failure()
			if c.status == queue.Scheduled {
				failure = queue.ParseFailure(task.LastError)
			}
			if failure.Reason != c.reason || failure.Message != c.message || failure.Limit != "timeout=50ms" ||
				(name == "panic") != strings.Contains(failure.Stderr, "timeout_test.go") {
				t.Errorf("%s: %+v", name, failure)
			}
		}
	})
}

// A deadline is a time of Redis's clock, whatever this machine's says, and after it there is no attempt.
func TestWorkDeadline(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.working(t, "q", func(ctx context.Context, _ *queue.Task) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		for _, timeout := range []time.Duration{0, time.Hour} {
			task := w.finished(t, w.enqueue(t, "q", "", queue.Options{
				Deadline: time.Unix(1700000001, 0), Timeout: timeout, Retry: queue.Retry{MaxAttempts: 9},
			}))
			if failure := task.Failure(); failure.Reason != queue.ReasonExpired || failure.Message != "its deadline is over: context deadline exceeded" || failure.Limit != "" {
				t.Errorf("%+v", failure)
			}
		}
		task := w.finished(t, w.enqueue(t, "q", "", queue.Options{Deadline: time.Unix(1700000001, 0), Timeout: time.Millisecond}))
		if task.Reason != queue.ReasonTimeout {
			t.Errorf("the timeout is first: %+v", task)
		}
	})
}

func TestWorkAfterTheDeadline(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		id := w.enqueue(t, "q", "", queue.Options{Deadline: time.Unix(1700000001, 0)})
		task := must[*queue.Task](t)(w.listener(t, "q").TryListen(w.ctx))
		w.at(2)
		err := worker.workOn(w.ctx, w.Client, task, &worker.Cancels{Node: listen.New(w.Client), Read: make(chan struct{}, 1)}, func(context.Context, *queue.Task) ([]byte, error) {
			t.Error("it runs")
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if failure := w.task(t, id).Failure(); failure.Reason != queue.ReasonExpired || failure.Message != "its deadline is over" {
			t.Errorf("%+v", failure)
		}
	})
}
