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

// tenantAccess is how a session reaches its tenant in Redis. The session's parts and tasks share it.
type tenantAccess struct {
	client   *queue.Client
	listener *listen.Listener
	catalog  catalog
	queues   *knownQueues
	// calls is the budget for what handlers send to Redis. results is the budget for the results of dependencies that
	// handlers read; these stay in memory until the reading task ends.
	calls, results *account.Budget
	logger         hclog.Logger
}

// queue names a queue of the tenant for the scheduler.
func (a *tenantAccess) queue(name string) schedule.Queue {
	return schedule.Queue{Tenant: a.client.Tenant(), Name: name}
}

// borrowPatience is how long a call waits for memory.
const borrowPatience = 10 * time.Second

// borrow reserves memory of a budget for a call, and waits up to borrowPatience for it. An error wraps
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

// knownQueues records which queues a tenant has: the queues of the last poll, and those that this host has since
// registered for or let a handler enqueue to.
type knownQueues struct {
	most int // handlers create no queue once the tenant has this many

	mu    sync.Mutex
	names map[string]int64 // only the keys matter; guarded by mu
	more  bool             // the tenant has queues that the poll did not list; guarded by mu
}

// set replaces the known queues by the queues of a poll, and keeps the map. more: the tenant has queues that the poll
// did not list.
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

// claim checks whether a handler may enqueue to a queue: the queue exists, or the tenant has room for a new one, which
// counts from then on. An error wraps service.ErrLimit, or service.ErrUnavailable if Redis cannot say whether the queue
// exists.
func (q *knownQueues) claim(ctx context.Context, client *queue.Client, name string) error {
	if q.admits(name) {
		return nil
	}
	exists, err := listen.NewFleet(client).HasQueue(ctx, name) // it may be newer than the poll, or not listed
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
