package queue_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// known tells whether the tenant has the queue.
func (w *world) known(t testing.TB, queue string) bool {
	t.Helper()
	_, ok := must[map[string]int64](t)(w.Queues(w.ctx))[queue]
	return ok
}

// What is left of a queue keeps it, whatever it is; without that it goes, with its counters, and comes back.
func TestForgetsAQueue(t *testing.T) {
	t.Parallel()
	high := 80
	for name, left := range map[string]func(t *testing.T, w *world, q *queue.Queue) (remove func()){
		"nothing": nil,
		"a listener": func(t *testing.T, w *world, q *queue.Queue) func() {
			node := w.node(t, q.Name())
			return func() { must[any](t)(nil, node.Unregister(w.ctx, q.Name())) }
		},
		"a Python listener": func(_ *testing.T, w *world, q *queue.Queue) func() {
			w.rdb.SAdd(w.ctx, w.Store().Keys.Listeners(q.Name()), "some.host_4711")
			return func() { w.rdb.SRem(w.ctx, w.Store().Keys.Listeners(q.Name()), "some.host_4711") }
		},
		"a pending task": func(t *testing.T, w *world, q *queue.Queue) func() {
			return w.expunge(t, q, w.enqueue(t, q.Name(), "", queue.Options{}))
		},
		"a pending task of another priority": func(t *testing.T, w *world, q *queue.Queue) func() {
			return w.expunge(t, q, w.enqueue(t, q.Name(), "", queue.Options{Priority: &high}))
		},
		"a pending task of Python": func(_ *testing.T, w *world, q *queue.Queue) func() {
			w.rdb.LPush(w.ctx, w.Store().Keys.Pending(q.Name()), "python")
			return func() { w.rdb.RPop(w.ctx, w.Store().Keys.Pending(q.Name())) }
		},
		"a pending entry of another priority": func(_ *testing.T, w *world, q *queue.Queue) func() {
			w.rdb.SAdd(w.ctx, w.Store().Keys.Priorities(q.Name()), "080")
			w.rdb.LPush(w.ctx, w.Store().Keys.Level("080", q.Name()), "entry")
			return func() { w.rdb.RPop(w.ctx, w.Store().Keys.Level("080", q.Name())) }
		},
		"a scheduled task": func(t *testing.T, w *world, q *queue.Queue) func() {
			return w.expunge(t, q, w.enqueue(t, q.Name(), "", queue.Options{Delay: time.Hour}))
		},
		"a task that is held": func(t *testing.T, w *world, q *queue.Queue) func() {
			node := w.node(t) // which has left the queue
			w.rdb.LPush(w.ctx, w.Store().Keys.Reserved(q.Name(), node.ID()), "held")
			return func() { w.rdb.Del(w.ctx, w.Store().Keys.Reserved(q.Name(), node.ID())) }
		},
		"a task that Python runs": func(_ *testing.T, w *world, q *queue.Queue) func() {
			w.rdb.LPush(w.ctx, w.Store().Keys.Reserved(q.Name(), "some.host_4711"), "runs")
			w.rdb.SAdd(w.ctx, w.Store().Keys.Started(q.Name()), "some.host_4711 12 runs")
			return func() { w.rdb.Del(w.ctx, w.Store().Keys.Reserved(q.Name(), "some.host_4711")) }
		},
		"finished tasks": func(t *testing.T, w *world, q *queue.Queue) func() {
			node := w.node(t, q.Name())
			for _, failure := range []*queue.Failure{nil, {}} {
				w.enqueue(t, q.Name(), "", queue.Options{})
				w.settle(t, node, q.Name(), listen.Settlement{Claim: w.reserveMany(t, node, q.Name(), 1, true)[0], Failure: failure})
			}
			must[any](t)(nil, node.Leave(w.ctx))
			return func() { must[int](t)(manage.QueueOf(q).Purge(w.ctx, listen.PurgeOptions{Everything: true})) }
		},
		"a limit": func(t *testing.T, w *world, q *queue.Queue) func() {
			must[any](t)(nil, q.SetLimit(w.ctx, 5))
			return func() { must[any](t)(nil, q.SetLimit(w.ctx, 0)) }
		},
		"a pause": func(t *testing.T, w *world, q *queue.Queue) func() {
			must[any](t)(nil, q.Pause(w.ctx))
			return func() { must[any](t)(nil, q.Resume(w.ctx)) }
		},
		"a hold of a key": func(_ *testing.T, w *world, q *queue.Queue) func() {
			w.rdb.ZAdd(w.ctx, w.Store().Keys.Held(q.Name()), redis.Z{Score: 7999999999, Member: "hash"}, redis.Z{Score: 1, Member: "over"})
			return func() { w.rdb.ZRem(w.ctx, w.Store().Keys.Held(q.Name()), "hash") }
		},
		"a bucket of a key": func(_ *testing.T, w *world, q *queue.Queue) func() {
			w.rdb.ZAdd(w.ctx, w.Store().Keys.KeyRates(q.Name()), redis.Z{Score: 4e9, Member: "hash"})
			return func() { w.rdb.ZAdd(w.ctx, w.Store().Keys.KeyRates(q.Name()), redis.Z{Score: 1, Member: "hash"}) }
		},
		"a key of a task": func(_ *testing.T, w *world, _ *queue.Queue) func() {
			w.rdb.ZAdd(w.ctx, w.Store().Keys.Keyed("q"), redis.Z{Member: "Khash id"})
			unique := make([]redis.Z, 1500) // of version 0.1.0: one recount removes 1,000
			for i := range unique {
				unique[i].Member = fmt.Sprint("Uhash id", i)
			}
			w.rdb.ZAdd(w.ctx, w.Store().Keys.Keyed("q"), unique...)
			return func() { w.rdb.ZRem(w.ctx, w.Store().Keys.Keyed("q"), "Khash id") }
		},
		"a damaged set of keys": func(_ *testing.T, w *world, _ *queue.Queue) func() {
			w.rdb.Set(w.ctx, w.Store().Keys.Keyed("q"), "x", 0)
			return func() { w.rdb.Del(w.ctx, w.Store().Keys.Keyed("q")) }
		},
		"a key of another type": func(_ *testing.T, w *world, q *queue.Queue) func() {
			w.rdb.Set(w.ctx, w.Store().Keys.Complete(q.Name()), "x", 0)
			return func() { w.rdb.Del(w.ctx, w.Store().Keys.Complete(q.Name())) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w *world) {
				q := w.Queue("q")
				w.rdb.ZIncrBy(w.ctx, w.Store().Keys.Queues(), 0, "q")
				w.rdb.HSet(w.ctx, w.Store().Keys.Stats("q"), "enqueued", 7)
				w.rdb.HSet(w.ctx, w.Store().Keys.Used(), "memory:q", 7)
				if left != nil {
					remove := left(t, w, q)
					if forgotten := must[bool](t)(recount(w.ctx, q)); forgotten || !w.known(t, "q") {
						t.Errorf("the queue is forgotten: %v", forgotten)
					}
					remove()
				}
				if forgotten := must[bool](t)(recount(w.ctx, q)); !forgotten || w.known(t, "q") {
					t.Errorf("the queue is not forgotten: %v", forgotten)
				}
				k := w.Store().Keys
				if n := w.rdb.Exists(w.ctx, k.Stats("q"), k.Priorities("q"), k.Purged("q"), k.Held("q"), k.KeyRates("q"), k.Used()).Val(); n != 0 {
					t.Errorf("%d keys are left", n)
				}
				w.enqueue(t, "q", "", queue.Options{})
				if !w.known(t, "q") {
					t.Error("an enqueue does not bring it back")
				}
			})
		})
	}
}

