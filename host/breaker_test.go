package host

import (
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func (n *node) quarantines() []listen.Quarantine {
	n.t.Helper()
	list, err := listen.NewFleet(n.client).Quarantines(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	return list
}

// A version fails in a row and waits, on all hosts; a probe fails, and the next one completes. Hosts wake when a pause
// ends and when the breaker closes: the next poll would come too late.
func TestCircuitBreaker(t *testing.T) {
	t.Parallel()
	s := settings{
		Config: Config{Poll: 10 * time.Minute}, guests: map[string][]byte{"exit": runtimetest.Exit(t)},
		yaml: map[string]string{"exit": "breaker: {failures: 3, pause: 500ms, max_pause: 1h}"},
	}
	n := start(t, s)
	s.tenants = []string{n.tenant}
	other := start(t, s)
	n.serving("exit")
	other.serving("exit")
	var last *queue.Task
	for range 3 {
		last = n.wait(n.enqueue("exit", "3 no luck\n"))
	}
	opened := last.FinishedAt
	failed := n.wait(n.enqueue("exit", "1 still none\n"))
	if failed.StartedAt.Before(opened.Add(500 * time.Millisecond)) {
		t.Errorf("the first probe began at %s, the breaker opened at %s", failed.StartedAt, opened)
	}
	if list := n.quarantines(); len(list) != 1 || list[0].Failures != 4 || list[0].Reason != queue.ReasonError {
		t.Errorf("%+v, want a row of 4", list)
	}
	var first *queue.Task
	var rest []*queue.Task
	for _, id := range n.enqueueMany("exit", 40, "0") {
		task := n.wait(id)
		if task.Status != queue.Complete {
			t.Errorf("task %s: %s", task.Status, task.Error)
		}
		if rest = append(rest, task); first == nil || task.StartedAt.Before(first.StartedAt) {
			first = task
		}
	}
	if first.StartedAt.Before(failed.FinishedAt.Add(time.Second)) {
		t.Errorf("the second probe began at %s, the first ended at %s", first.StartedAt, failed.FinishedAt)
	}
	for _, task := range rest {
		if task.ID != first.ID && task.StartedAt.Before(first.FinishedAt) {
			t.Errorf("a task began at %s beside the probe, which ended at %s", task.StartedAt, first.FinishedAt)
		}
	}
	for _, n := range []*node{n, other} {
		n.eventually("it is logged", func() bool {
			return n.log.has("circuit breaker of the plugin is open", "queue=exit") && n.log.has("plugin is not quarantined any more", "queue=exit")
		})
	}
	if list := n.quarantines(); len(list) > 0 {
		t.Errorf("%+v is left", list)
	}
}

// An open breaker is in the metrics, other queues run on, and it is closed by hand.
func TestOpenCircuitBreaker(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Poll: 100 * time.Millisecond},
		guests: map[string][]byte{"exit": runtimetest.Exit(t), "echo": runtimetest.Echo(t)},
		yaml:   map[string]string{"exit": "{breaker: {failures: 2, pause: 1h}, retry: {max_attempts: 2, base: 10ms, min: 10ms}}"},
	})
	if task := n.wait(n.enqueue("exit", "3\n")); task.Reason != queue.ReasonExhausted {
		t.Errorf("reason %s", task.Reason)
	}
	id := n.enqueue("exit", "0")
	n.counted(1, "quern_queue_quarantined", "queue", "exit", "reason", "failures")
	if n.wait(n.enqueue("echo", "")).Status != queue.Complete {
		t.Error("another plugin does not run")
	}
	if task := n.task(id); task.Status != queue.Pending {
		t.Errorf("the task is %s", task.Status)
	}
	list := n.quarantines()
	if len(list) != 1 || list[0].Cause != listen.CauseFailures {
		t.Fatalf("%+v", list)
	}
	if err := manage.New(n.client).EndQuarantine(n.ctx, list[0].Plugin, list[0].Digest); err != nil {
		t.Fatal(err)
	}
	if task := n.wait(id); task.Status != queue.Complete {
		t.Errorf("after that the task is %s: %s", task.Status, task.Error)
	}
}

// What a handler says of its task, and what others do with it, is no failure of the version.
func TestWhatACircuitBreakerCounts(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"exit": runtimetest.Exit(t), "sleep": runtimetest.Sleep(t)},
		yaml: map[string]string{
			"exit":  "breaker: {failures: 2, pause: 1h}",
			"sleep": "{breaker: {failures: 2, pause: 1h}, limits: {timeout: 2s}}",
		},
	})
	for _, input := range []string{"3", "65", "75\nquern:retry-after=1h\n", "65", "0", "3"} {
		id := n.enqueue("exit", input)
		n.eventually("the task is settled", func() bool { is := n.task(id).Status; return is.Finished() || is == queue.Scheduled })
	}
	for range 2 {
		task := n.wait(n.enqueueAs("sleep", "60000", queue.Options{Deadline: time.Now().Add(time.Second)}))
		if task.Reason != queue.ReasonExpired {
			t.Errorf("reason %s", task.Reason)
		}
	}
	if list := n.quarantines(); len(list) > 0 {
		t.Errorf("%+v", list)
	}
	n.wait(n.enqueue("exit", "3"))
	for range 2 {
		n.wait(n.enqueue("sleep", "60000"))
	}
	if list := n.quarantines(); len(list) != 2 || list[0].Reason != queue.ReasonError || list[1].Reason != queue.ReasonTimeout {
		t.Errorf("%+v, want an open breaker for errors, and one for timeouts", list)
	}
}
