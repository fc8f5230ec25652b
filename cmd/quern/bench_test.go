package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// ownServer is a user of a Redis that no other test uses, a proxy before it, and the number of its keys that match a pattern.
func ownServer(t *testing.T) (u *user, proxy *queuetest.Proxy, keys func(pattern string) int) {
	t.Helper()
	server := queuetest.Start(t)
	rdb := server.Client(t)
	return newUser(t, server.URL()), queuetest.NewProxy(t, server), func(pattern string) int { return len(rdb.Keys(t.Context(), pattern).Val()) }
}

// A benchmark of hosts of its own tells all that it measured, and leaves nothing.
func TestBench(t *testing.T) {
	t.Parallel()
	u, _, keys := ownServer(t)
	var report map[string]float64
	if err := json.Unmarshal([]byte(u.must("bench", "--tasks", "3000", "--hosts", "2", "--payload", "1KiB", "-o", "json")), &report); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"tasks": 3000, "hosts": 2, "payload_bytes": 1024} {
		if report[name] != want {
			t.Errorf("%s is %v, want %v", name, report[name], want)
		}
	}
	for _, name := range []string{
		"enqueued_per_second", "bulk_enqueued_per_second", "drained_per_second", "host_cpu_seconds_per_task", "redis_cpu_seconds_per_task",
		"redis_bytes_per_pending_task", "idle_wait_p50_seconds", "idle_wait_p99_seconds", "start_to_result_p50_seconds", "start_to_result_p99_seconds",
	} {
		if report[name] <= 0 {
			t.Errorf("%s is %v", name, report[name])
		}
	}
	if text := u.must("bench", "--tasks", "1"); !regexp.MustCompile(`(?m)^drain +\d+/s$`).MatchString(text) {
		t.Error(text)
	}
	if n := keys("*"); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// A handler that fails is measured, and its failure told; an interruption leaves nothing either, also if Redis is away then.
func TestBenchEnds(t *testing.T) {
	t.Parallel()
	u, proxy, keys := ownServer(t)
	dir := folder(t, map[string][]byte{"trap": runtimetest.Trap(t), "sleep": runtimetest.Sleep(t)})
	r := u.run("bench", "--tasks", "20", "--handler", filepath.Join(dir, "trap.wasm"))
	if r.status != exitFailed || !strings.Contains(r.stdout, "drain") || !strings.Contains(r.stderr, "failed") {
		t.Errorf("%+v", r)
	}
	r = u.run("bench", "--handler", write(t, filepath.Join(dir, "text.wasm"), "no module"))
	if r.status != exitRefused || !strings.Contains(r.stderr, "text.wasm is refused: ") {
		t.Errorf("%+v", r)
	}
	input := write(t, filepath.Join(t.TempDir(), "input"), "3600000")
	proxy.CutReplies(3, "scan")
	c := u.spawn("bench", "--redis", proxy.URL(), "--tasks", "2000", "--handler", filepath.Join(dir, "sleep.wasm"), "--payload-file", input)
	eventually(t, "the first task is enqueued", func() bool { return keys("*_task_*") > 0 })
	_ = c.Process.Signal(syscall.SIGINT)
	if state := c.wait(t); state.ExitCode() != exitRefused || !strings.Contains(c.stderr.String(), "interrupted") || proxy.Cuts() != 3 {
		t.Errorf("%s, %d replies cut: %s", state, proxy.Cuts(), c.stderr)
	}
	if n := keys("*"); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// The hosts of a queue are measured with tasks that are gone in the end; those of others stay.
func TestBenchOfAQueue(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Shared(t).URL())
	tenant := queuetest.Tenant()
	if r := u.run("bench", "--queue", "echo", "--tenant", tenant, "--tasks", "50001"); r.status != exitUsage || !strings.Contains(r.stderr, "use 50000 at most") {
		t.Errorf("%+v", r)
	}
	r := u.run("bench", "--queue", "echo", "--tenant", tenant, "--tasks", "10")
	if r.status != exitRefused || !strings.Contains(r.stderr, fmt.Sprintf("no host serves the queue %q of tenant %s", "echo", tenant)) {
		t.Errorf("%+v", r)
	}
	plugins := folder(t, map[string][]byte{"echo": runtimetest.Echo(t), "trap": runtimetest.Trap(t)})
	write(t, filepath.Join(plugins, "trap.yaml"), "name: trap\ndead: echo\n")
	u.host(plugins, "--tenants", tenant)
	other := strings.TrimSpace(u.must("enqueue", "echo", "x", "--tenant", tenant))
	text := u.must("bench", "--queue", "echo", "--tenant", tenant, "--tasks", "500")
	if !regexp.MustCompile(`(?m)^enqueue to result +\d+/s$`).MatchString(text) {
		t.Error(text)
	}
	if r := u.run("bench", "--queue", "trap", "--tenant", tenant, "--tasks", "20"); r.status != exitFailed {
		t.Errorf("%+v", r)
	}
	if list := u.must("task", "ls", "echo", "--tenant", tenant); strings.Count(list, "\n") != 2 || !strings.Contains(list, other) {
		t.Error(list)
	}
	if list := u.must("task", "ls", "trap", "--tenant", tenant, "-o", "json"); list != "[]\n" {
		t.Error(list)
	}
}

// What does not go together is refused before anything is enqueued.
func TestBenchRefuses(t *testing.T) {
	t.Parallel()
	u, _, keys := ownServer(t)
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"--queue", "q", "--hosts", "2"}, "both --hosts and --queue"},
		{[]string{"--tenant", "acme"}, "--tenant without --queue"},
		{[]string{"--payload", "1GiB"}, "Redis's limit"},
		{[]string{"--tasks", "0"}, "use 1 to 10000000"},
		{[]string{"--payload-file", filepath.Join(t.TempDir(), "none")}, "--payload-file"},
		{[]string{"--handler", filepath.Join(t.TempDir(), "none.wasm")}, "no such file"},
		{[]string{"--queue", "a b"}, "queue"},
	} {
		if r := u.run(append([]string{"bench"}, test.args...)...); r.status != exitUsage || !strings.Contains(r.stderr, test.says) {
			t.Errorf("%+v, want %q", r, test.says)
		}
	}
	if r := u.run("bench", "--redis", "redis://127.0.0.1:1/0"); r.status != exitRefused || !strings.Contains(r.stderr, "start Redis there") || strings.Contains(r.stderr, "keys") {
		t.Errorf("without Redis: %+v", r)
	}
	if n := keys("*"); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// Where Redis takes no writes, that is told at once.
func TestBenchOfAFullRedis(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	if r := newUser(t, server.URL()).run("bench", "--tasks", "10"); r.status != exitRefused || !strings.Contains(r.stderr, "Redis is full") {
		t.Errorf("%+v", r)
	}
}
