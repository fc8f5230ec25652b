package host

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func (n *node) taskLog(id string) []manage.LogLine {
	n.t.Helper()
	lines, err := manage.New(n.client).Log(n.ctx, id, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	return lines
}

// What a plugin writes is in Redis about a second later, while it still runs.
func TestLogOfARunningTask(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Grace: time.Nanosecond}, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	id := n.enqueue("sleep", "60000")
	n.eventually("the line is there", func() bool { return len(n.taskLog(id)) == 1 })
	task, line := n.task(id), n.taskLog(id)[0]
	if task.Status != queue.Started || line.Text != "ready" || line.Number != 1 {
		t.Errorf("task is %s, line %+v", task.Status, line)
	}
	if !n.log.has("[INFO]", "plugin says", "task_id="+id, "queue=sleep", "plugin=sleep", "ready") {
		t.Error("the host's log does not have the line")
	}
}

// A line has its level and fields in the host's log, a panic is one record, and each record of a task is a line with
// its ID.
func TestHostLogOfATask(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"exit": runtimetest.Exit(t)}})
	python := "error: Traceback (most recent call last):\nerror:   File \"/app/handler.py\", line 10, in handle\nerror: ValueError: no ink\n"
	python += "error: \nerror: During handling of the above exception, another exception occurred:\nerror: \n" + strings.Replace(python, "no ink", "no pen", 1) +
		"error: \n" + strings.Replace(python, "no ink", "no hand", 1)
	recovered := "panic: recovered\nwarning: goes on (slowly)\n"
	goDump := "panic: no paper\n\ngoroutine 1 [running]:\nmain.main()\n\tmain.go:3\n"
	goDump += "runtime: 3 s\nrest\nruntime: out of memory: cannot allocate 1048576-byte block (63275008 in use)\nfatal error: out of memory\n\n" +
		"goroutine 1 gp=0x2021c0 m=0 mp=0x127fc0 [running]:\nruntime.throw({0x269ac, 0xd})\n\truntime/panic.go:1229 +0x3 fp=0x23ab88 sp=0x23ab60 pc=0x14f50003\n" +
		"\ngoroutine 2 gp=0x202380 m=nil [force gc (idle)]:\nruntime.goparkunlock(...)\n\truntime/proc.go:468\ncreated by runtime.init.6 in goroutine 1\n\truntime/proc.go:363 +0x2\n"
	lines := "\ntrace: t\ndebug: d\nplain\nwarning: small {\"width\":12}\nerror: {\"a\" {\"b\":[1.50]}\ndebug:no\n{\"a\":\"\\u009b\"}\n" + python + recovered + goDump
	id := n.enqueue("exit", "3 "+lines)
	n.wait(id)
	n.eventually("the end is in the log", func() bool { return n.log.has("[WARN]", "task failed") })
	for _, want := range [][]string{
		{"[DEBUG]", "line=d\n"},
		{"[INFO]", "line=plain\n"},
		{"[WARN]", "line=small fields=map[width:12]\n"},
		{"[ERROR]", `line="{\"a\"" fields=map[b:[1.50]]`},
		{"[INFO]", "line=debug:no\n"},
		{"[INFO]", `line="{\"a\":\"\u009b\"}"`},
		{"[ERROR]", `line="ValueError: no pen" trace="Traceback (most recent call last):\n  File`, `\nValueError: no ink\n\nDuring handling of the above exception, another`},
		{"[ERROR]", `line="ValueError: no hand" trace="Traceback (most recent call last):\n  File`},
		{"[ERROR]", `line="panic: recovered"` + "\n"},
		{"[WARN]", `line="goes on (slowly)"` + "\n"},
		{"[ERROR]", `line="panic: no paper" trace="goroutine 1 [running]:\nmain.main()\n\tmain.go:3"`},
		{"[INFO]", `line="runtime: 3 s"` + "\n"},
		{"[INFO]", "line=rest\n"},
		{"[ERROR]", `line="fatal error: out of memory" trace="runtime: out of memory: cannot allocate`, `[running]:"`},
		{"[WARN]", "task failed", `error="exit status 3: panic: recovered"`},
	} {
		if got := n.log.lines(append(want, "task_id="+id)...); got != 1 {
			t.Errorf("%d lines have %q", got, want)
		}
	}
	if said := n.log.lines("plugin says"); said != 15 {
		t.Errorf("%d lines of the plugin, want 15: the level of one is below the host's", said)
	}
	if kept := n.taskLog(id); len(kept) != 35 || kept[4].Text != `warning: small {"width":12}` {
		t.Errorf("the task's own log has %d lines: %v", len(kept), kept)
	}
}

// A handler that runs on after an exception does not keep it from the log, nor a line that begins like one of Go's
// runtime.
func TestHostLogOfATaskThatGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := &guestLog{
			logger: hclog.New(&hclog.LoggerOptions{Output: &log}),
			task:   &task{Slot: schedule.Slot{Queue: schedule.Queue{Name: "q"}}, version: &plugins.TenantVersion{Version: &plugins.Version{Name: "p"}}},
		}
		for _, lines := range [][]string{
			{"error: Traceback (most recent call last):", `error:   File "/app/handler.py", line 10, in handle`, "error: ValueError: no ink"},
			{"panic: no paper", "", "goroutine 1 [running]:"},
			{"runtime: 3 s"},
			{"error: runtime: 4 s"},
		} {
			for _, line := range lines {
				g.add(line)
			}
			<-time.After(2 * traceQuiet)
			synctest.Wait()
		}
		for _, want := range []string{`line="ValueError: no ink" trace=`, `line="panic: no paper" trace=`, `line="runtime: 3 s"`, `line="runtime: 4 s"`} {
			if strings.Count(log.String(), want) != 1 {
				t.Errorf("%s is not there once:\n%s", want, &log)
			}
		}
		g.flush()
	})
}