// recount recounts one queue.
func recount(ctx context.Context, q *queue.Queue) (forgotten bool, err error) {
	news, err := listen.NewFleet(q.Client()).Recount(ctx, []string{q.Name()}, listen.PurgeOptions{})
	if len(news) == 1 {
		return news[0].Forgotten, news[0].Err
	}
	return false, err
}

// expunge cancels a task that waits and deletes it.
func (w *world) expunge(t testing.TB, q *queue.Queue, id string) func() {
	return func() {
		must[bool](t)(q.Cancel(w.ctx, id))
		must[any](t)(nil, q.Delete(w.ctx, id))
	}
}

// A queue that is forgotten while others enqueue to it and listen to it loses none of either.
func TestForgetsNothingThatComes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		ended := make(chan struct{})
		var housekeeper sync.WaitGroup
		housekeeper.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
					if _, err := recount(w.ctx, q); err != nil {
						t.Error(err)
					}
				}
			}
		})
		for range 50 {
			id := w.enqueue(t, "q", "", queue.Options{})
			if !w.known(t, "q") {
				t.Fatal("a queue with a task is forgotten")
			}
			w.expunge(t, q, id)()
			node := w.node(t, "q")
			if n := must[map[string]int64](t)(w.Queues(w.ctx))["q"]; n != 1 {
				t.Fatalf("a queue with a listener has %d", n)
			}
			must[any](t)(nil, node.Leave(w.ctx))
		}
		close(ended)
		housekeeper.Wait()
	})
}

