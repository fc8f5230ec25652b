package listen

import (
	"context"
	"strconv"
	"strings"

	"github.com/quern-project/quern/sdk/queue"
)

// maxWeight is the maximum weight of a tenant or a queue.
const maxWeight = 1000

// Weights are the weights by which hosts share their slots: a tenant of weight 3 gets three times what a tenant of
// weight 1 gets, while both have tasks. Weights of queues share what the tenant gets. All are from 1 to 1000.
type Weights struct {
	Tenant  int               // 1 if none is set
	Queues  map[string]int    // of the queues for which one is set; the others have 1
	Invalid map[string]string // fields with their values that are no weights: these count as 1
}

// ReadWeights reads the weights of a tenant and of its queues.
func ReadWeights(ctx context.Context, c *queue.Client) (Weights, error) {
	fields, err := c.Store().Quotas(ctx)
	w := Weights{Tenant: 1, Queues: make(map[string]int), Invalid: make(map[string]string)}
	for field, text := range fields {
		kind, name, ofQueue := strings.Cut(field, ":")
		if kind != "weight" {
			continue
		}
		weight, err := strconv.Atoi(text)
		if err != nil || weight < 1 || weight > maxWeight {
			w.Invalid[field], weight = text, 1
		}
		if ofQueue {
			w.Queues[name] = weight
		} else {
			w.Tenant = weight
		}
	}
	return w, err
}
