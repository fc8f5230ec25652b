package sql_test

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/runtime/service"
)

// TestSettingsThatHideRuns: a guest that keeps the host from quern.runs by a setting of its session fails alone: the
// database serves other tasks.
func TestSettingsThatHideRuns(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	one := func(g *sql.Grant) { g.Pool = 1 }
	const setting = "SELECT set_config('row_security', 'off', false)"
	for what, end := range map[string]func() error{
		"complete": func() error {
			run := w.task("1", one)
			w.want(run, "", "INSERT INTO t VALUES (1)")
			w.want(run, "off", setting)
			_, err := run.Complete(t.Context(), []byte("done"))
			return err
		},
		"commit of a step": func() error {
			run := w.task("1", one, atCall)
			w.want(run, "off", setting)
			_, err := run.Commit(t.Context(), "shop", "s", nil)
			return err
		},
		"step": func() error {
			run := w.task("1", one, atCall)
			w.want(run, "off", setting)
			_, err := run.Step(t.Context(), "shop", "s")
			return err
		},
	} {
		if err := end(); !errors.Is(err, service.ErrDenied) || errors.Is(err, service.ErrUnavailable) || !strings.Contains(err.Error(), "42501") || !strings.Contains(err.Error(), "remove set_config") {
			t.Errorf("%s: %v", what, err)
		}
		if away := w.databases.Sample().Away; away != 0 {
			t.Fatalf("%s: the database counts as away", what)
		}
	}
	run := w.task("2", one)
	w.want(run, "", "INSERT INTO t VALUES (2)")
	if _, err := run.Complete(t.Context(), []byte("done")); err != nil {
		t.Error(err)
	}
	if got := w.value("SELECT string_agg(id::text, ',') FROM t"); got != "2" {
		t.Errorf("rows %s", got)
	}
}

// TestCommitThatLooksUnusable: an error of the tenant's own schema at a commit is one of the task, whatever its SQLSTATE
// is, and whatever the name of its table is.
func TestCommitThatLooksUnusable(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	w.exec("CREATE TABLE runs (id int PRIMARY KEY, settlement int NOT NULL); GRANT ALL ON runs TO " + w.name() + "a; INSERT INTO runs VALUES (1, 1)")
	w.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.name = '23505' THEN INSERT INTO runs VALUES (1, 1);
		ELSIF NEW.name = '23502' THEN INSERT INTO runs VALUES (2, NULL);
		ELSE RAISE EXCEPTION 'you may not buy' USING ERRCODE = NEW.name; END IF; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
	for _, state := range []string{"42501", "42P01", "3F000", "23505", "23502"} {
		run := w.task("1")
		w.want(run, "", "INSERT INTO t VALUES (1, $1)", state)
		stored, err := run.Complete(t.Context(), []byte("done"))
		if stored != nil || err == nil || !strings.HasPrefix(err.Error(), "commit on shop: ") || !strings.Contains(err.Error(), state) {
			t.Errorf("%s: %q, %v", state, stored, err)
		}
		run = w.task("1", atCall)
		w.want(run, "", "INSERT INTO t VALUES (1, $1)", state)
		if data, err := run.Commit(t.Context(), "shop", "s", nil); err != nil || text(data) != "E"+state {
			t.Errorf("%s with a step: %q, %v", state, data, err)
		}
	}
	if w.databases.Sample().Away != 0 {
		t.Error("the database counts as away")
	}
}

// TestServerWithoutResources: an error of SQLSTATE class 53 is the server's, unless it is a limit of the role.
func TestServerWithoutResources(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	w.exec(`CREATE FUNCTION lack(state text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = state; END $$`)
	for state, own := range map[string]bool{"53000": false, "53100": false, "53200": true, "53300": false} {
		run := w.task("1")
		w.refused(run, service.ErrUnavailable, "no room (SQLSTATE "+state+")", "SELECT lack('"+state+"')")
		if err := run.Away(); errors.Is(err, sql.ErrOutOfMemory) != own || !strings.Contains(service.Told(err), state) {
			t.Errorf("%s: %v", state, err)
		}
	}
	w.want(w.task("1"), "E53400", "SELECT lack('53400')")
	if w.databases.Sample().Away != 0 {
		t.Error("the database counts as away")
	}
}

