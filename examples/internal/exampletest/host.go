package exampletest

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// patience bounds every wait, such as for a host to serve or to end.
	patience = 5 * time.Minute
	// lookInterval is the interval at which a condition is checked.
	lookInterval = 50 * time.Millisecond
	// exitRefused is quern's exit status if nobody serves the queue.
	exitRefused = 3
)

// Host is a quern dev that serves an example's folder until the test ends.
type Host struct {
	plugin *Plugin
	env    []string
	log    Log
}

// Log keeps what a process writes. Other goroutines can read it at the same time.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Serve starts quern dev on the example's folder, as its README says. The host gets no settings from the environment.
// It has its own runtime folder, so that it and another quern dev of the same user do not find each other.
func (p *Plugin) Serve(t *testing.T) *Host {
	t.Helper()
	h := &Host{plugin: p, env: append(withoutSettings(os.Environ()), "XDG_RUNTIME_DIR="+t.TempDir())}
	cmd := exec.Command(p.Quern.Path, "dev", "--plugins", ".")
	cmd.Dir, cmd.Env = p.folder, h.env
	cmd.Stdout, cmd.Stderr = &h.log, &h.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		defer time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }).Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("quern dev: %v", err)
		}
		if t.Failed() {
			t.Logf("quern dev said:\n%s", h.Log())
		}
	})
	return h
}

// withoutSettings removes from an environment the variables that would change quern.
func withoutSettings(environment []string) []string {
	return slices.DeleteFunc(environment, func(variable string) bool {
		return strings.HasPrefix(variable, "QUERN_") || strings.HasPrefix(variable, "XDG_RUNTIME_DIR=")
	})
}

// Log returns what the host has written so far.
func (h *Host) Log() string { return h.log.String() }

// Run enqueues a task in the queue that has the plugin's name, and waits for its result. While the host does not serve
// yet, Run tries again.
func (h *Host) Run(t *testing.T, input []byte) Result {
	t.Helper()
	ticker, deadline := time.NewTicker(lookInterval), time.After(patience)
	defer ticker.Stop()
	for {
		result := h.plugin.run(t, h.env, input, "enqueue", strings.TrimSuffix(h.plugin.file, ".wasm"), "-", "--wait")
		if result.Exit != exitRefused {
			return result
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("the host does not serve: %s", result.Stderr)
		}
	}
}
