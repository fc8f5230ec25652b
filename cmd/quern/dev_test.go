package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestDev(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	path := filepath.Join(u.env["XDG_RUNTIME_DIR"], "quern", "dev.json")
	plugins := folder(t, map[string][]byte{"echo": runtimetest.Echo(t)})
	c := u.start("dev", "--plugins", plugins)
	address := c.listening()
	awaitStatus(t, "http://"+address+"/readyz", http.StatusOK)
	c.serving(plugins)

	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("dev.json has mode %v", info.Mode())
	}
	var said connect.Dev
	if content, err := os.ReadFile(path); err != nil || json.Unmarshal(content, &said) != nil {
		t.Fatal(err, string(content))
	}
	if said.HTTP != address || !strings.Contains(c.stderr.String(), "page="+said.Admin+"/\n") || said.PID != os.Getpid() || !regexp.MustCompile(`^redis://default:[A-Z2-7]{26}@127\.0\.0\.1:`).MatchString(said.Redis) {
		t.Errorf("dev.json says %+v", said)
	}
	if log := c.stderr.String(); !strings.Contains(log, "it forgets everything at exit") || !strings.Contains(log, connect.WithoutPassword(said.Redis)) || !strings.Contains(log, path) || strings.Contains(log, passwordIn(t, said.Redis)) {
		t.Errorf("it does not say that it forgets all, or where it is and its password, or says that:\n%s", log)
	}

	r := u.run("enqueue", "echo", "hello", "--wait")
	if want := "quern: using `quern dev` at " + connect.WithoutPassword(said.Redis) + "\n"; r != (result{exitDone, "hello", want}) {
		t.Errorf("a client without flags: %+v", r)
	}
	if r := u.run("enqueue", "echo", "again", "--wait"); r != (result{exitDone, "again", ""}) {
		t.Errorf("the next client, when one has told: %+v", r)
	}
	u.must("enqueue", "unread.dead") // a dead-letter queue that nobody reads is no error
	if found, _ := examined(t, u, exitDone); !slices.Contains(found, "dead-letters blueque") || slices.Contains(found, "redis-access") || slices.Contains(found, "redis-settings") {
		t.Errorf("the doctor finds %q", found)
	}
	tenant := queuetest.Tenant()
	for _, other := range []*user{u, u.with(map[string]string{"QUERN_REDIS_URL": queuetest.Shared(t).URL()})} {
		args := []string{"queue", "ls", "-o", "json", "--tenant", tenant}
		if other == u {
			args = append(args, "--redis", queuetest.Shared(t).URL())
		}
		if r := other.run(args...); r != (result{exitDone, "[]\n", ""}) {
			t.Errorf("a client with another Redis: %+v", r)
		}
	}

	r = u.run("dev", "--plugins", t.TempDir())
	if r.status != exitRefused || !strings.Contains(r.stderr, fmt.Sprintf("is running already (process %d): use that one, or end it first", os.Getpid())) {
		t.Errorf("a second dev: exit %d: %s", r.status, r.stderr)
	}
	c.stop()
	if status := c.wait(); status != exitDone {
		t.Errorf("exit %d", status)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("dev.json stays: %v", err)
	}
	if _, err := os.Stat(path + ".told"); !os.IsNotExist(err) {
		t.Errorf("dev.json.told stays: %v", err)
	}
}