// TestLargeErrors: a long error of the database is cut, for the guest and for the task's failure.
func TestLargeErrors(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	run := w.task("1")
	data, err := run.Query(t.Context(), "shop", "SELECT repeat('é', 1000000)::int", nil)
	_, message, _ := bytes.Cut(data, []byte("invalid"))
	if err != nil || text(data) != "E22P02" || len(data) > 6<<10 || len(message) == 0 || !utf8.Valid(message) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if _, err := run.Complete(t.Context(), nil); err == nil || len(err.Error()) > 6<<10 {
		t.Errorf("an aborted transaction: %.100v", err)
	}
	w.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '%', repeat('é', 1000000); END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
	run = w.task("2")
	w.want(run, "", "INSERT INTO t VALUES (1)")
	if _, err := run.Complete(t.Context(), nil); err == nil || len(err.Error()) > 6<<10 || !strings.Contains(err.Error(), "P0001") {
		t.Errorf("a refused commit: %.100v", err)
	}
	w.refused(w.task("3"), service.ErrLimit, "raise bytes", "SELECT repeat('x', 33000000)::int")
}

// TestReadersWithoutRuns: while quern.runs is missing, tasks that do not commit are served, also on new connections.
func TestReadersWithoutRuns(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if _, err := w.task("1").Stored(t.Context()); !errors.Is(err, service.ErrUnavailable) {
		t.Fatalf("quern.runs is missing: %v", err)
	}
	for _, change := range []func(*sql.Grant){readOnly, atCall} {
		w.databases.CloseIdle(time.Time{})
		run := w.task("2", change)
		w.want(run, "1", "SELECT 1")
		run.Close()
	}
	if away := w.databases.Away("acme"); len(away) != 1 {
		t.Errorf("away: %+v", away)
	}
}

// TestCorrectedURL: the failures of a database are forgotten when its secret has another URL.
func TestCorrectedURL(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for url, why := range map[string]string{"shop": "its URL is wrong", "postgres://seller:x@127.0.0.1:1/shop": "it cannot be reached"} {
		wrong := w.task("1", func(g *sql.Grant) { g.Source.URL = url })
		if _, err := w.ask(wrong, "SELECT 1"); !errors.Is(err, service.ErrUnavailable) {
			t.Fatal(err)
		}
		away := w.databases.Away("acme")
		if len(away) != 1 || away[0].Why != why || !strings.Contains(away[0].Remedy, "correct the secret database.shop") {
			t.Errorf("away: %+v", away)
		}
		if number := w.databases.Sample().Away; number != 1 {
			t.Errorf("%d are away", number)
		}
	}
	w.want(w.task("2"), "1", "SELECT 1")
	if away := w.databases.Away("acme"); len(away) > 0 {
		t.Errorf("away: %+v", away)
	}
}

// TestDurableCommit: Redis is told that a task is complete, so its commit is on the disk of the server, whatever the
// role and the guest have set.
func TestDurableCommit(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	w.exec("ALTER ROLE " + w.name() + "a SET synchronous_commit = off; " + `
		CREATE TABLE seen (setting text);
		CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
			$$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()`)
	for i, change := range []func(*sql.Grant){func(*sql.Grant) {}, atCall} {
		run := w.task(strconv.Itoa(i), change)
		w.want(run, "off", "SELECT current_setting('synchronous_commit')")
		w.want(run, "", "INSERT INTO t VALUES ($1::int)", strconv.Itoa(i))
		var err error
		if i == 0 {
			_, err = run.Complete(t.Context(), []byte("done"))
		} else {
			_, err = run.Commit(t.Context(), "shop", "step", nil)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if got := w.value("SELECT string_agg(setting, ',') FROM seen"); got != "on,on" {
		t.Errorf("synchronous_commit at the commits: %s", got)
	}
}
