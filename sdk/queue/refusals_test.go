package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestStatsBesideADamagedQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "whole", "", queue.Options{})
		w.rdb.Set(w.ctx, w.Store().Keys.Pending("damaged"), "x", 0)
		stats := must[[]manage.Stats](t)(manage.New(w.Client).Stats(w.ctx, "damaged", "whole"))
		if stats[0].Err == nil || !strings.Contains(stats[0].Err.Error(), w.Store().Keys.Pending("damaged")) {
			t.Errorf("damaged: %v does not name the key", stats[0].Err)
		}
		if stats[1].Err != nil || stats[1].Depth[queue.Pending] != 1 {
			t.Errorf("whole: %+v", stats[1])
		}
		if _, err := manage.New(w.Client).Queue("damaged").Count(w.ctx, queue.Pending); err == nil {
			t.Error("counting a damaged queue is no error")
		}
	})
}

// An answer of Redis about a key that does not name it is completed, of one command and of one in a pipeline.
func TestErrorsNameTheirKey(t *testing.T) {
	w := setup(t)
	user := "only-" + w.Tenant()
	rules := []string{"on", ">secret", "+@all", "~" + w.Store().Keys.Nodes(), "~" + w.Store().Keys.Listeners("q"), "&*"}
	if err := w.rdb.ACLSetUser(w.ctx, user, rules...).Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.rdb.ACLDelUser(context.WithoutCancel(w.ctx), user) })
	connect := func(credentials string) *queue.Client {
		rdb := must[redis.UniversalClient](t)(queue.Connect("redis://" + credentials + strings.TrimPrefix(queuetest.SharedURL(), "redis://")))
		t.Cleanup(func() { _ = rdb.Close() })
		return must[*queue.Client](t)(queue.NewFromRedis(rdb, *w.Config()))
	}
	all, few := connect(""), connect(user+":secret@")
	w.rdb.SAdd(w.ctx, w.Store().Keys.Listeners("q"), "listener")
	w.rdb.Set(w.ctx, w.Store().Keys.Nodes(), "x", 0)
	leases := func(c *queue.Client) error { _, _, _, err := listen.NewFleet(c).Leases(w.ctx); return err }
	listener := func(c *queue.Client) error { return second(c.Queue("q").HasListener(w.ctx)) }
	for what, c := range map[string]struct {
		err  error
		want string
	}{
		"one command":   {leases(all), "WRONGTYPE key " + w.Store().Keys.Nodes() + ": "},
		"of a pipeline": {listener(all), "WRONGTYPE key " + w.Store().Keys.Nodes() + ": "},
		"not permitted": {second(manage.New(few).Topics(w.ctx)), "NOPERM key " + w.Store().Keys.Generation() + ": "},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v does not say %q", what, c.err, c.want)
		}
	}
}

func TestLeaveOfADamagedQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "a", "b", "c")
		w.rdb.Del(w.ctx, w.Store().Keys.Listeners("b"))
		w.rdb.Set(w.ctx, w.Store().Keys.Listeners("b"), "x", 0)
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
		w.enqueue(t, "q", "", queue.Options{ID: "damaged"})
		w.enqueue(t, "q", "", queue.Options{ID: "whole"})
		batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 2, Start: true}})[0]
		w.rdb.Del(w.ctx, w.Store().Keys.Task("damaged"))
		w.rdb.Set(w.ctx, w.Store().Keys.Task("damaged"), "x", 0)
		var settlements []listen.Settlement
		for _, task := range batch.Tasks {
			settlements = append(settlements, listen.Settlement{Claim: listen.Claim{ID: task.ID, Run: task.Run}})
		}
		w.rdb.Set(w.ctx, w.Store().Keys.Complete("bad"), "x", 0)
		replies := node.SettleAll(w.ctx, []listen.SettleRequest{{Queue: "bad", Settlements: settlements}, {Queue: "q", Settlements: settlements}})
		if errs := replies[1].Errs; replies[0].Err == nil || replies[1].Err != nil || !errors.Is(errs[0], queue.ErrNoTask) || errs[1] != nil {
			t.Errorf("settled: %v", replies)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1})
	})
}

