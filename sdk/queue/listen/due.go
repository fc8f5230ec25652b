package listen

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// dueTasks is the maximum number of tasks that one EnqueueDue moves.
const dueTasks = 100

// Block is the result of one EnqueueDue, Expire, Advance or Recheck.
type Block struct {
	// Tasks is the number of tasks that EnqueueDue moved, Expire failed, Advance reported to or Recheck checked.
	Tasks int
	More  bool // whether there may be more to do at once
	// Clock is Redis's time of the call. Next is when the queue's next task is due (EnqueueDue) or expires (Expire); it
	// is zero if there is no such task, and after Advance and Recheck.
	Clock, Next time.Time
	DeadError   string // why the dead letter of an expired task was not written; "" if all were written
}

// EnqueueDue moves a block of the queue's scheduled tasks that are due to the queue's pending list. Hosts call it.
// Concurrent calls are safe, and so are Blueque's own concurrent calls. A program that runs without hosts calls
// EnqueueDue itself, until Block.More is false.
func (f *Fleet) EnqueueDue(ctx context.Context, name string) (Block, error) {
	return f.block(ctx, "enqueue due", name, store.NewCall("due", f.client.Store().Keys.Scheduled(name),
		f.client.Store().Clock, name, dueTasks))
}

// Expire fails a block of the queue's waiting tasks that have expired. Hosts call it. maxAge is the maximum age of
// tasks that set none themselves (0: no maximum). dead is the queue that gets the dead letters of the failed tasks ("":
// none).
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

// readBlock parses the reply of a script that returns a Block.
func readBlock(reply any, err error) (Block, error) {
	v := store.ValuesOf(reply)
	block := Block{Tasks: v.Count(), More: v.Flag(), Clock: v.Time(), Next: v.Eta(), DeadError: v.Text()}
	return block, cmp.Or(err, v.Err())
}
