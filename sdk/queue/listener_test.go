package queue_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/worker"
)

func (w *world) listener(t testing.TB, queue string) *worker.Listener {
	t.Helper()
	listener := must[*worker.Listener](t)(worker.NewListener(w.ctx, w.Client, queue))
	t.Cleanup(func() { _ = listener.Close(context.WithoutCancel(w.ctx)) })
	return listener
}

// listening begins to listen; the task comes on the channel.
func (w *world) listening(t testing.TB, ctx context.Context, listener *worker.Listener) <-chan *queue.Task {
	t.Helper()
	tasks := make(chan *queue.Task, 1)
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		task, err := listener.Listen(ctx)
		if err != nil {
			t.Errorf("listen: %v", err)
		}
		tasks <- task
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return tasks
}

func TestTryListen(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		listener := w.listener(t, "q")
		if task, err := listener.TryListen(w.ctx); task != nil || err != nil {
			t.Errorf("an empty queue: %v, %v", task, err)
		}
		first, second := w.enqueue(t, "q", "1", queue.Options{}), w.enqueue(t, "q", "2", queue.Options{})
		task := must[*queue.Task](t)(listener.TryListen(w.ctx))
		if task.ID != first || task.Status != queue.Reserved || task.Node != listener.ID() || task.Run != 1 ||
			task.Queue != "q" || string(task.Parameters) != "1" {
			t.Errorf("listened to %+v", task)
		}
		ended, end := context.WithCancel(w.ctx)
		end()
		if task, err := listener.TryListen(ended); task != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v, %v", task, err)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1, queue.Reserved: 1})
		// A second one may be in hand before the first is settled.
		if task := must[*queue.Task](t)(listener.TryListen(w.ctx)); task.ID != second {
			t.Errorf("the second is %+v", task)
		}
	})
}

func TestListenerClose(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		listener := must[*worker.Listener](t)(worker.NewListener(w.ctx, w.Client, "q"))
		if n := must[map[string]int64](t)(w.Queues(w.ctx))["q"]; n != 1 {
			t.Errorf("%d listeners", n)
		}
		for range 2 {
			if err := listener.Close(w.ctx); err != nil {
				t.Fatal(err)
			}
		}
		if n := must[map[string]int64](t)(w.Queues(w.ctx))["q"]; n != 0 {
			t.Errorf("%d listeners after closing twice", n)
		}
		if err := w.rdb.ZScore(w.ctx, w.Store().Keys.Nodes(), listener.ID()).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("the lease is left: %v", err)
		}
		if _, err := worker.NewListener(w.ctx, w.Client, "no queue"); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("a queue that cannot be: %v", err)
		}
		if n := must[int64](t)(w.rdb.ZCard(w.ctx, w.Store().Keys.Nodes()).Result()); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	})
}

func TestListenIsWokenByAMessage(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		tasks := w.listening(t, w.ctx, w.listener(t, "q"))
		w.subscribed(t, w.Store().Keys.Channel("q"))
		id := w.enqueue(t, "q", "", queue.Options{})
		if task := receive(t, "the task", tasks); task == nil || task.ID != id {
			t.Fatalf("listened to %+v", task)
		}
	})
}

func TestListenFindsWhatNobodyAnnounced(t *testing.T) {
	w := setup(t)
	w.Store().Poll = 50 * time.Millisecond
	listener := w.listener(t, "q")
	var looks atomic.Int64 // scripts
	w.rdb.AddHook(spy(func(cmds ...redis.Cmder) {
		if cmds[0].Name() == "evalsha" {
			looks.Add(1)
		}
	}))
	tasks := w.listening(t, w.ctx, listener)
	// One at the beginning, one when the subscription stands: what comes later is found by the poll.
	eventually(t, "the listener's third look", func() bool { return looks.Load() >= 3 })
	w.rdb.HSet(w.ctx, w.Store().Keys.Task("quiet"), "status", "pending", "queue", "q", "parameters", "x")
	w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), "quiet")
	if task := receive(t, "the task", tasks); task == nil || task.ID != "quiet" {
		t.Errorf("listened to %+v", task)
	}
}

func TestListenEndsWithItsContext(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		listener := w.listener(t, "q")
		ctx, cancel := context.WithCancelCause(w.ctx)
		reason := errors.New("enough")
		errs := make(chan error, 1)
		go func() {
			_, err := listener.Listen(ctx)
			errs <- err
		}()
		w.subscribed(t, w.Store().Keys.Channel("q"))
		cancel(reason)
		if err := receive(t, "the end", errs); !errors.Is(err, reason) {
			t.Errorf("ended with %v, want the context's cause", err)
		}
	})
}

