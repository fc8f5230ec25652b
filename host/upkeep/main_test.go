package upkeep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) { queuetest.Exit(m) }

// fleet is a tenant with 20 queues, on a server of its own that counts commands.
type fleet struct {
	t      *testing.T
	ctx    context.Context
	server *queuetest.Server
	rdb    *redis.Client
	tenant string
	client *queue.Client
	log    *bytes.Buffer
}

// host is the upkeep of one session of a fleet. It does only what the test calls.
type host struct {
	*Upkeep
	node       *listen.Node
	steadiness *Steadiness
	health     *health
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, ctx: t.Context(), server: queuetest.Start(t), tenant: queuetest.Tenant(), log: new(bytes.Buffer)}
	f.rdb = f.server.Client(t)
	f.client = f.clientOf(f.rdb, 0)
	if err := listen.Prepare(f.ctx, f.client); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := f.client.Queue(fmt.Sprintf("q%02d", i)).Enqueue(f.ctx, nil, queue.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// clientOf is a client whose listeners have a lease, 0 for the default.
func (f *fleet) clientOf(rdb redis.UniversalClient, lease time.Duration) *queue.Client {
	f.t.Helper()
	client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: f.tenant, Lease: lease})
	if err != nil {
		f.t.Fatal(err)
	}
	return client
}

// as is a client of a Redis user that may do everything but what the rule forbids.
func (f *fleet) as(user, rule string) *queue.Client {
	f.t.Helper()
	f.allow(user, rule)
	rdb := redis.NewClient(&redis.Options{Addr: f.server.Addr(), Username: user, Password: user, MaxRetries: -1})
	f.t.Cleanup(func() { _ = rdb.Close() })
	return f.clientOf(rdb, 0)
}

func (f *fleet) allow(user, rule string) {
	f.t.Helper()
	if err := f.rdb.Do(f.ctx, "ACL", "SETUSER", user, "on", ">"+user, "~*", "&*", "+@all", rule).Err(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) host(client *queue.Client) *host {
	h := &host{node: listen.New(client), steadiness: NewSteadiness(queue.DefaultLease), health: &health{trouble: make(map[string]error)}}
	h.Upkeep = New(&Config{
		Client: client, Fleet: listen.NewFleet(client), Node: h.node, Logger: hclog.New(&hclog.LoggerOptions{Output: f.log, Level: hclog.Debug}),
		Health: h.health, Metrics: counts{}, Interval: time.Hour, MaxCrashes: 3, Purge: listen.PurgeOptions{OlderThan: time.Hour},
		Expiry: func(string) (time.Duration, string) { return 0, "" }, Wake: func(string) {}, Poll: func(time.Duration) {},
		Steadiness: h.steadiness,
	})
	return h
}

// deadNode is a listener that holds a started task of a queue, and whose lease is over.
func (f *fleet) deadNode(name string) {
	f.t.Helper()
	dead := listen.New(f.clientOf(f.rdb, time.Second))
	if err := errors.Join(dead.Join(f.ctx), dead.Register(f.ctx, name)); err != nil {
		f.t.Fatal(err)
	}
	if reply := dead.Reserve(f.ctx, []listen.ReserveRequest{{Queue: name, Count: 1, Start: true}})[0]; reply.Err != nil || len(reply.Tasks) != 1 {
		f.t.Fatalf("%+v", reply)
	}
	f.rdb.ZAdd(f.ctx, f.tenant+"_nodes", redis.Z{Score: 1, Member: dead.ID()})
}

func (f *fleet) listeners() []string { return f.rdb.ZRange(f.ctx, f.tenant+"_nodes", 0, -1).Val() }

func (f *fleet) eventually(what string, condition func() bool) {
	f.t.Helper()
	require.Eventually(f.t, condition, 2*time.Minute, 5*time.Millisecond, what)
}

// steady makes a host look as if its renewals had gone well for longer than a lease, until now.
func (h *host) steady() {
	now, lease := time.Now(), h.steadiness.lease
	for at := now.Add(-2 * lease); at.Before(now); at = at.Add(lease / 3) {
		h.steadiness.Renewed(at, at, nil)
	}
	h.steadiness.Renewed(now, now, nil)
}

// health records the last error of each call and queue.
type health struct {
	mu      sync.Mutex
	trouble map[string]error
}

func (h *health) Failed(op, queue string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trouble[op+" "+queue] = err
}

func (h *health) Succeeded(op, queue string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.trouble, func(name string, _ error) bool {
		return name == op+" "+queue || queue == "" && strings.HasPrefix(name, op+" ")
	})
}

func (h *health) NoDeadLetter(string, string, string) {}
func (h *health) FailedQuietly(string, error)         {}

func (h *health) healthy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.trouble) == 0
}

// counts are metrics that nobody reads.
type counts struct{}

func (counts) ScheduleTicks(string, string, int)  {}
func (counts) ScheduleLate(string, time.Duration) {}
func (counts) TasksReclaimed(string, string, int) {}
