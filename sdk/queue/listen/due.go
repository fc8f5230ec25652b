package listen

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// dueTasks is how many due tasks one block moves.
const dueTasks = 100

// Block is the result of one EnqueueDue, Expire, Advance or Recheck.
type Block struct {
	Tasks int  // how many tasks it changed
	More  bool // there may be more to do now
	// Clock is Redis's time of the block. Next is when the next task of the queue is due (EnqueueDue) or expires
	// (Expire); zero if there is none.
	Clock, Next time.Time
	DeadError   string // why the dead letter of an expired task was not written; "" if all were
}

// EnqueueDue moves a block of the queue's scheduled tasks that are due now to its pending list. Calls may overlap, also
// with Blueque's own. Hosts call it; a program calls it, as long as there is more, only if no host runs.
func (f *Fleet) EnqueueDue(ctx context.Context, name string) (Block, error) {
	return f.block(ctx, "enqueue due", name, store.NewCall("due", f.client.Store().Keys.Scheduled(name),
		f.client.Store().Clock, name, dueTasks))
}

// Expire fails a block of the queue's waiting tasks that have expired. Hosts call it. maxAge bounds the age of tasks
// that have no bound of their own (0: no bound), and dead is the queue for their dead letters ("": none).
func (f *Fleet) Expire(ctx context.Context, name string, maxAge time.Duration, dead string) (Block, error) {
	return f.block(ctx, "expire", name,
		store.NewCall("expire", f.client.Store().Keys.Expiry(name), f.client.Store().Clock, name, store.ExpiryTasks,
			store.DurationText(maxAge), dead))
}

func (f *Fleet) block(ctx context.Context, what, name string, script store.Call) (Block, error) {
	if err := queue.ValidQueue(name); err != nil {
		return Block{}, err
	}
	block, err := readBlock(f.client.Store().Eval(ctx, script))
	return block, store.Wrap(fmt.Sprintf("%s tasks of %q", what, name), err)
}

// readBlock reads the reply of a script that works on a block.
func readBlock(reply any, err error) (Block, error) {
	v := store.ValuesOf(reply)
	block := Block{Tasks: v.Count(), More: v.Flag(), Clock: v.Time(), Next: v.Eta(), DeadError: v.Text()}
	return block, cmp.Or(err, v.Err())
}
