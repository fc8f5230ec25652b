package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/admin/admintest"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/api/client"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A producer's tool does not ask again whether a host serves the queue, if the answer to the enqueue said so.
func TestServedAskedOnce(t *testing.T) {
	t.Parallel()
	behind, err := queue.New(queuetest.Shared(t).URL(), queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = behind.Close() })
	node := listen.New(behind)
	if err := errors.Join(node.Join(t.Context()), node.Register(t.Context(), "mail")); err != nil {
		t.Fatal(err)
	}
	served := serve(t, behind, nil)
	target, err := url.Parse("http://" + served)
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	forward := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	c, err := client.New(proxy.URL, "", behind.Tenant())
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"mial": 1, "mail": 1, "large": 3 << 20} {
		before := requests.Load()
		if _, err := c.Queue(name).EnqueueMany(t.Context(), []queue.Spec{{Parameters: make([]byte, size)}}); err != nil {
			t.Fatal(err)
		}
		warning, err := admin.UnservedQueue(t.Context(), c, name)
		if err != nil || strings.HasPrefix(warning, fmt.Sprintf("no host serves the queue %q", name)) != (name != "mail") {
			t.Errorf("%s: %q, %v", name, warning, err)
		}
		if n := requests.Load() - before; (n == 1) != (name == "mail") {
			t.Errorf("%s: %d requests", name, n)
		}
	}
	if warning, err := admin.UnservedQueue(t.Context(), c, "other"); err != nil || warning == "" {
		t.Errorf("where nothing was enqueued: %q, %v", warning, err)
	}
}

func TestMain(m *testing.M) { queuetest.Exit(m) }

func TestClient(t *testing.T) {
	t.Parallel()
	admintest.Exercise(t, func(t *testing.T, behind *queue.Client, store *kv.Store) admin.Tenant {
		t.Helper()
		c, err := client.New("http://"+serve(t, behind, store), "", behind.Tenant())
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
}

// serve serves the API of a tenant until the test ends, and returns its address.
func serve(t *testing.T, behind *queue.Client, store *kv.Store) (address string) {
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
	return server.Addr()
}
