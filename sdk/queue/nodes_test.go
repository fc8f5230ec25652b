package queue_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestNodes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if nodes := must[[]listen.NodeInfo](t)(listen.NewFleet(w.Client).Nodes(w.ctx)); len(nodes) != 0 {
			t.Errorf("%+v", nodes)
		}
		first, second := w.node(t, "q"), w.node(t)
		if _, err := second.Renew(w.ctx, map[string]string{"kind": "test", "version": "1"}); err != nil {
			t.Fatal(err)
		}
		nodes := must[[]listen.NodeInfo](t)(listen.NewFleet(w.Client).Nodes(w.ctx))
		if len(nodes) != 2 || nodes[0].ID > nodes[1].ID {
			t.Fatalf("%+v", nodes)
		}
		for _, node := range nodes {
			if left := time.Until(node.LeaseEnd); left < 0 || left > 2*w.Store().Lease {
				t.Errorf("the lease of %s ends in %s", node.ID, left)
			}
			switch node.ID {
			case first.ID():
				if len(node.About) != 0 {
					t.Errorf("the first says %v", node.About)
				}
			case second.ID():
				if node.About["kind"] != "test" || node.About["version"] != "1" {
					t.Errorf("the second says %v", node.About)
				}
			default:
				t.Errorf("a stranger: %+v", node)
			}
		}
	})
}

// Of many listeners and queues only the reserved lists near an existing one are read.
func TestNodesWithManyQueues(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", queue.Options{ID: "task"})
		node, _ := w.held(t, "q")
		leases, queues := make([]redis.Z, 60), make([]redis.Z, 50)
		for i := range leases {
			leases[i] = redis.Z{Score: 1, Member: fmt.Sprintf("dead~0000%04d_1", i)}
		}
		for i := range queues {
			queues[i] = redis.Z{Member: fmt.Sprint("q", i)}
		}
		w.rdb.ZAdd(w.ctx, w.Store().Keys.Nodes(), leases...)
		w.rdb.ZAdd(w.ctx, w.Store().Keys.Queues(), queues...)
		reads := 0
		w.hook(t, spy(func(cmds ...redis.Cmder) {
			for _, cmd := range cmds {
				if cmd.Name() == "lrange" {
					reads++
				}
			}
		}))
		nodes := must[[]listen.NodeInfo](t)(listen.NewFleet(w.Client).Nodes(w.ctx))
		if i := slices.IndexFunc(nodes, func(n listen.NodeInfo) bool { return n.ID == node.ID() }); len(nodes) != 61 || i < 0 ||
			!maps.EqualFunc(nodes[i].Holds, map[string][]string{"q": {"task"}}, slices.Equal) {
			t.Errorf("%d listeners: %+v", len(nodes), nodes)
		}
		if reads > store.PageTasks {
			t.Errorf("read %d lists", reads)
		}
	})
}

func TestHasListener(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		has := func() bool { return must[bool](t)(q.HasListener(w.ctx)) }
		if has() {
			t.Error("a listener of an empty queue")
		}
		node := w.node(t, "other", "q")
		if !has() {
			t.Error("a live listener does not count")
		}
		w.rdb.ZAddXX(w.ctx, w.Store().Keys.Nodes(), redis.Z{Score: 1, Member: node.ID()})
		if has() {
			t.Error("one whose lease is over counts")
		}
		w.rdb.ZRem(w.ctx, w.Store().Keys.Nodes(), node.ID())
		if has() {
			t.Error("one without a lease counts")
		}
		w.rdb.SAdd(w.ctx, w.Store().Keys.Listeners("q"), "host_4711")
		if !has() {
			t.Error("Python's, which has no lease, does not count")
		}
		if _, err := w.Queue("no queue").HasListener(w.ctx); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("no queue: %v", err)
		}
	})
}

