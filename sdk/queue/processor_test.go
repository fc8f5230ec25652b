package queue

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

// taken is a task that a listener of the queue has reserved, with its processor.
func (w *world) taken(t testing.TB, queue, parameters string) (*Processor, *Task) {
	t.Helper()
	w.enqueue(t, queue, parameters, Options{})
	task := must[*Task](t)(w.listener(t, queue).TryListen(w.ctx))
	if task == nil {
		t.Fatal("nothing to listen to")
	}
	return w.Processor(task), task
}

func TestProcessorStart(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, c := range []struct{ queue, stale, pid, want any }{
			{"this", nil, 0, os.Getpid()},
			{"other", nil, 4711, 4711},
			{"stale", 12, 0, os.Getpid()}, // of an earlier run, put back by hand
		} {
			queue := fmt.Sprint(c.queue)
			w.enqueue(t, queue, "x", Options{ID: queue})
			if c.stale != nil {
				w.rdb.HSet(w.ctx, w.store.keys.task(queue), "pid", c.stale)
			}
			task := must[*Task](t)(w.listener(t, queue).TryListen(w.ctx))
			processor := w.Processor(task)
			parameters := must[[]byte](t)(processor.Start(w.ctx, c.pid.(int)))
			if string(parameters) != "x" {
				t.Errorf("%s: started with %q", queue, parameters)
			}
			read := w.task(t, queue)
			if read.Status != Started || read.PID != c.want || read.StartedAt.IsZero() || read.Node != task.Node {
				t.Errorf("%s: %+v", queue, read)
			}
			entry := fmt.Sprintf("%s %d %s", task.Node, c.want, queue)
			if !must[bool](t)(w.rdb.SIsMember(w.ctx, w.store.keys.started(queue), entry).Result()) {
				t.Errorf("%s: started set holds %v, want %q", queue, w.rdb.SMembers(w.ctx, w.store.keys.started(queue)).Val(), entry)
			}
			if err := processor.Complete(w.ctx, nil); err != nil {
				t.Fatal(err)
			}
			w.depth(t, queue, map[Status]int64{Complete: 1})
		}
	})
}

func TestProcessorSettles(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			name   string
			settle func(*Processor) error
			check  func(*Task) bool
		}{
			{"complete", func(p *Processor) error { return p.Complete(w.ctx, []byte("yes")) }, func(task *Task) bool {
				return task.Status == Complete && string(task.Result) == "yes" && task.Error == "" && task.Reason == ""
			}},
			{"fail", func(p *Processor) error { return p.Fail(w.ctx, Failure{Message: "no"}) }, func(task *Task) bool {
				return task.Status == Failed && task.Reason == ReasonError && task.Failure().Message == "no" &&
					task.Error == `{"reason":"error","message":"no"}` && task.Result == nil
			}},
			{"time out", func(p *Processor) error {
				return p.Fail(w.ctx, Failure{Reason: ReasonTimeout, Message: "too long", Limit: "timeout 30s"})
			}, func(task *Task) bool { return task.Reason == ReasonTimeout && task.Failure().Limit == "timeout 30s" }},
			{"release", func(p *Processor) error { return p.Release(w.ctx) }, func(task *Task) bool {
				return task.Status == Pending && task.Node == "" && task.PID == 0 && task.Run == 1
			}},
		} {
			for _, start := range []bool{true, false} { // Blueque settles what was never started, too
				queue := fmt.Sprintf("q%v", start)
				processor, task := w.taken(t, queue, "")
				if start {
					must[[]byte](t)(processor.Start(w.ctx, 0))
				}
				if err := c.settle(processor); err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				if read := w.task(t, task.ID); !c.check(read) {
					t.Errorf("%s, started %v: %+v", c.name, start, read)
				}
				stats := must[Stats](t)(w.Queue(queue).Stats(w.ctx))
				if stats.Depth[Reserved]+stats.Depth[Started] != 0 {
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
		failure := Failure{Reason: ReasonTrap, Message: "no"}
		for name, c := range map[string]struct {
			again func(*Processor, time.Duration) error
			last  string
		}{
			"retry": {func(p *Processor, delay time.Duration) error {
				return p.Retry(w.ctx, failure, Retry{Base: delay, Min: delay, Jitter: ptr(false)})
			}, "trap: no"},
			"reschedule": {func(p *Processor, delay time.Duration) error { return p.Reschedule(w.ctx, delay, "no") }, "error: no"},
		} {
			for delay, status := range map[time.Duration]Status{9 * time.Second: Scheduled, 11 * time.Second: Failed} {
				queue := fmt.Sprint(name, "-", status)
				id := w.enqueue(t, queue, "", Options{Retry: Retry{MaxAge: 10 * time.Second}})
				task := must[*Task](t)(w.listener(t, queue).TryListen(w.ctx))
				if err := c.again(w.Processor(task), delay); err != nil {
					t.Fatal(err)
				}
				read := w.task(t, id)
				if read.Status != status {
					t.Errorf("%s in %s: %+v", name, delay, read)
				}
				if status == Failed && (read.Reason != ReasonExpired || read.Failure().Message != "expires before it could be tried again; "+c.last) {
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
		w.rdb.LMove(w.ctx, w.store.keys.reserved("q", task.Node), w.store.keys.reserved("q", other.ID()), "right", "left")
		w.rdb.HSet(w.ctx, w.store.keys.task(task.ID), "node", other.ID(), "run", 2)
		before := w.rdb.HGetAll(w.ctx, w.store.keys.task(task.ID)).Val()
		_, started := processor.Start(w.ctx, 0)
		for name, err := range map[string]error{
			"start": started, "complete": processor.Complete(w.ctx, nil), "fail": processor.Fail(w.ctx, Failure{}),
			"release": processor.Release(w.ctx),
		} {
			if !errors.Is(err, ErrLost) {
				t.Errorf("%s: %v, want ErrLost", name, err)
			}
		}
		after := w.rdb.HGetAll(w.ctx, w.store.keys.task(task.ID)).Val()
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("a stale holder wrote: %v, then %v", before, after)
		}
		w.depth(t, "q", map[Status]int64{Reserved: 1})
	})
}

func TestProcessorErrNoTask(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, settle := range map[string]func(*Processor) error{
			"start":    func(p *Processor) error { _, err := p.Start(w.ctx, 0); return err },
			"complete": func(p *Processor) error { return p.Complete(w.ctx, nil) },
			"fail":     func(p *Processor) error { return p.Fail(w.ctx, Failure{}) },
			"release":  func(p *Processor) error { return p.Release(w.ctx) },
		} {
			processor, task := w.taken(t, name, "")
			w.rdb.Del(w.ctx, w.store.keys.task(task.ID))
			if err := settle(processor); !errors.Is(err, ErrNoTask) {
				t.Errorf("%s: %v, want ErrNoTask", name, err)
			}
			if n := must[int64](t)(w.rdb.Exists(w.ctx, w.store.keys.task(task.ID)).Result()); n != 0 {
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
		if err := w.Processor(w.task(t, task.ID)).Complete(w.ctx, []byte("x")); err != nil {
			t.Fatal(err)
		}
		w.depth(t, "q", map[Status]int64{Complete: 1})
	})
}
