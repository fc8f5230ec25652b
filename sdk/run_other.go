//go:build !wasip1

package sdk

import (
	"context"

	"github.com/quern-project/quern/sdk/internal/native"
)

// runHandler runs the handler like a command if there is no host.
func runHandler(handler Handler) int32 {
	if h := native.Current(); h != nil {
		return runLent(h, handler)
	}
	recovering := func(ctx context.Context, task *Task) ([]byte, error) {
		return attempt(ctx, handler, task, stderr())
	}
	return int32(run(recovering, stdin(), stdout(), stderr(), getenv))
}

// runLent runs the handler with a host of sdktest.
func runLent(h native.Host, handler Handler) int32 {
	number := func(field uint32, otherwise int) int {
		if n := int(h.TaskNumber(field)); n > 0 {
			return n
		}
		return otherwise
	}
	task := &Task{
		ID:          h.TaskText(0),
		Queue:       h.TaskText(1),
		Tenant:      h.TaskText(2),
		Plugin:      h.TaskText(3),
		Attempt:     number(0, 1),
		MaxAttempts: number(1, 0),
		Input:       h.Input(),
	}
	ctx := &taskContext{}
	defer ctx.finish()
	result, err := attempt(ctx, handler, task, stderrOf{h})
	return settle(h, result, err)
}

// stderrOf is a handler's standard error.
type stderrOf struct{ native.Host }

func (w stderrOf) Write(p []byte) (int, error) {
	w.Stderr(p)
	return len(p), nil
}

func misplaced() bool { return false }
