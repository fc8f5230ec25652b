package main

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// TestServeWithoutReader: a host whose stderr nobody reads any more goes on, and ends as it would.
func TestServeWithoutReader(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	plugins := folder(t, map[string][]byte{"echo": runtimetest.Echo(t)})
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	host := u.prepare("serve", "--plugins", plugins, "--http", "127.0.0.1:0")
	host.Stderr = write
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Process.Kill() }()
	_ = write.Close()
	for lines := bufio.NewScanner(read); lines.Scan() && !strings.Contains(lines.Text(), "plugin loaded"); {
	}
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(plugins, "later.wasm"), runtimetest.Echo(t), 0o600); err != nil { // which the host tells
		t.Fatal(err)
	}
	for _, queue := range []string{"echo", "later"} {
		eventually(t, "a listener of "+queue, func() bool { return u.run("enqueue", queue, "hello", "--wait").stdout == "hello" })
	}
	if err := host.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if state := host.wait(t); state.ExitCode() != exitDone {
		t.Errorf("the host ended with %v", state)
	}
}

// TestServeWithStuckReader: a host whose stderr is a pipe that is full loses lines of its log and nothing else, and
// tells how many once the pipe is read again.
func TestServeWithStuckReader(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	plugins := folder(t, map[string][]byte{
		"chatty": runtimetest.BuildCHandler(t, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	char line[1000];
	for (int i = 0; i < (int)sizeof line; i++) line[i] = 'x';
	for (int i = 0; i < 500; i++) quern_log(QUERN_INFO, line, sizeof line, NULL, 0);
	return 0;
}`),
		"endless": runtimetest.BuildCHandler(t, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	for (;;) if (quern_say(QUERN_INFO, "still here")) quern_sleep(10);
	return 0;
}`),
	})
	write(t, filepath.Join(plugins, "chatty.yaml"), "name: chatty\nlimits: {log: 4MiB}\n")
	write(t, filepath.Join(plugins, "endless.yaml"), "name: endless\nlimits: {log: 64MiB, timeout: 1s}\n")
	read, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	address := freeAddress(t)
	host := u.prepare("serve", "--plugins", plugins, "--http", address)
	host.Stderr = stderr
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Process.Kill() }()
	_ = stderr.Close()
	awaitStatus(t, "http://"+address+"/readyz", http.StatusOK)

	dropped := func() string {
		_, body := get(t, "http://"+address+"/metrics")
		return regexp.MustCompile(`(?m)^quern_host_log_lines_dropped_total (\S+)`).FindStringSubmatch(body)[1]
	}
	flood := func() { // with more than what a pipe and the host hold
		t.Helper()
		for range 5 {
			eventually(t, "a task that logs much is complete", func() bool {
				return u.run("enqueue", "chatty", "--wait", "--wait-timeout", "30s").status == exitDone
			})
		}
	}
	flood()
	if r := u.run("enqueue", "endless", "--wait", "--wait-timeout", "1m"); r.status != exitFailed || !strings.Contains(r.stderr, "failed (timeout)") {
		t.Errorf("a task that logs beyond its timeout: exit %d: %s", r.status, r.stderr)
	}
	if status, body := get(t, "http://"+address+"/readyz"); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if dropped() == "0" {
		t.Error("nothing counts as dropped")
	}

	told := ""
	for lines := bufio.NewScanner(read); told == "" && lines.Scan(); {
		if found := regexp.MustCompile(`\[ERROR\] quern: dropped log lines here.*: lines=(\d+)$`).FindStringSubmatch(lines.Text()); found != nil {
			told = found[1]
		}
	}
	if want := dropped(); told != want {
		t.Errorf("the log says that %s lines were dropped, the metric %s", told, want)
	}

	before := dropped()
	flood()
	if dropped() == before {
		t.Error("the pipe is not full again")
	}
	if err := host.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if state := host.wait(t); state.ExitCode() != exitDone {
		t.Errorf("the host ended with %v", state)
	}
}

// TestWatchWithoutReader: --watch ends with its reader, even if nothing changes.
func TestWatchWithoutReader(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": queuetest.Tenant()})
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	watch := u.prepare("queue", "ls", "-o", "json", "--watch=100ms")
	watch.Stdout = write
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	if line, err := bufio.NewReader(read).ReadString('\n'); line != "[]\n" {
		t.Errorf("%q, %v", line, err)
	}
	_ = read.Close()
	if state := watch.wait(t); state.ExitCode() != exitDone {
		t.Errorf("it ended with %v", state)
	}
}

// TestPluginCheckOfAHugeFile: a file that is too large to serve is not read.
func TestPluginCheckOfAHugeFile(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "huge.wasm"), "")
	if err := os.Truncate(file, 1<<40); err != nil { // sparse: it takes no room
		t.Fatal(err)
	}
	r := newUser(t, "").run("plugin", "check", file)
	if r.status != exitRefused || !strings.Contains(r.stdout+r.stderr, "it has 1099511627776 bytes, more than 64MiB") {
		t.Errorf("exit %d: %s%s", r.status, r.stdout, r.stderr)
	}
}
