package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/snapshot"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestServe(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	plugins := folder(t, map[string][]byte{"echo": runtimetest.Echo(t), "acme/echo": runtimetest.Version(t, "acme's")})
	c, address := u.host(plugins, "--tenants", "blueque,acme")
	c.stderr.await(t, regexp.MustCompile(`serving queue: tenant=acme queue=echo`))
	c.stderr.await(t, regexp.MustCompile(`serving queue: tenant=blueque queue=echo`))
	for range 3 {
		if got := u.must("enqueue", "echo", "hello", "--wait"); got != "hello" {
			t.Errorf("result %q", got)
		}
	}
	if got := u.must("enqueue", "echo", "--wait", "--tenant", "acme"); got != "acme's" {
		t.Errorf("result %q of acme", got)
	}

	if status, body := get(t, "http://"+address+"/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %q", status, body)
	}
	if status, body := get(t, "http://"+address+"/readyz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("/readyz: %d %q", status, body)
	}
	wanted := []string{
		`quern_tasks_total\{outcome="complete",plugin="echo",queue="echo",reason="",tenant="blueque"\} 3\n`,
		`quern_task_duration_seconds_count\{plugin="echo",queue="echo",tenant="acme"\} 1\n`,
		`quern_queue_depth\{queue="echo",state="pending",tenant="blueque"\} 0\n`,
		`quern_build_info\{`, `go_goroutines `, `process_open_fds `, `quern_instances\{state="busy"\} 0\n`,
		`quern_runtime_held_bytes\{kind="code"\} [1-9]`,
	}
	if bestResetMode() != runtime.ResetNew {
		wanted = append(wanted, `quern_instances\{state="idle"\} [1-9]`)
	}
	for _, want := range wanted {
		// A client may see a task's end before its host has counted it.
		eventually(t, "/metrics has "+want, func() bool {
			_, body := get(t, "http://"+address+"/metrics")
			return regexp.MustCompile(`(?m)^` + want).MatchString(body)
		})
	}
}

// bestResetMode is what --reset auto is on this system.
func bestResetMode() runtime.ResetMode {
	best := runtime.ResetNew
	for _, v := range slices.Backward(snapshot.Probe()) {
		if v.Err == nil {
			best = v.Mode
		}
	}
	return best
}

// A handler is warmed, runs in the reset mode that /metrics shows, is unloaded when it is idle, and loaded again.
func TestServeHandler(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": tenant, "QUERN_TENANTS": tenant})
	plugins := folder(t, map[string][]byte{"order": runtimetest.C.JSON(t)})
	write(t, filepath.Join(plugins, "order.yaml"), "name: order\nwarm: {input: sample.json}\n")
	write(t, filepath.Join(plugins, "sample.json"), string(runtimetest.JSONInput()))
	mode := string(bestResetMode())
	c, address := u.host(plugins, "--idle-unload", "1ms")
	for _, when := range []string{"at first", "after it was unloaded"} {
		if r := u.feed(string(runtimetest.JSONInput()), "enqueue", "order", "-", "--wait"); r.stdout != string(runtimetest.JSONOutput()) {
			t.Errorf("%s: exit %d, %q, %s", when, r.status, r.stdout, r.stderr)
		}
		eventually(t, "it is unloaded", func() bool {
			_, body := get(t, "http://"+address+"/metrics")
			if !strings.Contains(body, `plugin="order",reset_mode="`+mode+`",tenant="",version=""} 1`) {
				t.Fatalf("its reset mode is not %s:\n%s", mode, body)
			}
			return strings.Contains(body, `quern_runtime_held_bytes{kind="code"} 0`+"\n") && strings.Contains(body, `quern_instances{state="idle"} 0`+"\n")
		})
	}
	if log := c.stderr.String(); strings.Contains(log, "no warm snapshot") {
		t.Errorf("it was not warmed:\n%s", log)
	}
}

// A plugin that comes while the host runs serves without a restart, and one that goes leaves its
// queue to nobody.
func TestServeNewPlugin(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": queuetest.Tenant()})
	u.env["QUERN_TENANTS"] = u.env["QUERN_TENANT"]
	plugins := folder(t, nil)
	u.host(plugins)
	if r := u.run("enqueue", "echo", "--wait"); r.status != exitRefused {
		t.Errorf("exit %d: %s", r.status, r.stderr)
	}
	file := write(t, filepath.Join(plugins, "echo.wasm"), string(runtimetest.Echo(t)))
	eventually(t, "the new plugin serves", func() bool { return u.run("enqueue", "echo", "--wait").status == exitDone })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nobody serves", func() bool { return u.run("enqueue", "echo", "--wait", "--wait-timeout", "10s").status == exitRefused })
}

