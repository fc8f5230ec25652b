package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestNodes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if nodes := must[[]NodeInfo](t)(w.Fleet().Nodes(w.ctx)); len(nodes) != 0 {
			t.Errorf("%+v", nodes)
		}
		first, second := w.node(t, "q"), w.node(t)
		if _, err := second.Renew(w.ctx, map[string]string{"kind": "test", "version": "1"}); err != nil {
			t.Fatal(err)
		}
		nodes := must[[]NodeInfo](t)(w.Fleet().Nodes(w.ctx))
		if len(nodes) != 2 || nodes[0].ID > nodes[1].ID {
			t.Fatalf("%+v", nodes)
		}
		for _, node := range nodes {
			if left := time.Until(node.LeaseEnd); left < 0 || left > 2*w.config.Lease {
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
		w.enqueue(t, "q", "", Options{ID: "task"})
		node, _ := w.held(t, "q")
		leases, queues := make([]redis.Z, 60), make([]redis.Z, 50)
		for i := range leases {
			leases[i] = redis.Z{Score: 1, Member: fmt.Sprintf("dead~0000%04d_1", i)}
		}
		for i := range queues {
			queues[i] = redis.Z{Member: fmt.Sprint("q", i)}
		}
		w.rdb.ZAdd(w.ctx, w.store.keys.nodes(), leases...)
		w.rdb.ZAdd(w.ctx, w.store.keys.queues(), queues...)
		reads := 0
		w.rdb.AddHook(spy(func(cmds ...redis.Cmder) {
			for _, cmd := range cmds {
				if cmd.Name() == "lrange" {
					reads++
				}
			}
		}))
		nodes := must[[]NodeInfo](t)(w.Fleet().Nodes(w.ctx))
		if i := slices.IndexFunc(nodes, func(n NodeInfo) bool { return n.ID == node.id }); len(nodes) != 61 || i < 0 ||
			!maps.EqualFunc(nodes[i].Holds, map[string][]string{"q": {"task"}}, slices.Equal) {
			t.Errorf("%d listeners: %+v", len(nodes), nodes)
		}
		if reads > pageTasks {
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
		w.rdb.ZAddXX(w.ctx, w.store.keys.nodes(), redis.Z{Score: 1, Member: node.ID()})
		if has() {
			t.Error("one whose lease is over counts")
		}
		w.rdb.ZRem(w.ctx, w.store.keys.nodes(), node.ID())
		if has() {
			t.Error("one without a lease counts")
		}
		w.rdb.SAdd(w.ctx, w.store.keys.listeners("q"), "host_4711")
		if !has() {
			t.Error("Python's, which has no lease, does not count")
		}
		if _, err := w.Queue("no queue").HasListener(w.ctx); !errors.Is(err, ErrInvalid) {
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
			if warnings := must[[]string](t)(w.Warnings(w.ctx)); len(warnings) != c.want {
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
		if err := errors.Join(w.Fleet().Drain(w.ctx, node.id), w.Fleet().Drain(w.ctx, other.id)); err != nil {
			t.Fatal(err)
		}
		if drain, err := other.Renew(w.ctx, nil); !drain || err != nil {
			t.Errorf("a live one: %v, %v", drain, err)
		}
		w.at(60)
		must[Reclaimed](t)(w.Fleet().Reclaim(w.ctx, node.id, 0))
		if drain, err := node.Renew(w.ctx, nil); !drain || !errors.Is(err, ErrLeaseLost) {
			t.Errorf("a lost one: %v, %v", drain, err)
		}
		if ttl := w.rdb.TTL(w.ctx, w.store.keys.node(node.id)).Val(); ttl <= 0 || ttl > time.Hour {
			t.Errorf("the word of it lives %s", ttl)
		}
	})
}

func TestLeaseIsBounded(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{-1, time.Millisecond, time.Hour + 1} {
		if _, err := New("redis://127.0.0.1:1", Config{Lease: lease}); !errors.Is(err, ErrInvalid) {
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
		end := must[float64](t)(w.rdb.ZScore(w.ctx, w.store.keys.nodes(), node.ID()).Result())
		if left := end - float64(time.Now().Unix()); left < 5 || left > 15 {
			t.Errorf("the lease ends in %v s", left)
		}
		if ttl := must[time.Duration](t)(w.rdb.TTL(w.ctx, w.store.keys.node(node.ID())).Result()); ttl < time.Second || ttl > time.Minute {
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
		if _, err := node.Renew(w.ctx, nil); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("renewing after leaving: %v", err)
		}
	})
}

func TestLeavingWithAHeldTaskStaysKnown(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", Options{})
		node := w.node(t, "q")
		w.reserve(t, node, "q", false)
		if err := node.Leave(w.ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := w.rdb.ZScore(w.ctx, w.store.keys.nodes(), node.ID()).Result(); err != nil {
			t.Errorf("the node is forgotten while it holds a task: %v", err)
		}
	})
}

// A lease that is over is not lost while nobody has come for it.
func TestALeaseThatIsOverIsRenewed(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		dead, alive, next, err := w.Fleet().Leases(w.ctx)
		if err != nil || len(dead) != 0 || !slices.Equal(alive, []string{node.id}) || next <= 0 {
			t.Errorf("dead %v, alive %v, next in %s, %v", dead, alive, next, err)
		}
		w.die(t, node)
		if dead, alive, next, err = w.Fleet().Leases(w.ctx); err != nil || !slices.Equal(dead, []string{node.id}) || len(alive) != 0 || next != 0 {
			t.Errorf("dead %v, alive %v, next in %s, %v", dead, alive, next, err)
		}
		if _, err := node.Renew(w.ctx, nil); err != nil {
			t.Error(err)
		}
		dead, _, next, err = w.Fleet().Leases(w.ctx)
		if err != nil || len(dead) != 0 || next <= 0 || next > w.config.Lease {
			t.Errorf("%v, next in %s, %v", dead, next, err)
		}
	})
}

