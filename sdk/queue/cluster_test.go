package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A Cluster, a single Redis, and a tenant that the other needs are told apart before anything is written.
func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	c, single := queuetest.SharedCluster(t), queuetest.Shared(t)
	of := c.Servers[0].Addr()
	for _, refused := range []struct{ url, tenant, want string }{
		{"redis://" + of, "{plain}", "this Redis is a Cluster: write redis://HOST:PORT?cluster=true, and the tenant in braces, such as {acme}"},
		{"redis://" + of + "/0?protocol=2", "plain", "this Redis is a Cluster"},
		{c.URL(), "acme", `tenant "acme": a Redis Cluster spreads its keys over several servers: name the tenant {acme}`},
		{single.URL() + "?cluster=true", "{acme}", "this Redis is not a Cluster: leave out cluster=true"},
		{"redis://" + of + "/3?cluster=true", "{acme}", "a Redis Cluster has only the database 0"},
		{"redis://" + of + "?cluster=perhaps", "{acme}", "cluster is true for a Redis Cluster, and false otherwise"},
		{"redis://" + of + "?cluster=true&master_name=m", "{acme}", "leave one of them out"},
		{"redis://" + of + ",127.0.0.1", "{acme}", "it has several hosts: add ?cluster=true for a Redis Cluster"},
		{"unix:///run/redis.sock?cluster=true", "{acme}", "a Redis Cluster has no socket"},
		{"redis://" + of + "?cluster=true&password=s3&cret", "{acme}", "%26"},
	} {
		client, err := queue.New(refused.url, queue.Config{Tenant: refused.tenant})
		if err == nil {
			_, err = client.Queue("q").Enqueue(t.Context(), nil, queue.Options{})
			_ = client.Close()
		}
		if !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), refused.want) || queue.IsUnavailable(err) || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s, %s: %v", refused.url, refused.tenant, err)
		}
	}
	for _, s := range c.Servers[:3] {
		if keys := s.Client(t).Keys(t.Context(), "*plain*").Val(); len(keys) > 0 {
			t.Errorf("on the Cluster are %v", keys)
		}
	}
	if got := queue.Redact("redis://u:pass@a:1,b,c:3/0?cluster=true"); got != "redis://u:xxxxx@a:1/0?addr=b%3A6379&addr=c%3A3&cluster=true" {
		t.Error(got)
	}
}

// clusterClient is a client of a Cluster as a program makes one. With notifications of maintenance, a client of go-redis
// leaves goroutines behind.
func clusterClient(address string) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                    []string{address},
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// shards are two tenants whose slots two primaries have.
func shards(t *testing.T, c *queuetest.Cluster) (a, b *world) {
	t.Helper()
	a = newWorld(t, c.URL())
	for range 100 {
		if b = newWorld(t, c.URL()); c.Owner(t, b.Tenant()) != c.Owner(t, a.Tenant()) {
			return a, b
		}
	}
	t.Fatal("100 tenants are on one shard")
	return nil, nil
}

// Tenants on different shards have all of a queue each: nothing of one is on the shard of the other.
func TestClusterTenants(t *testing.T) {
	t.Parallel()
	c := queuetest.SharedCluster(t)
	a, b := shards(t, c)
	for _, w := range []*world{a, b} {
		node := w.node(t, "q")
		w.quotas(t, manage.Quotas{"tasks_waiting": "4"})
		w.enqueue(t, "q", "first", queue.Options{ID: "first"})
		w.enqueue(t, "q", "second", queue.Options{ID: "second", After: []string{"first"}})
		must[queue.Subscription](t)(w.Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "orders", Queue: "q"}))
		must[queue.Published](t)(w.Publish(w.ctx, "orders", []byte("published"), queue.PublishOptions{}))
		if _, err := w.PutSchedule(w.ctx, queue.Schedule{ID: "daily", Queue: "q", Cron: "0 0 * * *"}, false); err != nil {
			t.Fatal(err)
		}
		must[string](t)(manage.New(w.Client).RunSchedule(w.ctx, "daily"))
		_, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{})
		refused(t, err, "tasks_waiting", "4", 4)

		done := w.waiting(t, "second")
		for range 4 {
			got := w.reserve(t, node, "q", true)
			w.settle(t, node, "q", listen.Settlement{Claim: got.Claim(), Result: []byte("of " + w.Tenant())})
			w.advance(t)
		}
		if got := receive(t, "the second task", done); got.err != nil || string(got.task.Result) != "of "+w.Tenant() {
			t.Errorf("%+v, %v", got.task, got.err)
		}
		if uses := w.uses(t); uses["tasks_waiting"].Used != 0 {
			t.Errorf("%+v", uses)
		}
		home := c.Owner(t, w.Tenant())
		for _, s := range c.Servers[:3] {
			if n := len(s.Client(t).Keys(w.ctx, w.Tenant()+"_*").Val()); (n > 0) != (s == home) {
				t.Errorf("%d keys of %s on %s, whose home is %s", n, w.Tenant(), s.Addr(), home.Addr())
			}
		}
		names := must[[]string](t)(manage.New(w.Client).Tenants(w.ctx))
		if !slices.Contains(names, a.Tenant()) || w == b && !slices.Contains(names, b.Tenant()) {
			t.Errorf("the tenants are %v", names)
		}
	}
}

