package queue_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/worker"
)

// taken is a task that a listener of the queue has reserved, with its processor.
func (w *world) taken(t testing.TB, name, parameters string) (*worker.Processor, *queue.Task) {
	t.Helper()
	w.enqueue(t, name, parameters, queue.Options{})
	task := must[*queue.Task](t)(w.listener(t, name).TryListen(w.ctx))
	if task == nil {
		t.Fatal("nothing to listen to")
	}
	return worker.NewProcessor(w.Client, task), task
}

func TestProcessorStart(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, c := range []struct{ queue, stale, pid, want any }{
			{"this", nil, 0, os.Getpid()},
			{"other", nil, 4711, 4711},
			{"stale", 12, 0, os.Getpid()}, // of an earlier run, put back by hand
		} {
			name := fmt.Sprint(c.queue)
			w.enqueue(t, name, "x", queue.Options{ID: name})
			if c.stale != nil {
				w.rdb.HSet(w.ctx, w.Store().Keys.Task(name), "pid", c.stale)
			}
			task := must[*queue.Task](t)(w.listener(t, name).TryListen(w.ctx))
			processor := worker.NewProcessor(w.Client, task)
			parameters := must[[]byte](t)(processor.Start(w.ctx, c.pid.(int)))
			if string(parameters) != "x" {
				t.Errorf("%s: started with %q", name, parameters)
			}
			read := w.task(t, name)
			if read.Status != queue.Started || read.PID != c.want || read.StartedAt.IsZero() || read.Node != task.Node {
				t.Errorf("%s: %+v", name, read)
			}
			entry := fmt.Sprintf("%s %d %s", task.Node, c.want, name)
			if !must[bool](t)(w.rdb.SIsMember(w.ctx, w.Store().Keys.Started(name), entry).Result()) {
				t.Errorf("%s: started set holds %v, want %q", name, w.rdb.SMembers(w.ctx, w.Store().Keys.Started(name)).Val(), entry)
			}
			if err := processor.Complete(w.ctx, nil); err != nil {
				t.Fatal(err)
			}
			w.depth(t, name, map[queue.Status]int64{queue.Complete: 1})
		}
	})
}

func TestProcessorSettles(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			name   string
			settle func(*worker.Processor) error
			check  func(*queue.Task) bool
		}{
			{"complete", func(p *worker.Processor) error { return p.Complete(w.ctx, []byte("yes")) }, func(task *queue.Task) bool {
				return task.Status == queue.Complete && string(task.Result) == "yes" && task.Error == "" && task.Reason == ""
			}},
			{"fail", func(p *worker.Processor) error { return p.Fail(w.ctx, queue.Failure{Message: "no"}) }, func(task *queue.Task) bool {
				return task.Status == queue.Failed && task.Reason == queue.ReasonError && task.Failure().Message == "no" &&
					task.Error == `{"reason":"error","message":"no"}` && task.Result == nil
			}},
			{"time out", func(p *worker.Processor) error {
				return p.Fail(w.ctx, queue.Failure{Reason: queue.ReasonTimeout, Message: "too long", Limit: "timeout 30s"})
			}, func(task *queue.Task) bool {
				return task.Reason == queue.ReasonTimeout && task.Failure().Limit == "timeout 30s"
			}},
			{"release", func(p *worker.Processor) error { return p.Release(w.ctx) }, func(task *queue.Task) bool {
				return task.Status == queue.Pending && task.Node == "" && task.PID == 0 && task.Run == 1
			}},
		} {
			for _, start := range []bool{true, false} { // Blueque settles what was never started, too
				name := fmt.Sprintf("q%v", start)
				processor, task := w.taken(t, name, "")
				if start {
					must[[]byte](t)(processor.Start(w.ctx, 0))
				}
				if err := c.settle(processor); err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				if read := w.task(t, task.ID); !c.check(read) {
					t.Errorf("%s, started %v: %+v", c.name, start, read)
				}
				stats := must[manage.Stats](t)(manage.New(w.Client).Queue(name).Stats(w.ctx))
				if stats.Depth[queue.Reserved]+stats.Depth[queue.Started] != 0 {
					t.Errorf("%s, started %v: still held: %v", c.name, start, stats.Depth)
				}
			}
		}
	})
}

