package host

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue/manage"

	"github.com/quern-project/quern/sdk/queue"
)

// housekeepingInterval is how often finished tasks are purged and counts are corrected, and how long the host that begins
// has the duty for itself.
const housekeepingInterval = time.Minute

// recountQueues is how many queues are looked at in one round trip.
const recountQueues = 1000

// recountedAtOnce is how many queues of a tenant are looked at in one interval; of more, the next interval takes the next ones.
const recountedAtOnce = 10_000

// housekeeper purges finished tasks and publications that are old or too many, forgets empty queues, and corrects the counts of
// listeners, of the whole tenant. One host of the fleet does it in each interval.
type housekeeper struct {
	duty
	access *tenantAccess
	purge  manage.PurgeOptions
	from   int64     // the queue with which the next run begins, by its place among all
	kept   time.Time // when the duty was last taken or renewed; only the run under way uses it
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
	k.kept = time.Now()
	damaged, mine, err := k.prune(ctx)
	if err != nil || !mine {
		return err
	}
	queues, next, err := manage.New(k.access.client).QueuePage(ctx, k.from, recountedAtOnce)
	if err != nil {
		return err
	}
	k.from = next
	for names := range slices.Chunk(slices.Sorted(maps.Keys(queues)), recountQueues) {
		news, err := manage.New(k.access.client).Recount(ctx, names, k.purge)
		if err != nil {
			return err
		}
		for _, of := range news {
			if mine, err = k.keep(ctx); err != nil || !mine {
				return err
			}
			if err := k.tidy(ctx, of); queue.IsUnavailable(err) || ctx.Err() != nil {
				return err
			} else if err != nil {
				k.health.failed(opPurge, of.Queue, err) // the others are tidied all the same
			}
		}
	}
	return damaged
}

// keep renews the duty now and then; false: another host has begun.
func (k *housekeeper) keep(ctx context.Context) (bool, error) {
	if time.Since(k.kept) < housekeepingInterval/3 {
		return true, nil
	}
	k.kept = time.Now()
	return k.access.node.KeepDuty(ctx, "purge", housekeepingInterval)
}

// prune forgets publications. damaged are topics that cannot be purged, which holds up nothing else; mine as of keep.
func (k *housekeeper) prune(ctx context.Context) (damaged error, mine bool, err error) {
	if k.purge.OlderThan <= 0 && k.purge.Keep <= 0 {
		return nil, true, nil
	}
	total := 0
	for n, failed := range manage.New(k.access.client).PurgePublications(ctx, k.purge) {
		total += n
		if queue.IsUnavailable(failed) || ctx.Err() != nil {
			return nil, false, failed
		}
		damaged = errors.Join(damaged, failed)
		if mine, err = k.keep(ctx); err != nil || !mine {
			return nil, mine, err
		}
	}
	if total > 0 {
		k.access.logger.Info("purged publications", "publications", total)
	}
	return damaged, true, nil
}

// tidy does what is left to do for one queue.
func (k *housekeeper) tidy(ctx context.Context, of manage.Recounted) error {
	if of.Forgotten {
		k.access.logger.Info("forgot an empty queue", "queue", of.Queue)
	}
	if !of.Old {
		return of.Err
	}
	purged, err := manage.New(k.access.client).Queue(of.Queue).Purge(ctx, k.purge)
	if purged > 0 {
		k.access.logger.Info("purged finished tasks", "queue", of.Queue, "tasks", purged)
	}
	return errors.Join(of.Err, err)
}
