package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// called is an EnqueueMany beside the test.
type called struct {
	receipts []queue.Receipt
	err      error
}

// enqueueBeside calls EnqueueMany while a write is under way, and returns when it waits for that.
func (w *world) enqueueBeside(t *testing.T, ctx context.Context, queue string, specs ...queue.Spec) <-chan called {
	t.Helper()
	waiting := w.WaitingTasks
	before, answer := waiting(), make(chan called, 1)
	go func() {
		receipts, err := w.Queue(queue).EnqueueMany(ctx, specs)
		answer <- called{receipts, err}
	}()
	eventually(t, "a call that waits for a write", func() bool { return waiting() == before+len(specs) })
	return answer
}

// setupHeld is a world on a server of its own with a write under way, whose reply the proxy keeps back until Pass.
func setupHeld(t *testing.T) (w, past *world, proxy *queuetest.Proxy, first <-chan called) {
	t.Helper()
	t.Parallel()
	server := queuetest.Start(t)
	proxy = queuetest.NewProxy(t, server)
	w, past = newWorld(t, proxy.URL()), newWorld(t, server.URL())
	past.Store().Keys, *past.Config() = w.Store().Keys, *w.Config()
	if err := listen.Prepare(w.ctx, w.Client); err != nil {
		t.Fatal(err)
	}
	proxy.HoldReplies(w.Store().Keys.Pending("held"))
	answer := make(chan called, 1)
	go func() {
		receipts, err := w.Queue("held").EnqueueMany(w.ctx, []queue.Spec{{Options: queue.Options{ID: "first"}}})
		answer <- called{receipts, err}
	}()
	eventually(t, "a write under way", func() bool { return proxy.Held() == 1 })
	return w, past, proxy, answer
}

func specsNamed(ids ...string) (specs []queue.Spec) {
	for _, id := range ids {
		specs = append(specs, queue.Spec{[]byte(id), queue.Options{ID: id}})
	}
	return specs
}

