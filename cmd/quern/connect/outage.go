package connect

import (
	"context"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// OutageTimeout ends a wait if Redis is away for longer. It is long enough for a restart.
	OutageTimeout = 30 * time.Second
	// OutagePause is how long to wait before Redis is tried again.
	OutagePause = 200 * time.Millisecond
)

// ThroughOutage repeats a write while Redis is away, for at most outage. It also reports whether Redis was away.
func ThroughOutage(ctx context.Context, outage time.Duration, write func() error) (away bool, err error) {
	var since time.Time
	for err = write(); queue.IsUnavailable(err); err = write() {
		if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) >= outage {
			break
		}
		if !periodic.Sleep(ctx, OutagePause) {
			return true, ctx.Err()
		}
	}
	return !since.IsZero(), err
}