// What is condemned cannot come back, and does no harm while its tasks are taken from it.
func TestCondemnedListener(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, queue := range []string{"a", "b"} {
			w.enqueue(t, queue, "", Options{ID: "moved-" + queue})
			w.enqueue(t, queue, "", Options{ID: "waits-" + queue})
		}
		node := w.node(t, "a", "b")
		a := w.reserve(t, node, "a", true)
		b := w.reserve(t, node, "b", true)
		w.die(t, node)
		// A reclaimer that dies after the first queue.
		if _, err := w.store.eval(w.ctx, call{script: allScripts["condemn"], keys: []string{w.store.keys.nodes()}, args: []any{"", node.id}}); err != nil {
			t.Fatal(err)
		}
		must[Reclaimed](t)(w.reclaimQueue(w.ctx, node.id, "a", 3, false))

		if _, err := node.Renew(w.ctx, nil); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("renewed: %v", err)
		}
		if batch := node.Reserve(w.ctx, []ReserveRequest{{Queue: "a", Count: 1}})[0]; !errors.Is(batch.Err, ErrLeaseLost) {
			t.Errorf("reserved %+v", batch)
		}
		settle := func(queue string, got Reservation) error {
			errs, err := node.Settle(w.ctx, queue, []Settlement{{Claim: Claim{ID: got.ID, Run: got.Run}}})
			return errors.Join(append(errs, err)...)
		}
		if err := settle("a", a); !errors.Is(err, ErrLost) {
			t.Errorf("settled what is another's: %v", err)
		}
		if err := settle("b", b); err != nil {
			t.Errorf("settled what it still held: %v", err)
		}
		if dead, _, _, err := w.Fleet().Leases(w.ctx); err != nil || !slices.Equal(dead, []string{node.id}) {
			t.Errorf("dead are %v, %v", dead, err)
		}
		if got := must[Reclaimed](t)(w.Fleet().Reclaim(w.ctx, node.id, 0)); got != (Reclaimed{}) {
			t.Errorf("then %+v", got)
		}
		w.depth(t, "a", map[Status]int64{Pending: 2})
		w.depth(t, "b", map[Status]int64{Pending: 1, Complete: 1})
		for queue, n := range must[map[string]int64](t)(w.Queues(w.ctx)) {
			if n != 0 {
				t.Errorf("%d listeners of %s", n, queue)
			}
		}
		// Another run, by another one, is not disturbed.
		other := w.node(t, "a")
		again := w.reserve(t, other, "a", true)
		if err := settle("a", a); again.ID != a.ID || !errors.Is(err, ErrLost) {
			t.Errorf("settled what another runs: %v", err)
		}
	})
}

// A Quern listener that is in a queue's set without a lease is dead.
func TestReclaimOfAListenerWithoutALease(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", Options{})
		node := w.node(t, "q")
		w.reserve(t, node, "q", true)
		w.rdb.ZRem(w.ctx, w.store.keys.nodes(), node.id)
		dead, err := w.Fleet().Unleased(w.ctx)
		if err != nil || !slices.Equal(dead, []string{node.id}) {
			t.Fatalf("dead are %v, %v", dead, err)
		}
		if got := must[Reclaimed](t)(w.Fleet().Reclaim(w.ctx, node.id, 0)); got.Returned != 1 {
			t.Errorf("%+v", got)
		}
		if dead, err := w.Fleet().Unleased(w.ctx); err != nil || len(dead) != 0 {
			t.Errorf("then dead are %v, %v", dead, err)
		}
		w.depth(t, "q", map[Status]int64{Pending: 1})
	})
}
