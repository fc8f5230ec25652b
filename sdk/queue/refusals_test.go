package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestStatsBesideADamagedQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "whole", "", Options{})
		w.rdb.Set(w.ctx, w.store.keys.pending("damaged"), "x", 0)
		stats := must[[]Stats](t)(w.Client.Stats(w.ctx, "damaged", "whole"))
		if stats[0].Err == nil || !strings.Contains(stats[0].Err.Error(), w.store.keys.pending("damaged")) {
			t.Errorf("damaged: %v does not name the key", stats[0].Err)
		}
		if stats[1].Err != nil || stats[1].Depth[Pending] != 1 {
			t.Errorf("whole: %+v", stats[1])
		}
		if _, err := w.Queue("damaged").Count(w.ctx, Pending); err == nil {
			t.Error("counting a damaged queue is no error")
		}
	})
}

// An answer of Redis about a key that does not name it is completed, of one command and of one in a pipeline.
func TestErrorsNameTheirKey(t *testing.T) {
	w := setup(t)
	user := "only-" + w.Tenant()
	rules := []string{"on", ">secret", "+@all", "~" + w.store.keys.nodes(), "~" + w.store.keys.listeners("q"), "&*"}
	if err := w.rdb.ACLSetUser(w.ctx, user, rules...).Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.rdb.ACLDelUser(context.WithoutCancel(w.ctx), user) })
	connect := func(credentials string) *Client {
		rdb := must[redis.UniversalClient](t)(Connect("redis://" + credentials + strings.TrimPrefix(queuetest.SharedURL(), "redis://")))
		t.Cleanup(func() { _ = rdb.Close() })
		return must[*Client](t)(NewFromRedis(rdb, w.config))
	}
	all, few := connect(""), connect(user+":secret@")
	w.rdb.SAdd(w.ctx, w.store.keys.listeners("q"), "listener")
	w.rdb.Set(w.ctx, w.store.keys.nodes(), "x", 0)
	leases := func(c *Client) error { _, _, _, err := c.Fleet().Leases(w.ctx); return err }
	listener := func(c *Client) error { return second(c.Queue("q").HasListener(w.ctx)) }
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"one command":   {leases(all), "WRONGTYPE key " + w.store.keys.nodes() + ": "},
		"of a pipeline": {listener(all), "WRONGTYPE key " + w.store.keys.nodes() + ": "},
		"not permitted": {second(few.Topics(w.ctx)), "NOPERM key " + w.store.keys.generation() + ": "},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v does not say %q", what, c.err, c.want)
		}
	}
}

func TestLeaveOfADamagedQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "a", "b", "c")
		w.rdb.Del(w.ctx, w.store.keys.listeners("b"))
		w.rdb.Set(w.ctx, w.store.keys.listeners("b"), "x", 0)
		if err := node.Leave(w.ctx); err == nil {
			t.Error("leaving a damaged queue is no error")
		}
		if got := must[map[string]int64](t)(w.Queues(w.ctx)); got["a"] != 0 || got["c"] != 0 {
			t.Errorf("listeners of the other queues: %v", got)
		}
	})
}

// A damaged task, and a queue whose keys are damaged, keep no other result back.
func TestSettleBesideADamagedTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		w.enqueue(t, "q", "", Options{ID: "damaged"})
		w.enqueue(t, "q", "", Options{ID: "whole"})
		batch := node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 2, Start: true}})[0]
		w.rdb.Del(w.ctx, w.store.keys.task("damaged"))
		w.rdb.Set(w.ctx, w.store.keys.task("damaged"), "x", 0)
		var settlements []Settlement
		for _, task := range batch.Tasks {
			settlements = append(settlements, Settlement{Claim: Claim{ID: task.ID, Run: task.Run}})
		}
		w.rdb.Set(w.ctx, w.store.keys.complete("bad"), "x", 0)
		replies := node.SettleAll(w.ctx, []SettleRequest{{Queue: "bad", Settlements: settlements}, {Queue: "q", Settlements: settlements}})
		if errs := replies[1].Errs; replies[0].Err == nil || replies[1].Err != nil || !errors.Is(errs[0], ErrNoTask) || errs[1] != nil {
			t.Errorf("settled: %v", replies)
		}
		w.depth(t, "q", map[Status]int64{Complete: 1})
	})
}

