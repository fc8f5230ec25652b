package queue

import (
	"context"
	"fmt"
)

// Advance tells a block of the tasks that wait for others what became of these; hosts do it. It may run beside others. A program
// calls it, as long as there is more, only where no host runs.
func (f *Fleet) Advance(ctx context.Context) (Block, error) {
	block, err := readBlock(f.client.store.advance(ctx))
	return block, wrap("advance dependents", err)
}

const (
	// recheckTasks is how many dependencies one script looks at, and recheckBlocks how many scripts a Recheck runs.
	recheckTasks  = 300
	recheckBlocks = 30
	// RecheckAge is for how long no Recheck looks at a blocked task again.
	RecheckAge = pollInterval
)

// Recheck looks whether the dependencies of blocked tasks of the queue have ended without a word, as under a Python listener;
// hosts do it. It looks at some 10,000 dependencies, those first that nobody looked at for longest, and none twice in RecheckAge.
func (f *Fleet) Recheck(ctx context.Context, queue string) (sum Block, err error) {
	if err := ValidQueue(queue); err != nil {
		return Block{}, err
	}
	id, cursor := "", ""
	for range recheckBlocks {
		reply, err := f.client.store.eval(ctx, newCall("recheck", f.client.store.keys.blocked(queue), f.client.store.clock, queue, recheckTasks,
			RecheckAge.Seconds(), id, cursor))
		v := valuesOf(reply)
		sum.Tasks, sum.More, sum.Clock = sum.Tasks+v.count(), v.flag(), v.time()
		if id, cursor = v.text(), v.text(); err == nil {
			err = v.err()
		}
		if err != nil || !sum.More {
			return sum, wrap(fmt.Sprintf("recheck blocked tasks of %q", queue), err)
		}
	}
	return sum, nil
}
