package host

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestRetriesByTheManifest(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"exit": runtimetest.Exit(t)},
		yaml:   map[string]string{"exit": "retry: {max_attempts: 3, base: 10ms, min: 10ms, jitter: false}"},
	})
	task := n.wait(n.enqueue("exit", "3 no luck\n"))
	if task.Status != queue.Failed || task.Reason != queue.ReasonExhausted || task.Attempts != 3 || task.Run != 3 {
		t.Errorf("task is %s for %s after %d attempts and %d runs", task.Status, task.Reason, task.Attempts, task.Run)
	}
	if f := task.Failure(); !strings.Contains(f.Message, "attempt 3 of 3: error: exit status 3") || f.ExitCode == nil || *f.ExitCode != 3 {
		t.Errorf("%+v", f)
	}
	history, err := manage.New(n.client).History(n.ctx, task)
	if err != nil || len(history) != 3 || history[0].Outcome != "retry" || history[2].Outcome != "failed" ||
		history[0].Digest != task.Digest || history[0].Node != n.listener() {
		t.Errorf("history %+v, %v", history, err)
	}
	if wait := history[1].Started.Sub(history[0].Ended); wait < 10*time.Millisecond {
		t.Errorf("the second attempt began %s after the first", wait)
	}
	for outcome, want := range map[string]float64{"retried": 2, "failed": 1} {
		n.counted(want, "quern_tasks_total", "queue", "exit", "outcome", outcome)
	}
	// Exit status 65 is final whatever the policy says, and a task's own policy goes over the manifest's.
	if task := n.wait(n.enqueue("exit", "65 bad photo\n")); task.Attempts != 1 || task.Reason != queue.ReasonError {
		t.Errorf("%d attempts, reason %s", task.Attempts, task.Reason)
	}
	once := n.enqueueAs("exit", "3\n", queue.Options{Retry: queue.Retry{MaxAttempts: 1}})
	if task := n.wait(once); task.Attempts != 1 || task.Reason != queue.ReasonError {
		t.Errorf("%d attempts, reason %s", task.Attempts, task.Reason)
	}
}

// A handler can ask why its task has failed before, what has enqueued it, and for its key.
func TestGuestAsksForItsTask(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"telling": telling(t)},
		yaml:   map[string]string{"telling": "retry: {max_attempts: 2, base: 10ms, min: 10ms}"},
	})
	task := n.wait(n.enqueueAs("telling", "", queue.Options{Parent: "p1", Key: "the key"}))
	if want := "no luck|p1|the key|"; string(task.Result) != want {
		t.Errorf("result %q, want %q: %+v", task.Result, want, task.Failure())
	}
}

func TestGuestPutsItsTaskOff(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"exit": runtimetest.Exit(t)},
		yaml:   map[string]string{"exit": "retry: {max_attempts: 2, min: 20ms, max_reschedules: 2}"},
	})
	task := n.wait(n.enqueue("exit", "75 come back\n"))
	if task.Reason != queue.ReasonExhausted || task.Reschedules != 2 || task.Run != 3 {
		t.Errorf("reason %s after %d reschedules and %d runs", task.Reason, task.Reschedules, task.Run)
	}
	later := n.enqueue("exit", "75\nquern:retry-after=1h\n")
	n.count("exit", queue.Scheduled, 1)
	if task := n.task(later); task.Attempts != 0 || time.Until(task.ETA) < 59*time.Minute || task.Node != "" {
		t.Errorf("%d attempts, due in %s, node %q", task.Attempts, time.Until(task.ETA), task.Node)
	}

	// A failure may name the delay, too, and counts.
	failed := n.enqueue("exit", "1\nquern:retry-after=1h\n")
	n.count("exit", queue.Scheduled, 2)
	if task := n.task(failed); task.Attempts != 1 || task.Reschedules != 0 || time.Until(task.ETA) < 59*time.Minute {
		t.Errorf("%d attempts, %d reschedules, due in %s", task.Attempts, task.Reschedules, time.Until(task.ETA))
	}

	// The policy bounds the delay of a failure.
	bounded := n.wait(n.enqueueAs("exit", "1\nquern:retry-after=1h\n", queue.Options{Retry: queue.Retry{MaxAttempts: 2, Max: 30 * time.Millisecond}}))
	if bounded.Reason != queue.ReasonExhausted {
		t.Errorf("with a longest delay of 30 ms: %s", bounded.Reason)
	}
}

