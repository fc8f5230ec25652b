package manage

import (
	"context"

	"github.com/quern-project/quern/sdk/queue/listen"
)

// Purge deletes finished tasks of the queue: see listen.Fleet.Purge.
func (q *Queue) Purge(ctx context.Context, options listen.PurgeOptions) (total int, err error) {
	return listen.NewFleet(q.tenant.client).Purge(ctx, q.Name(), options)
}
