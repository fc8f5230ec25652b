package client_test

import (
	"context"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/admin/admintest"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/api/client"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) { queuetest.Exit(m) }

func TestClient(t *testing.T) {
	t.Parallel()
	admintest.Exercise(t, func(t *testing.T, behind *queue.Client, store *kv.Store) admin.Tenant {
		t.Helper()
		server, err := api.Listen("127.0.0.1:0", api.Config{
			Clients: []*queue.Client{behind}, Stores: map[string]*kv.Store{behind.Tenant(): store}, Logger: hclog.NewNullLogger(),
		})
		if err != nil {
			t.Fatal(err)
		}
		running, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan error, 1)
		go func() { ended <- server.Run(running) }()
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Errorf("the server ended with %v", err)
			}
		})
		c, err := client.New("http://"+server.Addr(), "", behind.Tenant())
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
}
