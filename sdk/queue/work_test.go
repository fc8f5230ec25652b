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
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/worker"
)

type handler = func(context.Context, *queue.Task) ([]byte, error)

// working runs Work until the test or stop ends it; stop returns what Work returned.
func (w *world) working(t testing.TB, queue string, handle handler) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	errs := make(chan error, 1)
	go func() { errs <- worker.Run(ctx, w.Client, queue, handle) }()
	var once atomic.Bool
	stop = func() error {
		cancel()
		if once.Swap(true) {
			return nil
		}
		return receive(t, "the end of Work", errs)
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func (w *world) finished(t testing.TB, id string) *queue.Task {
	t.Helper()
	return must[*queue.Task](t)(w.Wait(w.ctx, id))
}

func TestWork(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		stop := w.working(t, "q", func(_ context.Context, task *queue.Task) ([]byte, error) {
			switch text := string(task.Parameters); text {
			case "error":
				return []byte("dropped"), errors.New("no such file")
			case "panic":
				panic("index out of range")
			default:
				return []byte(strings.ToUpper(text)), nil
			}
		})
		task := w.finished(t, w.enqueue(t, "q", "fine", queue.Options{}))
		if task.Status != queue.Complete || string(task.Result) != "FINE" || task.PID == 0 || task.StartedAt.IsZero() || task.Attempts != 1 {
			t.Errorf("a task that went well: %+v", task)
		}
		task = w.finished(t, w.enqueue(t, "q", "error", queue.Options{}))
		if failure := task.Failure(); task.Status != queue.Failed || failure.Reason != queue.ReasonError || failure.Message != "no such file" || task.Result != nil {
			t.Errorf("a task that failed: %+v", task)
		}
		task = w.finished(t, w.enqueue(t, "q", "panic", queue.Options{}))
		if failure := task.Failure(); task.Status != queue.Failed || failure.Message != "panic: index out of range" || !strings.Contains(failure.Stderr, "work_test.go") {
			t.Errorf("a task that panicked: %+v", task)
		}
		if err := stop(); err != nil {
			t.Errorf("ended with %v", err)
		}
		stats := must[manage.Stats](t)(manage.New(w.Client).Queue("q").Stats(w.ctx))
		if stats.Listeners != 0 || stats.Depth[queue.Complete] != 1 || stats.Depth[queue.Failed] != 2 {
			t.Errorf("left behind %+v", stats)
		}
		if n := must[int64](t)(w.rdb.ZCard(w.ctx, w.Store().Keys.Nodes()).Result()); n != 0 {
			t.Errorf("%d leases left", n)
		}
	})
}

func TestWorkGivesBackWhatItHadNotFinished(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		started := make(chan struct{})
		stop := w.working(t, "q", func(ctx context.Context, _ *queue.Task) ([]byte, error) {
			close(started)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		id := w.enqueue(t, "q", "", queue.Options{})
		receive(t, "the start", started)
		if err := stop(); err != nil {
			t.Errorf("ended with %v", err)
		}
		if task := w.task(t, id); task.Status != queue.Pending || task.Node != "" || task.Attempts != 0 {
			t.Errorf("given back: %+v", task)
		}
		stats := must[manage.Stats](t)(manage.New(w.Client).Queue("q").Stats(w.ctx))
		if stats.Listeners != 0 || stats.Depth[queue.Pending] != 1 || stats.Depth[queue.Started] != 0 {
			t.Errorf("left behind %+v", stats)
		}
	})
}

func TestWorkKeepsWhatItHasFinished(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		started := make(chan struct{})
		stop := w.working(t, "q", func(ctx context.Context, _ *queue.Task) ([]byte, error) {
			close(started)
			<-ctx.Done()
			return []byte("done all the same"), nil
		})
		id := w.enqueue(t, "q", "", queue.Options{})
		receive(t, "the start", started)
		if err := stop(); err != nil {
			t.Errorf("ended with %v", err)
		}
		if task := w.task(t, id); task.Status != queue.Complete || string(task.Result) != "done all the same" {
			t.Errorf("finished: %+v", task)
		}
	})
}

// Why the context ends is the caller's affair (signal.NotifyContext gives a cause of its own).
func TestWorkEndsWithAnyCause(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancelCause(w.ctx)
		errs := make(chan error, 1)
		go func() { errs <- worker.Run(ctx, w.Client, "q", nil) }()
		w.subscribed(t, w.Store().Keys.Channel("q"))
		cancel(errors.New("interrupt signal received"))
		if err := receive(t, "the end of Work", errs); err != nil {
			t.Errorf("ended with %v", err)
		}
		if err := worker.Run(ctx, w.Client, "q", nil); err != nil {
			t.Errorf("with a context that has ended: %v", err)
		}
	})
}

