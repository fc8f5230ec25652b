package manage

import (
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Manager reads and changes a tenant for its operators. It is safe for concurrent use.
type Manager struct {
	client *queue.Client
	store  *store.Store
}

// New returns the Manager of the client's tenant.
func New(client *queue.Client) *Manager { return &Manager{client, client.Store()} }

// Queue is a queue.Queue with the methods for operators.
type Queue struct {
	*queue.Queue
	tenant *Manager
}

// Queue returns the queue with this name. It does not check the name: the queue's methods return an error if it is
// invalid.
func (m *Manager) Queue(name string) *Queue { return &Queue{m.client.Queue(name), m} }

// QueueOf returns the Queue for q, with a Manager of q's client.
func QueueOf(q *queue.Queue) *Queue { return &Queue{q, New(q.Client())} }
