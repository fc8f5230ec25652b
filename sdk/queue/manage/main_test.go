package manage

import (
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) { queuetest.Exit(m) }

// connect is a client of a tenant of its own on the shared redis-server.
func connect(t *testing.T) *queue.Client {
	t.Helper()
	client, err := queue.New(queuetest.Shared(t).URL(), queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