// Hosts bound the replies of a Cluster, too, and read what is larger on a connection of its own.
func TestClusterBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, queuetest.SharedCluster(t).URL())
	rdb := must[redis.UniversalClient](t)(queue.ConnectBounded(queuetest.SharedCluster(t).URL()))
	t.Cleanup(func() { _ = rdb.Close() })
	bounded := must[*queue.Client](t)(queue.NewFromRedis(rdb, *w.Config()))
	t.Cleanup(func() { _ = bounded.Close() })
	large := strings.Repeat("x", 3<<20)
	id := w.enqueue(t, "q", large, queue.Options{})
	if task := must[*queue.Task](t)(bounded.Task(w.ctx, id)); string(task.Parameters) != large {
		t.Errorf("read %d bytes", len(task.Parameters))
	}
	if err := w.rdb.Set(w.ctx, w.Store().Keys.Generation(), large, 0).Err(); err != nil {
		t.Fatal(err)
	}
	err := bounded.Store().RDB.Get(w.ctx, w.Store().Keys.Generation()).Err()
	if !errors.Is(err, queue.ErrTooLarge) || !strings.Contains(err.Error(), w.Store().Keys.Generation()) {
		t.Error(err)
	}
}

// A program can bring its own client of a Cluster, with options of its own.
func TestClusterClientOfTheProgram(t *testing.T) {
	t.Parallel()
	rdb := clusterClient(queuetest.SharedCluster(t).Servers[0].Addr())
	t.Cleanup(func() { _ = rdb.Close() })
	if _, err := queue.NewFromRedis(rdb, queue.Config{}); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), "{blueque}") {
		t.Error(err)
	}
	client := must[*queue.Client](t)(queue.NewFromRedis(rdb, queue.Config{Tenant: "{" + queuetest.Tenant() + "}"}))
	t.Cleanup(func() { _ = client.Close() })
	for range 2 { // the second one on another shard, perhaps
		must[string](t)(client.Queue("q").Enqueue(t.Context(), nil, queue.Options{}))
		client = must[*queue.Client](t)(client.In("{" + queuetest.Tenant() + "}"))
		t.Cleanup(func() { _ = client.Close() })
	}
}

// While a slot is moved, its keys are on two servers. Then every script is done whole or not at all, and no task that
// exists seems to be missing.
func TestClusterMovesASlot(t *testing.T) {
	t.Parallel()
	c := queuetest.StartCluster(t)
	w := newWorld(t, c.URL())
	node := w.node(t, "q")
	w.enqueue(t, "q", "", queue.Options{ID: "there"})
	for i := range 100 { // so that the move has many steps
		w.enqueue(t, "q", "", queue.Options{ID: fmt.Sprint("t", i)})
	}
	from := c.Owner(t, w.Tenant())
	to := c.Servers[0]
	if to == from {
		to = c.Servers[1]
	}
	nth, written := 0, 101
	refused, tried := map[string]bool{}, map[string]bool{}
	c.Move(t, w.Tenant(), to, func() {
		id := fmt.Sprint("during", nth)
		nth++
		tried[id] = true
		_, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{ID: id})
		switch {
		case err == nil:
			written++
		case !queue.IsUnavailable(err):
			t.Errorf("enqueue %s: %v", id, err)
		default:
			refused[id] = true
		}
		if _, err := w.Task(w.ctx, "there"); err != nil && !queue.IsUnavailable(err) {
			t.Errorf("while the slot is moved, a task cannot be read: %v", err)
		}
		batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: true}})[0]
		if batch.Err != nil && !queue.IsUnavailable(batch.Err) || len(batch.Tasks) > 0 {
			t.Errorf("reserved %+v", batch)
		}
		if err := node.Register(w.ctx, "other"); err != nil && !queue.IsUnavailable(err) {
			t.Error(err)
		}
	})
	if len(refused) == 0 || nth < 100 {
		t.Errorf("%d of %d calls were refused", len(refused), nth)
	}
	if got := c.Owner(t, w.Tenant()); got != to {
		t.Fatalf("%v has the slot", got)
	}
	for id := range tried { // a refused task left nothing, the others are whole
		if _, err := w.Task(w.ctx, id); (err == nil) == refused[id] {
			t.Errorf("%s was refused: %v, but reading it: %v", id, refused[id], err)
		}
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Pending: int64(written)})
	if held := w.reserveMany(t, node, "q", written, true); len(held) != written {
		t.Errorf("reserved %d of %d", len(held), written)
	}
	if keys := from.Client(t).Keys(w.ctx, w.Tenant()+"*").Val(); len(keys) > 0 {
		t.Errorf("left behind are %v", keys)
	}
}

