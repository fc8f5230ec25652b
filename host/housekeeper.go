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

// recountQueues is how many queues are looked at in one round trip.
const recountQueues = 1000

// housekeeper purges finished tasks and publications that are old or too many, forgets empty queues, and corrects the counts of listeners, of
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
	if k.purge.OlderThan > 0 || k.purge.Keep > 0 {
		n, err := k.access.client.Fleet().PurgePublications(ctx, k.purge)
		if n > 0 {
			k.access.logger.Info("purged publications", "publications", n)
		}
		if queue.IsUnavailable(err) || ctx.Err() != nil {
			return err
		} else if err != nil {
			k.health.failed(opPurge, "", err) // the queues are tidied all the same
		}
	}
	queues, err := k.access.client.Queues(ctx)
	if err != nil {
		return err
	}
	since := time.Now()
	for names := range slices.Chunk(slices.Sorted(maps.Keys(queues)), recountQueues) {
		news, err := k.access.client.Fleet().Recount(ctx, names, k.purge)
		if err != nil {
			return err
		}
		for _, of := range news {
			if time.Since(since) > housekeepingInterval/3 {
				since = time.Now()
				if mine, err = k.access.node.KeepDuty(ctx, "purge", housekeepingInterval); err != nil || !mine {
					return err // another host has begun
				}
			}
			if err := k.tidy(ctx, of); queue.IsUnavailable(err) || ctx.Err() != nil {
				return err
			} else if err != nil {
				k.health.failed(opPurge, of.Queue, err) // the others are tidied all the same
			}
		}
	}
	return nil
}

// tidy does what is left to do for one queue.
func (k *housekeeper) tidy(ctx context.Context, of queue.Recounted) error {
	if of.Forgotten {
		k.access.logger.Info("forgot an empty queue", "queue", of.Queue)
	}
	if !of.Old {
		return of.Err
	}
	purged, err := k.access.client.Queue(of.Queue).Purge(ctx, k.purge)
	if purged > 0 {
		k.access.logger.Info("purged finished tasks", "queue", of.Queue, "tasks", purged)
	}
	return errors.Join(of.Err, err)
}