// The first SIGTERM lets a running task end, and /readyz says that nothing more is taken.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	c, address := u.host(folder(t, map[string][]byte{"sleep": runtimetest.Sleep(t)}))
	id := strings.TrimSpace(u.must("enqueue", "sleep", "3000"))
	c.stderr.await(t, regexp.MustCompile(`plugin says.*line=ready`))
	c.stop()
	awaitStatus(t, "http://"+address+"/readyz", http.StatusServiceUnavailable)
	if status, _ := get(t, "http://"+address+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d while draining", status)
	}
	if status := c.wait(); status != exitDone {
		t.Errorf("exit %d", status)
	}
	if got := u.must("task", "wait", id); got != "awake\n" {
		t.Errorf("result %q", got)
	}
	if status, _ := get(t, "http://"+address+"/healthz"); status != 0 {
		t.Error("the web server goes on")
	}
}

func TestServeSignals(t *testing.T) {
	t.Parallel()
	plugins := folder(t, map[string][]byte{"sleep": runtimetest.Sleep(t)})
	begin := func(t *testing.T, milliseconds string) (*user, *child, string) {
		t.Helper()
		u := newUser(t, queuetest.Start(t).URL())
		c := u.spawn("serve", "--plugins", plugins, "--http", "127.0.0.1:0", "--grace", "10m")
		address := c.stderr.await(t, regexp.MustCompile(`listening: http=(\S+)`))
		awaitStatus(t, "http://"+address+"/readyz", http.StatusOK)
		id := strings.TrimSpace(u.must("enqueue", "sleep", milliseconds))
		c.stderr.await(t, regexp.MustCompile(`plugin says.*line=ready`))
		return u, c, id
	}
	status := func(u *user, id string) string {
		return regexp.MustCompile(`"status":"(\w+)"`).FindStringSubmatch(u.must("task", "show", id, "-o", "json"))[1]
	}
	t.Run("OneDrains", func(t *testing.T) {
		t.Parallel()
		u, c, id := begin(t, "1000")
		_ = c.Process.Signal(syscall.SIGTERM)
		if state := c.wait(t); state.ExitCode() != exitDone {
			t.Errorf("it ended with %s", state)
		}
		if got := status(u, id); got != "complete" {
			t.Errorf("the task is %s", got)
		}
	})
	t.Run("TwoAtOnceAreOne", func(t *testing.T) { // as coreutils' timeout sends them: to its child, and to their group
		t.Parallel()
		u, c, id := begin(t, "1000")
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Process.Signal(os.Interrupt) // of the same kind they might become one on their way
		if state := c.wait(t); state.ExitCode() != exitDone {
			t.Errorf("it ended with %s", state)
		}
		if got := status(u, id); got != "complete" {
			t.Errorf("the task is %s", got)
		}
	})
	t.Run("TwoEndAtOnce", func(t *testing.T) {
		t.Parallel()
		u, c, id := begin(t, "600000")
		_ = c.Process.Signal(syscall.SIGTERM)
		c.stderr.await(t, regexp.MustCompile(`draining`))
		draining := time.Now() // the host counts from when it sees the first
		eventually(t, "the next signal counts", func() bool { return time.Since(draining) > 400*time.Millisecond })
		_ = c.Process.Signal(os.Interrupt)
		if state := c.wait(t); state.ExitCode() != exitDone {
			t.Errorf("it ended with %s", state)
		}
		if got := status(u, id); got != "pending" {
			t.Errorf("the task was not given back: it is %s", got)
		}
	})
}

func TestServeWithoutRedis(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	server.Kill()
	u := newUser(t, server.URL())
	c := u.start("serve", "--plugins", folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}), "--http", "127.0.0.1:0", "--poll", "200ms")
	address := c.listening()
	c.stderr.await(t, regexp.MustCompile(`cannot reach Redis; retrying.*connection refused`))
	if status, body := get(t, "http://"+address+"/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d %s", status, body)
	}
	for _, page := range []string{"/healthz", "/metrics"} {
		if status, body := get(t, "http://"+address+page); status != http.StatusOK {
			t.Errorf("%s: %d %s", page, status, body)
		}
	}
	server.Restart(t)
	awaitStatus(t, "http://"+address+"/readyz", http.StatusOK)
	eventually(t, "the queue is served", func() bool { return u.run("enqueue", "echo", "--wait").status == exitDone })
}

