package listen

import (
	"context"
	"fmt"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Advance reports ended tasks to one block of the tasks that wait for them. Hosts call it; calls may overlap. A program
// calls it, as long as there is more, only if no host runs.
func (f *Fleet) Advance(ctx context.Context) (Block, error) {
	block, err := readBlock(f.client.Store().Advance(ctx))
	return block, store.Wrap("advance dependents", err)
}

const (
	// recheckTasks is how many dependencies one script looks at, and recheckBlocks how many scripts a Recheck runs.
	recheckTasks  = 300
	recheckBlocks = 30
	// RecheckAge is the least time between two looks of Recheck at the same blocked task.
	RecheckAge = store.PollInterval
)

// Recheck finds dependencies of the queue's blocked tasks that ended without an announcement, as they do under a Python
// listener. Hosts call it. One call looks at some 10,000 dependencies. The blocked tasks that were not looked at for
// longest come first, and none is looked at twice within RecheckAge.
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
