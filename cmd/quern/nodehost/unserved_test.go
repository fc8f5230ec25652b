package nodehost

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) { queuetest.Exit(m) }

// A queue that nobody serves at three looks in a row is logged once. Looks from before it was served do not count.
func TestWarnUnserved(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client, err := queue.New(queuetest.SharedURL(), queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	host := listen.New(client)
	serve := func(name string) {
		t.Helper()
		if err := host.Register(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := host.Join(ctx); err != nil {
		t.Fatal(err)
	}
	serve("other")
	if _, err := client.Queue("mail").Enqueue(ctx, nil, queue.Options{}); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	n := &Node{Logger: hclog.New(&hclog.LoggerOptions{Output: &log})}
	known := map[string]unserved{}
	look := func(times, lines int) {
		t.Helper()
		for range times {
			n.warnUnserved(ctx, client, known, func(string) bool { return false })
		}
		if got := strings.Count(log.String(), "a task waits in a queue that nobody serves"); got != lines {
			t.Fatalf("%d lines, want %d:\n%s", got, lines, log.String())
		}
	}
	for range 2 { // restarts of its host
		look(2, 0)
		serve("mail")
		look(1, 0)
		if err := host.Unregister(ctx, "mail"); err != nil {
			t.Fatal(err)
		}
	}
	look(2, 0)
	look(5, 1)
}
