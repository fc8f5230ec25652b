package host

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
)

func TestOutcomes(t *testing.T) { //nolint:tparallel // the subtests read what has happened
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{
			"echo": runtimetest.Echo(t), "exit": runtimetest.Exit(t), "trap": runtimetest.Trap(t), "sleep": runtimetest.Sleep(t),
			"loop": runtimetest.Loop(t), "memory": runtimetest.MemoryBomb(t), "output": runtimetest.OutputFlood(t), "log": runtimetest.LogFlood(t),
		},
		yaml: map[string]string{
			"echo":   "limits: {input: 1KiB}",
			"sleep":  "limits: {timeout: 50ms}",
			"loop":   "limits: {timeout: 50ms}",
			"memory": "limits: {memory: 2MiB}",
			"output": "limits: {output: 8KiB}",
			"log":    "limits: {log: 8KiB}",
		},
	})
	code := func(n int) *int { return &n }
	tests := []struct {
		name, queue, parameters string
		result                  string         // of one that completes
		want                    *queue.Failure // of one that fails; Message and Stderr are to be contained
	}{
		{"Exit0", "exit", "0", "output\n", nil},
		{"Exit65", "exit", "65 not a photo\n", "", &queue.Failure{Reason: "error", ExitCode: code(65), Message: "not a photo", Stderr: "not a photo"}},
		{"Exit3", "exit", "3 so be it\n", "", &queue.Failure{Reason: "error", ExitCode: code(3), Message: "exit status 3", Stderr: "so be it"}},
		{"Trap", "trap", "unreachable", "", &queue.Failure{Reason: "trap", Message: "unreachable"}},
		{"TimeoutAsleep", "sleep", "60000", "", &queue.Failure{Reason: "timeout", Limit: "timeout=50ms", Message: "50ms", Stderr: "ready"}},
		{"TimeoutBusy", "loop", "", "", &queue.Failure{Reason: "timeout", Limit: "timeout=50ms", Message: "50ms", Stderr: "ready"}},
		{"Memory", "memory", "64", "", &queue.Failure{Reason: "memory", Limit: "memory=2MiB", Message: "2MiB"}},
		{"Output", "output", "", "", &queue.Failure{Reason: "output", Limit: "output=8KiB", Message: "8KiB"}},
		{"Log", "log", "", "", &queue.Failure{Reason: "output", Limit: "log=8KiB", Message: "8KiB", Stderr: "xxx"}},
		{"Input", "echo", strings.Repeat("x", 1025), "", &queue.Failure{Reason: "error", Limit: "input=1KiB", Message: "1KiB"}},
		{"InputLarge", "echo", strings.Repeat("x", 100_000), "", &queue.Failure{Reason: "error", Limit: "input=1KiB", Message: "1KiB"}},
	}
	ids := make([]string, len(tests))
	for i, test := range tests {
		ids[i] = n.enqueue(test.queue, test.parameters) // all at once
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			task := n.wait(ids[i])
			if task.Attempts != 1 || task.Plugin != test.queue || task.PID == 0 || task.Node != n.listener() {
				t.Errorf("attempts %d, plugin %q, node %q, pid %d", task.Attempts, task.Plugin, task.Node, task.PID)
			}
			if task.StartedAt.Before(task.Created) || task.FinishedAt.Before(task.StartedAt) {
				t.Errorf("created %s, started %s, finished %s", task.Created, task.StartedAt, task.FinishedAt)
			}
			if test.want == nil {
				if task.Status != queue.Complete || string(task.Result) != test.result || task.Error != "" {
					t.Errorf("status %s, result %q, error %q", task.Status, task.Result, task.Error)
				}
				return
			}
			checkFailure(t, task, *test.want)
		})
	}
	// The log tells of each failure, and the metrics count by reason.
	for queueName, reasons := range map[string]map[string]float64{
		"exit": {"error": 2}, "trap": {"trap": 1}, "sleep": {"timeout": 1}, "loop": {"timeout": 1},
		"memory": {"memory": 1}, "output": {"output": 1}, "log": {"output": 1}, "echo": {"error": 2},
	} {
		for reason, want := range reasons {
			n.counted(want, "quern_tasks_total", "tenant", n.tenant, "queue", queueName, "plugin", queueName, "outcome", "failed", "reason", reason)
			if got := n.log.lines("task failed", "queue="+queueName, "reason="+reason); got != int(want) {
				t.Errorf("%s failed for %s: %d lines in the log, want %v", queueName, reason, got, want)
			}
		}
	}
	n.counted(1, "quern_tasks_total", "queue", "exit", "outcome", "complete")
}

func checkFailure(t *testing.T, task *queue.Task, want queue.Failure) {
	t.Helper()
	if task.Status != queue.Failed || task.Reason != want.Reason || task.Result != nil {
		t.Errorf("status %s, reason %q, result %q; want failed for %q", task.Status, task.Reason, task.Result, want.Reason)
	}
	var got queue.Failure
	decoder := json.NewDecoder(strings.NewReader(task.Error))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatalf("error %q: %v", task.Error, err)
	}
	if got.Reason != want.Reason || got.Limit != want.Limit || !strings.Contains(got.Message, want.Message) || !strings.Contains(got.Stderr, want.Stderr) {
		t.Errorf("error %s\nwant %+v", task.Error, want)
	}
	if strings.Contains(got.Message, "\n") {
		t.Errorf("the message has several lines: %q", got.Message)
	}
	switch {
	case (got.ExitCode == nil) != (want.ExitCode == nil):
		t.Errorf("error %s: is there an exit code?", task.Error)
	case got.ExitCode != nil && *got.ExitCode != *want.ExitCode:
		t.Errorf("exit code %d, want %d", *got.ExitCode, *want.ExitCode)
	}
}

// What comes in and goes out is any bytes, small and large; large ones do not come with the reserve.
func TestBytes(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, parameters := range []string{"", "text", "quern:bytes:3:abc", string(every), strings.Repeat("text ", 40_000), strings.Repeat(string(every), 4_000)} {
		if task := n.wait(n.enqueue("echo", parameters)); string(task.Result) != parameters {
			t.Errorf("%d bytes %.20q came back as %d bytes %.20q: %s", len(parameters), parameters, len(task.Result), task.Result, task.Error)
		}
	}
}

// What is enqueued with redis-cli runs, whatever fields it lacks; an ID without a task is dropped.
func TestEnqueuedByHand(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.serving("echo")
	pending := n.tenant + "_pending_tasks_echo"
	for id, parameters := range map[string]string{"with": "text", "without": ""} {
		fields := []any{"queue", "echo"}
		if parameters != "" {
			fields = append(fields, "parameters", parameters)
		}
		if err := n.rdb.HSet(n.ctx, n.tenant+"_task_"+id, fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.rdb.LPush(n.ctx, pending, "missing", "with", "without").Err(); err != nil {
		t.Fatal(err)
	}
	n.rdb.Publish(n.ctx, n.tenant+"_channel_echo", "")
	for id, want := range map[string]string{"with": "text", "without": ""} {
		if task := n.wait(id); task.Status != queue.Complete || string(task.Result) != want {
			t.Errorf("%s: %s %q", id, task.Status, task.Result)
		}
	}
	n.counted(1, "quern_tasks_dropped_total", "queue", "echo")
}
