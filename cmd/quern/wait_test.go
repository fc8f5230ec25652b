package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// newTenant is a user of the shared Redis with a tenant of their own.
func newTenant(t *testing.T) *user { return over("redis").tenant(t) }

func TestTaskLogsFollow(t *testing.T) { overBoth(t, testTaskLogsFollow) }

func testTaskLogsFollow(t *testing.T, by over) {
	u := by.tenant(t)
	u.host(folder(t, map[string][]byte{"sleep": runtimetest.Sleep(t)}))
	if _, err := binary(); err != nil { // not while the task runs
		t.Fatal(err)
	}
	id := strings.TrimSpace(u.must("enqueue", "sleep", "5000"))
	following := u.spawn("task", "logs", "-f", id, "-o", "json") // from another process
	following.stdout.await(t, regexp.MustCompile(`^{"number":1,"time":\d+\.\d{6},"line":"ready","run":1}\n$`))
	if !strings.Contains(u.must("task", "show", id, "-o", "json"), `"status":"started"`) {
		t.Error("the line came only when the task had ended")
	}
	if state := following.wait(t); state.ExitCode() != exitDone {
		t.Errorf("it ended with %s", state)
	}
	if status := u.must("task", "show", id, "-o", "json"); !strings.Contains(status, `"status":"complete"`) {
		t.Errorf("it ended before the task: %s", status)
	}
	if r := u.run("task", "logs", "-f", id); !regexp.MustCompile(`^\d{4}-\d\d-\d\d [\d:.]+ \S+  run 1  ready\n$`).MatchString(r.stdout) || r.status != exitDone || r.stderr != "" {
		t.Errorf("log of a finished task: %+v", r)
	}
}

func TestTaskLogsFollowDeleted(t *testing.T) { overBoth(t, testTaskLogsFollowDeleted) }

func testTaskLogsFollowDeleted(t *testing.T, by over) {
	u := by.tenant(t)
	id := strings.TrimSpace(u.must("enqueue", "mail", "--delay", "1h"))
	following := u.start("task", "logs", "-f", id)
	removed(t, u, id)
	if status := following.wait(); status != exitDone || following.stderr.String() != "" {
		t.Errorf("exit %d: %s", status, following.stderr)
	}
}

// removed takes a task away from those who wait for it, as somebody with redis-cli could.
func removed(t *testing.T, u *user, id string) {
	t.Helper()
	rdb, name := queuetest.Shared(t).Client(t), u.env["QUERN_TENANT"]
	awaitWaiter(t, rdb, name, id)
	if err := rdb.Del(t.Context(), name+"_task_"+id).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Publish(t.Context(), name+"_done_"+id, "").Err(); err != nil {
		t.Fatal(err)
	}
}

// awaitWaiter waits until somebody waits for a task.
func awaitWaiter(t *testing.T, rdb *redis.Client, tenant, id string) {
	t.Helper()
	channel := tenant + "_done_" + id
	eventually(t, "somebody waits for "+id, func() bool {
		waiting, err := rdb.PubSubNumSub(t.Context(), channel).Result()
		return err == nil && waiting[channel] > 0
	})
}

func TestWaitDeleted(t *testing.T) { overBoth(t, testWaitDeleted) }

func testWaitDeleted(t *testing.T, by over) {
	u := by.tenant(t)
	id := strings.TrimSpace(u.must("enqueue", "mail", "--delay", "1h"))
	c := u.start("task", "wait", id)
	removed(t, u, id)
	want := "quern: task " + id + " does not exist, or was deleted during the wait: see `quern task ls`\n"
	if status := c.wait(); status != exitRefused || c.stderr.String() != want || c.stdout.String() != "" {
		t.Errorf("exit %d: %s", status, c.stderr)
	}
}

// A Ctrl-C ends the wait and not the task, and the shell sees that it was one.
func TestWaitInterrupted(t *testing.T) { overBoth(t, testWaitInterrupted) }

func testWaitInterrupted(t *testing.T, by over) {
	u := by.tenant(t)
	u.host(folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}))
	rdb, name := queuetest.Shared(t).Client(t), u.env["QUERN_TENANT"]
	for _, tt := range []struct{ args, said string }{
		{"enqueue echo --delay 1h --wait --id one", "quern: interrupted, but the task goes on: continue with `quern task wait one`\n"},
		{"task wait one", ""},
	} {
		waiting := u.spawn(strings.Fields(tt.args)...)
		awaitWaiter(t, rdb, name, "one")
		_ = waiting.Process.Signal(os.Interrupt)
		state := waiting.wait(t)
		if status, ok := state.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGINT {
			t.Errorf("%s: it ended with %s", tt.args, state)
		}
		if waiting.stdout.String() != "" || waiting.stderr.String() != tt.said {
			t.Errorf("%s: it said %q, %q", tt.args, waiting.stdout, waiting.stderr)
		}
	}
	if task := u.must("task", "show", "one", "-o", "json"); !strings.Contains(task, `"status":"scheduled"`) {
		t.Errorf("the task: %s", task)
	}
}