// What comes while a write is under way goes with the next one, and each call has its own answer.
func TestGroupCommit(t *testing.T) {
	w, past, proxy, first := setupHeld(t)
	if err := past.Queue("full").SetLimit(past.ctx, 2); err != nil {
		t.Fatal(err)
	}
	past.rdb.Set(past.ctx, past.Store().Keys.Pending("damaged"), "x", 0)
	ctx, cancel := context.WithCancel(w.ctx)
	unique := func(id string) queue.Spec {
		return queue.Spec{[]byte("same"), queue.Options{ID: id, Unique: &queue.Unique{}}}
	}
	type wanted struct {
		answer   <-chan called
		receipts []queue.Receipt
		err      error
	}
	second := make(chan called, 1)
	go func() { // as many as do not wait for the first write
		receipts, err := w.Queue("held").EnqueueMany(w.ctx, specsNamed("2", "3", "4", "5"))
		second <- called{receipts, err}
	}()
	eventually(t, "a second write under way", func() bool { return proxy.Held() == 2 })
	calls := []wanted{
		{first, []queue.Receipt{{ID: "first"}}, nil},
		{second, []queue.Receipt{{ID: "2"}, {ID: "3"}, {ID: "4"}, {ID: "5"}}, nil},
		{w.enqueueBeside(t, w.ctx, "q", specsNamed("a")...), []queue.Receipt{{ID: "a"}}, nil},
		{w.enqueueBeside(t, w.ctx, "q", specsNamed("b", "c")...), []queue.Receipt{{ID: "b"}, {ID: "c"}}, nil},
		{w.enqueueBeside(t, ctx, "q", specsNamed("cancelled")...), []queue.Receipt{{ID: "cancelled"}}, context.Canceled},
		{w.enqueueBeside(t, w.ctx, "full", specsNamed("full-1")...), []queue.Receipt{{ID: "full-1"}}, nil},
		{w.enqueueBeside(t, w.ctx, "full", specsNamed("full-2", "full-3")...), []queue.Receipt{{ID: "full-2"}, {ID: "full-3"}}, queue.ErrQueueFull},
		{w.enqueueBeside(t, w.ctx, "full", specsNamed("full-4")...), []queue.Receipt{{ID: "full-4"}}, nil},
		{w.enqueueBeside(t, w.ctx, "q", specsNamed("a")...), []queue.Receipt{{ID: "a", Existed: true}}, nil},
		{w.enqueueBeside(t, w.ctx, "damaged", specsNamed("damaged")...), []queue.Receipt{{ID: "damaged"}}, queue.ErrDamaged},
		{w.enqueueBeside(t, w.ctx, "q", unique("d")), []queue.Receipt{{ID: "d"}}, nil},
		{w.enqueueBeside(t, w.ctx, "q", unique("e")), []queue.Receipt{{ID: "d", Existed: true}}, nil},
	}
	check := func(i int) {
		t.Helper()
		got := receive(t, "the answer of a call", calls[i].answer)
		if !slices.Equal(got.receipts, calls[i].receipts) || !errors.Is(got.err, calls[i].err) {
			t.Errorf("call %d: %+v, want %+v and %v", i, got, calls[i].receipts, calls[i].err)
		}
	}
	cancel()
	check(4) // at once, although the writes are still under way
	calls = slices.Delete(calls, 4, 5)
	before := past.scriptCalls(t)
	proxy.Pass()
	for i := range calls {
		check(i)
	}
	// One call for q, one for damaged, and four for full: that of three blocks is refused, which go again one by one.
	if n := past.scriptCalls(t) - before; n != 6 {
		t.Errorf("%d script calls", n)
	}
	if got := past.rdb.LRange(past.ctx, past.Store().Keys.Pending("q"), 0, -1).Val(); !slices.Equal(got, []string{"d", "c", "b", "a"}) {
		t.Errorf("q has %q, the last one first", got)
	}
	past.depth(t, "full", map[queue.Status]int64{queue.Pending: 2})
	if _, err := past.Task(past.ctx, "cancelled"); !errors.Is(err, queue.ErrNoTask) {
		t.Errorf("a call that was cancelled before its write: %v", err)
	}
}

