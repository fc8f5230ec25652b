package nodehost

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// unservedLook is how often WarnUnserved looks.
const unservedLook = time.Second

// unservedLooks is at how many looks in a row a queue must be unserved: its listener may be about to join.
const unservedLooks = 3

// WarnUnserved logs each queue in which tasks wait and that nobody serves, once, until ctx ends. It leaves out
// tenants without any served queue, queues that apart selects, and queues of dead letters and of webhooks.
func (n *Node) WarnUnserved(ctx context.Context, apart func(queue string) bool) {
	looks := make([]map[string]int, len(n.clients)) // at how many a queue was unserved, for each tenant
	for i := range looks {
		looks[i] = map[string]int{}
	}
	for periodic.Sleep(ctx, unservedLook) {
		for i, client := range n.clients {
			t := admin.NewDirect(client, n.stores[client.Tenant()])
			listeners, err := t.Queues(ctx)
			unserved := slices.Sorted(maps.Keys(listeners))
			unserved = slices.DeleteFunc(unserved, func(name string) bool {
				return listeners[name] > 0 || looks[i][name] > unservedLooks || apart(name) ||
					strings.HasSuffix(name, ".dead") || queue.ReservedQueue(name)
			})
			if err != nil || len(unserved) == len(listeners) { // the host logs that Redis does not answer
				continue
			}
			for _, name := range unserved {
				tasks, err := manage.New(client).Queue(name).List(ctx,
					manage.ListOptions{Status: queue.Pending, Limit: 1, Bytes: 1})
				if err != nil || len(tasks) == 0 || queue.IsLetter(tasks[0].ID) {
					looks[i][name] = 0
					continue
				}
				if looks[i][name]++; looks[i][name] < unservedLooks {
					continue
				}
				looks[i][name]++
				n.Logger.Warn("a task waits in a queue that nobody serves", "tenant", client.Tenant(), "queue", name,
					"remedy", admin.ServingQueue(ctx, t, name))
			}
		}
	}
}
