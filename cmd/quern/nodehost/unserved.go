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

// unserved is what is known of a queue in which tasks wait and that nobody serves.
type unserved struct {
	looks int  // at how many looks in a row it was so
	told  bool // since then
}

// WarnUnserved logs each queue in which tasks wait and that nobody serves, once, until ctx ends. It leaves out
// tenants without any served queue, queues that apart selects, and queues of dead letters and of webhooks.
func (n *Node) WarnUnserved(ctx context.Context, apart func(queue string) bool) {
	known := make([]map[string]unserved, len(n.clients)) // by tenant and queue
	for i := range known {
		known[i] = map[string]unserved{}
	}
	for periodic.Sleep(ctx, unservedLook) {
		for i, client := range n.clients {
			n.warnUnserved(ctx, client, known[i], apart)
		}
	}
}

// warnUnserved looks at the queues of a tenant once. A queue that is served, or empty, leaves known.
func (n *Node) warnUnserved(ctx context.Context, client *queue.Client, known map[string]unserved,
	apart func(queue string) bool,
) {
	t := admin.NewDirect(client, n.stores[client.Tenant()])
	listeners, err := t.Queues(ctx)
	if err != nil { // which the host logs
		return
	}
	maps.DeleteFunc(known, func(name string, _ unserved) bool {
		count, exists := listeners[name]
		return count > 0 || !exists
	})
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(listeners)), func(name string) bool {
		return listeners[name] > 0 || apart(name) || strings.HasSuffix(name, ".dead") || queue.ReservedQueue(name)
	})
	if len(names) == len(listeners) {
		return
	}
	for _, name := range names {
		u := known[name]
		if u.told {
			continue
		}
		tasks, err := manage.New(client).Queue(name).List(ctx, manage.ListOptions{Status: queue.Pending, Limit: 1, Bytes: 1})
		if err != nil || len(tasks) == 0 || queue.IsLetter(tasks[0].ID) {
			delete(known, name)
			continue
		}
		u.looks++
		if u.told = u.looks >= unservedLooks; u.told {
			n.Logger.Warn("a task waits in a queue that nobody serves", "tenant", client.Tenant(), "queue", name,
				"remedy", admin.ServingQueue(ctx, t, name))
		}
		known[name] = u
	}
}
