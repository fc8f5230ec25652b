package admin_test

import (
	"testing"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/admin/admintest"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) { queuetest.Exit(m) }

func TestDirect(t *testing.T) {
	t.Parallel()
	admintest.Exercise(t, func(_ *testing.T, client *queue.Client, store *kv.Store) admin.Tenant {
		return admin.NewDirect(client, store)
	})
}