// A call that needs a key of another type writes nothing, also for its other tasks.
func TestMistypedKeysChangeNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		plain, keyed := Spec{Options: Options{ID: "id"}}, Spec{Options: Options{Key: "k"}}
		for queue, with := range map[string]struct {
			damaged, expected string
			specs             []Spec
		}{
			"a": {w.store.keys.index("a"), "zset", []Spec{plain}},
			"b": {w.store.keys.scheduled("b"), "zset", []Spec{plain}}, // from which no task is reserved
			"c": {w.store.keys.expiry("c"), "zset", []Spec{plain}},
			"d": {w.store.keys.keyed("d"), "zset", []Spec{plain, keyed}},
			"e": {w.store.keys.stats("e"), "hash", []Spec{plain, {}}},
			"f": {w.store.keys.pending("f"), "list", []Spec{plain, {}}},
			"g": {w.store.keys.queues(), "zset", []Spec{plain}},
		} {
			w.rdb.Set(w.ctx, with.damaged, "x", 0)
			_, err := w.Queue(queue).EnqueueMany(w.ctx, with.specs)
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), with.damaged+" is a string, expected a "+with.expected) {
				t.Errorf("error %v does not name the key %s and the type", err, with.damaged)
			}
			w.rdb.Del(w.ctx, with.damaged)
			keys := []string{w.store.keys.task("id"), w.store.keys.queues(), w.store.keys.index(queue), w.store.keys.pending(queue), w.store.keys.stats(queue)}
			if n := must[int64](t)(w.rdb.Exists(w.ctx, keys...).Result()); n != 0 {
				t.Errorf("%s damaged: %d keys were written", with.damaged, n)
			}
		}
	})
}

// Nor does it change what was there, and a damaged counter begins anew.
func TestMistypedKeysOfAQueueInUse(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", Options{ID: "old"})
		w.enqueue(t, "q", "", Options{ID: "later", Delay: time.Hour})
		w.rdb.Rename(w.ctx, w.store.keys.stats("q"), w.store.keys.key("whole"))
		w.rdb.Set(w.ctx, w.store.keys.stats("q"), "x", 0)
		if _, err := w.Queue("q").EnqueueMany(w.ctx, []Spec{{}, {}}); !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
		w.rdb.Rename(w.ctx, w.store.keys.key("whole"), w.store.keys.stats("q"))
		w.depth(t, "q", map[Status]int64{Pending: 1, Scheduled: 1})
		if got := must[map[string]int64](t)(w.Queues(w.ctx)); len(got) != 1 || w.rdb.ZCard(w.ctx, w.store.keys.index("q")).Val() != 2 {
			t.Errorf("queues %v", got)
		}
		w.rdb.HSet(w.ctx, w.store.keys.stats("q"), "enqueued", "x")
		receipts := must[[]Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, []Spec{{Options: Options{ID: "twice"}}, {Options: Options{ID: "twice"}}, {}}))
		if receipts[0].Existed || !receipts[1].Existed || receipts[2].Existed {
			t.Errorf("%+v", receipts)
		}
		if totals := must[[]Stats](t)(w.Client.Stats(w.ctx, "q"))[0].Totals; totals["enqueued"] != 2 {
			t.Errorf("totals %v", totals)
		}
		w.depth(t, "q", map[Status]int64{Pending: 3, Scheduled: 1})
		w.rdb.HSet(w.ctx, w.store.keys.stats("q"), "enqueued", "x")
		w.enqueue(t, "q", "", Options{})
		if totals := must[[]Stats](t)(w.Client.Stats(w.ctx, "q"))[0].Totals; totals["enqueued"] != 1 {
			t.Errorf("totals %v", totals)
		}
		w.depth(t, "q", map[Status]int64{Pending: 4, Scheduled: 1})
	})
}

