package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// waiting begins to wait for a task. What comes is sent when Wait returns.
type waited struct {
	task *queue.Task
	err  error
}

func (w *world) waiting(t testing.TB, id string) <-chan waited {
	t.Helper()
	ended := make(chan waited, 1)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(w.ctx)
	go func() {
		defer close(done)
		task, err := w.Wait(ctx, id)
		ended <- waited{task, err}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return ended
}

func TestWaitIsWokenByTheAnnouncement(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		node, hold := w.held(t, "q")
		var reads atomic.Int64
		w.hook(t, spy(func(cmds ...redis.Cmder) {
			if slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == "hget" && cmd.Args()[1] == w.Store().Keys.Task(id) }) {
				reads.Add(1)
			}
		}))
		other := w.enqueue(t, "q", "", queue.Options{}) // its waiter keeps the subscription
		last, ended := w.waiting(t, other), w.waiting(t, id)
		w.subscribed(t, w.Store().Keys.Done(other))
		eventually(t, "the first look, and that when the subscription stands", func() bool { return reads.Load() == 2 })
		w.settle(t, node, "q", listen.Settlement{Claim: hold, Result: []byte("x")})
		got := receive(t, "the end of Wait", ended)
		if got.err != nil || got.task.Status != queue.Complete || string(got.task.Result) != "x" {
			t.Errorf("waited for %+v, %v", got.task, got.err)
		}
		eventually(t, "the end of its subscription", func() bool {
			return must[map[string]int64](t)(w.rdb.PubSubNumSub(w.ctx, w.Store().Keys.Done(id)).Result())[w.Store().Keys.Done(id)] == 0
		})
		must[bool](t)(w.Queue("q").Cancel(w.ctx, other)) // announced behind it on the same connection
		receive(t, "the end of the other Wait", last)
		if n := reads.Load(); n != 3 {
			t.Errorf("read %d times, want none after its end", n)
		}
	})
}

func TestWaitForWhatIsFinished(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		if _, err := w.Queue("q").Cancel(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		got := receive(t, "the end of Wait", w.waiting(t, id))
		if got.err != nil || got.task.Status != queue.Failed {
			t.Errorf("waited for %+v, %v", got.task, got.err)
		}
		for _, none := range []string{"none", "no id"} {
			got := receive(t, "the end of Wait", w.waiting(t, none))
			if !errors.Is(got.err, map[string]error{"none": queue.ErrNoTask, "no id": queue.ErrInvalid}[none]) {
				t.Errorf("waited for %q: %v", none, got.err)
			}
		}
	})
}

// A Wait that runs out of time says where the task is.
func TestWaitOutOfTime(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.node(t, "q")
		for name, want := range map[string]string{
			"q": "it is pending", "bom": `it is pending, and no host serves the queue "bom"`,
		} {
			id := w.enqueue(t, name, "", queue.Options{})
			ctx, cancel := context.WithTimeout(w.ctx, time.Millisecond)
			_, err := w.Wait(ctx, id)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), "context deadline exceeded: "+want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Python settles without an announcement, and somebody may delete the hash by hand.
func TestWaitLooksByItself(t *testing.T) {
	w := setup(t)
	w.Store().Poll = 50 * time.Millisecond
	settled, deleted := w.enqueue(t, "q", "", queue.Options{}), w.enqueue(t, "q", "", queue.Options{})
	first, second := w.waiting(t, settled), w.waiting(t, deleted)
	w.subscribed(t, w.Store().Keys.Done(settled))
	w.subscribed(t, w.Store().Keys.Done(deleted))
	w.rdb.HSet(w.ctx, w.Store().Keys.Task(settled), "status", "complete", "result", "x")
	w.rdb.Del(w.ctx, w.Store().Keys.Task(deleted))
	got := receive(t, "the end of Wait", first)
	if got.err != nil || string(got.task.Result) != "x" {
		t.Errorf("settled by Python: waited for %+v, %v", got.task, got.err)
	}
	if got := receive(t, "the end of Wait", second); !errors.Is(got.err, queue.ErrNoTask) {
		t.Errorf("deleted by hand: waited for %+v, %v", got.task, got.err)
	}
}

func TestWaitEndsWithTheTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		ended := w.waiting(t, id)
		w.subscribed(t, w.Store().Keys.Done(id))
		_, err := w.rdb.TxPipelined(w.ctx, func(p redis.Pipeliner) error { // as the script does
			p.Del(w.ctx, w.Store().Keys.Task(id))
			p.Publish(w.ctx, w.Store().Keys.Done(id), "")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := receive(t, "the end of Wait", ended); !errors.Is(got.err, queue.ErrNoTask) {
			t.Errorf("waited: %v", got.err)
		}
	})
}

