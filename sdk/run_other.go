//go:build !wasip1

package sdk

import (
	"context"
	"os"
)

// runHandler does without a host what a command does.
func runHandler(handler Handler) int32 {
	recovering := func(ctx context.Context, task *Task) ([]byte, error) {
		return attempt(ctx, handler, task, os.Stderr)
	}
	return int32(run(recovering, os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// misplaced is never so.
func misplaced() bool { return false }