// A trace that does not end is cut, and no line is lost.
func TestHostLogOfALongTrace(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"exit": runtimetest.Exit(t)}})
	var text strings.Builder
	for i := range 500 {
		fmt.Fprintf(&text, "call.n%d(%s)\n", i, strings.Repeat("x", 90))
	}
	id := n.enqueue("exit", "0 \npanic: early\n"+text.String())
	n.wait(id)
	n.eventually("the last line is in the log", func() bool { return n.log.has("plugin says", "call.n499(") })
	if got := n.log.lines("plugin says", "task_id="+id, "line=\"panic: early\" trace="); got != 1 {
		t.Errorf("%d records of the panic", got)
	}
	for i := range 500 {
		if !n.log.has("task_id="+id, fmt.Sprintf("call.n%d(", i)) {
			t.Errorf("line %d is not there", i)
		}
	}
}

// Who has heard of a task's end finds the whole log, in order.
func TestLogIsWholeAtTheEnd(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"exit": runtimetest.Exit(t), "log": runtimetest.LogFlood(t)}})
	var text strings.Builder
	for i := range 500 {
		fmt.Fprintln(&text, "line", i)
	}
	for range 10 {
		id := n.enqueue("exit", "0 "+text.String())
		n.wait(id)
		lines := n.taskLog(id)
		if len(lines) != 500 {
			t.Fatalf("%d lines of 500", len(lines))
		}
		for i, line := range lines {
			if line.Number != int64(i+1) || strings.TrimSpace(line.Text) != fmt.Sprint("line ", i) {
				t.Fatalf("line %d is %+v", i, line)
			}
		}
	}
}

// A flood of lines is cut to the last 1,000 or 64 KiB, and what was dropped is counted.
func TestLogFloodIsCapped(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"log": runtimetest.LogFlood(t)},
		yaml:   map[string]string{"log": "limits: {log: 2MiB}"},
	})
	id := n.enqueue("log", fmt.Sprint(10_000*64))
	if task := n.wait(id); task.Status != queue.Complete {
		t.Fatal(task.Error)
	}
	lines, size := n.taskLog(id), 0
	for _, line := range lines {
		size += len(line.Text)
	}
	if len(lines) > 1000 || size > 64<<10 || len(lines) < 500 {
		t.Errorf("%d lines of %d bytes are kept", len(lines), size)
	}
	if said := n.log.lines("plugin says"); said != 10_000 {
		t.Errorf("the host's log has %d lines of 10000", said)
	}
	if dropped := n.metric("quern_log_lines_dropped_total", "queue", "log"); dropped == 0 || dropped > 10_000 {
		t.Errorf("counted %v dropped lines", dropped)
	}
}

// A plugin can neither forge lines of the host's log nor send control characters to a terminal.
func TestLogIsEscaped(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"exit": runtimetest.Exit(t)}})
	id := n.enqueue("exit", "3 \x1b[31mred\x1b[0m\r\x00\xff\u009b2J\n[ERROR] forged: a=b\n")
	task := n.wait(id)
	for _, text := range append([]string{n.log.String(), task.Error}, n.taskLog(id)[0].Text) {
		for _, r := range text {
			if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 {
				t.Fatalf("control character %q in %q", r, text)
			}
		}
	}
	for line := range strings.Lines(n.log.String()) {
		if strings.Contains(line, "forged") && !strings.Contains(line, "task_id="+id) {
			t.Errorf("a line was forged: %s", line)
		}
	}
}

// Lines that Redis did not take are not lost: they are there when it is back.
func TestLogSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	n.settled("sleep")
	n.enqueueAs("sleep", "3000", queue.Options{ID: "id", Delay: time.Second})
	n.rdb.Set(n.ctx, n.tenant+"_log_id", "not a list", 0) // refuses the lines of this task
	n.eventually("the log is refused", func() bool { return n.metric("quern_redis_errors_total", "op", "log") > 0 })
	n.rdb.Del(n.ctx, n.tenant+"_log_id")
	n.eventually("the line is there", func() bool { return len(n.taskLog("id")) == 1 })
	if dropped := n.metric("quern_log_lines_dropped_total"); dropped != 0 {
		t.Errorf("counted %v dropped lines", dropped)
	}
}

// The host's log grows by little more than a plugin's limit says, however short its lines are.
func TestLogFloodGrowsAsItsLimitSays(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"exit": runtimetest.Exit(t)},
		yaml:   map[string]string{"exit": "limits: {log: 64KiB}"},
	})
	for name, line := range map[string]string{"empty": "\n", "short": "x\n", "escaped": "\x00\n", "quotes": "\"\n"} {
		before := len(n.log.String())
		n.wait(n.enqueue("exit", "3 "+strings.Repeat(line, 64<<10/len(line))))
		grown := len(n.log.String()) - before
		t.Logf("64 KiB of lines that are %s: %d bytes in the host's log", name, grown)
		if grown > 2*64<<10 {
			t.Errorf("%s: %d bytes", name, grown)
		}
	}
}
