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

const (
	// housekeepingInterval is how often finished tasks are purged and counts are set right.
	housekeepingInterval = time.Minute
	// housekeepingTerm is how long a host may take for it before another one may begin.
	housekeepingTerm = 10 * time.Minute
)

// keepHouse forgets finished tasks that are old or too many, and sets the counts of listeners right, of
// every queue of the tenant, until ctx ends. One host of the fleet does it at a time.
func (s *session) keepHouse(ctx context.Context) {
	for sleep(ctx, housekeepingInterval/2+rand.N(housekeepingInterval)) {
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

func (s *session) keepHouseOnce(ctx context.Context) error {
	got, err := s.node.TakeDuty(ctx, "purge", housekeepingTerm)
	if err != nil || !got {
		return err
	}
	queues, err := s.client.Queues(ctx)
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		if err = s.tidy(ctx, name); queue.IsUnavailable(err) {
			break
		}
		if err != nil && ctx.Err() == nil {
			s.failed(opPurge, name, err)
			err = nil // the others are tidied all the same
		}
	}
	return errors.Join(err, s.node.YieldDuty(ctx, "purge"))
}

func (s *session) tidy(ctx context.Context, name string) error {
	q := s.client.Queue(name)
	recounted := q.Recount(ctx)
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