func TestListenTellsWhatIsWrong(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		listener := w.listener(t, "q")
		w.rdb.Set(w.ctx, w.Store().Keys.Pending("q"), "x", 0)
		if _, err := listener.Listen(w.ctx); err == nil || !strings.Contains(err.Error(), w.Store().Keys.Pending("q")) {
			t.Errorf("listening to a key of another type: %v", err)
		}
	})
}

func TestListenGoesOnWhileRedisIsAway(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	tasks := w.listening(t, w.ctx, w.listener(t, "q"))
	past.subscribed(t, w.Store().Keys.Channel("q"))
	proxy.Refuse()
	id := past.enqueue(t, "q", "", queue.Options{}) // announced while nobody hears
	proxy.Pass()                                    // found by the subscription that stands again
	if task := receive(t, "the task", tasks); task == nil || task.ID != id {
		t.Errorf("listened to %+v", task)
	}
}

// A look that failed is repeated soon, not at the next poll.
func TestListenLooksAgainSoon(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	listener := w.listener(t, "q")
	tasks := w.listening(t, w.ctx, listener)
	past.subscribed(t, w.Store().Keys.Channel("q"))
	proxy.CutReplies(2, w.Store().Keys.Reserved("q", listener.ID())) // the reserve, and the look into the list
	id := past.enqueue(t, "q", "", queue.Options{})
	if task := receive(t, "the task", tasks); task == nil || task.ID != id || proxy.Cuts() != 2 {
		t.Errorf("after %d cuts listened to %+v", proxy.Cuts(), task)
	}
}

// What cannot run is dropped in blocks; the task behind many of them must not wait for the poll.
func TestTryListenPassesOverWhatIsGone(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var gone []any
		for i := range 2500 {
			gone = append(gone, fmt.Sprintf("gone%d", i))
		}
		w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), gone...)
		id := w.enqueue(t, "q", "", queue.Options{})
		task := must[*queue.Task](t)(w.listener(t, "q").TryListen(w.ctx))
		if task == nil || task.ID != id {
			t.Errorf("listened to %+v", task)
		}
	})
}

// The reply of a reserve is lost; the listener finds the task in its own list at once.
func TestTryListenFindsTheTaskOfALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	listener := w.listener(t, "q")
	first, second := past.enqueue(t, "q", "x", queue.Options{}), past.enqueue(t, "q", "", queue.Options{})
	proxy.CutReplies(1, w.Store().Keys.Reserved("q", listener.ID()))
	task := must[*queue.Task](t)(listener.TryListen(w.ctx))
	if proxy.Cuts() != 1 || task == nil || task.ID != first || task.Run != 1 || string(task.Parameters) != "x" {
		t.Errorf("after %d cuts listened to %+v", proxy.Cuts(), task)
	}
	if task := must[*queue.Task](t)(listener.TryListen(w.ctx)); task == nil || task.ID != second {
		t.Errorf("then to %+v", task)
	}
}

// The reply is lost and Redis is away for a while: the task in the list comes before any other.
func TestTryListenFindsTheTaskAfterAnOutage(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	listener := w.listener(t, "q")
	first, second := past.enqueue(t, "q", "", queue.Options{}), past.enqueue(t, "q", "", queue.Options{})
	proxy.CutReplies(-1, "")
	if task, err := listener.TryListen(w.ctx); task != nil || !queue.IsUnavailable(err) {
		t.Fatalf("while every reply is lost: %v, %v", task, err)
	}
	past.depth(t, "q", map[queue.Status]int64{queue.Pending: 1, queue.Reserved: 1})
	proxy.Pass()
	for _, id := range []string{first, second} {
		if task := must[*queue.Task](t)(listener.TryListen(w.ctx)); task == nil || task.ID != id {
			t.Errorf("listened to %+v, want %s", task, id)
		}
	}
}

// What was reserved without the caller hearing of it nobody else can give back.
func TestCloseGivesBackWhatNobodyGot(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	listener := w.listener(t, "q")
	past.enqueue(t, "q", "", queue.Options{ID: "got"})
	past.enqueue(t, "q", "", queue.Options{ID: "unheard"})
	if task := must[*queue.Task](t)(listener.TryListen(w.ctx)); task.ID != "got" {
		t.Fatalf("%+v", task)
	}
	proxy.CutReplies(-1, "")
	if task, err := listener.TryListen(w.ctx); task != nil || !queue.IsUnavailable(err) {
		t.Fatalf("%+v, %v", task, err)
	}
	if err := listener.Close(w.ctx); !queue.IsUnavailable(err) {
		t.Errorf("closed while every reply is lost: %v", err)
	}
	proxy.Pass()
	if err := listener.Close(w.ctx); err != nil {
		t.Fatal(err)
	}
	if got, unheard := past.task(t, "got"), past.task(t, "unheard"); got.Status != queue.Reserved || unheard.Status != queue.Pending {
		t.Errorf("%+v, %+v", got, unheard)
	}
	past.depth(t, "q", map[queue.Status]int64{queue.Reserved: 1, queue.Pending: 1})
	if n := must[map[string]int64](t)(past.Queues(past.ctx))["q"]; n != 0 {
		t.Errorf("%d listeners", n)
	}
}