// A user of Redis who may not write tasks leaves no IDs without a task.
func TestEnqueueWithoutHSET(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		if err := w.rdb.Do(w.ctx, "ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-hset").Err(); err != nil {
			t.Fatal(err)
		}
		options := *w.rdb.Options()
		options.Username, options.Password = "u", "p"
		rdb := redis.NewClient(&options)
		defer func() { _ = rdb.Close() }()
		client := must[*Client](t)(NewFromRedis(rdb, w.config))
		if _, err := client.Queue("q").Enqueue(w.ctx, nil, Options{ID: "id"}); err == nil {
			t.Error("enqueued without HSET")
		}
		keys := []string{w.store.keys.task("id"), w.store.keys.queues(), w.store.keys.index("q"), w.store.keys.pending("q"), w.store.keys.stats("q")}
		if n := must[int64](t)(w.rdb.Exists(w.ctx, keys...).Result()); n != 0 {
			t.Errorf("%d keys were written", n)
		}
	})
}

func TestForgottenScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	if err := w.Prepare(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.rdb.ScriptFlush(w.ctx)
	w.enqueue(t, "q", "", Options{})
	w.rdb.ScriptFlush(w.ctx)
	stats := must[[]Stats](t)(w.Client.Stats(w.ctx, "q", "q", "r"))
	if stats[0].Depth[Pending] != 1 || stats[1].Depth[Pending] != 1 || stats[2].Depth[Pending] != 0 {
		t.Errorf("stats %+v", stats)
	}
}

func TestNewerProtocolIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if err := w.Prepare(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.rdb.Set(w.ctx, w.store.keys.version(), "2", 0)
		if err := w.Prepare(w.ctx); !errors.Is(err, ErrVersion) {
			t.Errorf("%v", err)
		}
	})
}

func TestTenantsNeverMeet(t *testing.T) {
	t.Parallel()
	a := setupOwn(t)
	b := must[*Client](t)(NewFromRedis(a.rdb, Config{Tenant: a.Tenant() + "-b"}))
	a.enqueue(t, "q", "", Options{ID: "same"})
	if _, err := b.Task(a.ctx, "same"); !errors.Is(err, ErrNoTask) {
		t.Errorf("%v", err)
	}
	node := b.Node()
	if err := node.Join(a.ctx); err != nil {
		t.Fatal(err)
	}
	batch := node.Reserve(a.ctx, []ReserveRequest{{Queue: "q", Count: 1}})[0]
	if len(batch.Tasks) != 0 || batch.Err != nil {
		t.Errorf("%+v", batch)
	}
	if _, err := b.Queue("q").Enqueue(a.ctx, nil, Options{ID: "same"}); err != nil {
		t.Error(err)
	}
	a.depth(t, "q", map[Status]int64{Pending: 1})
}

func TestAtMaxmemory(t *testing.T) { onServers(t, atMaxmemory) }