// A call that needs a key of another type writes nothing, also for its other tasks.
func TestMistypedKeysChangeNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		plain, keyed := queue.Spec{Options: queue.Options{ID: "id"}}, queue.Spec{Options: queue.Options{Key: "k"}}
		for name, with := range map[string]struct {
			damaged, expected string
			specs             []queue.Spec
		}{
			"a": {w.Store().Keys.Index("a"), "zset", []queue.Spec{plain}},
			"b": {w.Store().Keys.Scheduled("b"), "zset", []queue.Spec{plain}}, // from which no task is reserved
			"c": {w.Store().Keys.Expiry("c"), "zset", []queue.Spec{plain}},
			"d": {w.Store().Keys.Keyed("d"), "zset", []queue.Spec{plain, keyed}},
			"e": {w.Store().Keys.Stats("e"), "hash", []queue.Spec{plain, {}}},
			"f": {w.Store().Keys.Pending("f"), "list", []queue.Spec{plain, {}}},
			"g": {w.Store().Keys.Queues(), "zset", []queue.Spec{plain}},
		} {
			w.rdb.Set(w.ctx, with.damaged, "x", 0)
			_, err := w.Queue(name).EnqueueMany(w.ctx, with.specs)
			if !errors.Is(err, queue.ErrDamaged) || !strings.Contains(err.Error(), with.damaged+" is a string, expected a "+with.expected) {
				t.Errorf("error %v does not name the key %s and the type", err, with.damaged)
			}
			w.rdb.Del(w.ctx, with.damaged)
			keys := []string{w.Store().Keys.Task("id"), w.Store().Keys.Queues(), w.Store().Keys.Index(name), w.Store().Keys.Pending(name), w.Store().Keys.Stats(name)}
			if n := must[int64](t)(w.rdb.Exists(w.ctx, keys...).Result()); n != 0 {
				t.Errorf("%s damaged: %d keys were written", with.damaged, n)
			}
		}
	})
}

// Nor does it change what was there, and a damaged counter begins anew.
func TestMistypedKeysOfAQueueInUse(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", queue.Options{ID: "old"})
		w.enqueue(t, "q", "", queue.Options{ID: "later", Delay: time.Hour})
		w.rdb.Rename(w.ctx, w.Store().Keys.Stats("q"), w.Store().Keys.Key("whole"))
		w.rdb.Set(w.ctx, w.Store().Keys.Stats("q"), "x", 0)
		if _, err := w.Queue("q").EnqueueMany(w.ctx, []queue.Spec{{}, {}}); !errors.Is(err, queue.ErrDamaged) {
			t.Error(err)
		}
		w.rdb.Rename(w.ctx, w.Store().Keys.Key("whole"), w.Store().Keys.Stats("q"))
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1, queue.Scheduled: 1})
		if got := must[map[string]int64](t)(w.Queues(w.ctx)); len(got) != 1 || w.rdb.ZCard(w.ctx, w.Store().Keys.Index("q")).Val() != 2 {
			t.Errorf("queues %v", got)
		}
		w.rdb.HSet(w.ctx, w.Store().Keys.Stats("q"), "enqueued", "x")
		receipts := must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, []queue.Spec{{Options: queue.Options{ID: "twice"}}, {Options: queue.Options{ID: "twice"}}, {}}))
		if receipts[0].Existed || !receipts[1].Existed || receipts[2].Existed {
			t.Errorf("%+v", receipts)
		}
		if totals := must[[]manage.Stats](t)(manage.New(w.Client).Stats(w.ctx, "q"))[0].Totals; totals["enqueued"] != 2 {
			t.Errorf("totals %v", totals)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 3, queue.Scheduled: 1})
		w.rdb.HSet(w.ctx, w.Store().Keys.Stats("q"), "enqueued", "x")
		w.enqueue(t, "q", "", queue.Options{})
		if totals := must[[]manage.Stats](t)(manage.New(w.Client).Stats(w.ctx, "q"))[0].Totals; totals["enqueued"] != 1 {
			t.Errorf("totals %v", totals)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 4, queue.Scheduled: 1})
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
		client := must[*queue.Client](t)(queue.NewFromRedis(rdb, *w.Config()))
		if _, err := client.Queue("q").Enqueue(w.ctx, nil, queue.Options{ID: "id"}); err == nil {
			t.Error("enqueued without HSET")
		}
		keys := []string{w.Store().Keys.Task("id"), w.Store().Keys.Queues(), w.Store().Keys.Index("q"), w.Store().Keys.Pending("q"), w.Store().Keys.Stats("q")}
		if n := must[int64](t)(w.rdb.Exists(w.ctx, keys...).Result()); n != 0 {
			t.Errorf("%d keys were written", n)
		}
	})
}

func TestForgottenScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	if err := listen.Prepare(w.ctx, w.Client); err != nil {
		t.Fatal(err)
	}
	w.rdb.ScriptFlush(w.ctx)
	w.enqueue(t, "q", "", queue.Options{})
	w.rdb.ScriptFlush(w.ctx)
	stats := must[[]manage.Stats](t)(manage.New(w.Client).Stats(w.ctx, "q", "q", "r"))
	if stats[0].Depth[queue.Pending] != 1 || stats[1].Depth[queue.Pending] != 1 || stats[2].Depth[queue.Pending] != 0 {
		t.Errorf("stats %+v", stats)
	}
}

func TestNewerProtocolIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if err := listen.Prepare(w.ctx, w.Client); err != nil {
			t.Fatal(err)
		}
		w.rdb.Set(w.ctx, w.Store().Keys.Version(), "2", 0)
		if err := listen.Prepare(w.ctx, w.Client); !errors.Is(err, listen.ErrVersion) {
			t.Errorf("%v", err)
		}
	})
}

func TestTenantsNeverMeet(t *testing.T) {
	t.Parallel()
	a := setupOwn(t)
	b := must[*queue.Client](t)(queue.NewFromRedis(a.rdb, queue.Config{Tenant: a.Tenant() + "-b"}))
	a.enqueue(t, "q", "", queue.Options{ID: "same"})
	if _, err := b.Task(a.ctx, "same"); !errors.Is(err, queue.ErrNoTask) {
		t.Errorf("%v", err)
	}
	node := listen.New(b)
	if err := node.Join(a.ctx); err != nil {
		t.Fatal(err)
	}
	batch := node.Reserve(a.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]
	if len(batch.Tasks) != 0 || batch.Err != nil {
		t.Errorf("%+v", batch)
	}
	if _, err := b.Queue("q").Enqueue(a.ctx, nil, queue.Options{ID: "same"}); err != nil {
		t.Error(err)
	}
	a.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
}

func TestAtMaxmemory(t *testing.T) { onServers(t, atMaxmemory) }

func atMaxmemory(t *testing.T, w *world) {
	node := w.node(t, "q")
	for range 4 {
		w.enqueue(t, "q", "x", queue.Options{})
	}
	got, back := w.reserve(t, node, "q", true), w.reserve(t, node, "q", true)
	// Less than it holds already: it is full, whatever buffers come and go.
	if err := w.rdb.ConfigSet(w.ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{ID: "late"}); !queue.IsUnavailable(err) {
		t.Errorf("enqueue: %v", err)
	}
	if n := must[int64](t)(w.rdb.Exists(w.ctx, w.Store().Keys.Task("late")).Result()); n != 0 {
		t.Error("a refused enqueue wrote something")
	}
	if batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]; !queue.IsUnavailable(batch.Err) {
		t.Errorf("reserve: %+v", batch)
	}
	if _, err := node.Renew(w.ctx, map[string]string{"version": "1"}); err != nil {
		t.Errorf("renew: %v", err)
	}
	errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: listen.Claim{ID: got.ID, Run: got.Run}, Result: []byte("done")}})
	if err != nil || errs[0] != nil {
		t.Errorf("settle: %v %v", err, errs)
	}
	if got := receive(t, "the end of Wait", w.waiting(t, got.ID)); got.err != nil || got.task.Status != queue.Complete {
		t.Errorf("waited for %+v, %v", got.task, got.err)
	}
	errs, err = node.Release(w.ctx, "q", []listen.Claim{{ID: back.ID, Run: back.Run}})
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
	w.depth(t, "q", map[queue.Status]int64{queue.Pending: 2, queue.Failed: 1})
}

// What Redis cannot do now is not a fault of the call, whatever Redis wraps around it.
func TestRefusalsOfRedisPass(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		w.enqueue(t, "q", "", queue.Options{})
		must[bool](t)(w.Queue("q").Cancel(w.ctx, w.enqueue(t, "q", "", queue.Options{ID: "ended"})))
		refused := func(name string) {
			_, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{})
			_, renewing := node.Renew(w.ctx, nil)
			for what, err := range map[string]error{
				"enqueue": err, "join": listen.New(w.Client).Join(w.ctx), "register": node.Register(w.ctx, "other"), "renew": renewing,
				"reserve": node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0].Err,
			} {
				if !queue.IsUnavailable(err) {
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
		if err := w.rdb.Eval(w.ctx, "return redis.call('LPUSH', KEYS[1])", []string{"k"}).Err(); err == nil || queue.IsUnavailable(err) {
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
	quiet := must[*queue.Client](t)(queue.NewFromRedis(rdb, queue.Config{Tenant: w.Tenant()}))
	if _, err := quiet.Queue("q").Enqueue(w.ctx, nil, queue.Options{}); err != nil {
		t.Error(err)
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
}
