package host

import (
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/sdk/queue"
)

// tenantAccess is a session's way to its tenant in Redis, which its parts and tasks share.
type tenantAccess struct {
	client *queue.Client
	node   *queue.Node
	queues *knownQueues
	logger hclog.Logger
}

// knownQueues are the tenant's queues: those of the last poll, and those that its tasks have enqueued to since.
type knownQueues struct {
	most int // that handlers may bring the tenant to

	mu    sync.Mutex
	names map[string]bool // guarded by mu
}

// set replaces the queues by those of a poll.
func (q *knownQueues) set(queues map[string]int64) {
	names := make(map[string]bool, len(queues))
	for name := range queues {
		names[name] = true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.names = names
}

func (q *knownQueues) add(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.names[name] = true
}

// claim tells whether a handler may enqueue to a queue: to a known one, or to a new one while the tenant has few enough. The
// new one counts from then on.
func (q *knownQueues) claim(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.names[name] && len(q.names) >= q.most {
		return false
	}
	q.names[name] = true
	return true
}
