package listen

import (
	"context"
	"fmt"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Advance reports ended tasks to the tasks that wait for them, one block of waiting tasks per call. Hosts call it, and
// concurrent calls are safe. A program that runs without hosts calls Advance itself, until Block.More is false.
func (f *Fleet) Advance(ctx context.Context) (Block, error) {
	block, err := readBlock(f.client.Store().Advance(ctx))
	return block, store.Wrap("advance dependents", err)
}

const (
	// recheckTasks is the number of dependencies that one call of recheck.lua checks. One Recheck calls the script at
	// most recheckBlocks times.
	recheckTasks  = 300
	recheckBlocks = 30
	// RecheckAge is the minimum time between two checks of the same blocked task by Recheck.
	RecheckAge = store.PollInterval
)

// Recheck finds dependencies of the queue's blocked tasks that have ended although nobody has reported their end, and
// reports it. A Python listener never reports the end of a task. Hosts call Recheck. One call checks about 9,000
// dependencies. It begins with the blocked task whose last check is longest ago, and checks no task twice
// within RecheckAge.
func (f *Fleet) Recheck(ctx context.Context, name string) (sum Block, err error) {
	if err := queue.ValidQueue(name); err != nil {
		return Block{}, err
	}
	id, cursor := "", ""
	for range recheckBlocks {
		reply, err := f.client.Store().Eval(ctx, store.NewCall("recheck", f.client.Store().Keys.Blocked(name),
			f.client.Store().Clock, name, recheckTasks,
			RecheckAge.Seconds(), id, cursor))
		v := store.ValuesOf(reply)
		sum.Tasks, sum.More, sum.Clock = sum.Tasks+v.Count(), v.Flag(), v.Time()
		if id, cursor = v.Text(), v.Text(); err == nil {
			err = v.Err()
		}
		if err != nil || !sum.More {
			return sum, store.Wrap(fmt.Sprintf("recheck blocked tasks of %q", name), err)
		}
	}
	return sum, nil
}
