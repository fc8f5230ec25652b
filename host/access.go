package host

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// tenantAccess has what a session's parts and tasks share in order to reach their tenant in Redis.
type tenantAccess struct {
	client   *queue.Client
	listener *listen.Listener
	catalog  catalog
	queues   *knownQueues
	// calls is the memory budget for the tasks and publications that handlers with `after: call` send, and for the
	// publications that the fleet's Publisher makes. results is the memory budget for results of dependencies. A result
	// that a handler has read keeps its memory until the task reads another one or ends.
	calls, results *account.Budget
	logger         hclog.Logger
}

// queue returns the name under which the scheduler knows a queue of the tenant.
func (a *tenantAccess) queue(name string) schedule.Queue {
	return schedule.Queue{Tenant: a.client.Tenant(), Name: name}
}

// borrowPatience is how long borrow waits for memory.
const borrowPatience = 10 * time.Second

// borrow reserves memory from a budget, and waits at most borrowPatience for it. The error wraps
// service.ErrUnavailable.
func (a *tenantAccess) borrow(ctx context.Context, from *account.Budget, bytes int64) (*account.Share, error) {
	patient, stop := context.WithTimeout(ctx, borrowPatience)
	defer stop()
	if share := from.Take(patient, a.client.Tenant(), bytes); share != nil {
		return share, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: no memory for %d bytes: %w", service.ErrUnavailable, bytes, context.Cause(ctx))
	}
	return nil, fmt.Errorf("%w: no memory for %d bytes within %s", service.ErrUnavailable, bytes, borrowPatience)
}

// knownQueues records which queues a tenant has: those that the last poll listed, those for which this host has
// registered since then, and those to which it has let a handler enqueue since then.
type knownQueues struct {
	most int // handlers can create no more queues once the tenant has this many

	mu    sync.Mutex
	names map[string]int64 // the keys are the names, the values are not used; guarded by mu
	more  bool             // the tenant has queues that the poll did not list; guarded by mu
}

// set replaces the known queues with the queues that a poll listed. It keeps the map. more reports that the tenant has
// queues that the poll did not list.
func (q *knownQueues) set(queues map[string]int64, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.names, q.more = queues, more
}

func (q *knownQueues) add(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.names[name] = 0
}

// claim returns nil if a handler is allowed to enqueue to a queue: the queue exists, or the tenant has room for another
// queue. A new queue is known from then on. The error wraps service.ErrLimit, or service.ErrUnavailable if Redis cannot
// say whether the queue exists.
func (q *knownQueues) claim(ctx context.Context, client *queue.Client, name string) error {
	if q.admits(name) {
		return nil
	}
	// The queue can be newer than the last poll, or one that the poll did not list.
	exists, err := listen.NewFleet(client).HasQueue(ctx, name)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	case !exists:
		return fmt.Errorf("%w: the tenant has %d queues, and the host lets handlers add no more: use one of them, or raise --max-queues",
			service.ErrLimit, q.most)
	}
	q.add(name)
	return nil
}

// admits reports whether a queue is known. It adds an unknown queue if there is room for it.
func (q *knownQueues) admits(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, known := q.names[name]; !known && (q.more || len(q.names) >= q.most) {
		return false
	}
	q.names[name] = 0
	return true
}
