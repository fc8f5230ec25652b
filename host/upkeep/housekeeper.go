package upkeep

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
	"github.com/quern-project/quern/sdk/queue/release"
)

const (
	// housekeepingInterval is how often finished tasks are purged and counts are corrected, and the term of the host
	// that does it.
	housekeepingInterval = time.Minute
	// recountQueues is the maximum number of queues that one round trip looks at.
	recountQueues = 1000
	// recountedAtOnce is the maximum number of queues of a tenant that one interval looks at. If there are more, the next
	// interval goes on with them.
	recountedAtOnce = 10_000
)

// Housekeeper purges finished tasks and publications of the tenant that are old or too many, deletes pieces that no
// release names, forgets empty queues, and corrects the counts of listeners. One host of the fleet does it in each
// interval.
type Housekeeper struct {
	periodic.Duty
	*Config
	from int64     // the cursor from which the next run reads queues
	kept time.Time // when the term began or was renewed; only the run under way uses it
}

// housekeepingWait returns how long a host waits before it tries again: half an interval, ± 50 %.
func housekeepingWait() time.Duration {
	return housekeepingInterval/4 + rand.N(housekeepingInterval/2)
}

// RunOnce implements periodic.Worker.
func (k *Housekeeper) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	if err = k.tidyAll(ctx); queue.IsUnavailable(err) {
		return 0, 0, err // tries again as soon as Redis answers
	}
	wait = housekeepingWait()
	return wait, wait, err
}

// tidyAll tidies the queues, unless another host has done so in this interval. The host does not give the term back.
// The term ends with the interval or, if the work takes longer, one interval after the host last renewed the term.
func (k *Housekeeper) tidyAll(ctx context.Context) error {
	mine, err := k.Node.TakeDuty(ctx, "purge", housekeepingInterval)
	if err != nil || !mine {
		return err
	}
	k.kept = time.Now()
	if deleted, err := release.NewStore(k.Client).Collect(ctx); queue.IsUnavailable(err) || ctx.Err() != nil {
		return err
	} else if err != nil {
		k.Health.FailedQuietly(opPurge, err) // the rest is tidied all the same
	} else if deleted > 0 {
		k.Logger.Info("deleted pieces that no release names", "pieces", deleted)
	}
	damaged, mine, err := k.prune(ctx)
	if err != nil || !mine {
		return err
	}
	queues, next, err := k.Fleet.QueuePage(ctx, k.from, recountedAtOnce)
	if err != nil {
		return err
	}
	k.from = next
	for names := range slices.Chunk(slices.Sorted(maps.Keys(queues)), recountQueues) {
		news, err := k.Fleet.Recount(ctx, names, k.options())
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
				k.Health.Failed(opPurge, of.Queue, err) // other queues are tidied all the same
			}
		}
	}
	return damaged
}

// keep renews the term if a third of it has passed. It returns false if another host has the term by now.
func (k *Housekeeper) keep(ctx context.Context) (bool, error) {
	if time.Since(k.kept) < housekeepingInterval/3 {
		return true, nil
	}
	k.kept = time.Now()
	return k.Node.KeepDuty(ctx, "purge", housekeepingInterval)
}

// prune purges publications. damaged is the error of topics that cannot be purged, which does not stop the purge of
// other topics. mine is false if another host has the term by now.
func (k *Housekeeper) prune(ctx context.Context) (damaged error, mine bool, err error) {
	if k.Purge.OlderThan <= 0 && k.Purge.Keep <= 0 {
		return nil, true, nil
	}
	total := 0
	for n, failed := range k.Fleet.PurgePublications(ctx, k.Purge) {
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
		k.Logger.Info("purged publications", "publications", total)
	}
	return damaged, true, nil
}

// options returns the options of the purge of tasks. If all tasks are kept, it still removes stale entries of lists.
func (k *Housekeeper) options() listen.PurgeOptions {
	options := k.Purge
	if options.OlderThan <= 0 && options.Keep <= 0 {
		options.Keep = math.MaxInt64
	}
	return options
}

// tidy purges a queue that has old tasks, and logs that an empty queue was forgotten.
func (k *Housekeeper) tidy(ctx context.Context, of listen.Recounted) error {
	if of.Forgotten {
		k.Logger.Info("forgot an empty queue", "queue", of.Queue)
	}
	if !of.Old {
		return of.Err
	}
	purged, err := k.Fleet.Purge(ctx, of.Queue, k.options())
	if purged > 0 {
		k.Logger.Info("purged finished tasks", "queue", of.Queue, "tasks", purged)
	}
	return errors.Join(of.Err, err)
}