// What a killed dev leaves behind is passed over, by clients and by the next dev.
func TestDevStale(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	path := filepath.Join(u.env["XDG_RUNTIME_DIR"], "quern", "dev.json")
	killed := u.spawn("dev", "--plugins", t.TempDir())
	killed.stderr.await(t, regexp.MustCompile(`watching for plugins`))
	eventually(t, "dev.json", func() bool { _, err := os.Stat(path); return err == nil })
	_ = killed.Process.Signal(syscall.SIGKILL)
	killed.wait(t)
	if r := u.run("task", "show", "one"); strings.Contains(r.stderr, "using") {
		t.Errorf("a client: %+v", r)
	}

	// Its port may be another Redis's by now.
	gone := exec.CommandContext(t.Context(), "true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	write(t, path, fmt.Sprintf(`{"redis":%q,"http":"","pid":%d}`, queuetest.Shared(t).URL(), gone.ProcessState.Pid()))
	if r := u.run("task", "show", "one"); strings.Contains(r.stderr, "using") {
		t.Errorf("a client, with another Redis on the port: %+v", r)
	}
	write(t, path, "no JSON")
	if r := u.run("task", "show", "one"); strings.Contains(r.stderr, "using") {
		t.Errorf("a client, with a damaged file: %+v", r)
	}

	c := u.start("dev", "--plugins", t.TempDir())
	awaitStatus(t, "http://"+c.listening()+"/readyz", http.StatusOK)
	if r := u.run("queue", "ls", "-o", "json"); r.status != exitDone || !strings.Contains(r.stderr, "using `quern dev`") {
		t.Errorf("a client of the next dev: %+v", r)
	}
	// The file of one that started later is not removed.
	write(t, path, `{"redis":"redis://127.0.0.1:1/0","http":"","pid":1}`)
	c.stop()
	c.wait()
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// What is meant for a dev that lives and keeps silent goes to no other Redis.
func TestDevIsSilent(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	silent := queuetest.Start(t)
	write(t, filepath.Join(u.env["XDG_RUNTIME_DIR"], "quern", "dev.json"), fmt.Sprintf(`{"redis":%q,"http":"","pid":%d}`, silent.URL(), os.Getpid()))
	silent.Pause()
	defer silent.Resume()
	for _, arguments := range [][]string{{"queue", "ls"}, {"dev", "--plugins", t.TempDir()}} {
		if r := u.run(arguments...); r.status != exitRefused || !strings.Contains(r.stderr, fmt.Sprintf("(process %d) does not answer", os.Getpid())) {
			t.Errorf("%v: %+v", arguments, r)
		}
	}
}

// Without a folder to leave its file in it runs, and says how to reach it.
func TestDevWithoutFolder(t *testing.T) {
	t.Parallel()
	u := newUser(t, "redis://127.0.0.1:1/0")
	u.env["XDG_RUNTIME_DIR"] = write(t, filepath.Join(t.TempDir(), "file"), "")
	c := u.start("dev", "--plugins", t.TempDir())
	url := c.stderr.await(t, regexp.MustCompile(`give them --redis (redis://default:\S+@127\S+/0)`))
	if r := u.run("queue", "ls", "-o", "json", "--redis", url); r.status != exitDone {
		t.Errorf("exit %d: %s", r.status, r.stderr)
	}
	c.stderr.await(t, regexp.MustCompile(`quern: the environment or the configuration file names a Redis: other commands will use that one`))
	c.stop()
	if status := c.wait(); status != exitDone {
		t.Errorf("exit %d", status)
	}
}

// A person sees each task that ends, and finds Redis where they want it.
func TestDevTellsOfTasks(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	if r := u.run("dev", "--plugins", t.TempDir(), "--redis-port", port); r.status != exitRefused || !strings.Contains(r.stderr, "choose another --redis-port") {
		t.Errorf("a port in use: %+v", r)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	c := u.start("dev", "--plugins", folder(t, map[string][]byte{"exit": runtimetest.Exit(t)}), "--redis-port", port)
	c.stderr.await(t, regexp.MustCompile(`serving queue: .*queue=exit`))
	url := u.devRedis()
	if !strings.HasSuffix(url, "@127.0.0.1:"+port+"/0") {
		t.Errorf("it is at %s", url)
	}
	u.must("enqueue", "exit", "0", "--redis", url, "--wait")
	c.stdout.await(t, regexp.MustCompile(`(?m)^✓ exit \d+(\.\d)? m?s$`))
	u.run("enqueue", "exit", "7 too bad", "--id", "seven", "--redis", url)
	c.stdout.await(t, regexp.MustCompile(`(?m)^✗ exit \d+(\.\d)? m?s seven: \(error\) .*$`))
	u.run("enqueue", "exit", "7 too bad", "--id", "again", "--redis", url, "--max-attempts", "2", "--backoff-max", "10ms")
	c.stdout.await(t, regexp.MustCompile(`(?m)^↻ exit \d+(\.\d)? m?s again: \(error\) .*: it will be tried again$`))
	c.stdout.await(t, regexp.MustCompile(`(?m)^✗ exit \d+(\.\d)? m?s again: `))
	u.must("enqueue", "exti.dead", "0", "--redis", url)
	u.must("enqueue", "exti", "0", "--redis", url)
	c.stderr.await(t, regexp.MustCompile(`\[WARN\] .*: a task waits in a queue that nobody serves: tenant=blueque queue=exti remedy="did you mean exit\?"`))
	if strings.Contains(c.stderr.String(), "queue=exti.dead remedy") {
		t.Error("it warns of dead letters")
	}
}
