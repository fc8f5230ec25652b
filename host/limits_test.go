package host

import (
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
)

// The cpu limit is the manifest's, under the host's ceiling, and its overrun is an attempt like others.
func TestCPULimit(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		cpu:    100 * time.Millisecond,
		guests: map[string][]byte{"own": runtimetest.Loop(t), "ceiling": runtimetest.Loop(t), "bare": runtimetest.Loop(t), "retry": runtimetest.Loop(t)},
		yaml: map[string]string{
			"own": "limits: {cpu: 10ms}", "ceiling": "limits: {cpu: 1h}",
			"retry": "{limits: {cpu: 10ms}, retry: {max_attempts: 2, base: 1ms, min: 1ms}}",
		},
	})
	timeout := queue.Options{Timeout: 10 * time.Minute} // the test's own end of what is not stopped
	for queueName, value := range map[string]string{"own": "10ms", "ceiling": "100ms", "bare": "100ms"} {
		task := n.wait(n.enqueueAs(queueName, "", timeout))
		remedy := "the host allows no more, see --max-cpu"
		if queueName == "own" {
			remedy = "raise limits.cpu in the plugin's manifest"
		}
		checkFailure(t, task, queue.Failure{
			Reason: queue.ReasonCPU, Limit: "cpu=" + value, Stderr: "ready",
			Message: "cpu limit of " + value + " exceeded: " + remedy,
		})
		n.counted(1, "quern_tasks_total", "queue", queueName, "outcome", "failed", "reason", "cpu")
	}
	task := n.wait(n.enqueueAs("retry", "", timeout))
	if f := task.Failure(); task.Attempts != 2 || task.Reason != queue.ReasonExhausted || !strings.Contains(f.Message, "attempt 2 of 2: cpu: cpu limit of 10ms exceeded") {
		t.Errorf("%d attempts, %s: %+v", task.Attempts, task.Reason, f)
	}
	n.counted(1, "quern_tasks_total", "queue", "retry", "outcome", "retried", "reason", "cpu")
}

// What calls take is counted from the first series on, and logged at their end, however they end.
func TestCPUAndFuelAreCounted(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"echo": runtimetest.Echo(t), "trap": runtimetest.Trap(t), "loop": runtimetest.Loop(t)}})
	n.settled("echo", "trap", "loop")
	families := []string{"quern_task_cpu_seconds_total", "quern_task_fuel_total"}
	labels := func(name string) []string { return []string{"tenant", n.tenant, "queue", name, "plugin", name} }
	for _, name := range []string{"echo", "trap", "loop"} {
		for _, family := range families {
			if got := n.metric(family, labels(name)...); got != 0 {
				t.Errorf("%s of %s is %v before the first task", family, name, got)
			}
		}
	}
	n.wait(n.enqueue("echo", strings.Repeat("x", 1<<20)))
	n.wait(n.enqueue("trap", "unreachable"))
	cancelled := n.enqueue("loop", "")
	n.eventually("it runs", func() bool { return n.log.has("plugin says", "queue=loop", "line=ready") })
	if _, err := n.client.Queue("loop").Cancel(n.ctx, cancelled); err != nil {
		t.Fatal(err)
	}
	n.wait(cancelled)
	for _, name := range []string{"echo", "trap", "loop"} {
		for _, family := range families {
			if got := n.metric(family, labels(name)...); got <= 0 {
				t.Errorf("%s of %s is %v after a task", family, name, got)
			}
		}
	}
	// The same work burns the same.
	first := n.metric("quern_task_fuel_total", labels("trap")...)
	n.wait(n.enqueue("trap", "unreachable"))
	if got := n.metric("quern_task_fuel_total", labels("trap")...); got != 2*first {
		t.Errorf("two tasks of the same work burned %v, one %v", got, first)
	}
	n.eventually("the log has it", func() bool { return n.log.has("task settled", "queue=echo", "cpu=", "fuel=") })
	if n.log.has("task settled", "queue=echo", "fuel=0") {
		t.Error("the log says that a task burned nothing")
	}
}
