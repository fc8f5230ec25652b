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

// WarnUnserved logs each queue in which tasks wait and that nobody serves, once, until ctx ends. It leaves out
// tenants without any served queue, queues that apart selects, and queues of dead letters.
func (n *Node) WarnUnserved(ctx context.Context, apart func(queue string) bool) {
	told := make([]map[string]bool, len(n.clients)) // by queue, for each tenant
	for i := range told {
		told[i] = map[string]bool{}
	}
	for periodic.Sleep(ctx, unservedLook) {
		for i, client := range n.clients {
			t := admin.NewDirect(client, n.stores[client.Tenant()])
			listeners, err := t.Queues(ctx)
			unserved := slices.Sorted(maps.Keys(listeners))
			unserved = slices.DeleteFunc(unserved, func(name string) bool {
				return listeners[name] > 0 || told[i][name] || apart(name) || strings.HasSuffix(name, ".dead")
			})
			if err != nil || len(unserved) == len(listeners) { // the host logs that Redis does not answer
				continue
			}
			for _, name := range unserved {
				tasks, err := manage.New(client).Queue(name).List(ctx,
					manage.ListOptions{Status: queue.Pending, Limit: 1, Bytes: 1})
				if err != nil || len(tasks) == 0 || queue.IsLetter(tasks[0].ID) {
					continue
				}
				told[i][name] = true
				n.Logger.Warn("a task waits in a queue that nobody serves", "tenant", client.Tenant(), "queue", name,
					"remedy", admin.ServingQueue(ctx, t, name))
			}
		}
	}
}
