package host

import (
	"errors"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

const subscribingManifest = `subscribe: [{topic: "orders.*", filter: {data: {/total: 12}}}]`

// A manifest's subscriptions come with the plugin, change with it, and go with it; a pause by hand stays.
func TestDeclaredSubscription(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"echo": runtimetest.Echo(t)}, yaml: map[string]string{"echo": subscribingManifest}})
	const id = "echo/orders.*"
	stored := func(is func(s queue.Subscription) bool) func() bool {
		return func() bool {
			s, err := n.client.Subscription(n.ctx, id)
			return err == nil && is(s)
		}
	}
	n.eventually("stored", stored(func(s queue.Subscription) bool { return s.Active && s.Queue == "echo" && s.Plugin == "echo" }))
	for payload, subscribers := range map[string]int{`{"total": 12}`: 1, `{"total": 13}`: 0} {
		p, err := n.client.Publish(n.ctx, "orders.made", []byte(payload), queue.PublishOptions{})
		if err != nil || p.Subscribers != subscribers {
			t.Errorf("%s: %+v, %v", payload, p, err)
		}
		if subscribers > 0 {
			if task := n.wait(queue.PublishedID(p.ID, id)); string(task.Result) != payload {
				t.Errorf("%+v", task)
			}
		}
	}
	if _, err := n.client.ChangeSubscription(n.ctx, id, func(s *queue.Subscription) error { s.Active = false; return nil }); err != nil {
		t.Fatal(err)
	}
	n.write("echo.yaml", []byte(`subscribe: [{topic: "orders.*"}]`))
	n.eventually("changed", stored(func(s queue.Subscription) bool { return len(s.Filter.Data) == 0 && !s.Active }))
	n.write("echo.yaml", []byte(`{}`))
	n.eventually("gone", func() bool {
		_, err := n.client.Subscription(n.ctx, id)
		return errors.Is(err, queue.ErrNoSubscription)
	})
}

// A subscription outlives its plugin for longer than a restart takes, by Redis's clock, and a host that has just begun deletes none.
func TestDeclaredSubscriptionWithoutAHost(t *testing.T) {
	t.Parallel()
	server, clock := queuetest.StartAhead(t, 0)
	common := settings{
		server: server, tenants: []string{queuetest.Tenant()}, guests: map[string][]byte{"echo": runtimetest.Echo(t)},
		yaml: map[string]string{"echo": subscribingManifest},
	}
	n := start(t, common)
	const id = "echo/orders.*"
	unserved := func() (since time.Time, err error) {
		s, err := n.client.Subscription(n.ctx, id)
		return s.UnservedSince, err
	}
	n.eventually("stored and published", func() bool {
		live, failed := Plugins(n.ctx, n.client)
		_, err := unserved()
		return failed == nil && err == nil && len(live) == 1 && len(live[0].Subscriptions) == 1
	})
	other := start(t, settings{server: server, tenants: common.tenants, idle: true})
	if err := other.current().access.node.Join(n.ctx); err != nil {
		t.Fatal(err)
	}
	other.current().subscriber.since = time.Now().Add(-time.Hour)
	sweep := func(after time.Duration) {
		t.Helper()
		clock.Set(t, after)
		if err := errors.Join(other.rdb.Del(n.ctx, n.tenant+"_duty_subscribed").Err(), other.current().subscriber.sweep(n.ctx)); err != nil {
			t.Fatal(err)
		}
	}
	sweep(0)
	if since, err := unserved(); err != nil || !since.IsZero() {
		t.Errorf("served: %v, %v", since, err)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	sweep(time.Hour)
	if since, err := unserved(); err != nil || since.IsZero() {
		t.Errorf("unserved: %v, %v", since, err)
	}
	sweep(time.Hour + absentTime - 10*time.Second)
	other.current().subscriber.since = time.Now()
	sweep(time.Hour + absentTime + 10*time.Second)
	if _, err := unserved(); err != nil {
		t.Errorf("a host that has just begun: %v", err)
	}
	other.current().subscriber.since = time.Now().Add(-time.Hour)
	sweep(time.Hour + absentTime + 20*time.Second)
	if _, err := unserved(); !errors.Is(err, queue.ErrNoSubscription) {
		t.Errorf("it is still there: %v", err)
	}
}