// What could only begin when the task has expired does not wait for that.
func TestProcessorWithinTheTasksTime(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		failure := queue.Failure{Reason: queue.ReasonTrap, Message: "no"}
		for name, c := range map[string]struct {
			again func(*worker.Processor, time.Duration) error
			last  string
		}{
			"retry": {func(p *worker.Processor, delay time.Duration) error {
				return p.Retry(w.ctx, failure, queue.Retry{Base: delay, Min: delay, Jitter: ptr(false)})
			}, "trap: no"},
			"reschedule": {func(p *worker.Processor, delay time.Duration) error { return p.Reschedule(w.ctx, delay, "no") }, "error: no"},
		} {
			for delay, status := range map[time.Duration]queue.Status{9 * time.Second: queue.Scheduled, 11 * time.Second: queue.Failed} {
				target := fmt.Sprint(name, "-", status)
				id := w.enqueue(t, target, "", queue.Options{Retry: queue.Retry{MaxAge: 10 * time.Second}})
				task := must[*queue.Task](t)(w.listener(t, target).TryListen(w.ctx))
				if err := c.again(worker.NewProcessor(w.Client, task), delay); err != nil {
					t.Fatal(err)
				}
				read := w.task(t, id)
				if read.Status != status {
					t.Errorf("%s in %s: %+v", name, delay, read)
				}
				if status == queue.Failed && (read.Reason != queue.ReasonExpired || read.Failure().Message != "expires before it could be tried again; "+c.last) {
					t.Errorf("%s in %s: %s", name, delay, read.Error)
				}
			}
		}
	})
}

func TestProcessorErrLost(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		processor, task := w.taken(t, "q", "")
		// It goes to another listener.
		other := w.node(t, "q")
		w.rdb.LMove(w.ctx, w.Store().Keys.Reserved("q", task.Node), w.Store().Keys.Reserved("q", other.ID()), "right", "left")
		w.rdb.HSet(w.ctx, w.Store().Keys.Task(task.ID), "node", other.ID(), "run", 2)
		before := w.rdb.HGetAll(w.ctx, w.Store().Keys.Task(task.ID)).Val()
		_, started := processor.Start(w.ctx, 0)
		for name, err := range map[string]error{
			"start": started, "complete": processor.Complete(w.ctx, nil), "fail": processor.Fail(w.ctx, queue.Failure{}),
			"release": processor.Release(w.ctx),
		} {
			if !errors.Is(err, queue.ErrLost) {
				t.Errorf("%s: %v, want ErrLost", name, err)
			}
		}
		after := w.rdb.HGetAll(w.ctx, w.Store().Keys.Task(task.ID)).Val()
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("a stale holder wrote: %v, then %v", before, after)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Reserved: 1})
	})
}

func TestProcessorErrNoTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, settle := range map[string]func(*worker.Processor) error{
			"start":    func(p *worker.Processor) error { _, err := p.Start(w.ctx, 0); return err },
			"complete": func(p *worker.Processor) error { return p.Complete(w.ctx, nil) },
			"fail":     func(p *worker.Processor) error { return p.Fail(w.ctx, queue.Failure{}) },
			"release":  func(p *worker.Processor) error { return p.Release(w.ctx) },
		} {
			processor, task := w.taken(t, name, "")
			w.rdb.Del(w.ctx, w.Store().Keys.Task(task.ID))
			if err := settle(processor); !errors.Is(err, queue.ErrNoTask) {
				t.Errorf("%s: %v, want ErrNoTask", name, err)
			}
			if n := must[int64](t)(w.rdb.Exists(w.ctx, w.Store().Keys.Task(task.ID)).Result()); n != 0 {
				t.Errorf("%s wrote a task that was deleted", name)
			}
		}
	})
}

// A processor made from a task that was read, by another process for instance, settles it as well.
func TestProcessorOfATaskThatWasRead(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		processor, task := w.taken(t, "q", "")
		must[[]byte](t)(processor.Start(w.ctx, 4711))
		if err := worker.NewProcessor(w.Client, w.task(t, task.ID)).Complete(w.ctx, []byte("x")); err != nil {
			t.Fatal(err)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Complete: 1})
	})
}