func TestWorkTellsWhatIsWrong(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if err := worker.Run(w.ctx, w.Client, "no queue", nil); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("a queue that cannot be: %v", err)
		}
		w.rdb.Set(w.ctx, w.Store().Keys.Pending("q"), "x", 0)
		if err := worker.Run(w.ctx, w.Client, "q", nil); err == nil || !strings.Contains(err.Error(), w.Store().Keys.Pending("q")) {
			t.Errorf("a key of another type: %v", err)
		}
		if n := must[map[string]int64](t)(w.Queues(w.ctx))["q"]; n != 0 {
			t.Errorf("%d listeners left", n)
		}
	})
}

func TestWorkTellsThatRedisIsAwayAtTheStart(t *testing.T) {
	w, _, proxy := setupBehind(t, "")
	proxy.Refuse()
	if err := worker.Run(w.ctx, w.Client, "q", nil); !queue.IsUnavailable(err) {
		t.Errorf("%v", err)
	}
}

// By hand with redis-cli, with as few fields as there can be, or a wrong one.
func TestWorkRunsTasksByHand(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.rdb.HSet(w.ctx, w.Store().Keys.Task("bare"), "parameters", "1")
		w.rdb.HSet(w.ctx, w.Store().Keys.Task("moved"), "parameters", "2", "queue", "elsewhere", "run", "many")
		w.rdb.HSet(w.ctx, w.Store().Keys.Task("put-back"), "parameters", "3", "queue", "q", "pid", "1", "node", "gone_1")
		w.rdb.LPush(w.ctx, w.Store().Keys.Pending("q"), "bare", "moved", "put-back")
		w.working(t, "q", func(_ context.Context, task *queue.Task) ([]byte, error) { return task.Parameters, nil })
		for i, id := range []string{"bare", "moved", "put-back"} {
			task := w.finished(t, id)
			if task.Status != queue.Complete || string(task.Result) != fmt.Sprint(i+1) || task.PID < 2 {
				t.Errorf("by hand: %+v", task)
			}
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 3})
	})
}

// Somebody took the listener for dead: it starts anew, and its task runs again.
func TestWorkStartsAnewWhenItsLeaseIsLost(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Lease = time.Second
		var nodes []string
		stop := w.working(t, "q", func(ctx context.Context, task *queue.Task) ([]byte, error) {
			if nodes = append(nodes, task.Node); len(nodes) > 1 {
				return []byte("second"), nil
			}
			w.reclaim(t, "q", task)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), listen.ErrLeaseLost) {
				t.Errorf("the handler's context ended with %v", context.Cause(ctx))
			}
			return []byte("first"), nil // too late
		})
		task := w.finished(t, w.enqueue(t, "q", "", queue.Options{}))
		if err := stop(); err != nil {
			t.Errorf("ended with %v", err)
		}
		if string(task.Result) != "second" || len(nodes) != 2 || nodes[0] == nodes[1] || task.Node != nodes[1] || task.Run != 2 {
			t.Errorf("nodes %v, task %+v", nodes, task)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1})
		if n := must[map[string]int64](t)(w.Queues(w.ctx))["q"]; n != 0 {
			t.Errorf("%d listeners left", n)
		}
	})
}

// A worker that waits hears of its lost lease when it takes the next task at the latest.
func TestWorkStartsAnewAtTheNextTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Lease = time.Minute // so that no renewal comes between
		w.working(t, "q", func(_ context.Context, task *queue.Task) ([]byte, error) { return task.Parameters, nil })
		w.subscribed(t, w.Store().Keys.Channel("q"))
		var first string
		eventually(t, "the first renewal", func() bool {
			nodes := must[[]listen.NodeInfo](t)(listen.NewFleet(w.Client).Nodes(w.ctx))
			first = nodes[0].ID
			return len(nodes[0].About) > 0
		})
		w.rdb.ZRem(w.ctx, w.Store().Keys.Nodes(), first)
		task := w.finished(t, w.enqueue(t, "q", "x", queue.Options{}))
		if string(task.Result) != "x" || task.Node == first || task.Run != 1 {
			t.Errorf("%+v", task)
		}
	})
}