func TestClock(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		clock := must[time.Time](t)(w.Client.Clock(w.ctx))
		if age := time.Since(clock); age < -time.Minute || age > time.Minute {
			t.Errorf("Redis's clock is %s behind", age)
		}
	})
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []string
		want    int
	}{
		"durable":             {durable, 0},
		"snapshots":           {[]string{"--save", "60 1"}, 0},
		"nothing on disk":     {nil, 1},
		"evicting":            {append([]string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, durable...), 1},
		"evicting, not saved": {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, queuetest.Start(t, c.options...).URL())
			if warnings := must[[]string](t)(manage.New(w.Client).Warnings(w.ctx)); len(warnings) != c.want {
				t.Errorf("%q", warnings)
			}
		})
	}
}

// Who was told to end while he was taken for dead is told again when he finds his lease lost.
func TestDrainOutlivesTheLease(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		node, other := w.node(t, "q"), w.node(t, "q")
		if err := errors.Join(manage.New(w.Client).Drain(w.ctx, node.ID()), manage.New(w.Client).Drain(w.ctx, other.ID())); err != nil {
			t.Fatal(err)
		}
		if drain, err := other.Renew(w.ctx, nil); !drain || err != nil {
			t.Errorf("a live one: %v, %v", drain, err)
		}
		w.at(60)
		must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0))
		if drain, err := node.Renew(w.ctx, nil); !drain || !errors.Is(err, listen.ErrLeaseLost) {
			t.Errorf("a lost one: %v, %v", drain, err)
		}
		if ttl := w.rdb.TTL(w.ctx, w.Store().Keys.Node(node.ID())).Val(); ttl <= 0 || ttl > time.Hour {
			t.Errorf("the word of it lives %s", ttl)
		}
	})
}

func TestLeaseIsBounded(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{-1, time.Millisecond, time.Hour + 1} {
		if _, err := queue.New("redis://127.0.0.1:1", queue.Config{Lease: lease}); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("a lease of %s: %v", lease, err)
		}
	}
}

func TestRegisterCountsOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "a", "b", "a")
		if got := must[map[string]int64](t)(w.Queues(w.ctx)); got["a"] != 1 || got["b"] != 1 {
			t.Errorf("listeners %v", got)
		}
		if _, err := node.Renew(w.ctx, map[string]string{"version": "1"}); err != nil {
			t.Fatal(err)
		}
		end := must[float64](t)(w.rdb.ZScore(w.ctx, w.Store().Keys.Nodes(), node.ID()).Result())
		if left := end - float64(time.Now().Unix()); left < 5 || left > 15 {
			t.Errorf("the lease ends in %v s", left)
		}
		if ttl := must[time.Duration](t)(w.rdb.TTL(w.ctx, w.Store().Keys.Node(node.ID())).Result()); ttl < 50*time.Minute || ttl > time.Hour {
			t.Errorf("the node hash lives %s", ttl)
		}
		for range 2 {
			if err := node.Leave(w.ctx); err != nil {
				t.Fatal(err)
			}
		}
		if got := must[map[string]int64](t)(w.Queues(w.ctx)); got["a"] != 0 || got["b"] != 0 {
			t.Errorf("listeners after leaving twice %v", got)
		}
		if _, err := node.Renew(w.ctx, nil); !errors.Is(err, listen.ErrLeaseLost) {
			t.Errorf("renewing after leaving: %v", err)
		}
	})
}

func TestLeavingWithAHeldTaskStaysKnown(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		w.reserve(t, node, "q", false)
		if err := node.Leave(w.ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := w.rdb.ZScore(w.ctx, w.Store().Keys.Nodes(), node.ID()).Result(); err != nil {
			t.Errorf("the node is forgotten while it holds a task: %v", err)
		}
	})
}

// A lease that is over is not lost while nobody has come for it.
func TestALeaseThatIsOverIsRenewed(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		dead, alive, next, err := listen.NewFleet(w.Client).Leases(w.ctx)
		if err != nil || len(dead) != 0 || !slices.Equal(alive, []string{node.ID()}) || next <= 0 {
			t.Errorf("dead %v, alive %v, next in %s, %v", dead, alive, next, err)
		}
		w.die(t, node)
		if dead, alive, next, err = listen.NewFleet(w.Client).Leases(w.ctx); err != nil || !slices.Equal(dead, []string{node.ID()}) || len(alive) != 0 || next != 0 {
			t.Errorf("dead %v, alive %v, next in %s, %v", dead, alive, next, err)
		}
		if _, err := node.Renew(w.ctx, nil); err != nil {
			t.Error(err)
		}
		dead, _, next, err = listen.NewFleet(w.Client).Leases(w.ctx)
		if err != nil || len(dead) != 0 || next <= 0 || next > w.Store().Lease {
			t.Errorf("%v, next in %s, %v", dead, next, err)
		}
	})
}

