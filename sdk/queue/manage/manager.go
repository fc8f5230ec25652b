package manage

import (
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Manager is what operators read and change of a tenant. It is safe for concurrent use.
type Manager struct {
	client *queue.Client
	store  *store.Store
}

// New manages the tenant of a client.
func New(client *queue.Client) *Manager { return &Manager{client, client.Store()} }

// Queue is a queue with what operators read and change of it.
type Queue struct {
	*queue.Queue
	tenant *Manager
}

// Queue names a queue; its methods refuse an invalid name.
func (m *Manager) Queue(name string) *Queue { return &Queue{m.client.Queue(name), m} }

// QueueOf manages a queue that a client named.
func QueueOf(q *queue.Queue) *Queue { return &Queue{q, New(q.Client())} }
