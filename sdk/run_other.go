//go:build !wasip1

package sdk

import (
	"context"

	"github.com/quern-project/quern/sdk/internal/native"
)

// runHandler runs the handler on the host that sdktest has lent for a run, else like a command.
func runHandler(handler Handler) int32 {
	h := native.Current()
	if h == nil {
		recovering := func(ctx context.Context, task *Task) ([]byte, error) {
			return attempt(ctx, handler, task, stderr())
		}
		return int32(run(recovering, stdin(), stdout(), stderr(), getenv))
	}
	task := describedTask(h.TaskText(textID), h.Input())
	ctx := &taskContext{}
	defer ctx.finish()
	result, err := attempt(ctx, handler, &task, h)
	return settle(h, result, err)
}

func misplaced() bool { return false }
