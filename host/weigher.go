package host

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// weighInterval is how often the weigher reads the weights of a tenant, ± 20 %. It also reads them when a message comes
// on the control channel.
const weighInterval = 5 * time.Second

// weigher tells the scheduler the weights of a tenant and of its queues, which operators set in Redis.
type weigher struct {
	periodic.Duty
	access    *tenantAccess
	scheduler *schedule.Scheduler

	known  listen.Weights    // what the scheduler was told
	logged map[string]string // invalid weights that were logged
}

// RunOnce implements periodic.Worker.
func (w *weigher) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	weights, err := listen.ReadWeights(ctx, w.access.client)
	if err != nil {
		w.Reports.FailedQuietly(opWeigh, err) // the weights that are known still count
		return pollPause, periodic.Jitter(weighInterval), err
	}
	if weights.Tenant != w.known.Tenant || !maps.Equal(weights.Queues, w.known.Queues) {
		w.scheduler.SetWeights(w.access.client.Tenant(), weights.Tenant, weights.Queues)
		w.known = weights
	}
	for field, value := range weights.Invalid {
		if w.logged[field] != value {
			w.access.logger.Warn("a weight is invalid and counts as 1: set a number of 1 to 1000",
				"field", fmt.Sprintf("%s_quotas %s", w.access.client.Tenant(), field), "value", value)
		}
	}
	w.logged = weights.Invalid
	return pollPause, periodic.Jitter(weighInterval), nil
}
