package host

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// tenantAccess is a session's way to its tenant in Redis, which its parts and tasks share.
type tenantAccess struct {
	client   *queue.Client
	listener *listen.Listener
	catalog  catalog
	queues   *knownQueues
	// calls are what calls of handlers send, results what they read and keep until the end of their task.
	calls, results *account.Budget
	logger         hclog.Logger
}

// queue names a queue of the tenant for the scheduler.
func (a *tenantAccess) queue(name string) schedule.Queue {
	return schedule.Queue{Tenant: a.client.Tenant(), Name: name}
}

// borrowPatience is how long a call waits for memory.
const borrowPatience = 10 * time.Second

// borrow takes memory for a call, and waits some seconds for it. An error wraps service.ErrUnavailable.
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

// knownQueues are the tenant's queues: the last poll's, and others that its tasks have enqueued to since.
type knownQueues struct {
	most int // that handlers may bring the tenant to

	mu    sync.Mutex
	names map[string]int64 // the keys count; guarded by mu
	more  bool             // there are more than a poll lists; guarded by mu
}

// set replaces the queues by a poll's, and keeps the map. more: there are others.
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

// claim lets a handler enqueue to a queue that exists, and to a new one while the tenant has few enough. The new one
// counts from then on. An error wraps service.ErrLimit, or service.ErrUnavailable if Redis does not tell whether the
// queue exists.
func (q *knownQueues) claim(ctx context.Context, client *queue.Client, name string) error {
	if q.admits(name) {
		return nil
	}
	exists, err := listen.NewFleet(client).HasQueue(ctx, name) // the poll has seen only some, or did before somebody made it
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

// admits adds a queue if there is room for it, and returns whether it is known now.
func (q *knownQueues) admits(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, known := q.names[name]; !known && (q.more || len(q.names) >= q.most) {
		return false
	}
	q.names[name] = 0
	return true
}