func TestServeWarnsOfSettings(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "no")
	c, _ := newUser(t, server.URL()).host(folder(t, nil))
	c.stderr.await(t, regexp.MustCompile(`\[WARN\].*evicts keys.*allkeys-lru.*noeviction`))
	c.stderr.await(t, regexp.MustCompile(`\[WARN\].*keeps nothing on disk.*appendonly yes`))
	c.stderr.await(t, regexp.MustCompile(`\[WARN\].*the plugin directory|listening`))
}

func TestServeRefused(t *testing.T) {
	t.Parallel()
	plugins := folder(t, nil)
	t.Run("PortTaken", func(t *testing.T) {
		t.Parallel()
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		r := newUser(t, queuetest.Shared(t).URL()).run("serve", "--plugins", plugins, "--http", taken.Addr().String())
		want := `quern: --http "` + taken.Addr().String() + `": bind: address already in use: choose another address, such as 127.0.0.1:0 for a free port` + "\n"
		if r.status != exitRefused || r.stderr != want {
			t.Errorf("exit %d: %s", r.status, r.stderr)
		}
	})
	t.Run("WrongPassword", func(t *testing.T) {
		t.Parallel()
		server := queuetest.Start(t, "--requirepass", "s3cret")
		for _, url := range []string{"redis://" + server.Addr() + "/0", "redis://:wr0ng@" + server.Addr() + "/0"} {
			u := newUser(t, url)
			for _, args := range [][]string{{"serve", "--plugins", plugins, "--http", "127.0.0.1:0"}, {"queue", "ls"}, {"enqueue", "echo", "--wait"}, {"task", "wait", "one"}} {
				r := u.run(args...)
				if r.status != exitRefused || !strings.Contains(r.stderr, "give user and password in the URL: redis://USER:PASSWORD@HOST:PORT/DB") ||
					strings.Contains(r.stderr, "wr0ng") {
					t.Errorf("%s %v: exit %d: %s", url, args, r.status, r.stderr)
				}
			}
		}
		if r := newUser(t, "redis://:s3cret@"+server.Addr()+"/0").run("queue", "ls"); r.status != exitDone {
			t.Errorf("with the password: exit %d: %s", r.status, r.stderr)
		}
	})
	t.Run("CacheOpenToOthers", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		r := newUser(t, "").run("serve", "--cache", dir, "--check")
		if r.status != exitRefused || !strings.Contains(r.stderr, "open to group or others") {
			t.Errorf("exit %d: %s", r.status, r.stderr)
		}
	})
	t.Run("NoCacheFolder", func(t *testing.T) {
		t.Parallel()
		file := write(t, filepath.Join(t.TempDir(), "file"), "")
		r := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"XDG_CACHE_HOME": file}).run("serve", "--check")
		if r.status != exitDone || !strings.Contains(r.stderr, "no cache folder") || !strings.Contains(r.stdout, `cache: ""`) {
			t.Errorf("exit %d: %s%s", r.status, r.stdout, r.stderr)
		}
	})
	t.Run("NoTLSThere", func(t *testing.T) {
		t.Parallel()
		r := newUser(t, "rediss://"+queuetest.Shared(t).Addr()+"/0").run("queue", "ls")
		if r.status != exitRefused || !strings.Contains(r.stderr, "rediss:// meets a Redis without TLS") {
			t.Errorf("exit %d: %s", r.status, r.stderr)
		}
	})
	t.Run("Closed", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = io.CopyN(io.Discard, conn, 1)
				_ = conn.Close()
			}
		}()
		r := newUser(t, "redis://"+listener.Addr().String()+"/0").run("queue", "ls")
		if r.status != exitRefused || !strings.HasPrefix(r.stderr, "quern: ") || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("exit %d: %s", r.status, r.stderr)
		}
	})
}

// A host with a name has it wherever people look, in all its tenants, with its address and for how long it runs.
func TestServeName(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	c, address := u.host(folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}), "--name", "worker-7", "--tenants", "blueque,acme")
	for _, tenant := range []string{"blueque", "acme"} {
		row := `worker-7~[0-9a-f]{8}_\d+ +` + tenant + ` .* worker-7 +(\d+m)?\d+s +` + regexp.QuoteMeta(address) + "\n"
		eventually(t, "node ls of "+tenant, func() bool {
			return regexp.MustCompile(row).MatchString(u.must("node", "ls", "--tenant", tenant))
		})
	}
	c.stderr.await(t, regexp.MustCompile(`serving queue: .*host=worker-7 `))
	if _, metrics := get(t, "http://"+address+"/metrics"); !regexp.MustCompile(`quern_build_info\{.*host="worker-7"`).MatchString(metrics) {
		t.Error("the metrics do not name the host")
	}
	u.must("node", "drain", "worker-7")
}