// A damaged key keeps its queue, and what is wrong has a name.
func TestForgetsNoDamagedQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.rdb.ZAdd(w.ctx, w.Store().Keys.Queues(), redis.Z{Member: "q"})
		w.rdb.Set(w.ctx, w.Store().Keys.Priorities("q"), "x", 0)
		if forgotten, err := recount(w.ctx, w.Queue("q")); forgotten || err == nil || !w.known(t, "q") {
			t.Errorf("forgotten %v, %v", forgotten, err)
		}
	})
}

// A key that keeps a listener from reserving has a name.
func TestReserveNamesADamagedKey(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		for _, key := range []string{w.Store().Keys.Paused(), w.Store().Keys.Pending("q"), w.Store().Keys.Expiry("q"), w.Store().Keys.Nodes()} {
			w.rdb.Del(w.ctx, key)
			w.rdb.Set(w.ctx, key, "x", 0)
			batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]
			if batch.Err == nil || !strings.Contains(batch.Err.Error(), key) {
				t.Errorf("with a damaged %s: %v", key, batch.Err)
			}
			w.rdb.Del(w.ctx, key)
		}
	})
}

func TestRecount(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.node(t, "q")
		w.rdb.ZAdd(w.ctx, w.Store().Keys.Queues(), redis.Z{Score: 7, Member: "q"})
		for range 2 {
			if _, err := recount(w.ctx, w.Queue("q")); err != nil {
				t.Fatal(err)
			}
			if n := must[map[string]int64](t)(w.Queues(w.ctx))["q"]; n != 1 {
				t.Errorf("%d listeners", n)
			}
		}
		if _, err := recount(w.ctx, w.Queue("none")); err != nil {
			t.Error(err)
		}
		if _, ok := must[map[string]int64](t)(w.Queues(w.ctx))["none"]; ok {
			t.Error("a queue came to be")
		}
	})
}

// A recount of many queues tells of those alone in which there is something to do, also beside damaged ones.
func TestRecountOfManyQueues(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Clock = "1700000000.000000"
		queues := make([]string, 2*store.RecountQueues+5) // three blocks
		for i := range queues {
			queues[i] = fmt.Sprint("q", i)
		}
		node := w.node(t, queues...)
		empty, damaged, stale := queues[store.RecountQueues], queues[store.RecountQueues-1], queues[len(queues)-1]
		must[any](t)(nil, node.Unregister(w.ctx, empty))
		w.rdb.Del(w.ctx, w.Store().Keys.Listeners(damaged))
		w.rdb.Set(w.ctx, w.Store().Keys.Listeners(damaged), "x", 0)
		w.rdb.SAdd(w.ctx, w.Store().Keys.Started(stale), "gone~01234567_8 8 id")
		w.rdb.ZAdd(w.ctx, w.Store().Keys.Queues(), redis.Z{Score: 7, Member: stale})
		news := must[[]listen.Recounted](t)(listen.NewFleet(w.Client).Recount(w.ctx, queues, listen.PurgeOptions{Keep: 1, OlderThan: time.Second}))
		if len(news) != 2 || news[0].Queue != damaged || !news[0].Old || !strings.Contains(fmt.Sprint(news[0].Err), "WRONGTYPE key "+w.Store().Keys.Listeners(damaged)) ||
			news[1] != (listen.Recounted{Queue: empty, Forgotten: true}) {
			t.Errorf("%+v", news)
		}
		if listeners := must[map[string]int64](t)(w.Queues(w.ctx)); len(listeners) != len(queues)-1 || listeners[stale] != 1 {
			t.Errorf("%d queues, %d listeners of %s", len(listeners), listeners[stale], stale)
		}
		if n := w.rdb.SCard(w.ctx, w.Store().Keys.Started(stale)).Val(); n != 0 {
			t.Errorf("%d started tasks of nobody are left", n)
		}
	})
}
