package listen

import (
	"context"
	"fmt"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Advance tells a block of the tasks that wait for others what became of these; hosts do it. It may run beside others. A program
// calls it, as long as there is more, only where no host runs.
func (f *Fleet) Advance(ctx context.Context) (Block, error) {
	block, err := readBlock(f.client.Store().Advance(ctx))
	return block, store.Wrap("advance dependents", err)
}

const (
	// recheckTasks is how many dependencies one script looks at, and recheckBlocks how many scripts a Recheck runs.
	recheckTasks  = 300
	recheckBlocks = 30
	// RecheckAge is for how long no Recheck looks at a blocked task again.
	RecheckAge = store.PollInterval
)

// Recheck looks whether the dependencies of blocked tasks of the queue have ended without a word, as under a Python listener;
// hosts do it. It looks at some 10,000 dependencies, those first that nobody looked at for longest, and none twice in RecheckAge.
func (f *Fleet) Recheck(ctx context.Context, name string) (sum Block, err error) {
	if err := queue.ValidQueue(name); err != nil {
		return Block{}, err
	}
	id, cursor := "", ""
	for range recheckBlocks {
		reply, err := f.client.Store().Eval(ctx, store.NewCall("recheck", f.client.Store().Keys.Blocked(name), f.client.Store().Clock, name, recheckTasks,
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