// What is condemned cannot come back, and does no harm while its tasks are taken from it.
func TestCondemnedListener(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, name := range []string{"a", "b"} {
			w.enqueue(t, name, "", queue.Options{ID: "moved-" + name})
			w.enqueue(t, name, "", queue.Options{ID: "waits-" + name})
		}
		node := w.node(t, "a", "b")
		a := w.reserve(t, node, "a", true)
		b := w.reserve(t, node, "b", true)
		w.die(t, node)
		// A reclaimer that dies after the first queue.
		if _, err := w.Store().Eval(w.ctx, store.Call{Script: store.AllScripts["condemn"], Keys: []string{w.Store().Keys.Nodes()}, Args: []any{"", node.ID()}}); err != nil {
			t.Fatal(err)
		}
		must[listen.Reclaimed](t)(w.reclaimQueue(w.ctx, node.ID(), "a", 3, false))

		if _, err := node.Renew(w.ctx, nil); !errors.Is(err, listen.ErrLeaseLost) {
			t.Errorf("renewed: %v", err)
		}
		if batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "a", Count: 1}})[0]; !errors.Is(batch.Err, listen.ErrLeaseLost) {
			t.Errorf("reserved %+v", batch)
		}
		settle := func(queue string, got listen.Reservation) error {
			errs, err := node.Settle(w.ctx, queue, []listen.Settlement{{Claim: listen.Claim{ID: got.ID, Run: got.Run}}})
			return errors.Join(append(errs, err)...)
		}
		if err := settle("a", a); !errors.Is(err, queue.ErrLost) {
			t.Errorf("settled what is another's: %v", err)
		}
		if err := settle("b", b); err != nil {
			t.Errorf("settled what it still held: %v", err)
		}
		if dead, _, _, err := listen.NewFleet(w.Client).Leases(w.ctx); err != nil || !slices.Equal(dead, []string{node.ID()}) {
			t.Errorf("dead are %v, %v", dead, err)
		}
		if got := must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0)); got != (listen.Reclaimed{}) {
			t.Errorf("then %+v", got)
		}
		w.depth(t, "a", map[queue.Status]int64{queue.Pending: 2})
		w.depth(t, "b", map[queue.Status]int64{queue.Pending: 1, queue.Complete: 1})
		for queue, n := range must[map[string]int64](t)(w.Queues(w.ctx)) {
			if n != 0 {
				t.Errorf("%d listeners of %s", n, queue)
			}
		}
		// Another run, by another one, is not disturbed.
		other := w.node(t, "a")
		again := w.reserve(t, other, "a", true)
		if err := settle("a", a); again.ID != a.ID || !errors.Is(err, queue.ErrLost) {
			t.Errorf("settled what another runs: %v", err)
		}
	})
}

// A Quern listener that is in a queue's set without a lease is dead.
func TestReclaimOfAListenerWithoutALease(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		w.reserve(t, node, "q", true)
		w.rdb.ZRem(w.ctx, w.Store().Keys.Nodes(), node.ID())
		dead, err := listen.NewFleet(w.Client).Unleased(w.ctx)
		if err != nil || !slices.Equal(dead, []string{node.ID()}) {
			t.Fatalf("dead are %v, %v", dead, err)
		}
		if got := must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0)); got.Returned != 1 {
			t.Errorf("%+v", got)
		}
		if dead, err := listen.NewFleet(w.Client).Unleased(w.ctx); err != nil || len(dead) != 0 {
			t.Errorf("then dead are %v, %v", dead, err)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
	})
}
