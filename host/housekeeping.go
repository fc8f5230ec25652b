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

// housekeepingInterval is how often finished tasks are purged and counts are set right, and how long a host that begins
// has the duty for itself.
const housekeepingInterval = time.Minute

// keepHouse forgets finished tasks that are old or too many, and queues of which nothing is left, and sets the counts of
// listeners right, of the whole tenant, until ctx ends. One host of the fleet does it in each interval.
func (s *session) keepHouse(ctx context.Context) {
	for sleep(ctx, housekeepingInterval/4+rand.N(housekeepingInterval/2)) {
		err := s.keepHouseOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.failed(opPurge, "", err)
		default:
			s.succeeded(opPurge, "")
		}
	}
}

// keepHouseOnce does it if nobody else has in this interval. The duty is never given back: it ends with the interval, or
// with one after the last queue if there are many.
func (s *session) keepHouseOnce(ctx context.Context) error {
	mine, err := s.node.TakeDuty(ctx, "purge", housekeepingInterval)
	if err != nil || !mine {
		return err
	}
	since := time.Now()
	queues, err := s.client.Queues(ctx)
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		if time.Since(since) > housekeepingInterval/3 {
			since = time.Now()
			if mine, err = s.node.KeepDuty(ctx, "purge", housekeepingInterval); err != nil || !mine {
				return err // another host has begun
			}
		}
		if err = s.tidy(ctx, name); queue.IsUnavailable(err) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			s.failed(opPurge, name, err)
			err = nil // the others are tidied all the same
		}
	}
	return err
}

func (s *session) tidy(ctx context.Context, name string) error {
	q := s.client.Queue(name)
	forgotten, recounted := q.Recount(ctx)
	if forgotten {
		s.logger.Info("forgot a queue of which nothing is left", "queue", name)
		return nil
	}
	c := s.host.config
	options := queue.PurgeOptions{OlderThan: max(0, c.Keep), Keep: max(0, c.KeepTasks), Foreign: c.PurgeForeign}
	if options.OlderThan == 0 && options.Keep == 0 || queue.IsUnavailable(recounted) {
		return recounted
	}
	purged, err := q.Purge(ctx, options)
	if purged > 0 {
		s.logger.Info("purged finished tasks", "queue", name, "tasks", purged)
	}
	return errors.Join(recounted, err)
}
