package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// lookInterval is the interval at which a starting host is checked.
	lookInterval = 50 * time.Millisecond
	// requestLimit is the timeout of a request to the host.
	requestLimit = 5 * time.Second
	// killAfter is how long a host may take to end before it is killed.
	killAfter = 10 * time.Second
	// logLines is the number of lines of a failed host's log that are shown.
	logLines = 20
)

// host is a child process: quern dev, with its own Redis.
type host struct {
	logPath  string
	filePath string  // the file to which quern dev writes its address
	address  address // read from filePath; known when waitReady has returned
	pid      int
	cancel   context.CancelFunc // asks the process to end
	exited   <-chan struct{}    // closed when the process has ended and err is set
	err      error
}

// address is the JSON file in which quern dev records its addresses and its PID.
type address struct {
	Redis string `json:"redis"`
	HTTP  string `json:"http"`
	PID   int    `json:"pid"`
}

// startHost starts quern dev with thumbnails as its only plugin, because compiling others takes time. The host gets a
// free port and no settings from the environment. It has its own runtime folder, so that it and another quern dev of
// the same user do not find each other.
func startHost(quern, plugins, out string) (*host, error) {
	if !exists(quern) {
		return nil, fmt.Errorf("no program %q: run make build, or name it with -quern", quern)
	}
	if file := filepath.Join(plugins, queueName+".wasm"); !exists(file) {
		return nil, fmt.Errorf("no plugin %q: run make plugins, or name its folder with -plugins", file)
	}
	quern, errQuern := filepath.Abs(quern)
	runtimeDir, errRuntime := filepath.Abs(filepath.Join(out, "run"))
	if err := errors.Join(errQuern, errRuntime); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(runtimeDir, 0o700); err != nil {
		return nil, err
	}
	handlers := filepath.Join(out, "handlers")
	if err := install(plugins, handlers); err != nil {
		return nil, err
	}
	logPath := filepath.Join(out, "quern.log")
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own handle on it

	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, quern, "dev", "--plugins", handlers, "--http", "127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killAfter
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(withoutSettings(os.Environ()), "XDG_RUNTIME_DIR="+runtimeDir)
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %q: %w", quern, err)
	}

	exited := make(chan struct{})
	h := &host{
		logPath:  logPath,
		filePath: filepath.Join(runtimeDir, "quern", "dev.json"),
		pid:      cmd.Process.Pid,
		cancel:   cancel,
		exited:   exited,
	}
	go func() {
		defer close(exited)
		if err := cmd.Wait(); !errors.Is(err, context.Canceled) { // Canceled means that it ended as asked
			h.err = err
		}
	}()
	return h, nil
}

// install copies the plugin, and its manifest if there is one, from one folder to another.
func install(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, suffix := range []string{".yaml", ".wasm"} {
		content, err := os.ReadFile(filepath.Join(from, queueName+suffix))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, queueName+suffix), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// waitReady waits until the host has written its address, has loaded its plugins and serves.
func (h *host) waitReady(ctx context.Context) error {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the host: %w", context.Cause(ctx))
		case <-ticker.C:
			if h.readAddress() && h.ready(ctx) {
				return nil
			}
		}
	}
}

// readAddress reads the host's address, and reports whether the host has written it. It ignores the file of an
// earlier run, which has another process ID.
func (h *host) readAddress() bool {
	var found address
	data, err := os.ReadFile(h.filePath)
	if err != nil || json.Unmarshal(data, &found) != nil || found.PID != h.pid {
		return false
	}
	h.address = found
	return true
}

func (h *host) ready(ctx context.Context) bool {
	_, err := get(ctx, "http://"+h.address.HTTP+"/readyz")
	return err == nil
}

func (h *host) metricsURL() string { return "http://" + h.address.HTTP + "/metrics" }

// metrics reads the host's metrics and returns the few lines about the demo's own tasks.
func (h *host) metrics(ctx context.Context) ([]string, error) {
	page, err := get(ctx, h.metricsURL())
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.SplitSeq(string(page), "\n") {
		name, _, _ := strings.Cut(line, "{")
		shown := name == "quern_tasks_total" || name == "quern_task_duration_seconds_sum" ||
			name == "quern_task_duration_seconds_count"
		if shown && strings.Contains(line, `queue="`+queueName+`"`) && !strings.HasSuffix(line, " 0") {
			lines = append(lines, "  "+line)
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s has no quern_tasks_total of the queue %q", h.metricsURL(), queueName)
	}
	return lines, nil
}

// stop ends the host and waits until it has ended. It returns an error if the host failed.
func (h *host) stop() error {
	h.cancel()
	<-h.exited
	if h.err != nil {
		return fmt.Errorf("quern dev ended badly: %w", h.err)
	}
	return nil
}

// logEnd returns the last lines of the host's log.
func (h *host) logEnd() string {
	log, err := os.ReadFile(h.logPath)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}

func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, response.Status)
	}
	return body, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// withoutSettings drops Quern's settings from an environment.
func withoutSettings(environment []string) []string {
	return slices.DeleteFunc(environment, func(variable string) bool { return strings.HasPrefix(variable, "QUERN_") })
}