// scriptCalls is how many scripts the server ran.
func (w *world) scriptCalls(t *testing.T) (n int) {
	t.Helper()
	_, after, _ := strings.Cut(must[string](t)(w.rdb.Info(w.ctx, "commandstats").Result()), "cmdstat_evalsha:calls=")
	if _, err := fmt.Sscanf(after, "%d,", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A caller that gives up during a shared write leaves it to the others. Its own tasks may be there: a repeat doubles none.
func TestGroupCommitOutlivesACaller(t *testing.T) {
	w, past, proxy, first := setupHeld(t)
	other := w.enqueueBeside(t, w.ctx, "held", specsNamed("other")...)
	ctx, cancel := context.WithCancel(w.ctx)
	answer := make(chan called, 1)
	go func() { // with the other one's task as many wait as go without waiting for the first write
		receipts, err := w.Queue("held").EnqueueMany(ctx, make([]queue.Spec, queue.SecondTasks-1))
		answer <- called{receipts, err}
	}()
	eventually(t, "a second write under way", func() bool { return proxy.Held() == 2 })
	cancel()
	gone := receive(t, "the cancelled call", answer)
	if !errors.Is(gone.err, context.Canceled) || len(gone.receipts) != queue.SecondTasks-1 {
		t.Fatalf("%+v", gone)
	}
	proxy.Pass()
	for _, answer := range []<-chan called{first, other} {
		if got := receive(t, "a call", answer); got.err != nil || got.receipts[0].Existed {
			t.Errorf("%+v", got)
		}
	}
	var ids []string
	for _, receipt := range gone.receipts {
		ids = append(ids, receipt.ID)
	}
	for _, receipt := range must[[]queue.Receipt](t)(w.Queue("held").EnqueueMany(w.ctx, specsNamed(ids...))) {
		if !receipt.Existed {
			t.Errorf("%s was not written", receipt.ID)
		}
	}
	past.depth(t, "held", map[queue.Status]int64{queue.Pending: 1 + queue.SecondTasks})
}

// Large calls wait for no other, and none for them.
func TestLargeCallsShareNothing(t *testing.T) {
	w, _, proxy, first := setupHeld(t)
	many := make([]queue.Spec, store.BlockTasks)
	large := []queue.Spec{{Parameters: make([]byte, queue.SharedBytes+1)}}
	for _, specs := range [][]queue.Spec{many, large} {
		if _, err := w.Queue("q").EnqueueMany(w.ctx, specs); err != nil {
			t.Error(err)
		}
	}
	proxy.Pass()
	if got := receive(t, "the first call", first); got.err != nil {
		t.Error(got.err)
	}

	proxy.HoldReplies(w.Store().Keys.Pending("held"))
	answer := make(chan called, 1)
	go func() {
		receipts, err := w.Queue("held").EnqueueMany(w.ctx, large)
		answer <- called{receipts, err}
	}()
	eventually(t, "a large call under way", func() bool { return proxy.Held() == 1 })
	w.enqueue(t, "q", "", queue.Options{})
	proxy.Pass()
	if got := receive(t, "the large call", answer); got.err != nil {
		t.Error(got.err)
	}
}

// A closed client answers all its callers.
func TestGroupCommitOfAClosedClient(t *testing.T) {
	w, _, _, first := setupHeld(t)
	answers := []<-chan called{first, w.enqueueBeside(t, w.ctx, "a", specsNamed("a")...), w.enqueueBeside(t, w.ctx, "b", specsNamed("b")...)}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		if got := receive(t, "a call", answer); got.err == nil {
			t.Errorf("%+v", got)
		}
	}
	if _, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{}); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("later: %v", err)
	}
}

// A call that panics blocks no other.
func TestGroupCommitAfterAPanic(t *testing.T) {
	w := setup(t)
	w.rdb.AddHook(spy(func(cmds ...redis.Cmder) { // that a program may have on its connection
		if strings.Contains(fmt.Sprint(cmds[0].Args()...), "panics") {
			panic("a hook")
		}
	}))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = w.Queue("panics").Enqueue(w.ctx, nil, queue.Options{})
	}()
	w.enqueue(t, "q", "", queue.Options{})
}

// Many callers, of which some give up: what succeeded is there once, and each caller's tasks are in its order.
func TestManyCallersEnqueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const callers, tasks = 16, 30
		succeeded := make([][]string, callers)
		var running sync.WaitGroup
		for caller := range callers {
			running.Go(func() {
				for i := range tasks {
					ctx, cancel := context.WithCancel(w.ctx)
					if rand.N(8) == 0 {
						go cancel()
					}
					id := fmt.Sprintf("%d-%d", caller, i)
					name := []string{"p", "q"}[i%2]
					_, err := w.Queue(name).Enqueue(ctx, nil, queue.Options{ID: id})
					if err == nil {
						succeeded[caller] = append(succeeded[caller], id)
					} else if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		running.Wait()
		at := make(map[string]int)
		for _, queue := range []string{"p", "q"} {
			ids := must[[]string](t)(w.rdb.LRange(w.ctx, w.Store().Keys.Pending(queue), 0, -1).Result())
			for i, id := range ids {
				if at[id] != 0 {
					t.Errorf("%s is there twice", id)
				}
				at[id] = len(ids) - i // the first one enqueued is the last one in the list
			}
		}
		for _, ids := range succeeded {
			for i, id := range ids {
				if at[id] == 0 {
					t.Errorf("%s is lost", id)
				}
				for _, later := range ids[i+1:] {
					if (id[len(id)-1]-later[len(later)-1])%2 == 0 && at[later] < at[id] {
						t.Errorf("%s came before %s", later, id)
					}
				}
			}
		}
	})
}