// A handler that asks for a retry where it means a failure is told of before it has run a thousand times.
func TestManyReschedulesAreTold(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"reschedules": runtimetest.BuildWAT(t, `(module
			(import "quern_v1" "task_number" (func $number (param i32 i32) (result i32)))
			(memory (export "memory") 1)
			(func (export "quern_handle") (result i32)
				(drop (call $number (i32.const 4) (i32.const 0)))
				(select (i32.const 0) (i32.const 75) (i64.eq (i64.load (i32.const 0)) (i64.const 4)))))`)},
		yaml: map[string]string{"reschedules": "retry: {max_attempts: 1, min: 10ms}"},
	})
	task := n.wait(n.enqueue("reschedules", ""))
	if task.Status != queue.Complete || task.Reschedules != 4 || task.Attempts != 1 {
		t.Errorf("%s after %d reschedules and %d attempts", task.Status, task.Reschedules, task.Attempts)
	}
	told := n.log.linesOf("task has put itself off")
	if len(told) != 4 || !strings.Contains(told[2], "[WARN]") || !strings.Contains(told[2], "times=3") || !strings.Contains(told[3], "[DEBUG]") {
		t.Errorf("the log tells\n%s", strings.Join(told, "\n"))
	}
}

// What failed for good goes on as a dead letter, with the payload of the one that failed.
func TestDeadLetter(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"exit": runtimetest.Exit(t), "echo": runtimetest.Echo(t)},
		yaml:   map[string]string{"exit": "dead: echo"},
	})
	failed := n.wait(n.enqueue("exit", "1 broken\n"))
	if failed.DeadID == "" {
		t.Fatal("there is no dead letter")
	}
	letter := n.wait(failed.DeadID)
	if string(letter.Result) != "1 broken\n" || letter.LiveID != failed.ID || letter.Queue != "echo" || letter.Attempts != 1 {
		t.Errorf("%+v", letter)
	}
	if failed = n.task(failed.ID); failed.Status != queue.Failed || failed.Handled != letter.ID {
		t.Errorf("task is %s, handled by %q", failed.Status, failed.Handled)
	}
}

// A dead letter whose queue has a key of another type is told of, and the task that failed says why it has none.
func TestDeadLetterThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"exit": runtimetest.Exit(t)}, yaml: map[string]string{"exit": "dead: morgue"}})
	damaged := n.tenant + "_pending_tasks_morgue"
	n.rdb.Set(n.ctx, damaged, "x", 0)
	failed := n.wait(n.enqueue("exit", "1 broken\n"))
	if failed.Status != queue.Failed || !strings.Contains(failed.DeadError, damaged) {
		t.Errorf("task is %s, dead error %q", failed.Status, failed.DeadError)
	}
	n.eventually("the host tells", func() bool {
		return n.log.has("[ERROR]", "its dead letter was not written", "op=settle", "queue=exit", failed.ID, damaged+" is a string")
	})
	n.eventually("it is counted as failed", func() bool {
		return n.metric("quern_tasks_total", "queue", "exit", "outcome", "failed") == 1 && n.metric("quern_redis_errors_total", "op", "settle") == 1
	})
}

func TestDeadlineAndTimeoutOfATask(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"loop": runtimetest.Loop(t)}})
	short := n.enqueueAs("loop", "", queue.Options{Timeout: 50 * time.Millisecond})
	if task := n.wait(short); task.Reason != queue.ReasonTimeout || task.Failure().Limit != "timeout=50ms" {
		t.Errorf("%s %+v", task.Reason, task.Failure())
	}
	once := n.enqueueAs("loop", "", queue.Options{Deadline: time.Now().Add(300 * time.Millisecond)})
	if task := n.wait(once); task.Reason != queue.ReasonExpired || !strings.Contains(task.Failure().Message, "deadline") || task.Failure().Limit != "" {
		t.Errorf("%s %+v", task.Reason, task.Failure())
	}
	due := n.enqueueAs("loop", "", queue.Options{Deadline: time.Now().Add(300 * time.Millisecond), Retry: queue.Retry{MaxAttempts: queue.Unlimited}})
	if task := n.wait(due); task.Reason != queue.ReasonExpired || task.Run != 1 {
		t.Errorf("%s after run %d: %+v", task.Reason, task.Run, task.Failure())
	}
}

