package postgrestest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Pooler starts a PgBouncer in transaction mode before the server for one test, and returns a function that makes the
// URL of a database lead through it.
func (s *Server) Pooler(t testing.TB) func(url string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // Debian's is not in the PATH of every user
	}
	if _, err := os.Stat(program); err != nil {
		leaveOut(t, "PgBouncer")
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pgbouncer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, text := range map[string]string{
		"users": "\"postgres\" \"\"\n",
		"pgbouncer.ini": fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
			"unix_socket_dir =\nauth_type = trust\nauth_file = %s/users\npool_mode = transaction\n", s.port, port, dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // another user reads it
			t.Fatal(err)
		}
	}
	pooler := &Server{port: port, dir: dir, program: program}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if err := pooler.launch(program, filepath.Join(dir, "pgbouncer.ini")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pooler.Kill)
	return func(url string) string {
		return strings.Replace(url, ":"+strconv.Itoa(s.port)+"/", ":"+strconv.Itoa(port)+"/", 1)
	}
}
