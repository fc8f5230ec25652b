package queue_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) {
	// The tests wait more than they compute: more of them at a time than there are processors.
	_ = flag.Set("test.parallel", "8")
	queuetest.Exit(m)
}

// world is a tenant of its own on one server.
type world struct {
	*queue.Client
	rdb *redis.Client
	ctx context.Context
}

func newWorld(t *testing.T, url string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	if !strings.Contains(url, "?") {
		url += "?read_timeout=20s" // the machine may be busy with other things
	}
	tenant := queuetest.Tenant()
	if strings.Contains(url, "cluster=true") {
		tenant = "{" + tenant + "}"
		url += "&read_timeout=20s"
	}
	client, err := queue.New(url, queue.Config{Tenant: tenant})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	client.Store().Poll = time.Hour // whoever waits must be woken; a test that means the poll sets another
	return &world{Client: client, rdb: client.Store().RDB.(*redis.Client), ctx: ctx}
}

// setup is a tenant of its own on the shared redis-server.
func setup(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newWorld(t, queuetest.Shared(t).URL())
}

// everywhere runs a test on redis-server, on that of Redis 6.2 unless in short, and on the embedded Redis of
// `quern dev`.
func everywhere(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, queuetest.Shared(t).URL()))
	})
	t.Run("redis 6.2", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("the current Redis runs it, too")
		}
		test(t, newWorld(t, queuetest.SharedOld(t).URL()))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, queuetest.Mini(t)))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("a single Redis runs it, too")
		}
		test(t, newWorld(t, queuetest.SharedCluster(t).URL()))
	})
}

// onServers runs a test that changes a server's settings on redis-server and on that of Redis 6.2.
func onServers(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *queuetest.Server{
		"redis": queuetest.Start, "redis 6.2": queuetest.StartOld,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, start(t, "--maxmemory-policy", "noeviction").URL()))
		})
	}
}

// embedded tells whether the world is on miniredis, which compiles each script each time: what takes
// many of them does fewer there.
func embedded(t testing.TB) bool { return strings.HasSuffix(t.Name(), "/miniredis") }

// must ends the test at an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func (w *world) enqueue(t testing.TB, queue, parameters string, options queue.Options) string {
	t.Helper()
	return must[string](t)(w.Queue(queue).Enqueue(w.ctx, []byte(parameters), options))
}

func (w *world) task(t testing.TB, id string) *queue.Task {
	t.Helper()
	return must[*queue.Task](t)(w.Task(w.ctx, id))
}

// reserve takes one task for the node and fails the test if there is none.
func (w *world) reserve(t testing.TB, node *listen.Node, queue string, start bool) listen.Reservation {
	t.Helper()
	batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: queue, Count: 1, Start: start, Plugin: "p", Digest: "sha256:0"}})[0]
	if batch.Err != nil {
		t.Fatal(batch.Err)
	}
	if len(batch.Tasks) != 1 {
		t.Fatalf("reserved %d tasks of %q, want 1 (%d dropped)", len(batch.Tasks), queue, batch.Dropped)
	}
	return batch.Tasks[0]
}

// enqueueDue moves every due task of a queue, block by block.
func enqueueDue(ctx context.Context, q *queue.Queue) (int, error) {
	return blocks(func() (listen.Block, error) { return listen.NewFleet(q.Client()).EnqueueDue(ctx, q.Name()) })
}

// expire is enqueueDue for what has expired.
func expire(ctx context.Context, q *queue.Queue, maxAge time.Duration, dead string) (int, error) {
	return blocks(func() (listen.Block, error) { return listen.NewFleet(q.Client()).Expire(ctx, q.Name(), maxAge, dead) })
}

// reclaimQueue reclaims the tasks of one queue.
func (w *world) reclaimQueue(ctx context.Context, listener, queue string, maxCrashes int, force bool) (got listen.Reclaimed, err error) {
	err = listen.NewFleet(w.Client).ReclaimQueue(ctx, &got, listener, queue, maxCrashes, force)
	return got, err
}

func blocks(move func() (listen.Block, error)) (moved int, err error) {
	for more := true; more && err == nil; {
		var block listen.Block
		block, err = move()
		moved, more = moved+block.Tasks, block.More
	}
	return moved, err
}

func (w *world) node(t testing.TB, queues ...string) *listen.Node {
	t.Helper()
	node := listen.New(w.Client)
	if err := node.Join(w.ctx); err != nil {
		t.Fatal(err)
	}
	for _, queue := range queues {
		if err := node.Register(w.ctx, queue); err != nil {
			t.Fatal(err)
		}
	}
	return node
}

// held reserves and starts a task, ready to be settled.
func (w *world) held(t testing.TB, queue string) (*listen.Node, listen.Claim) {
	t.Helper()
	node := w.node(t, queue)
	got := w.reserve(t, node, queue, true)
	return node, listen.Claim{ID: got.ID, Run: got.Run}
}

// settle completes (or fails, with a failure) a held task.
func (w *world) settle(t testing.TB, node *listen.Node, queue string, settlement listen.Settlement) {
	t.Helper()
	errs, err := node.Settle(w.ctx, queue, []listen.Settlement{settlement})
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
}

// spy is a hook that sees what a client sends, one command or a pipeline, before it does.
type spy func(cmds ...redis.Cmder)