// A task expires while its queue is paused, and while nobody serves it.
func TestExpiresWhileItWaits(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Poll: 50 * time.Millisecond}, guests: map[string][]byte{"echo": runtimetest.Echo(t), "old": runtimetest.Echo(t)},
		yaml: map[string]string{"old": "retry: {max_attempts: 1, max_age: 100ms}"},
	})
	n.settled("echo", "old")
	for _, name := range []string{"echo", "old"} {
		if err := n.client.Queue(name).Pause(n.ctx); err != nil {
			t.Fatal(err)
		}
	}
	aged := queue.Options{Retry: queue.Retry{MaxAge: 100 * time.Millisecond}}
	ids := []string{n.enqueueAs("echo", "", aged), n.enqueueAs("nobody", "", aged), n.enqueue("old", "")}
	for _, id := range ids {
		if task := n.wait(id); task.Status != queue.Failed || task.Reason != queue.ReasonExpired {
			t.Errorf("task of %s is %s for %s", task.Queue, task.Status, task.Reason)
		}
	}
	kept := n.enqueue("echo", "kept")
	if err := n.client.Queue("echo").Resume(n.ctx); err != nil {
		t.Fatal(err)
	}
	if task := n.wait(kept); string(task.Result) != "kept" {
		t.Errorf("%+v", task)
	}
}

func TestCancelStopsTheGuest(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Concurrency: 1}, guests: map[string][]byte{"loop": runtimetest.Loop(t), "echo": runtimetest.Echo(t)},
		yaml: map[string]string{"loop": "retry: {max_attempts: 5, base: 10ms}"},
	})
	id := n.enqueue("loop", "")
	n.count("loop", queue.Started, 1)
	asked := time.Now()
	if done, err := n.client.Queue("loop").Cancel(n.ctx, id); done || err != nil {
		t.Fatal(done, err)
	}
	task := n.wait(id)
	if task.Reason != queue.ReasonCancelled || task.Run != 1 {
		t.Errorf("task is %s for %s after run %d", task.Status, task.Reason, task.Run)
	}
	n.wait(n.enqueue("echo", "")) // the slot is free
	t.Logf("stopped and free after %s", time.Since(asked))
}

func TestProgressIsShown(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"progress": runtimetest.BuildC(t, progressSource)}})
	id := n.enqueue("progress", "")
	n.eventually("progress", func() bool { task := n.task(id); return task.Progress == 0.25 && task.Message == "a quarter" })
	before := n.task(id)
	if !before.Updated.After(before.StartedAt) {
		t.Error("updated did not move")
	}
	if _, err := n.client.Queue("progress").Cancel(n.ctx, id); err != nil {
		t.Fatal(err)
	}
	n.wait(id)
	if lines, err := manage.New(n.client).Log(n.ctx, id, 0); err != nil || len(lines) != 1 || lines[0].Text != "begun" {
		t.Errorf("log %v, %v", lines, err)
	}
}

// progressSource says how far it is, and then never ends.
const progressSource = `
#include <stdio.h>
int main(void) {
	fputs("begun\nquern:progress=0.1\nquern:progress=0.25 a quarter\n", stderr);
	for (volatile int i = 0;; i++) {}
}
`

// However many hosts there are, no more tasks of a plugin run than it may, also while some end and
// others begin.
func TestMaxRunningInTheFleet(t *testing.T) {
	t.Parallel()
	common := settings{
		Config: Config{Concurrency: 4}, tenants: []string{queuetest.Tenant()},
		guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}, yaml: map[string]string{"sleep": "{queues: [sleep, nap], max_running: 3}"},
	}
	hosts := make([]*node, 4)
	for i := range hosts {
		hosts[i] = start(t, common)
	}
	for _, n := range hosts {
		n.settledAs(4, "sleep", "nap")
	}
	n := hosts[0]
	n.runsAtMostThree()
}

// runsAtMostThree runs tasks of two queues, and fails the test unless three ran at once in the fleet at most, and at some time.
func (n *node) runsAtMostThree() {
	n.t.Helper()
	var most atomic.Int64
	watching, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-watching:
				return
			default:
			}
			running := n.rdb.Eval(n.ctx, "return redis.call('SCARD', KEYS[1]) + redis.call('SCARD', KEYS[2])",
				[]string{n.tenant + "_started_tasks_sleep", n.tenant + "_started_tasks_nap"}).Val()
			if count, ok := running.(int64); ok && count > most.Load() {
				most.Store(count)
			}
		}
	}()
	sleeps, naps := n.enqueueMany("sleep", 30, "20"), n.enqueueMany("nap", 30, "20")
	n.complete("sleep", sleeps)
	n.complete("nap", naps)
	close(watching)
	<-watched
	if most.Load() != 3 {
		n.t.Errorf("%d tasks ran at once, want 3", most.Load())
	}
}