// What was reserved without the caller hearing of it, and cancelled since, fails.
func TestCloseOfWhatIsCancelled(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	listener := w.listener(t, "q")
	id := past.enqueue(t, "q", "", queue.Options{})
	proxy.CutReplies(-1, "")
	if task, err := listener.TryListen(w.ctx); task != nil || !queue.IsUnavailable(err) {
		t.Fatalf("%+v, %v", task, err)
	}
	if done, err := past.Queue("q").Cancel(w.ctx, id); done || err != nil {
		t.Fatal(done, err)
	}
	proxy.Pass()
	if err := listener.Close(w.ctx); err != nil {
		t.Fatal(err)
	}
	if task := past.task(t, id); task.Status != queue.Failed || task.Reason != queue.ReasonCancelled {
		t.Errorf("%+v", task)
	}
}

// The reserve is done, reading the task is not.
func TestTryListenFindsTheTaskThatItCouldNotRead(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	listener := w.listener(t, "q")
	first, second := past.enqueue(t, "q", "", queue.Options{}), past.enqueue(t, "q", "", queue.Options{})
	proxy.CutReplies(1, "hgetall")
	if task, err := listener.TryListen(w.ctx); task != nil || !queue.IsUnavailable(err) {
		t.Fatalf("a task that cannot be read: %v, %v", task, err)
	}
	for _, id := range []string{first, second} {
		if task := must[*queue.Task](t)(listener.TryListen(w.ctx)); task == nil || task.ID != id {
			t.Errorf("listened to %+v, want %s", task, id)
		}
	}
}

// The lost reply was of an empty queue: what the caller has in hand must not come a second time.
func TestTryListenNeverGivesATaskTwice(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	listener := w.listener(t, "q")
	id := past.enqueue(t, "q", "", queue.Options{})
	task := must[*queue.Task](t)(listener.TryListen(w.ctx))
	if task == nil || task.ID != id {
		t.Fatalf("listened to %+v", task)
	}
	proxy.CutReplies(1, w.Store().Keys.Reserved("q", listener.ID()))
	if task, err := listener.TryListen(w.ctx); task != nil || !queue.IsUnavailable(err) || proxy.Cuts() != 1 {
		t.Errorf("after a lost reply: %+v, %v", task, err)
	}
	if task, err := listener.TryListen(w.ctx); task != nil || err != nil {
		t.Errorf("then: %+v, %v", task, err)
	}
	// Given back and reserved again with a lost reply it is a new run, and comes.
	if err := worker.NewProcessor(w.Client, task).Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	proxy.CutReplies(1, w.Store().Keys.Reserved("q", listener.ID()))
	if again := must[*queue.Task](t)(listener.TryListen(w.ctx)); again == nil || again.ID != id || again.Run != 2 {
		t.Errorf("the second run: %+v", again)
	}
}

// A reserve that the client gave up may be done by Redis long after, when nobody expects it.
func TestTryListenFindsALateReserve(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Lease = time.Second
		listener := w.listener(t, "q")
		if task := must[*queue.Task](t)(listener.TryListen(w.ctx)); task != nil {
			t.Fatal("an empty queue has a task")
		}
		id := w.enqueue(t, "q", "", queue.Options{})
		w.reserve(t, listen.NodeAs(w.Client, listener.ID(), os.Getpid()), "q", false)
		var task *queue.Task
		eventually(t, "the task of the late reserve", func() bool {
			task = must[*queue.Task](t)(listener.TryListen(w.ctx))
			return task != nil
		})
		if task.ID != id {
			t.Errorf("listened to %+v", task)
		}
		if again := must[*queue.Task](t)(listener.TryListen(w.ctx)); again != nil {
			t.Errorf("and then to %+v", again)
		}
	})
}

