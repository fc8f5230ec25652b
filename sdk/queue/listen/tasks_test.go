package listen_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/quern-project/quern/sdk/queue/listen"
)

// An ID that is handed out a third time, after the second one went back, waits for the first one, whichever ends when.
func TestReplacedAgain(t *testing.T) {
	t.Parallel()
	var tasks listen.Tasks
	handed := func() *listen.Task {
		task := &listen.Task{Reservation: listen.Reservation{ID: "a"}}
		tasks.Add(task)
		return task
	}
	first := handed()
	ctx, stop := context.WithCancelCause(t.Context())
	tasks.Begin(first, stop)

	second := handed()
	third := handed()
	if !errors.Is(context.Cause(ctx), listen.ErrReplaced) {
		t.Fatalf("the first was stopped by %v", context.Cause(ctx))
	}
	tasks.Ran(second) // it went back without a run
	tasks.Remove(second)
	var firstOver atomic.Bool
	running := make(chan struct{})
	go func() {
		defer close(running)
		_, stop := context.WithCancelCause(t.Context())
		if tasks.Begin(third, stop); !firstOver.Load() {
			t.Error("the third runs beside the first")
		}
	}()
	tasks.Ran(third) // it went back, too
	tasks.Remove(third)
	firstOver.Store(true)
	tasks.Ran(first)
	<-running
	fourth := handed() // before the first is settled
	_, stop = context.WithCancelCause(t.Context())
	tasks.Begin(fourth, stop) // waits for nobody
}
