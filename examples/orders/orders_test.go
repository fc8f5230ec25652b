package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/internal/exampletest"
	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/sdktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What the README says to do shows what it says: each publication reaches all subscribers, and an order is shipped when all is packed.
func TestREADME(t *testing.T) {
	t.Parallel()
	plugin := exampletest.New(t).Build(t, ".")
	redis := queuetest.Start(t).URL()
	plugin.Quern.Start(t, redis, plugin.Install(t))
	client, err := queue.New(redis, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	exampletest.Eventually(t, "the plugin's subscriptions are there", func() bool {
		all, err := client.Subscriptions(t.Context())
		return err == nil && len(all) == 2
	})
	said := plugin.Quern.Listing(t, ".", "quern topic publish orders.made '{\"order\": \"ada-1\"", redis)
	for _, want := range []string{"ada-1\n", "shipped 2 items\n", "orders.made", "orders/orders.*", "ada-1.ship  ship  complete"} {
		if !strings.Contains(said, want) {
			t.Errorf("%s\nhas no %q", said, want)
		}
	}
	said = plugin.Quern.Listing(t, ".", "quern topic publish orders.made '{\"order\": \"bob-1\"", redis)
	if !strings.Contains(said, "bob-1.2  pack  failed") || !strings.Contains(said, "bob-1.ship  ship  failed") {
		t.Error(said)
	}
	exampletest.Eventually(t, "the journal has all three", func() bool {
		complete, err := manage.New(client).Queue("journal").Count(t.Context(), queue.Complete)
		return err == nil && complete == 3
	})
	shipped, err := client.Publication(t.Context(), "ada-1.shipped")
	if err != nil || shipped.Subscribers != 1 || shipped.Parent != "ada-1.ship" {
		t.Errorf("%+v, %v", shipped, err)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Queues = []string{"pack", "ship"}
	r := h.Run(handle, sdktest.Task{Queue: "orders", Input: []byte(`{"order": "o", "items": ["a", "b"]}`)})
	if r.Outcome != sdktest.Complete || len(r.Enqueued) != 3 {
		t.Fatal(r, r.Enqueued)
	}
	if ship := r.Enqueued[2]; ship.ID != "o.ship" || strings.Join(ship.Options.After, " ") != "o.1 o.2" {
		t.Errorf("%+v", ship)
	}
	h.Fault = func(string) error { return sdk.ErrUnavailable }
	if r := h.Run(handle, sdktest.Task{Queue: "orders", Input: []byte(`{"order": "o", "items": ["a", "b"]}`)}); r.Outcome != sdktest.Retry {
		t.Error(r)
	}
	if r := h.Run(handle, sdktest.Task{Queue: "ship", Input: []byte(`{}`)}); r.Outcome != sdktest.Fatal {
		t.Error(r)
	}
}