func atMaxmemory(t *testing.T, w *world) {
	node := w.node(t, "q")
	for range 4 {
		w.enqueue(t, "q", "x", Options{})
	}
	got, back := w.reserve(t, node, "q", true), w.reserve(t, node, "q", true)
	// Less than it holds already: it is full, whatever buffers come and go.
	if err := w.rdb.ConfigSet(w.ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Queue("q").Enqueue(w.ctx, nil, Options{ID: "late"}); !IsUnavailable(err) {
		t.Errorf("enqueue: %v", err)
	}
	if n := must[int64](t)(w.rdb.Exists(w.ctx, w.store.keys.task("late")).Result()); n != 0 {
		t.Error("a refused enqueue wrote something")
	}
	if batch := node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 1}})[0]; !IsUnavailable(batch.Err) {
		t.Errorf("reserve: %+v", batch)
	}
	if _, err := node.Renew(w.ctx, map[string]string{"version": "1"}); err != nil {
		t.Errorf("renew: %v", err)
	}
	errs, err := node.Settle(w.ctx, "q", []Settlement{{Claim: Claim{ID: got.ID, Run: got.Run}, Result: []byte("done")}})
	if err != nil || errs[0] != nil {
		t.Errorf("settle: %v %v", err, errs)
	}
	if got := receive(t, "the end of Wait", w.waiting(t, got.ID)); got.err != nil || got.task.Status != Complete {
		t.Errorf("waited for %+v, %v", got.task, got.err)
	}
	errs, err = node.Release(w.ctx, "q", []Claim{{ID: back.ID, Run: back.Run}})
	if err != nil || errs[0] != nil {
		t.Errorf("release: %v %v", err, errs)
	}
	if _, err := w.Queue("q").Cancel(w.ctx, back.ID); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if err := w.Queue("q").Delete(w.ctx, got.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := node.Leave(w.ctx); err != nil {
		t.Errorf("leave: %v", err)
	}
	w.depth(t, "q", map[Status]int64{Pending: 2, Failed: 1})
}

// What Redis cannot do now is not a fault of the call, whatever Redis wraps around it.
func TestRefusalsOfRedisPass(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		w.enqueue(t, "q", "", Options{})
		must[bool](t)(w.Queue("q").Cancel(w.ctx, w.enqueue(t, "q", "", Options{ID: "ended"})))
		refused := func(name string) {
			_, err := w.Queue("q").Enqueue(w.ctx, nil, Options{})
			_, renewing := node.Renew(w.ctx, nil)
			for what, err := range map[string]error{
				"enqueue": err, "join": w.Client.Node().Join(w.ctx), "register": node.Register(w.ctx, "other"), "renew": renewing,
				"reserve": node.Reserve(w.ctx, []ReserveRequest{{Queue: "q", Count: 1}})[0].Err,
			} {
				if !IsUnavailable(err) {
					t.Errorf("%s: %s: %v", name, what, err)
				}
			}
			if got := receive(t, "the end of Wait", w.waiting(t, "ended")); got.err != nil {
				t.Errorf("%s: waited: %v", name, got.err)
			}
		}
		w.rdb.ConfigSet(w.ctx, "min-replicas-to-write", "1")
		refused("no replicas")
		w.rdb.ConfigSet(w.ctx, "min-replicas-to-write", "0")
		w.rdb.ReplicaOf(w.ctx, "127.0.0.1", "1")
		refused("a replica")
		w.rdb.ReplicaOf(w.ctx, "no", "one")
		w.reserve(t, node, "q", true)
		if err := w.rdb.Eval(w.ctx, "return redis.call('LPUSH', KEYS[1])", []string{"k"}).Err(); err == nil || IsUnavailable(err) {
			t.Errorf("a call that can never be done: %v", err)
		}
	})
}

func TestPublishForbidden(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	if err := w.rdb.Do(w.ctx, "ACL", "SETUSER", "quiet", "on", ">pw", "~*", "resetchannels", "+@all", "-publish").Err(); err != nil {
		t.Fatal(err)
	}
	options := *w.rdb.Options()
	options.Username, options.Password = "quiet", "pw"
	rdb := redis.NewClient(&options)
	defer rdb.Close()
	quiet := must[*Client](t)(NewFromRedis(rdb, Config{Tenant: w.Tenant()}))
	if _, err := quiet.Queue("q").Enqueue(w.ctx, nil, Options{}); err != nil {
		t.Error(err)
	}
	w.depth(t, "q", map[Status]int64{Pending: 1})
}