// reclaim does to a listener and its started task what a host does when the lease has ended.
func (w *world) reclaim(t testing.TB, queue string, task *queue.Task) {
	t.Helper()
	_, err := w.rdb.TxPipelined(w.ctx, func(p redis.Pipeliner) error {
		p.ZRem(w.ctx, w.Store().Keys.Nodes(), task.Node)
		p.SRem(w.ctx, w.Store().Keys.Listeners(queue), task.Node)
		p.ZIncrBy(w.ctx, w.Store().Keys.Queues(), -1, queue)
		p.LRem(w.ctx, w.Store().Keys.Reserved(queue, task.Node), 1, task.ID)
		p.SRem(w.ctx, w.Store().Keys.Started(queue), fmt.Sprintf("%s %d %s", task.Node, os.Getpid(), task.ID))
		p.HSet(w.ctx, w.Store().Keys.Task(task.ID), "status", "pending")
		p.HDel(w.ctx, w.Store().Keys.Task(task.ID), "node", "pid")
		p.RPush(w.ctx, w.Store().Keys.Pending(queue), task.ID)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The lease is lost, and then Redis too: the worker comes back when Redis does.
func TestWorkStartsAnewWhenRedisIsBack(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	w.Store().Lease = time.Second
	runs, away := 0, make(chan struct{})
	stop := w.working(t, "q", func(ctx context.Context, task *queue.Task) ([]byte, error) {
		if runs++; runs > 1 {
			return []byte("second"), nil
		}
		past.reclaim(t, "q", task)
		<-ctx.Done()
		proxy.Refuse()
		close(away)
		return nil, ctx.Err()
	})
	id := past.enqueue(t, "q", "", queue.Options{})
	receive(t, "the lost lease", away)
	select {
	case <-time.After(worker.LeaveTimeout + time.Second): // so that nothing of the first listener is left to try
	case <-w.ctx.Done():
	}
	proxy.Pass()
	if task := past.finished(t, id); string(task.Result) != "second" {
		t.Errorf("%+v", task)
	}
	if err := stop(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// Redis dies in the middle of a task and comes back with its data: the task is settled once.
func TestWorkOverARestart(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, durable...)
	w := newWorld(t, server.URL())
	started, dead := make(chan struct{}, 1), make(chan struct{})
	runs := 0
	stop := w.working(t, "q", func(_ context.Context, task *queue.Task) ([]byte, error) {
		if runs++; runs == 1 {
			started <- struct{}{}
			<-dead
		}
		return task.Parameters, nil
	})
	first, second := w.enqueue(t, "q", "1", queue.Options{}), w.enqueue(t, "q", "2", queue.Options{})
	receive(t, "the start", started)
	server.Kill()
	close(dead) // the handler is done while there is no Redis
	server.Restart(t)
	if task := w.finished(t, first); string(task.Result) != "1" || task.Run != 1 || task.Attempts != 1 {
		t.Errorf("the task that ran meanwhile: %+v", task)
	}
	if task := w.finished(t, second); string(task.Result) != "2" {
		t.Errorf("the task after it: %+v", task)
	}
	if err := stop(); err != nil || runs != 2 {
		t.Errorf("ended with %v after %d runs", err, runs)
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Complete: 2})
}

// Redis comes back empty: the lease and the task are gone, the worker serves what comes now.
func TestWorkOverARestartThatForgetsAll(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	w := newWorld(t, server.URL())
	w.Store().Lease = time.Second
	started, dead := make(chan struct{}, 1), make(chan struct{})
	runs := 0
	stop := w.working(t, "q", func(_ context.Context, task *queue.Task) ([]byte, error) {
		if runs++; runs == 1 {
			started <- struct{}{}
			<-dead
		}
		return task.Parameters, nil
	})
	w.enqueue(t, "q", "1", queue.Options{})
	receive(t, "the start", started)
	server.Kill()
	server.Restart(t)
	close(dead)
	if task := w.finished(t, w.enqueue(t, "q", "2", queue.Options{})); string(task.Result) != "2" {
		t.Errorf("%+v", task)
	}
	eventually(t, "a listener of the new Redis", func() bool {
		return must[map[string]int64](t)(w.Queues(w.ctx))["q"] == 1
	})
	if err := stop(); err != nil {
		t.Errorf("ended with %v", err)
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1})
}

// With Redis away for good the end of the context still ends Work, and it says what it could not do.
func TestWorkEndsThoughRedisStaysAway(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*queuetest.Proxy){
		"refusing": (*queuetest.Proxy).Refuse, "hanging": (*queuetest.Proxy).Block,
	} {
		t.Run(name, func(t *testing.T) {
			w, past, proxy := setupBehind(t, "?read_timeout=1s")
			started := make(chan struct{})
			stop := w.working(t, "q", func(ctx context.Context, _ *queue.Task) ([]byte, error) {
				close(started)
				<-ctx.Done()
				return nil, ctx.Err()
			})
			past.enqueue(t, "q", "", queue.Options{})
			receive(t, "the start", started)
			fault(proxy)
			if err := stop(); !queue.IsUnavailable(err) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}