func TestWhatEndsATaskAnnouncesIt(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		node := w.node(t, "q")
		w.rdb.Set(w.ctx, w.Store().Keys.Waiters(), 1, 0)
		for what, end := range map[string]func(id string) error{
			"cancel": func(id string) error { _, err := q.Cancel(w.ctx, id); return err },
			"settle": func(id string) error {
				got := w.reserve(t, node, "q", true)
				errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: listen.Claim{ID: id, Run: got.Run}}})
				return errors.Join(append(errs, err)...)
			},
			"delete": func(id string) error {
				return errors.Join(w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "status", "failed").Err(), q.Delete(w.ctx, id))
			},
		} {
			id := w.enqueue(t, "q", "", queue.Options{})
			done := w.rdb.Subscribe(w.ctx, w.Store().Keys.Done(id))
			messages := done.Channel()
			w.subscribed(t, w.Store().Keys.Done(id))
			if err := end(id); err != nil {
				t.Fatal(what, err)
			}
			if message := receive(t, "an announcement of "+what, messages); message.Payload != "" {
				t.Errorf("%s: the message is %q, want nothing in it", what, message.Payload)
			}
			_ = done.Close()
			w.rdb.Del(w.ctx, w.Store().Keys.Pending("q"))
		}
	})
}

// What is complete is announced while somebody waits for a task.
func TestNobodyWaitsNobodyHears(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		first, second := w.enqueue(t, "q", "", queue.Options{}), w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		held := w.reserveMany(t, node, "q", 2, true)
		done := w.rdb.Subscribe(w.ctx, w.Store().Keys.Done(first), w.Store().Keys.Done(second))
		defer func() { _ = done.Close() }()
		messages := done.Channel()
		w.subscribed(t, w.Store().Keys.Done(second))
		w.settle(t, node, "q", listen.Settlement{Claim: held[0]})
		ended := w.waiting(t, w.enqueue(t, "other", "", queue.Options{}))
		eventually(t, "a waiter's note", func() bool { return w.rdb.Exists(w.ctx, w.Store().Keys.Waiters()).Val() == 1 })
		w.settle(t, node, "q", listen.Settlement{Claim: held[1]})
		if got := receive(t, "the second one's announcement", messages); got.Channel != w.Store().Keys.Done(second) {
			t.Errorf("heard of %s, want only of %s", got.Channel, second)
		}
		if left := w.rdb.PTTL(w.ctx, w.Store().Keys.Waiters()).Val(); left <= 0 || left > queue.NoteFor {
			t.Errorf("the note is kept for %s, want at most %s", left, queue.NoteFor)
		}
		must[bool](t)(w.Queue("other").Cancel(w.ctx, must[[]string](t)(w.rdb.LRange(w.ctx, w.Store().Keys.Pending("other"), 0, 0).Result())[0]))
		receive(t, "the end of Wait", ended)
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		ctx, cancel := context.WithTimeoutCause(w.ctx, 20*time.Millisecond, errors.New("waited long enough"))
		defer cancel()
		if _, err := w.Wait(ctx, id); err == nil || err.Error() != "wait for task "+id+": waited long enough" {
			t.Errorf("ended with %v", err)
		}
	})
}

// Whoever waits for what cannot come any more is told, soon, and so is who begins to wait then.
func TestWaitEndsWithTheClient(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		first, second := w.waiting(t, id), w.waiting(t, id)
		w.subscribed(t, w.Store().Keys.Done(id))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		told := func(ended <-chan waited) {
			got := receive(t, "the end of Wait", ended)
			if !errors.Is(got.err, redis.ErrClosed) {
				t.Errorf("after the end: %v", got.err)
			}
		}
		told(first)
		told(second)
		told(w.waiting(t, id))
	})
}

