package guest

import (
	"context"
	"time"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// How fast one task may write checkpoints, in bytes: 8 MiB at once, and then 1 MiB a second. Each save counts as at
// least 10 KiB. A guest that saves faster waits in the call. To answer early and write only the last value would lose
// it if the host died.
const (
	checkpointBurst = 8 << 20
	checkpointRate  = 1 << 20
	checkpointLeast = 10 << 10
)

// checkpoint saves the checkpoints of one task, one at a time.
type checkpoint struct {
	host Host
	paid time.Time // when the rate has paid for all bytes written; zero: the whole burst is left
}

// Save implements service.Checkpoint.
func (c *checkpoint) Save(ctx context.Context, value []byte) error {
	if wait := c.pay(time.Now(), len(value)); wait > 0 && !periodic.Sleep(ctx, wait) {
		return context.Cause(ctx)
	}
	_, err := service.Await(ctx, func() (struct{}, error) {
		return struct{}{}, c.host.SaveCheckpoint(ctx, value)
	})
	return explain(err)
}

// pay counts the bytes of a checkpoint, and returns how long to wait before it is written.
func (c *checkpoint) pay(now time.Time, bytes int) time.Duration {
	const second = float64(time.Second)
	if earliest := now.Add(-time.Duration(checkpointBurst * second / checkpointRate)); c.paid.Before(earliest) {
		c.paid = earliest
	}
	c.paid = c.paid.Add(time.Duration(float64(max(bytes, checkpointLeast)) * second / checkpointRate))
	return max(0, c.paid.Sub(now))
}