// fleet runs workers on a Cluster, and enqueues tasks until it is told to stop.
type fleet struct {
	w        *world
	runs     sync.Map // by ID: *atomic.Int64
	accepted []string // when stop has returned
	stop     func()
}

// startFleet enqueues each task until it is accepted, whatever happens to the Cluster meanwhile.
func startFleet(t *testing.T, w *world, options queue.Config) *fleet {
	f := &fleet{w: w}
	for range 2 {
		w.working(t, "q", func(_ context.Context, task *queue.Task) ([]byte, error) {
			n, _ := f.runs.LoadOrStore(task.ID, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			return []byte(task.ID), nil
		})
	}
	options.Tenant = w.Tenant()
	producer := must[*queue.Client](t)(queue.NewFromRedis(w.Store().Pool(), options))
	t.Cleanup(func() { _ = producer.Close() })
	ctx, cancel := context.WithCancel(w.ctx)
	ended := make(chan struct{})
	f.stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(f.stop)
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			id := fmt.Sprint("t", i)
			for ctx.Err() == nil {
				_, err := producer.Queue("q").Enqueue(ctx, nil, queue.Options{ID: id})
				if err == nil {
					f.accepted = append(f.accepted, id)
					break
				}
				if ctx.Err() == nil && !queue.IsUnavailable(err) && !errors.Is(err, queue.ErrNotReplicated) {
					t.Errorf("enqueue %s: %v", id, err)
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		}
	}()
	return f
}

// ran waits until more tasks have run: that many, counted from now.
func (f *fleet) ran(t testing.TB, what string, more int) {
	t.Helper()
	count := func() (n int) {
		f.runs.Range(func(any, any) bool { n++; return true })
		return n
	}
	want := count() + more
	eventually(t, what, func() bool { return count() >= want })
}

// completes waits for the end of all tasks, and returns how many ran more than once.
func (f *fleet) completes(t testing.TB) (again int) {
	t.Helper()
	f.stop()
	for _, id := range f.accepted {
		if task := f.w.finished(t, id); task.Status != queue.Complete || string(task.Result) != id {
			t.Errorf("%s is %s: %+v", id, task.Status, task)
		}
	}
	counts := map[int64]int{}
	f.runs.Range(func(_, n any) bool { counts[n.(*atomic.Int64).Load()]++; return true })
	for _, n := range slices.Collect(maps.Keys(counts)) {
		if n > 1 {
			again += counts[n]
		}
	}
	t.Logf("%d tasks accepted; tasks by the number of their runs: %v", len(f.accepted), counts)
	return again
}

// Tasks run while their slot goes round all shards: none is lost, and none runs twice.
func TestClusterRunsWhileSlotsMove(t *testing.T) {
	t.Parallel()
	c := queuetest.StartCluster(t)
	w := newWorld(t, c.URL())
	w.Store().Poll = time.Second
	f := startFleet(t, w, queue.Config{})
	f.ran(t, "the first tasks", 50)
	for _, to := range []int{0, 1, 2, 0, 1} {
		if c.Servers[to] != c.Owner(t, w.Tenant()) {
			c.Move(t, w.Tenant(), c.Servers[to], nil)
			f.ran(t, "tasks after a move", 50)
		}
	}
	if again := f.completes(t); again > 0 {
		t.Errorf("%d tasks ran more than once", again)
	}
}

// A primary is killed: its replica takes over, workers and producers find it, and no task is lost that a replica had.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := queuetest.StartCluster(t, "--cluster-node-timeout", "2000", "--cluster-replica-validity-factor", "0")
	w := newWorld(t, c.URL())
	w.Store().Poll = time.Second
	f := startFleet(t, w, queue.Config{Replicas: 1})
	f.ran(t, "the first tasks", 50)
	home := c.Owner(t, w.Tenant())
	home.Kill()
	eventually(t, "the failover", func() bool {
		owner := c.Owner(t, w.Tenant())
		return owner != nil && owner != home
	})
	// Without a replica, nothing is accepted: the former primary comes back as one.
	home.Restart(t)
	f.ran(t, "tasks after the failover", 50)
	f.completes(t)
}

