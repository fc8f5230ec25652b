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
	// patience bounds how long a host may take to serve, and to end, and whatever else is waited for.
	patience = 5 * time.Minute
	// lookInterval is how often a starting host is tried.
	lookInterval = 50 * time.Millisecond
	// refused is how quern ends where nobody serves the queue.
	refused = 3
)

// Host is a quern dev that serves an example's folder until the test ends.
type Host struct {
	plugin *Plugin
	env    []string
	log    log
}

// log is what a process writes while others read it.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Serve starts quern dev on the example's folder, as its README says. It gets a runtime folder of its own, so that
// neither it nor another quern dev of the same user finds the other, and no settings from the environment.
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

// withoutSettings drops from an environment what would change quern.
func withoutSettings(environment []string) []string {
	return slices.DeleteFunc(environment, func(variable string) bool {
		return strings.HasPrefix(variable, "QUERN_") || strings.HasPrefix(variable, "XDG_RUNTIME_DIR=")
	})
}

// Log is what the host has said so far.
func (h *Host) Log() string { return h.log.String() }

// Run gives the queue that has the plugin's name a task, and waits for its result. It waits for a host that does
// not serve yet.
func (h *Host) Run(t *testing.T, input []byte) Result {
	t.Helper()
	ticker, deadline := time.NewTicker(lookInterval), time.After(patience)
	defer ticker.Stop()
	for {
		result := h.plugin.run(t, h.env, input, "enqueue", strings.TrimSuffix(h.plugin.file, ".wasm"), "-", "--wait")
		if result.Exit != refused {
			return result
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("the host does not serve: %s", result.Stderr)
		}
	}
}
