package main

import (
	"bufio"
	"os"
	"path/filepath"
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
