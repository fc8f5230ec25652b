package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// fleet is some sessions of one tenant, on a server of its own that counts commands, with 20 queues. They do only what
// they are told.
func fleet(t *testing.T, config Config) (n *node, server *queuetest.Server, sessions []*session) {
	t.Helper()
	server = queuetest.Start(t)
	n = start(t, settings{server: server, idle: true, Config: config})
	if err := listen.Prepare(n.ctx, n.client); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		n.enqueue(fmt.Sprintf("q%02d", i), "")
	}
	for range 5 {
		sessions = append(sessions, n.session(n.client))
	}
	return n, server, sessions
}

// One host counts the queues for the scrapes of all.
func TestOneHostCountsForScrapes(t *testing.T) {
	t.Parallel()
	n, server, sessions := fleet(t, Config{})
	var scripts int64
	for i, s := range sessions {
		n.tenants[n.tenant].session.Store(s)
		n.rdb.Expire(n.ctx, n.tenant+"_duty_sample", 10*time.Second) // the machine may be slow
		n.rdb.Persist(n.ctx, n.tenant+"_sample")
		scripts += server.Calls(t, func() {
			samples, err := n.samples()
			if err != nil || len(samples) != 20 || samples[7].Queue != "q07" || samples[7].Depth["pending"] != 1 {
				t.Errorf("host %d: %+v, %v", i, samples, err)
			}
		})["evalsha"]
	}
	if scripts != 1+5 { // one counts all queues, and each asks for the duty
		t.Errorf("5 hosts ran %d scripts", scripts)
	}
}

// Who is told that somebody cancelled or drains looks at the marks alone: no host renews its lease for what concerns another.
func TestCancelRenewsNoLease(t *testing.T) {
	t.Parallel()
	common := settings{
		server: queuetest.Start(t), tenants: []string{queuetest.Tenant()}, dir: t.TempDir(), lease: time.Hour,
		Config: Config{Poll: never}, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)},
	}
	n := start(t, common)
	common.guests = nil
	other := start(t, common)
	n.settledAs(2, "sleep")
	other.settledAs(2, "sleep")
	for _, host := range []*node{n, other} {
		host.eventually("what it serves is published", func() bool {
			nodes, err := listen.NewFleet(n.client).Nodes(n.ctx)
			if err != nil || len(nodes) != 2 {
				return false
			}
			return nodes[0].About["queues"] == `["sleep"]` && nodes[1].About["queues"] == `["sleep"]`
		})
	}
	id := n.enqueue("sleep", "60000")
	n.count("sleep", queue.Started, 1)
	// Each host may renew once more, because it has begun to serve the queue. Only a renewal calls expire.
	n.eventually("no renewal is due", func() bool {
		calls := common.server.Calls(t, func() {
			n.eventually("both hosts hear it", func() bool {
				return n.rdb.Publish(n.ctx, n.tenant+"_control", "").Val() == 2
			})
		})
		return calls["expire"] == 0
	})
	calls := common.server.Calls(t, func() {
		pipe := n.rdb.Pipeline()
		for range 500 {
			pipe.Publish(n.ctx, n.tenant+"_control", "")
		}
		if _, err := pipe.Exec(n.ctx); err != nil {
			t.Error(err)
		}
		if _, err := n.client.Queue("sleep").Cancel(n.ctx, id); err != nil {
			t.Error(err)
		}
		if task := n.wait(id); task.Reason != queue.ReasonCancelled {
			t.Errorf("%+v", task)
		}
	})
	if calls["expire"] != 0 {
		t.Errorf("%d renewals", calls["expire"])
	}
	if looks := calls["hexists"]; looks == 0 || looks > 200 {
		t.Errorf("%d looks after 500 messages", looks)
	}
	if err := manage.New(n.client).Drain(n.ctx, other.otherListener(n.task(id).Node)); err != nil {
		t.Fatal(err)
	}
	n.eventually("one host drains", func() bool { return n.tenants[n.tenant].isDraining() != other.tenants[n.tenant].isDraining() })
}

// otherListener is a listener of the tenant that is another one than this.
func (n *node) otherListener(not string) string {
	n.t.Helper()
	for _, id := range n.listeners() {
		if id != not {
			return id
		}
	}
	n.t.Fatal("no other listener")
	return ""
}

// A listener that a queue has without a lease is found, and its tasks run, though it is no host's duty at each look.
func TestUnleasedListenerIsFound(t *testing.T) {
	t.Parallel()
	n := start(t, settings{lease: time.Second, guests: map[string][]byte{"echo": runtimetest.Echo(t)}, idle: true})
	id := n.enqueue("echo", "")
	gone := listen.New(n.client)
	if err := gone.Join(n.ctx); err != nil {
		t.Fatal(err)
	}
	if err := gone.Register(n.ctx, "echo"); err != nil {
		t.Fatal(err)
	}
	if batch := gone.Reserve(n.ctx, []listen.ReserveRequest{{Queue: "echo", Count: 1, Start: true}})[0]; len(batch.Tasks) != 1 {
		t.Fatalf("%+v", batch)
	}
	n.rdb.ZRem(n.ctx, n.tenant+"_nodes", gone.ID())
	n.run()
	if task := n.wait(id); task.Status != queue.Complete || task.Crashes != 1 {
		t.Errorf("%+v", task)
	}
	if left := n.rdb.TTL(n.ctx, n.tenant+"_duty_unleased").Val(); left == -1 || left > time.Minute {
		t.Errorf("the duty ends in %s", left)
	}
}