func (spy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (see spy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { see(cmd); return next(ctx, cmd) }
}

func (see spy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { see(cmds...); return next(ctx, cmds) }
}

// newTenant returns the name of a new tenant: in braces on a Cluster.
func (w *world) newTenant() string {
	if strings.HasPrefix(w.Tenant(), "{") {
		return "{" + queuetest.Tenant() + "}"
	}
	return queuetest.Tenant()
}

// anew is a client of the same tenant with connections of its own.
func (w *world) anew(t testing.TB) *queue.Client {
	t.Helper()
	var rdb redis.UniversalClient
	if address := w.rdb.Options().Addr; strings.HasPrefix(w.Tenant(), "{") {
		rdb = clusterClient(address)
	} else {
		rdb = redis.NewClient(&redis.Options{Addr: address})
	}
	t.Cleanup(func() { _ = rdb.Close() })
	return must[*queue.Client](t)(queue.NewFromRedis(rdb, *w.Config()))
}

// hook adds a hook to the connections of a client. On a Cluster, the tenant's own client passes commands on to the pools
// of the servers.
func (w *world) hook(t testing.TB, h redis.Hook) {
	t.Helper()
	pool, is := w.Store().Pool().(interface {
		ForEachMaster(ctx context.Context, f func(ctx context.Context, node *redis.Client) error) error
	})
	if !is {
		w.rdb.AddHook(h)
		return
	}
	err := pool.ForEachMaster(w.ctx, func(_ context.Context, node *redis.Client) error { node.AddHook(h); return nil })
	if err != nil {
		t.Fatal(err)
	}
}

// subscribed waits until somebody listens to the channel.
func (w *world) subscribed(t testing.TB, channel string) {
	t.Helper()
	eventually(t, "a subscription to "+channel, func() bool {
		return must[map[string]int64](t)(w.rdb.PubSubNumSub(w.ctx, channel).Result())[channel] > 0
	})
}

// patience bounds what must happen soon, on a machine that may be busy with other things.
const patience = 2 * time.Minute

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, 5*time.Millisecond, what)
}

// receive waits for what a goroutine of the test sends.
func receive[T any](t testing.TB, what string, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatalf("waited %s for %s", patience, what)
	}
	return value
}

// depth checks how many tasks of each state a queue holds; what is not named must be 0.
func (w *world) depth(t testing.TB, name string, want map[queue.Status]int64) {
	t.Helper()
	stats := must[manage.Stats](t)(manage.New(w.Client).Queue(name).Stats(w.ctx))
	for _, status := range queue.Statuses() {
		if stats.Depth[status] != want[status] {
			t.Errorf("%d tasks %s in %q, want %d (all: %v)", stats.Depth[status], status, name, want[status], stats.Depth)
		}
	}
}

// ballast fills a list up to the length that is still searched.
func (w *world) ballast(list string) {
	fill := slices.Repeat([]any{"ballast"}, 5000)
	for range store.Searched / len(fill) {
		w.rdb.LPush(w.ctx, list, fill...)
	}
}

// unsearched is newCall of a script for which every list is too long to be searched: filling one takes miniredis a minute.
func unsearched(name, key string, args ...any) store.Call {
	source := strings.Replace(store.AllScripts[name].Source, fmt.Sprint("local SEARCHED = ", store.Searched), "local SEARCHED = 0", 1)
	return store.Call{Script: store.Script{Script: redis.NewScript(source), Source: source}, Keys: []string{key}, Args: args}
}

// durable are the options of a server that keeps every write over a kill.
var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

// setupBehind is a tenant on the shared redis-server, seen through a proxy that can break; the
// second world goes past it.
func setupBehind(t *testing.T, query string) (*world, *world, *queuetest.Proxy) {
	t.Helper()
	t.Parallel()
	server := queuetest.Shared(t)
	proxy := queuetest.NewProxy(t, server)
	behind, past := newWorld(t, proxy.URL()+query), newWorld(t, server.URL())
	past.Store().Keys, *past.Config() = behind.Store().Keys, *behind.Config()
	// It has a connection and the scripts before anything breaks, however short its time-outs are.
	eventually(t, "a connection", func() bool { return listen.Prepare(behind.ctx, behind.Client) == nil })
	return behind, past, proxy
}

// setupOwn is a tenant on a redis-server of the test's own.
func setupOwn(t *testing.T, options ...string) *world {
	t.Helper()
	return newWorld(t, queuetest.Start(t, options...).URL())
}

// at sets the clock of the scripts to so many seconds after a beginning.
func (w *world) at(second float64) { w.Store().Clock = fmt.Sprintf("%.6f", 1700000000+second) }

// names are all keys of the tenant, in order.
func (w *world) names(t testing.TB) []string {
	t.Helper()
	return slices.Sorted(slices.Values(must[[]string](t)(w.rdb.Keys(w.ctx, w.Store().Keys.Tenant+"_*").Result())))
}

// waits are the IDs of the list that Python knows, next to run first.
func (w *world) waits(t testing.TB, queue string) []string {
	t.Helper()
	ids := must[[]string](t)(w.rdb.LRange(w.ctx, w.Store().Keys.Pending(queue), 0, -1).Result())
	slices.Reverse(ids)
	return ids
}

func (w *world) reserveMany(t testing.TB, node *listen.Node, queue string, count int, start bool) []listen.Claim {
	t.Helper()
	var holds []listen.Claim
	for len(holds) < count {
		batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: queue, Count: count - len(holds), Start: start, Plugin: "p", Digest: "sha256:0"}})[0]
		if batch.Err != nil || len(batch.Tasks) == 0 {
			t.Fatalf("reserved %d of %d tasks: %v", len(holds), count, batch.Err)
		}
		for _, task := range batch.Tasks {
			holds = append(holds, task.Claim())
		}
	}
	return holds
}
