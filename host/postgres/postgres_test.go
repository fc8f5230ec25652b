package postgres_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	postgrestest.End()
	if err := goleak.Find(); err != nil && code == 0 {
		panic(err)
	}
	os.Exit(code)
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "postgres://USER",
		"host=h user=u":                     "postgres://USER",
		"mysql://u@h/d":                     "postgres://USER",
		"postgres://h/d":                    "user",
		"postgres://u@h":                    "database",
		"postgres://u@/d":                   "host",
		"postgres://u@h/d?sslmod=off":       `unknown parameter "sslmod"`,
		"postgres://u@h/d?passfile=/x":      `unknown parameter "passfile"`,
		"postgres://u:secret@h/d?sslmode=x": "sslmode",
		"postgres://u:secret@h:x/d":         "postgres://USER",
		"postgres://u:secret@h:99999/d":     "postgres://u:xxxxx@h:99999/d: port 99999: use 1 to 65535",
		"postgres://u:secret@h:0/d":         "port 0: use 1 to 65535",
	} {
		_, err := postgres.Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// What the environment and the home directory say does not change where a URL leads.
func TestEnvironment(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".pgpass"), []byte("*:*:*:*:stolen\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"HOME": home, "PGHOST": "elsewhere", "PGPORT": "1", "PGUSER": "other", "PGDATABASE": "other", "PGPASSWORD": "stolen",
		"PGSSLMODE": "verify-full", "PGOPTIONS": "-c search_path=other", "PGTZ": "Asia/Tokyo", "PGAPPNAME": "other",
	} {
		t.Setenv(name, value)
	}
	server := postgrestest.Shared(t)
	conn := server.Connect(t, server.URL("postgres"))
	var got string
	err := conn.Query(t.Context(), func(v postgres.Row) { got = v.Text(0) }, "SELECT concat(current_user, ' ', current_setting('search_path'), ' ', current_setting('timezone') = 'Asia/Tokyo')")
	if err != nil || got != `postgres "$user", public f` {
		t.Errorf("%q, %v", got, err)
	}
	t.Setenv("PGSERVICE", "x")
	if _, err := postgres.Parse(server.URL("postgres")); err == nil || !strings.Contains(err.Error(), "unset PGSERVICE") {
		t.Errorf("PGSERVICE: %v", err)
	}
}

// A connection knows whether a pooler gives each of its transactions another session.
func TestOwnSession(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	url := server.Database(t)
	for name, c := range map[string]struct {
		url  string
		want bool
	}{"direct": {url, true}, "pooler": {server.Pooler(t)(url), false}} {
		stop := make(chan struct{})
		var others sync.WaitGroup
		for range 3 { // clients whose transactions take sessions and give them back
			busy := server.Connect(t, c.url)
			others.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = busy.Exec(t.Context(), "SELECT pg_sleep(0.002)")
					}
				}
			})
		}
		defer others.Wait()
		defer close(stop)
		for range 10 {
			if own, err := server.Connect(t, c.url).OwnSession(t.Context()); err != nil || own != c.want {
				t.Errorf("%s: %t, %v, want %t", name, own, err, c.want)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	conn := postgrestest.Shared(t).Connect(t, postgrestest.Shared(t).URL("postgres"))
	if _, err := conn.Exec(t.Context(), "SELECT 1; SELECT 2"); postgres.State(err) != "42601" {
		t.Errorf("two statements: %v", err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT $1", struct{}{}); err == nil {
		t.Error("an argument of a wrong type is taken")
	}
	address, err := postgres.Parse("postgres://u:secret@127.0.0.1:1/d")
	if err != nil {
		t.Fatal(err)
	}
	_, err = address.Connect(t.Context(), "test")
	if want := "connect to postgres://u:xxxxx@127.0.0.1:1/d: dial tcp 127.0.0.1:1: connect: connection refused"; err == nil ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	address, err = postgres.Parse(postgrestest.Shared(t).URL("no): where"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = address.Connect(t.Context(), "test")
	if want := `: database "no): where" does not exist (SQLSTATE 3D000)`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want it to end with %s", err, want)
	}
	if postgres.State(errors.New("x")) != "" {
		t.Error("an error that is not the server's has a state")
	}
}