// What a script gives by mistake is told, and never half done.
func TestEnqueueMistakes(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": queuetest.Tenant()})
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"EmptyTime":  {[]string{"--at", ""}, `--at "": use a time like `},
		"EmptyID":    {[]string{"--id", ""}, "--id is empty"},
		"LabelName":  {[]string{"--label", "=v"}, "use NAME=VALUE"},
		"LabelValue": {[]string{"--label", "v"}, "use NAME=VALUE"},
	} {
		r := u.run(append([]string{"enqueue", "mail", "x"}, tt.args...)...)
		if r.status != exitUsage || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%s: exit %d: %s", name, r.status, r.stderr)
		}
	}
	if text := u.must("queue", "ls", "-o", "json"); text != "[]\n" {
		t.Errorf("something was enqueued: %s", text)
	}
	u.must("enqueue", "mail", "--id", "one", "--label", "url=http://h/?a=1,b=2")
	if text := u.must("task", "show", "one", "-o", "json"); !strings.Contains(text, `{"url":"http://h/?a=1,b=2"}`) {
		t.Errorf("the label was cut: %s", text)
	}
	if r := u.run("enqueue", "other", "--id", "one"); r.status != exitDone || !strings.Contains(r.stderr, "exists already") {
		t.Errorf("an ID that exists: exit %d: %s", r.status, r.stderr)
	}
}

// One damaged queue does not hide the others.
func TestQueueLsBesideADamagedQueue(t *testing.T) {
	t.Parallel()
	server, tenant := queuetest.Shared(t), queuetest.Tenant()
	u := newUser(t, server.URL()).with(map[string]string{"QUERN_TENANT": tenant})
	u.must("enqueue", "bad")
	u.must("enqueue", "good")
	rdb := server.Client(t)
	if err := rdb.Set(t.Context(), tenant+"_complete_tasks_bad", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r := u.run("queue", "ls", "-o", "json")
	if r.status != exitRefused || !strings.Contains(r.stdout, `"queue":"good"`) || !strings.Contains(r.stderr, tenant+"_complete_tasks_bad") {
		t.Errorf("exit %d: %s%s", r.status, r.stdout, r.stderr)
	}
}

// A stdin without end is read no further than the limit.
func TestPluginRunBoundsItsInput(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string][]byte{"echo": runtimetest.Echo(t)})
	c := newUser(t, "").prepare("plugin", "run", dir+"/echo.wasm")
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	c.Stdin = zero
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if state := c.wait(t); state.ExitCode() != exitFailed || !strings.Contains(c.stderr.String(), "input limit of 16MiB") {
		t.Errorf("%s: %s", state, c.stderr)
	}
}

// A plugin is compiled once for all processes of a user. Only the built program knows wazero's
// version, without which nothing is cached.
func TestCompileCacheOfTheProgram(t *testing.T) {
	t.Parallel()
	dir, cache := folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}), t.TempDir()
	u := newUser(t, "").with(map[string]string{"XDG_CACHE_HOME": cache})
	entries := func() []string {
		c := u.spawn("plugin", "run", dir+"/echo.wasm")
		if state := c.wait(t); state.ExitCode() != exitDone {
			t.Fatalf("%s: %s", state, c.stderr)
		}
		compiled, err := filepath.Glob(cache + "/quern/compiled/wazero-*/*")
		if err != nil || len(compiled) != 1 {
			t.Fatalf("compiled modules %v, want one: %v", compiled, err)
		}
		info, err := os.Stat(compiled[0])
		if err != nil {
			t.Fatal(err)
		}
		return []string{compiled[0], info.ModTime().String()}
	}
	if first, second := entries(), entries(); !slices.Equal(first, second) {
		t.Errorf("compiled again: %v, then %v", first, second)
	}
}

func TestPluginCheckOfAPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe.wasm")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"check", "run"} {
		r := newUser(t, "").run("plugin", command, path)
		if r.status != exitRefused || !strings.Contains(r.stderr+r.stdout, "pipe") {
			t.Errorf("%s: exit %d: %s%s", command, r.status, r.stdout, r.stderr)
		}
	}
}

// A task that fails because of others names the error of the one that failed first, and its tree what it waited for.
func TestFailedDependency(t *testing.T) { overBoth(t, testFailedDependency) }

func testFailedDependency(t *testing.T, by over) {
	u := by.tenant(t)
	u.must("enqueue", "mail", "--id", "good")
	u.must("enqueue", "mail", "--id", "bad", "--delay", "1h")
	u.must("task", "cancel", "bad")
	u.must("enqueue", "mail", "--id", "next", "--after", "good,bad")
	u.must("enqueue", "mail", "--id", "last", "--after", "next")
	u.must("enqueue", "mail", "--id", "blocked", "--after", "good")
	for id, want := range map[string]string{
		"next":    "waited for good, bad (failed)\nnext  mail  failed (dependency)",
		"blocked": "waits for good\nblocked  mail  scheduled (waits for tasks)",
		"good":    "good  mail  pending\n",
	} {
		if r := u.run("task", "show", id, "--tree"); !strings.HasPrefix(r.stdout, want) {
			t.Errorf("a tree: %+v", r)
		}
	}
	cause := "task bad of mail: (cancelled) "
	if r := u.run("task", "wait", "last"); r.status != exitFailed || !strings.HasPrefix(r.stderr, "task last failed (dependency): task next, which it waited for, failed\n  caused by "+cause) {
		t.Errorf("a wait: %+v", r)
	}
	if r := u.run("task", "show", "last"); !regexp.MustCompile(`(?m)^caused by +` + regexp.QuoteMeta(cause)).MatchString(r.stdout) {
		t.Errorf("a task: %+v", r)
	}
}
