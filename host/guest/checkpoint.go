package guest

import (
	"context"
	"time"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// One task can write 8 MiB of checkpoints at once (checkpointBurst), and then 1 MiB a second (checkpointRate). Each
// save counts as at least 10 KiB (checkpointLeast). A guest that saves faster waits in the call. If the call returned
// early and only the last value were written, that value would be lost if the host died.
const (
	checkpointBurst = 8 << 20
	checkpointRate  = 1 << 20
	checkpointLeast = 10 << 10
)

// checkpoint saves the checkpoints of one task, one at a time.
type checkpoint struct {
	host Host
	paid time.Time // when checkpointRate will have made up for all bytes written; zero if none were
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
