package host

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// housekeepingInterval is how often finished tasks are purged and counts are corrected, and how long the host that begins
// has the duty for itself.
const housekeepingInterval = time.Minute

// housekeeper purges finished tasks that are old or too many, forgets empty queues, and corrects the counts of listeners, of
// the whole tenant. One host of the fleet does it in each interval.
type housekeeper struct {
	duty
	access *tenantAccess
	purge  queue.PurgeOptions
}

// someTime is when the housekeeper tries next.
func (k *housekeeper) someTime() time.Duration {
	return housekeepingInterval/4 + rand.N(housekeepingInterval/2)
}

func (k *housekeeper) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	if err = k.tidyAll(ctx); queue.IsUnavailable(err) {
		return 0, 0, err // as soon as Redis answers again
	}
	wait = k.someTime()
	return wait, wait, err
}

// tidyAll tidies all queues if no other host has in this interval. The duty is never given back: it ends with the interval,
// or with one after the last queue if there are many.
func (k *housekeeper) tidyAll(ctx context.Context) error {
	mine, err := k.access.node.TakeDuty(ctx, "purge", housekeepingInterval)
	if err != nil || !mine {
		return err
	}
	since := time.Now()
	queues, err := k.access.client.Queues(ctx)
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		if time.Since(since) > housekeepingInterval/3 {
			since = time.Now()
			if mine, err = k.access.node.KeepDuty(ctx, "purge", housekeepingInterval); err != nil || !mine {
				return err // another host has begun
			}
		}
		if err := k.tidy(ctx, name); queue.IsUnavailable(err) || ctx.Err() != nil {
			return err
		} else if err != nil {
			k.health.failed(opPurge, name, err) // the others are tidied all the same
		}
	}
	return err
}

func (k *housekeeper) tidy(ctx context.Context, name string) error {
	q := k.access.client.Queue(name)
	forgotten, recounted := q.Recount(ctx)
	if forgotten {
		k.access.logger.Info("forgot an empty queue", "queue", name)
		return nil
	}
	if k.purge.OlderThan == 0 && k.purge.Keep == 0 || queue.IsUnavailable(recounted) {
		return recounted
	}
	purged, err := q.Purge(ctx, k.purge)
	if purged > 0 {
		k.access.logger.Info("purged finished tasks", "queue", name, "tasks", purged)
	}
	return errors.Join(recounted, err)
}