func TestWaitTellsWhatIsWrong(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.rdb.Set(w.ctx, w.Store().Keys.Task("id"), "x", 0)
		if got := receive(t, "the end of Wait", w.waiting(t, "id")); got.err == nil {
			t.Errorf("a key of another type: waited for %+v", got.task)
		}
	})
}

func TestWaitOverARestart(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, durable...)
	w := newWorld(t, server.URL())
	id := w.enqueue(t, "q", "", queue.Options{})
	node, hold := w.held(t, "q")
	ended := w.waiting(t, id)
	w.subscribed(t, w.Store().Keys.Done(id))
	eventually(t, "the waiter's note", func() bool { return w.rdb.Del(w.ctx, w.Store().Keys.Waiters()).Val() == 1 })
	server.Kill()
	server.Restart(t)                                                           // as one does that has lost the last second: the waiter notes again that it waits
	w.settle(t, node, "q", listen.Settlement{Claim: hold, Result: []byte("x")}) // perhaps before the waiter is back
	if got := receive(t, "the end of Wait", ended); got.err != nil || string(got.task.Result) != "x" {
		t.Errorf("waited for %+v, %v", got.task, got.err)
	}
}

// A look that failed is repeated soon, not at the next one.
func TestWaitLooksAgainSoon(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	id := past.enqueue(t, "q", "", queue.Options{})
	node, hold := past.held(t, "q")
	ended := w.waiting(t, id)
	past.subscribed(t, w.Store().Keys.Done(id))
	proxy.CutReplies(3, w.Store().Keys.Task(id))
	past.settle(t, node, "q", listen.Settlement{Claim: hold, Result: []byte("x")})
	got := receive(t, "the end of Wait", ended)
	if got.err != nil || string(got.task.Result) != "x" || proxy.Cuts() != 3 {
		t.Errorf("waited %d cuts for %+v, %v", proxy.Cuts(), got.task, got.err)
	}
}

// The task is settled while the waiter's connection is broken; the subscription that stands again
// makes it look.
func TestWaitOverABrokenConnection(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	id := past.enqueue(t, "q", "", queue.Options{})
	node, hold := past.held(t, "q")
	ended := w.waiting(t, id)
	past.subscribed(t, w.Store().Keys.Done(id))
	proxy.Refuse()
	past.settle(t, node, "q", listen.Settlement{Claim: hold, Result: []byte("x")})
	proxy.Pass()
	if got := receive(t, "the end of Wait", ended); got.err != nil || string(got.task.Result) != "x" {
		t.Errorf("waited for %+v, %v", got.task, got.err)
	}
}

// However many wait: they share one connection, and find their way back when it is killed.
func TestAThousandWaiters(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	const tasks = 1000
	specs := make([]queue.Spec, tasks)
	receipts := must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
	ended := make([]<-chan waited, tasks)
	for i, receipt := range receipts {
		ended[i] = w.waiting(t, receipt.ID)
	}
	all := func() bool {
		list := must[string](t)(w.rdb.ClientList(w.ctx).Result())
		if n := strings.Count(list, "flags=P"); n > 1 {
			t.Fatalf("%d connections subscribe", n)
		}
		return strings.Contains(list, " sub=1000 ")
	}
	eventually(t, "the subscriptions", all)
	if n := w.rdb.Do(w.ctx, "CLIENT", "KILL", "TYPE", "pubsub").Val(); n != int64(1) {
		t.Errorf("%v connections were killed", n)
	}
	eventually(t, "the subscriptions, once more", all)
	node := w.node(t, "q")
	holds := w.reserveMany(t, node, "q", tasks, true)
	settlements := make([]listen.Settlement, tasks)
	for i, hold := range holds {
		settlements[i] = listen.Settlement{Claim: hold, Result: []byte(hold.ID)}
	}
	if errs, err := node.Settle(w.ctx, "q", settlements); errors.Join(append(errs, err)...) != nil {
		t.Fatal(err)
	}
	for i, id := range receipts {
		if got := receive(t, "the end of Wait", ended[i]); got.err != nil || string(got.task.Result) != id.ID {
			t.Fatalf("%+v, %v", got.task, got.err)
		}
	}
	eventually(t, "the end of the subscription", func() bool {
		return !strings.Contains(must[string](t)(w.rdb.ClientList(w.ctx).Result()), "flags=P")
	})
}
