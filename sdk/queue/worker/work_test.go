package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// reserve enqueues a task and reserves it.
func reserve(t *testing.T, options queue.Options) (*queue.Client, *Listener, *queue.Task) {
	t.Helper()
	client := connect(t)
	if _, err := client.Queue("q").Enqueue(t.Context(), nil, options); err != nil {
		t.Fatal(err)
	}
	listener, err := NewListener(t.Context(), client, "q")
	if err != nil {
		t.Fatal(err)
	}
	task, err := listener.TryListen(t.Context())
	if err != nil || task == nil {
		t.Fatal(task, err)
	}
	return client, listener, task
}

// The mark is older than the handler, and nothing announces it any more.
func TestWorkStopsWhatWasCancelledBefore(t *testing.T) {
	t.Parallel()
	client, listener, task := reserve(t, queue.Options{})
	client.Store().Lease = time.Hour
	if done, err := client.Queue("q").Cancel(t.Context(), task.ID); done || err != nil {
		t.Fatal(done, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	running, end := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- listener.Run(running) }()
	defer func() { end(); <-ended }()
	err := workOn(ctx, client, task, listener.listener, func(ctx context.Context, _ *queue.Task) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	if task, err := client.Task(t.Context(), task.ID); err != nil || task.Status != queue.Failed || task.Reason != queue.ReasonCancelled {
		t.Errorf("%+v, %v", task, err)
	}
}

func TestWorkAfterTheDeadline(t *testing.T) {
	t.Parallel()
	client := connect(t)
	client.Store().Clock = "1700000000"
	id, err := client.Queue("q").Enqueue(t.Context(), nil, queue.Options{Deadline: time.Unix(1700000001, 0)})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := NewListener(t.Context(), client, "q")
	if err != nil {
		t.Fatal(err)
	}
	task, err := listener.TryListen(t.Context())
	if err != nil || task == nil {
		t.Fatal(task, err)
	}
	client.Store().Clock = "1700000002"
	err = workOn(t.Context(), client, task, listener.listener, func(context.Context, *queue.Task) ([]byte, error) {
		t.Error("it runs")
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if task, err = client.Task(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if failure := task.Failure(); failure.Reason != queue.ReasonExpired || failure.Message != "its deadline is over" {
		t.Errorf("%+v", failure)
	}
}

// The end of a lease that Close gives up is no loss: Run goes on until its context ends.
func TestRunAfterClose(t *testing.T) {
	t.Parallel()
	_, listener, task := reserve(t, queue.Options{})
	lost := make(chan struct{})
	listener.listener.Renewed = func(_, _ time.Time, err error) {
		if errors.Is(err, listen.ErrLeaseLost) {
			close(lost)
		}
	}
	if err := NewProcessor(listener.client, task).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- listener.Run(ctx) }()
	if err := listener.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	listener.listener.Publish()
	<-lost
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
