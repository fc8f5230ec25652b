package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/internal/exampletest"
	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	postgrestest.End()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// What the README says to do shows what it says, although a host dies in the middle: each order is booked once, in the
// database of its customer, and the partner is told of it.
func TestREADME(t *testing.T) {
	t.Parallel()
	plugin := exampletest.New(t).Build(t, ".")
	server := postgrestest.Shared(t)
	state := t.TempDir()
	place := []string{"$PG", strings.TrimSuffix(server.URL(""), "/?sslmode=disable"), "$STATE", state}
	redis := queuetest.Start(t, "--appendonly", "yes", "--appendfsync", "always").URL()
	quern := plugin.Quern
	quern.Listing(t, ".", "for database in erp", redis, place[:2]...)
	quern.Listing(t, ".", "mkdir", redis, place...)

	var mu sync.Mutex
	told := map[int64]bool{}
	partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		var o order
		if err == nil {
			err = json.Unmarshal(text, &o)
		}
		if err != nil {
			t.Errorf("%v: %s", err, text)
		}
		mu.Lock()
		defer mu.Unlock()
		told[o.Number] = true
	}))
	t.Cleanup(partner.Close)
	client, err := queue.New(redis, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if _, err := client.Subscribe(t.Context(), queue.Subscription{
		ID: "partner", Topic: "orders.booked", Webhook: &queue.Webhook{URL: partner.URL},
	}); err != nil {
		t.Fatal(err)
	}

	plugins := plugin.Install(t)
	serve := func() *exampletest.Node {
		return quern.Start(t, redis, plugins, "--grants", "host/grants.yaml", "--secrets", state+"/secrets", "--sources",
			state+"/sources.yaml", "--allow-networks", "127.0.0.0/8", "--lease", "2s")
	}
	first := serve()
	books := server.Connect(t, server.URL("acme"))
	done := make(chan string)
	go func() { done <- quern.Listing(t, ".", `psql -q "$PG/erp" -c "INSERT`, redis, place[:2]...) }()
	exampletest.Eventually(t, "some orders are booked", func() bool {
		n := int64(0)
		err := books.Query(t.Context(), func(v postgres.Row) { n = v.Int(0) }, "SELECT count(*) FROM bookings")
		return err == nil && n > 5
	})
	first.Kill()
	serve()
	if said := <-done; said != "50|50|2550\n50|50|2500\n" {
		t.Error(said)
	}
	exampletest.Eventually(t, "the partner knows all orders", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(told) == 100
	})
}
