package sql_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/runtime/service"
)

// TestUndo: with Undo nothing remains, and commits, steps and rollbacks work as they would.
func TestUndo(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.databases = sql.New(sql.Config{Undo: true})
	t.Cleanup(w.databases.Close)
	w.exec("ALTER TABLE t ADD CONSTRAINT name UNIQUE (name) DEFERRABLE INITIALLY DEFERRED, ADD other int UNIQUE DEFERRABLE INITIALLY IMMEDIATE")
	run := w.task("1", func(g *sql.Grant) { g.Prepare = "INSERT INTO t VALUES (7, 'given'); SELECT 1" })
	w.want(run, "7", "SELECT id FROM t")
	w.want(run, "", "INSERT INTO t VALUES (8, 'given')")
	if _, err := run.Complete(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "23505") {
		t.Errorf("a deferred constraint: %v", err)
	}
	run = w.task("1", atCall)
	w.want(run, "", "INSERT INTO t VALUES (1)")
	if _, err := run.Commit(t.Context(), "shop", "a", []byte("value")); err != nil {
		t.Error(err)
	}
	w.want(run, "", "INSERT INTO t VALUES (2)")
	if err := run.Rollback(t.Context(), "shop"); err != nil {
		t.Error(err)
	}
	w.want(run, "1", "SELECT id FROM t")
	w.want(run, "E23505", "INSERT INTO t (id, other) VALUES (3, 1), (4, 1)") // not deferred by the commit
	if err := run.Rollback(t.Context(), "shop"); err != nil {
		t.Error(err)
	}
	if value, err := run.Step(t.Context(), "shop", "a"); string(value) != "value" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
	if _, err := run.Complete(t.Context(), nil); err != nil {
		t.Error(err)
	}
	run.Close()
	if got := w.value("SELECT count(*) FROM t"); got != "0" {
		t.Errorf("%s rows remain", got)
	}
	for name, end := range map[string]func(*sql.Run) error{
		"Complete": func(run *sql.Run) error { _, err := run.Complete(t.Context(), nil); return err },
		"Rollback": func(run *sql.Run) error { return run.Rollback(t.Context(), "shop") },
	} {
		run = w.task("1")
		w.want(run, "", "RELEASE quern")
		if err := end(run); err == nil || !strings.Contains(err.Error(), "has released the savepoint quern of database shop") {
			t.Errorf("%s: %v", name, err)
		}
		run.Close()
	}
	for _, script := range []string{
		"COMMIT", "INSERT INTO t VALUES (99); COMMIT; BEGIN;", "BEGIN; INSERT INTO t VALUES (99); COMMIT;", "INSERT INTO t VALUES (99); END AND CHAIN",
		"INSERT INTO t VALUES (99); /* $$ */ cOmMiT AND CHAIN; SELECT '$a$'",
	} {
		w.refused(w.task("1", func(g *sql.Grant) { g.Prepare = script }), service.ErrInvalid, "remove BEGIN, COMMIT", "SELECT 1")
	}
	w.refused(w.task("1", func(g *sql.Grant) { g.Prepare = "INSERT INTO t VALUES (99); DO 'BEGIN COMMIT; END'" }), service.ErrInvalid, "2D000", "SELECT 1")
	if got := w.value("SELECT count(*) FROM t WHERE id = 99"); got != "0" {
		t.Error("a schema is committed")
	}
	w.want(w.task("1", func(g *sql.Grant) {
		g.Prepare = "CREATE TEMP TABLE x (id int); CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$; INSERT INTO x SELECT pg_temp.f(); -- end"
	}), "1", "SELECT id FROM x")
	w.refused(w.task("1", func(g *sql.Grant) { g.Prepare = "CREATE nonsense" }), service.ErrInvalid, "the schema of database shop", "SELECT 1")
}

// TestCheck: a host warns at its start of what is wrong with a database.
func TestCheck(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var log strings.Builder
	check := func(url string) string {
		log.Reset()
		d := sql.New(sql.Config{Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
		d.Check(t.Context(), "acme", sql.Source{Name: "database.shop", URL: url})
		d.Close()
		return log.String()
	}
	for url, want := range map[string]string{
		w.url:                             "quern database init --grant-handler " + w.name() + "a",
		"shop":                            "write postgres://USER:PASSWORD@HOST:PORT/DATABASE",
		w.server.URL("nowhere"):           "make it with CREATE DATABASE",
		w.server.URL(w.name()):            "connect as a superuser",
		"postgres://u:pass@127.0.0.1:1/d": "start the database, or correct the secret database.shop",
	} {
		if got := check(url); !strings.Contains(got, want) || strings.Contains(got, "pass@") {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
	w.init("a")
	if got := check(w.url); got != "" {
		t.Errorf("warned: %s", got)
	}
}