// The Redis users that Quern prints for a tenant of a Cluster may do what their role needs there.
func TestClusterUsers(t *testing.T) {
	t.Parallel()
	c := queuetest.StartCluster(t)
	w := newWorld(t, c.URL())
	as := map[string]*world{}
	for _, role := range manage.Roles() {
		if !role.In(w.Tenant()) {
			continue
		}
		words := []any{}
		for word := range strings.FieldsSeq(strings.Replace(role.ACL(w.Tenant()), "PASSWORD", "secret", 1)) {
			words = append(words, word)
		}
		for _, s := range c.Servers {
			if err := s.Client(t).Do(t.Context(), words...).Err(); err != nil {
				t.Fatalf("%s: %v", role.Name, err)
			}
		}
		rawURL := strings.Replace(c.URL(), "redis://", "redis://"+url.PathEscape(role.User(w.Tenant()))+":secret@", 1)
		client := must[*queue.Client](t)(queue.New(rawURL, queue.Config{Tenant: w.Tenant()}))
		t.Cleanup(func() { _ = client.Close() })
		client.Store().Poll = time.Hour
		as[role.Name] = &world{Client: client, ctx: w.ctx}
	}
	must[queue.Subscription](t)(as["operator"].Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "orders", Queue: "q"}))
	as["worker"].working(t, "q", func(context.Context, *queue.Task) ([]byte, error) { return []byte("done"), nil })
	must[queue.Published](t)(as["publisher"].Publish(w.ctx, "orders", []byte("published"), queue.PublishOptions{}))
	if task := as["producer"].finished(t, as["producer"].enqueue(t, "q", "", queue.Options{})); string(task.Result) != "done" {
		t.Errorf("%+v", task)
	}
	eventually(t, "the task of the publication", func() bool {
		return must[manage.Stats](t)(manage.New(as["operator"].Client).Queue("q").Stats(w.ctx)).Depth[queue.Complete] == 2
	})
	node, claim := func() (*listen.Node, listen.Claim) {
		as["host"].enqueue(t, "other", "", queue.Options{})
		return as["host"].held(t, "other")
	}()
	as["host"].settle(t, node, "other", listen.Settlement{Claim: claim})
}

// A Cluster whose servers speak TLS to clients and to each other is reached by rediss://.
func TestClusterByTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificates(t, dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	c := queuetest.StartCluster(t, "--tls-cert-file", file("server.crt"), "--tls-key-file", file("server.key"),
		"--tls-ca-cert-file", file("ca.crt"), "--tls-auth-clients", "yes", "--tls-port", queuetest.AnyPort,
		"--tls-cluster", "yes", "--tls-replication", "yes")
	at := c.Servers[0].Client(t).ConfigGet(t.Context(), "tls-port").Val()["tls-port"]
	query := url.Values{"cluster": {"true"}, "ca": {file("ca.crt")}, "cert": {file("client.crt")}, "key": {file("client.key")}}
	for range 5 { // on any of the shards
		w := newWorld(t, "rediss://127.0.0.1:"+at+"?"+query.Encode())
		w.working(t, "q", func(context.Context, *queue.Task) ([]byte, error) { return []byte("done"), nil })
		if task := w.finished(t, w.enqueue(t, "q", "", queue.Options{})); string(task.Result) != "done" {
			t.Errorf("%+v", task)
		}
	}
	query.Del("ca")
	client := must[*queue.Client](t)(queue.New("rediss://127.0.0.1:"+at+"?"+query.Encode(), queue.Config{Tenant: "{t}"}))
	t.Cleanup(func() { _ = client.Close() })
	if _, err := client.Clock(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the CA: %v", err)
	}
}