// A request that was kept back in a network that hung is done after all.
func TestListenOverAHang(t *testing.T) {
	w, past, proxy := setupBehind(t, "?read_timeout=1s")
	w.Store().Lease = time.Second // how often the list is read
	listener := w.listener(t, "q")
	id := past.enqueue(t, "q", "", queue.Options{})
	proxy.Block()
	if task, err := listener.TryListen(w.ctx); task != nil || !queue.IsUnavailable(err) {
		t.Fatalf("over a network that hangs: %v, %v", task, err)
	}
	past.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
	proxy.Pass()
	task := must[*queue.Task](t)(listener.Listen(w.ctx))
	if task.ID != id {
		t.Errorf("listened to %+v", task)
	}
}

func (w *world) running(t testing.TB, listener *worker.Listener) (stop func() error, ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	errs := make(chan error, 1)
	go func() { errs <- listener.Run(ctx) }()
	stop = func() error { cancel(); return receive(t, "the end of Run", errs) }
	return stop, errs
}

func TestRunRenewsTheLease(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Lease = time.Second
		listener := w.listener(t, "q")
		stop, _ := w.running(t, listener)
		lease := func() float64 {
			return must[float64](t)(w.rdb.ZScore(w.ctx, w.Store().Keys.Nodes(), listener.ID()).Result())
		}
		for range 2 { // over, but not reclaimed
			w.rdb.ZAddXX(w.ctx, w.Store().Keys.Nodes(), redis.Z{Score: 1, Member: listener.ID()})
			eventually(t, "a renewed lease", func() bool { return lease() > float64(time.Now().Unix())-60 })
		}
		about := must[map[string]string](t)(w.rdb.HGetAll(w.ctx, w.Store().Keys.Node(listener.ID())).Result())
		if about["kind"] != "go" || about["queues"] != "q" {
			t.Errorf("the node says of itself %v", about)
		}
		if err := stop(); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

// A second Run follows marks as the first one did.
func TestRunTwice(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Lease = time.Hour // so that no renewal is due
		listener := w.listener(t, "q")
		stop, _ := w.running(t, listener)
		control := w.Store().Keys.Control()
		w.subscribed(t, control)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the first run's subscription ends", func() bool {
			return w.rdb.PubSubNumSub(w.ctx, control).Val()[control] == 0
		})
		stop, _ = w.running(t, listener)
		w.subscribed(t, control)
		if err := manage.New(w.Client).Drain(w.ctx, listener.ID()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the drain", func() bool {
			_, err := listener.TryListen(w.ctx)
			return errors.Is(err, listen.ErrDraining)
		})
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What was drained once stays so, whoever runs it, and Run may be called again.
func TestRunAfterADrain(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Lease = time.Hour // so that no renewal is due
		listener := w.listener(t, "q")
		w.enqueue(t, "q", "", queue.Options{})
		stop, _ := w.running(t, listener)
		w.subscribed(t, w.Store().Keys.Control())
		if err := manage.New(w.Client).Drain(w.ctx, listener.ID()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the drain", func() bool {
			_, err := listener.TryListen(w.ctx)
			return errors.Is(err, listen.ErrDraining)
		})
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		stop, ended := w.running(t, listener)
		eventually(t, "the renewal of the second run", func() bool {
			return w.rdb.HGet(w.ctx, w.Store().Keys.Node(listener.ID()), "draining").Val() == "true"
		})
		w.rdb.Publish(w.ctx, w.Store().Keys.Control(), "")
		if task, err := listener.TryListen(w.ctx); task != nil || !errors.Is(err, listen.ErrDraining) {
			t.Errorf("%+v, %v", task, err)
		}
		select {
		case err := <-ended:
			t.Errorf("ended with %v", err)
		default:
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestRunTellsALostLease(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Lease = time.Second
		listener := w.listener(t, "q")
		_, ended := w.running(t, listener)
		w.rdb.ZRem(w.ctx, w.Store().Keys.Nodes(), listener.ID())
		if err := receive(t, "the end of Run", ended); !errors.Is(err, listen.ErrLeaseLost) || !strings.Contains(err.Error(), listener.ID()) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestRunOutlivesAnOutage(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	w.Store().Lease = time.Second
	listener := w.listener(t, "q")
	stop, ended := w.running(t, listener)
	proxy.Refuse()
	past.rdb.ZAddXX(w.ctx, w.Store().Keys.Nodes(), redis.Z{Score: 1, Member: listener.ID()})
	select { // several renewals fail
	case err := <-ended:
		t.Fatalf("ended with %v", err)
	case <-time.After(w.Store().Lease):
	}
	proxy.Pass()
	eventually(t, "a renewed lease", func() bool {
		return past.rdb.ZScore(w.ctx, w.Store().Keys.Nodes(), listener.ID()).Val() > 1
	})
	if err := stop(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
