package sql_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/host/relay"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/runtime/service"
)

func TestMain(m *testing.M) {
	code := m.Run()
	postgrestest.End()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// world has a database with a role that handlers connect with.
type world struct {
	t         *testing.T
	server    *postgrestest.Server
	owner     *postgres.Conn
	url       string // for the role
	databases *sql.Databases
}

// setup makes a database with a table t that the role of w.url may change.
func setup(t *testing.T) *world {
	t.Helper()
	server := postgrestest.Shared(t)
	owner := server.Connect(t, server.Database(t))
	w := &world{t: t, server: server, owner: owner, databases: sql.New(sql.Config{})}
	t.Cleanup(w.databases.Close)
	w.exec("CREATE TABLE t (id int PRIMARY KEY, name text)")
	w.url = w.role("a")
	w.exec("GRANT ALL ON t TO " + w.name() + "a")
	return w
}

// name returns the database's name.
func (w *world) name() (name string) {
	w.t.Helper()
	w.query(func(r postgres.Row) { name = r.Text(0) }, "SELECT current_database()")
	return name
}

// role makes a role and returns its URL.
func (w *world) role(suffix string) string {
	w.t.Helper()
	w.exec("CREATE ROLE " + w.name() + suffix + " LOGIN")
	return w.server.UserURL(w.name()+suffix, w.name())
}

func (w *world) query(each func(postgres.Row), statement string, args ...any) {
	w.t.Helper()
	if err := w.owner.Query(w.t.Context(), each, statement, args...); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}

func (w *world) exec(statement string) {
	w.t.Helper()
	if err := w.owner.Script(w.t.Context(), statement); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}

// task returns a run of a task on the database shop.
func (w *world) task(id string, change ...func(*sql.Grant)) *sql.Run {
	w.t.Helper()
	return w.taskOf("acme", id, change...)
}

func (w *world) taskOf(tenant, id string, change ...func(*sql.Grant)) *sql.Run {
	w.t.Helper()
	grant := sql.Grant{
		Source: sql.Source{Name: "database.shop", URL: w.url}, Write: true, Rows: 1000, Bytes: 1 << 20,
		Timeout: 10 * time.Second, Transaction: 20 * time.Second, Raise: func(key string) string { return "raise " + key },
	}
	for _, f := range change {
		f(&grant)
	}
	task := sql.Task{
		Tenant: tenant, ID: id, Created: "1", Complete: "shop",
		Grant: func(_ context.Context, database string) (sql.Grant, error) {
			if database != "shop" {
				return sql.Grant{}, service.ErrDenied
			}
			grant.Database = database
			return grant, nil
		},
		DenyCommit: func(string) error {
			if grant.AtCall {
				return nil
			}
			return service.ErrDenied
		},
		Warn: func(message string, fields ...any) { w.t.Log(message, fields) },
	}
	if grant.AtCall {
		task.Complete = ""
	}
	run := w.databases.For(task)
	w.t.Cleanup(run.Close)
	return run
}

func readOnly(g *sql.Grant) { g.Write = false }
func atCall(g *sql.Grant)   { g.AtCall = true }

// ask runs a statement, and returns its rows as text, or E and the SQLSTATE.
func (w *world) ask(run *sql.Run, statement string, args ...string) (string, error) {
	w.t.Helper()
	var parameters []service.SQLValue
	for _, arg := range args {
		parameters = append(parameters, service.SQLValue{Kind: service.SQLText, Data: []byte(arg)})
	}
	data, err := run.Query(w.t.Context(), "shop", statement, parameters)
	if err != nil {
		return "", err
	}
	return text(data), nil
}

// text returns an answer in words: rows by ; and values by ,.
func text(data []byte) string {
	number := func() int {
		n := int(binary.LittleEndian.Uint32(data))
		data = data[4:]
		return n
	}
	rows := int32(number())
	if rows < 0 {
		number()
		data = data[5:]
		return "E" + string(data[:5])
	}
	data = data[8:]
	columns := number()
	for range columns {
		number()
		n := number()
		data = data[n:]
	}
	var all []string
	for range rows {
		var values []string
		for range columns {
			kind := data[0]
			data = data[1:]
			n := number()
			value := string(data[:n])
			if kind == byte(service.SQLNull) {
				value = "NULL"
			}
			values, data = append(values, value), data[n:]
		}
		all = append(all, strings.Join(values, ","))
	}
	return strings.Join(all, ";")
}

// want runs a statement and compares its answer.
func (w *world) want(run *sql.Run, want, statement string, args ...string) {
	w.t.Helper()
	if got, err := w.ask(run, statement, args...); err != nil || got != want {
		w.t.Errorf("%s: %q, %v, want %q", statement, got, err, want)
	}
}

// refused runs a statement that fails with an error of package service whose text has these words.
func (w *world) refused(run *sql.Run, err error, words, statement string) {
	w.t.Helper()
	if got, failed := w.ask(run, statement); !errors.Is(failed, err) || !strings.Contains(failed.Error(), words) {
		w.t.Errorf("%s: %q, %v, want %v with %q", statement, got, failed, err, words)
	}
}

// value returns the first value of the owner's answer.
func (w *world) value(statement string, args ...any) (value string) {
	w.t.Helper()
	w.query(func(r postgres.Row) { value = r.Text(0) }, statement, args...)
	return value
}

// init makes quern.runs and gives the role its rights.
func (w *world) init(roles ...string) {
	w.t.Helper()
	if err := relay.Init(w.t.Context(), w.owner); err != nil {
		w.t.Fatal(err)
	}
	for _, role := range roles {
		if err := relay.GrantHandler(w.t.Context(), w.owner, w.name()+role); err != nil {
			w.t.Fatal(err)
		}
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 5*time.Millisecond, what)
}

// TestValues: each value arrives as PostgreSQL writes it, whatever the settings of the role and the database are.
func TestValues(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.exec("ALTER ROLE " + w.name() + "a SET timezone = 'Asia/Tokyo'; ALTER ROLE " + w.name() + "a SET bytea_output = 'escape'; ALTER ROLE " + w.name() + "a SET datestyle = 'German'; ALTER ROLE " + w.name() + "a SET intervalstyle = 'iso_8601'")
	run := w.task("1")
	for expression, want := range map[string]string{
		"9223372036854775807::int8": "9223372036854775807", "'1234567890123456789012345678901234567890.5'::numeric": "1234567890123456789012345678901234567890.5",
		"'NaN'::float8": "NaN", "'-infinity'::timestamptz": "-infinity", "'2026-11-28 22:05:59.25+09'::timestamptz": "2026-11-28 13:05:59.25+00",
		"'24:00'::time": "24:00:00", "'1 year 2 mons 3 days 04:05:06'::interval": "1 year 2 mons 3 days 04:05:06", "ARRAY[1,NULL]": "{1,NULL}",
		"int4range(1,5)": "[1,5)", "'null'::jsonb": "null", "NULL::jsonb": "NULL", "'\\x00ff'::bytea": "\x00\xff", "''::bytea": "", "true": "t",
		"0.1::float8": "0.1", "''::text": "", "1.5::float4": "1.5", "'0001-01-01 BC'::date": "0001-01-01 BC",
	} {
		w.want(run, want, "SELECT "+expression)
	}
	w.want(run, "7,x", "SELECT $1::int + 1, $2", "6", "x")
	data, err := run.Query(t.Context(), "shop", "SELECT octet_length($1::bytea), $2::text", []service.SQLValue{{Kind: service.SQLBytes, Data: []byte{0, 255}}, {}})
	if err != nil || text(data) != "2,NULL" {
		t.Errorf("%q, %v", data, err)
	}
	w.want(run, "", "SELECT FROM t WHERE false")
	w.want(run, ";", "SELECT FROM generate_series(1, 2)")
	w.want(run, "E42703", "SELECT nonsense")
	w.want(run, "E25P02", "SELECT 1")
}

// TestWords: statements that would end the transaction, or leave it, are refused.
func TestWords(t *testing.T) {
	t.Parallel()
	w := setup(t)
	run := w.task("1")
	for _, statement := range []string{
		"COMMIT", "commit and chain", " /* a /* nested */ comment */ CoMMiT", "-- a\nEND", "--\rABORT", "BEGIN", "ROLLBACK", "ROLLBACK AND CHAIN", "ROLLBACK WORK",
		"SET ROLE postgres", "RESET ROLE", "DISCARD ALL", "PREPARE TRANSACTION 'x'", "PREPARE a AS SELECT 1", "EXECUTE a", "LISTEN a", "COPY t TO PROGRAM 'true'",
		"COPY t FROM STDIN", "DO $$ BEGIN COMMIT; END $$", "CALL p()", "LOCK t", "CREATE TABLE x ()", "DROP TABLE t", "GRANT ALL ON t TO public", "VACUUM", "", ";", "/* open", "\"SELECT\" 1", "é", "(((COMMIT",
	} {
		w.refused(run, service.ErrDenied, "begins with", statement)
	}
	for _, statement := range []string{"SELECT 1", "(SELECT 1)", "/* a */ values (1)", "-- a\n table t", "with a as (select 1) select 1 from a", "explain (costs off) select 1", "SAVEPOINT a", "ROLLBACK TO a", "ROLLBACK TRANSACTION TO SAVEPOINT a", "RELEASE a", "DECLARE c CURSOR FOR SELECT 1", "FETCH c", "MOVE c", "CLOSE c"} {
		if got, err := w.ask(run, statement); err != nil || strings.HasPrefix(got, "E") {
			t.Errorf("%s: %q, %v", statement, got, err)
		}
	}
	w.want(run, "E42601", "SELECT 1; COMMIT")
}

// TestTenants: a guest of one role reads and changes nothing of another one's, not even its rows in quern.runs.
func TestTenants(t *testing.T) {
	t.Parallel()
	w := setup(t)
	other := w.role("b")
	w.init("a", "b")
	w.exec("CREATE TABLE secret AS SELECT 'of b' AS text; GRANT ALL ON secret TO " + w.name() + "b")
	theirs := w.task("theirs", func(g *sql.Grant) { g.URL = other })
	w.want(theirs, "of b", "SELECT * FROM secret")
	if stored, err := theirs.Complete(t.Context(), []byte("settled")); stored != nil || err != nil {
		t.Fatalf("%q, %v", stored, err)
	}
	for _, statement := range []string{
		"SELECT * FROM secret", "UPDATE secret SET text = 'of a'", "SELECT query_to_xml('SELECT * FROM secret', true, true, '')",
		"SELECT set_config('role', '" + w.name() + "b', true)", "SELECT set_config('session_authorization', '" + w.name() + "b', true)",
		"SELECT pg_read_file('/etc/passwd')", "SELECT lo_import('/etc/passwd')", "UPDATE quern.runs SET settlement = ''",
		"INSERT INTO quern.runs (role, tenant, task, created, settlement) VALUES ('" + w.name() + "b', 'acme', 'next', '1', '')",
	} {
		run := w.task("1")
		if got, err := w.ask(run, statement); err != nil || got != "E42501" {
			t.Errorf("%s: %q, %v", statement, got, err)
		}
		run.Close()
	}
	run := w.task("1")
	w.want(run, "0", "SELECT count(*) FROM quern.runs")
	w.want(run, "", "DELETE FROM quern.runs")
	w.want(run, "", "INSERT INTO quern.runs (tenant, task, created, settlement) VALUES ('acme', 'theirs', '1', 'forged')")
	if _, err := run.Complete(t.Context(), []byte("of a")); err != nil {
		t.Error(err)
	}
	if stored, err := w.task("theirs", func(g *sql.Grant) { g.URL = other }).Stored(t.Context()); string(stored) != "settled" || err != nil {
		t.Errorf("%q, %v", stored, err)
	}
}

// TestReadOnly: a database for reading cannot be changed, and the guest cannot open the door.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, statement := range []string{"INSERT INTO t VALUES (1)", "UPDATE t SET id = 2", "DELETE FROM t", "WITH a AS (INSERT INTO t VALUES (1) RETURNING 1) SELECT 1"} {
		run := w.task("1", readOnly)
		w.want(run, "E25006", statement)
		run.Close()
	}
	run := w.task("1", readOnly)
	w.want(run, "E25001", "SELECT set_config('transaction_read_only', 'off', true)")
	run.Close()
	run = w.task("1", readOnly)
	w.want(run, "off", "SELECT set_config('default_transaction_read_only', 'off', true)")
	w.want(run, "E25006", "INSERT INTO t VALUES (1)")
	if _, err := run.Complete(t.Context(), nil); err == nil {
		t.Error("a task completes with an aborted transaction")
	}
}

// TestSession: what a guest leaves in its session is gone before the next one.
func TestSession(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	for _, complete := range []bool{true, false} {
		run := w.task(fmt.Sprint("leaves", complete))
		w.want(run, "left", "SELECT set_config('app.left', 'left', false)")
		w.want(run, "", "SELECT pg_advisory_lock(9)")
		w.want(run, "", "SELECT set_config('search_path', 'pg_temp', false) WHERE false")
		w.want(run, "", "DECLARE c CURSOR WITH HOLD FOR SELECT 1")
		if complete {
			if _, err := run.Complete(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		run.Close()
		eventually(t, "an idle connection", func() bool { s := w.databases.Sample(); return s.Used == 0 && s.Idle == 1 })
		next := w.task("next")
		w.want(next, "NULL,0,0,t", "SELECT nullif(current_setting('app.left', true), ''), (SELECT count(*) FROM pg_cursors WHERE name <> ''), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), pg_try_advisory_xact_lock(9)")
		next.Close()
		eventually(t, "an idle connection", func() bool { return w.databases.Sample().Idle == 1 })
	}
}

// TestLargeAnswers: an answer over its bounds ends the connection without being read, and the server stops.
func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for statement, words := range map[string]string{
		"SELECT generate_series(1, 1001)":                            "more than 1000 rows: add a LIMIT, read it in pieces with DECLARE and FETCH, or raise rows",
		"SELECT repeat('x', 2 << 20)":                                "raise bytes",
		"SELECT repeat('x', 300000000)":                              "raise bytes",
		"SELECT repeat('x', 100000) FROM generate_series(1, 100000)": "raise bytes",
		"SELECT generate_series(1, 1000000000)":                      "raise rows",
	} {
		for first := range 2 {
			run := w.task("1", func(g *sql.Grant) { g.Timeout, g.Transaction = time.Minute, 2*time.Minute })
			if first == 1 {
				w.want(run, "1", "SELECT 1")
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			w.refused(run, service.ErrLimit, words, statement)
			if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 64<<20 {
				t.Errorf("%s: %d MiB allocated", statement, (after.TotalAlloc-before.TotalAlloc)>>20)
			}
			w.refused(run, service.ErrLimit, words, "SELECT 1") // until it is rolled back
			if err := run.Rollback(t.Context(), "shop"); err != nil {
				t.Error(err)
			}
			w.want(run, "1", "SELECT 1")
			run.Close()
		}
	}
	eventually(t, "no statement", func() bool {
		return w.value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'") == "0"
	})
}

// TestLargeBytes: of a bytea the bytes count, and not its hexadecimal text.
func TestLargeBytes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	value := func(size int) string {
		return fmt.Sprintf("SELECT decode(repeat('ff', %d), 'hex'), NULL::bytea", size)
	}
	run := w.task("1")
	w.want(run, strings.Repeat("\xff", 1<<20-100)+",NULL", value(1<<20-100))
	w.refused(run, service.ErrLimit, "raise bytes", value(1<<20))
}

// TestClock: no guest keeps a connection or a statement longer than it may, even if it lifts the limits of the server.
func TestClock(t *testing.T) {
	t.Parallel()
	w := setup(t)
	busy := func() string {
		return w.value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'")
	}
	lift := "SELECT set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true), set_config('lock_timeout', '0', true)"
	short := func(g *sql.Grant) { g.Timeout = 200 * time.Millisecond }
	run := w.task("1", short)
	w.refused(run, service.ErrLimit, "the statement takes longer than 200ms: raise timeout", "SELECT pg_sleep(60)")
	run.Close()
	run = w.task("1", short)
	w.want(run, "0,0,0", lift)
	w.refused(run, service.ErrLimit, "the statement takes longer than 200ms", "SELECT pg_sleep(60)")
	run.Close()
	run = w.task("1", func(g *sql.Grant) { g.Transaction = 300 * time.Millisecond })
	w.want(run, "0,0,0", lift)
	eventually(t, "the end of the transaction", func() bool { return busy() == "0" })
	w.refused(run, service.ErrLimit, "the transaction takes longer than 300ms: raise transaction", "SELECT 1")
	if _, err := run.Complete(t.Context(), nil); err == nil {
		t.Error("a task completes whose transaction is lost")
	}
	eventually(t, "no connection", func() bool { s := w.databases.Sample(); return s.Used+s.Idle == 0 && busy() == "0" })
	ctx, cancel := context.WithCancel(t.Context())
	run = w.task("1")
	w.want(run, "1", "SELECT 1")
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := run.Query(ctx, "shop", "SELECT pg_sleep(60)", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	eventually(t, "no statement", func() bool { return busy() == "0" })
}

// TestPool: connections are bounded, those of an idle pool make room, and a task that gets none is told so.
func TestPool(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.databases = sql.New(sql.Config{MaxConnections: 3})
	t.Cleanup(w.databases.Close)
	two := func(g *sql.Grant) { g.Pool = 2 }
	first, second := w.task("1", two), w.task("2", two)
	w.want(first, "1", "SELECT 1")
	w.want(second, "1", "SELECT 1")
	begun := time.Now()
	third := w.task("3", two)
	w.refused(third, service.ErrUnavailable, "raise pool", "SELECT 1")
	if took := time.Since(begun); took < 4*time.Second || third.Away() == nil {
		t.Errorf("after %s, %v", took, third.Away())
	}
	released := make(chan struct{})
	go func() { defer close(released); first.Close() }()
	w.want(w.task("4", two), "1", "SELECT 1")
	<-released
	second.Close()
	other := func(g *sql.Grant) { g.Name, g.URL = "database.other", w.server.UserURL(w.name()+"a", w.name()) }
	for i := range 2 {
		w.want(w.task(fmt.Sprint("other", i), other), "1", "SELECT 1")
	}
	if s := w.databases.Sample(); s.Used+s.Idle > 3 {
		t.Errorf("%d connections", s.Used+s.Idle)
	}
}

// TestTenantsShareConnections: a tenant leaves half of a host's connections to others, and the next free one goes to the
// tenant with the fewest.
func TestTenantsShareConnections(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.databases = sql.New(sql.Config{MaxConnections: 4, Tenants: 3})
	t.Cleanup(w.databases.Close)
	of := func(tenant string) *sql.Run { return w.taskOf(tenant, "1", func(g *sql.Grant) { g.Pool = 100 }) }
	one, another := of("acme"), of("acme")
	w.want(one, "1", "SELECT 1")
	w.want(another, "1", "SELECT 1")
	w.refused(of("acme"), service.ErrUnavailable, "the tenant uses all 2 that one tenant may have: raise --database-connections", "SELECT 1")
	for range 2 {
		w.want(of("other"), "1", "SELECT 1")
	}
	w.refused(of("third"), service.ErrUnavailable, "all 4 of the host are in use: raise --database-connections", "SELECT 1")
	acme, third := make(chan error, 1), make(chan error, 1)
	wait := func(tenant string, waiting int, got chan<- error) *sql.Run {
		run := of(tenant)
		go func() { _, err := run.Query(t.Context(), "shop", "SELECT 1", nil); got <- err }()
		eventually(t, tenant+" waits", func() bool { return w.databases.Waiting() == waiting })
		return run
	}
	wait("acme", 1, acme)
	last := wait("third", 2, third)
	one.Close()
	if err := <-third; err != nil || len(acme) > 0 {
		t.Errorf("the tenant with the fewest connections: %v", err)
	}
	last.Close()
	if err := <-acme; err != nil {
		t.Error(err)
	}
	if s := w.databases.Sample(); s.Used+s.Idle > 4 {
		t.Errorf("%d connections", s.Used+s.Idle)
	}
}

// TestSample: what tasks do is counted by its result.
func TestSample(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	run := w.task("1", atCall, func(g *sql.Grant) { g.Rows, g.Pool = 1, 2 })
	w.want(run, "1", "SELECT 1")
	w.want(run, "E42703", "SELECT nonsense")
	run.Close()
	w.refused(run, service.ErrLimit, "rows", "SELECT generate_series(1, 2)")
	run.Close()
	away := w.task("2", func(g *sql.Grant) { g.Name, g.URL = "database.other", "postgres://u@127.0.0.1:1/d" })
	w.refused(away, service.ErrUnavailable, "connect", "SELECT 1")
	for _, want := range []error{nil, service.ErrConflict} {
		w.want(run, "1", "SELECT 1")
		if _, err := run.Commit(t.Context(), "shop", "step", nil); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	s := w.databases.Sample()
	if s.OK != 3 || s.Refused != 1 || s.OverLimit != 1 || s.Unavailable != 1 || s.Committed != 1 || s.CommitRefused != 1 ||
		s.Max != sql.DefaultConnections || s.Away != 1 || s.Waited <= 0 {
		t.Errorf("%+v", s)
	}
}

// logged returns Databases with a log, and its text.
func (w *world) logged(config sql.Config) (text func() string) {
	w.t.Helper()
	var mu sync.Mutex
	var log strings.Builder
	config.Logger = hclog.New(&hclog.LoggerOptions{Output: &log, Mutex: &mu})
	w.databases = sql.New(config)
	w.t.Cleanup(w.databases.Close)
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return log.String()
	}
}

// TestMissingTable: a database without quern.runs is away, and logged once, however often the host connects, until a
// task commits there, also on an idle connection.
func TestMissingTable(t *testing.T) {
	t.Parallel()
	w := setup(t)
	log := w.logged(sql.Config{})
	run := w.task("1")
	for range 3 {
		w.databases.CloseIdle(time.Time{})
		eventually(t, "the table is missing on a new connection", func() bool {
			_, err := run.Stored(t.Context())
			return err != nil && strings.Contains(err.Error(), "quern.runs") && w.databases.Sample().Idle == 1
		})
		if s := w.databases.Sample(); s.Away != 1 {
			t.Errorf("%d databases are away", s.Away)
		}
	}
	if text := log(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "quern database init --grant-handler") {
		t.Errorf("the log has\n%s", text)
	}
	if away := w.databases.Away("acme"); len(away) != 1 || away[0].Secret != "database.shop" || away[0].Why != "quern.runs cannot be used (SQLSTATE 42P01)" {
		t.Errorf("away: %+v", away)
	}
	w.want(run, "1", "SELECT 1")
	w.init("a")
	if _, err := run.Complete(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if away := w.databases.Away("acme"); away != nil {
		t.Errorf("away: %+v", away)
	}
	if s, text := w.databases.Sample(), log(); s.Away != 0 || strings.Count(text, "database serves again") != 1 {
		t.Errorf("%d databases are away, the log has\n%s", s.Away, text)
	}
}

// TestWrongSettings: a database whose settings in the grants are wrong is away until a transaction begins.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	log := w.logged(sql.Config{})
	for i := range 2 {
		wrong := w.task(fmt.Sprint(i), func(g *sql.Grant) { g.Settings = map[string]string{"work_mem": "much"} })
		w.refused(wrong, service.ErrUnavailable, "correct settings of this database", "SELECT 1")
		eventually(t, "the pause is over", func() bool {
			return w.databases.Sample().Away == 1 && connects(t, w)
		})
	}
	if text := log(); strings.Count(text, "\n") != 1 {
		t.Errorf("the log has\n%s", text)
	}
	w.want(w.task("right"), "1", "SELECT 1")
	if s, text := w.databases.Sample(), log(); s.Away != 0 || strings.Count(text, "database serves again") != 1 {
		t.Errorf("%d databases are away, the log has\n%s", s.Away, text)
	}
}

// connects reports whether a task can use the database's table of runs, which needs no transaction.
func connects(t *testing.T, w *world) bool {
	t.Helper()
	_, err := w.task("look").Stored(t.Context())
	return err == nil
}

// TestCancelledWhileWaiting: a task that is cancelled while it waits for a connection is not logged, and one that waits in
// vain after it is.
func TestCancelledWhileWaiting(t *testing.T) {
	t.Parallel()
	w := setup(t)
	log := w.logged(sql.Config{MaxConnections: 1})
	w.want(w.task("1"), "1", "SELECT 1")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	cancelled := w.task("2")
	go func() { _, err := cancelled.Query(ctx, "shop", "SELECT 1", nil); ended <- err }()
	eventually(t, "it waits", func() bool { return w.databases.Waiting() == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || log() != "" {
		t.Errorf("%v, and the log has\n%s", err, log())
	}
	w.refused(w.task("3"), service.ErrUnavailable, "raise --database-connections", "SELECT 1")
	if !strings.Contains(log(), "no connection to a database is free") {
		t.Errorf("the log has\n%s", log())
	}
}

// TestStale: a connection that the server closed while it was idle is replaced.
func TestStale(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	run := w.task("1")
	w.want(run, "1", "SELECT 1")
	run.Close()
	eventually(t, "an idle connection", func() bool { return w.databases.Sample().Idle == 1 })
	w.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + w.name() + "a'")
	run = w.task("2")
	w.want(run, "", "INSERT INTO t VALUES (1)")
	if _, err := run.Complete(t.Context(), nil); err != nil {
		t.Error(err)
	}
	w.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + w.name() + "a'")
	if stored, err := run.Stored(t.Context()); stored == nil || err != nil {
		t.Errorf("%q, %v", stored, err)
	}
}

// TestOneCommits: of two runs of a task only one commits, and the other gets what it stored. A task that has failed
// for good cannot be committed by an earlier run.
func TestOneCommits(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	first, second := w.task("1"), w.task("1")
	w.want(first, "", "INSERT INTO t VALUES (1)")
	w.want(second, "", "INSERT INTO t VALUES (2)")
	if stored, err := first.Complete(t.Context(), []byte("first")); stored != nil || err != nil {
		t.Errorf("first: %q, %v", stored, err)
	}
	if stored, err := second.Complete(t.Context(), []byte("second")); string(stored) != "first" || err != nil {
		t.Errorf("second: %q, %v", stored, err)
	}
	if got := w.value("SELECT string_agg(id::text, ',') FROM t"); got != "1" {
		t.Errorf("rows %s", got)
	}
	if stored, err := second.Fail(t.Context(), []byte("failed")); string(stored) != "first" || err != nil {
		t.Errorf("fail after a commit: %q, %v", stored, err)
	}
	late := w.task("2")
	w.want(late, "", "INSERT INTO t VALUES (3)")
	if stored, err := w.task("2").Fail(t.Context(), []byte("failed")); stored != nil || err != nil {
		t.Errorf("fail: %q, %v", stored, err)
	}
	if stored, err := late.Complete(t.Context(), []byte("late")); string(stored) != "failed" || err != nil {
		t.Errorf("late: %q, %v", stored, err)
	}
	for id, want := range map[string]string{"1": "first", "2": "failed", "3": ""} {
		if stored, err := w.task(id).Resolve(t.Context()); string(stored) != want || err != nil {
			t.Errorf("resolve %s: %q, %v", id, stored, err)
		}
	}
	if got := w.value("SELECT count(*) FROM quern.runs"); got != "2" {
		t.Errorf("%s runs", got)
	}
}

// TestForgedRow: a guest that inserts the row of its own task fails.
func TestForgedRow(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	run := w.task("1")
	w.want(run, "", "INSERT INTO quern.runs (tenant, task, created, settlement) VALUES ('acme', '1', '1', 'forged')")
	if stored, err := run.Complete(t.Context(), []byte("own")); stored != nil || err == nil || errors.Is(err, service.ErrUnavailable) {
		t.Errorf("%q, %v", stored, err)
	}
}

// TestLargeSettlements: a row over the bound of the task is neither written nor read.
func TestLargeSettlements(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	bounded := func(most int64) *sql.Run {
		run := w.databases.For(sql.Task{
			Tenant: "acme", ID: "1", Created: "1", Complete: "shop", MaxSettlement: most, Warn: func(string, ...any) {},
			Grant: func(context.Context, string) (sql.Grant, error) {
				return sql.Grant{
					Source: sql.Source{Name: "database.shop", URL: w.url}, Database: "shop", Write: true, Rows: 10, Bytes: 1 << 20,
					Timeout: 10 * time.Second, Transaction: 20 * time.Second,
				}, nil
			},
		})
		t.Cleanup(run.Close)
		return run
	}
	run := bounded(8)
	w.want(run, "1", "SELECT 1")
	if stored, err := run.Complete(t.Context(), []byte("nine byte")); stored != nil || err == nil || !strings.Contains(err.Error(), "raise limits.output") {
		t.Errorf("%q, %v", stored, err)
	}
	run.Close()
	w.exec("INSERT INTO quern.runs (role, tenant, task, created, settlement) VALUES ('" + w.name() + "a', 'acme', '1', '1', 'nine byte')")
	stored, err := bounded(8).Stored(t.Context())
	if stored != nil || err == nil || errors.Is(err, service.ErrUnavailable) || !strings.Contains(err.Error(), "has 9 bytes, and may have 8") {
		t.Errorf("%q, %v", stored, err)
	}
	if stored, err := bounded(9).Stored(t.Context()); string(stored) != "nine byte" || err != nil {
		t.Errorf("%q, %v", stored, err)
	}
	run = w.task("2")
	w.want(run, "E23514", "INSERT INTO quern.runs (tenant, task, created, step, settlement) VALUES ('acme', '2', '1', 'step', convert_to(repeat('x', 1048577), 'UTF8'))")
}

// TestSteps: a step is done once, by one run.
func TestSteps(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	run := w.task("1", atCall)
	if _, err := run.Step(t.Context(), "shop", "charge"); !errors.Is(err, service.ErrNotFound) {
		t.Errorf("a step that is not done: %v", err)
	}
	w.want(run, "", "INSERT INTO t VALUES (1)")
	zombie := w.task("1", atCall)
	w.want(zombie, "", "INSERT INTO t VALUES (2)")
	if data, err := run.Commit(t.Context(), "shop", "charge", []byte("receipt")); err != nil || text(data) != "" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := zombie.Commit(t.Context(), "shop", "charge", []byte("other")); !errors.Is(err, service.ErrConflict) {
		t.Errorf("a second commit of the step: %v", err)
	}
	for _, r := range []*sql.Run{run, zombie, w.task("1", atCall)} {
		if value, err := r.Step(t.Context(), "shop", "charge"); string(value) != "receipt" || err != nil {
			t.Errorf("%q, %v", value, err)
		}
	}
	if data, err := run.Commit(t.Context(), "shop", "empty", nil); err != nil || text(data) != "" {
		t.Errorf("a step without statements: %q, %v", data, err)
	}
	if value, err := run.Step(t.Context(), "shop", "empty"); len(value) != 0 || err != nil {
		t.Errorf("%q, %v", value, err)
	}
	w.want(run, "", "INSERT INTO t VALUES (3)")
	if _, err := run.Complete(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "are not committed") {
		t.Errorf("changes that are not committed: %v", err)
	}
	if got := w.value("SELECT string_agg(id::text, ',') FROM t"); got != "1" {
		t.Errorf("rows %s", got)
	}
	if _, err := w.task("1").Commit(t.Context(), "shop", "", nil); !errors.Is(err, service.ErrDenied) {
		t.Errorf("a commit of a database with commit: complete: %v", err)
	}
	w.want(run, "E42703", "SELECT nonsense")
	if data, err := run.Commit(t.Context(), "shop", "", nil); err != nil || text(data) != "E25P02" {
		t.Errorf("a commit of an aborted transaction: %q, %v", data, err)
	}
}

// TestChangesThatAreNotCommitted: a task with commit: call that leaves changes uncommitted fails, whatever made them.
func TestChangesThatAreNotCommitted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	w.exec("CREATE FUNCTION add(int) RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES ($1) RETURNING id'")
	w.exec("INSERT INTO t VALUES (2)") // an UPDATE of no rows changes nothing
	plain := w.databases
	undo := sql.New(sql.Config{Undo: true})
	t.Cleanup(undo.Close)
	for statement, changes := range map[string]bool{
		"INSERT INTO t VALUES (1)":                                         true,
		"WITH a AS (INSERT INTO t VALUES (1) RETURNING id) SELECT 1":       true,
		"WITH a AS (UPDATE t SET name = 'b' RETURNING id) SELECT * FROM a": true,
		"SELECT add(1)":                        true,
		"SELECT * FROM t":                      false,
		"UPDATE t SET id = 1 WHERE id = 1":     false,
		"WITH a AS (SELECT 1) SELECT * FROM a": false,
	} {
		for _, w.databases = range []*sql.Databases{plain, undo} {
			run := w.task("1", atCall)
			for range 2 { // before a commit, and after one
				if _, err := w.ask(run, statement); err != nil {
					t.Fatal(err)
				}
				if _, err := run.Complete(t.Context(), nil); changes != (err != nil) || err != nil && !strings.Contains(err.Error(), "the changes or locks on shop are not committed") {
					t.Errorf("%s: %v", statement, err)
				}
				if err := run.Rollback(t.Context(), "shop"); err != nil {
					t.Error(err)
				}
				if _, err := run.Complete(t.Context(), nil); err != nil {
					t.Errorf("%s, rolled back: %v", statement, err)
				}
				w.want(run, "", "INSERT INTO t VALUES (2) ON CONFLICT DO NOTHING")
				if _, err := run.Commit(t.Context(), "shop", "", nil); err != nil {
					t.Error(err)
				}
			}
			run.Close()
		}
		w.exec("TRUNCATE t; INSERT INTO t VALUES (2)")
	}
}

// TestLargeSteps: a step returns its value, whatever bound the answers of statements have.
func TestLargeSteps(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	value := bytes.Repeat([]byte{0xff}, 1<<20)
	for range 2 {
		run := w.task("1", atCall, func(g *sql.Grant) { g.Bytes = 1 << 10 })
		if _, err := run.Step(t.Context(), "shop", "large"); errors.Is(err, service.ErrNotFound) {
			if _, err := run.Commit(t.Context(), "shop", "large", value); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := run.Step(t.Context(), "shop", "large"); !bytes.Equal(got, value) || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		w.refused(run, service.ErrLimit, "more than 1024 bytes", "SELECT repeat('x', 1024)")
		run.Close()
	}
}

// TestCommitAtTheEndOfItsTime: a guest commits or looks for a step while the clock ends its transaction.
func TestCommitAtTheEndOfItsTime(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	for i := range 20 {
		run := w.task(fmt.Sprint(i), atCall, func(g *sql.Grant) { g.Transaction = 20 * time.Millisecond })
		for {
			_, err := run.Step(t.Context(), "shop", "none")
			if errors.Is(err, service.ErrLimit) {
				break
			}
			if !errors.Is(err, service.ErrNotFound) {
				t.Fatal(err)
			}
		}
		if _, err := run.Commit(t.Context(), "shop", "none", nil); !errors.Is(err, service.ErrLimit) {
			t.Errorf("a commit of a lost transaction: %v", err)
		}
		run.Close()
	}
}

// TestSweep: rows of tasks that have ended go, those of others stay.
func TestSweep(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	w.databases = sql.New(sql.Config{Keep: time.Hour, Open: func(_ context.Context, tenant string, tasks []string) (map[string]bool, error) {
		return map[string]bool{"open": tenant == "acme"}, nil
	}})
	t.Cleanup(w.databases.Close)
	for _, id := range []string{"open", "old", "new"} {
		run := w.task(id)
		w.want(run, "1", "SELECT 1")
		if _, err := run.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	w.exec("UPDATE quern.runs SET committed = now() - interval '2 hours' WHERE task <> 'new'; INSERT INTO quern.runs (role, tenant, task, created, settlement, committed) SELECT role, tenant, 'old' || g, '1', '', committed FROM quern.runs, generate_series(1, 999) g WHERE task = 'old'")
	if err := w.databases.SweepAll(t.Context()); err != nil {
		t.Error(err)
	}
	if got := w.value("SELECT string_agg(task, ',' ORDER BY task) FROM quern.runs"); got != "new,open" {
		t.Errorf("rows of %s", got)
	}
}

// TestRun: rows are deleted in the background, also while all connections are in use.
func TestRun(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	w.databases = sql.New(sql.Config{Sweep: 10 * time.Millisecond, Open: func(context.Context, string, []string) (map[string]bool, error) {
		return map[string]bool{}, nil
	}})
	t.Cleanup(w.databases.Close)
	two := func(g *sql.Grant) { g.Pool = 2 }
	run := w.task("old", two)
	w.want(run, "1", "SELECT 1")
	if _, err := run.Complete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	w.want(w.task("busy", two), "1", "SELECT 1")
	w.exec("UPDATE quern.runs SET committed = now() - interval '2 hours'")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.databases.Run(ctx) }()
	eventually(t, "no rows", func() bool { return w.value("SELECT count(*) FROM quern.runs") == "0" })
	stop()
	<-ended
}

// TestCancelledWhileConnecting: a task that is cancelled while it connects says nothing about the database.
func TestCancelledWhileConnecting(t *testing.T) {
	t.Parallel()
	w := setup(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	var log strings.Builder
	w.databases = sql.New(sql.Config{Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
	w.url = fmt.Sprintf("postgres://u@%s/d?sslmode=disable", listener.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, _ := listener.Accept()
		cancel()
		accepted <- conn
	}()
	run := w.task("1")
	if _, err := run.Query(ctx, "shop", "SELECT 1", nil); !errors.Is(err, context.Canceled) || run.Away() != nil || log.String() != "" {
		t.Errorf("%v, %v, %s", err, run.Away(), log.String())
	}
	if conn := <-accepted; conn != nil {
		_ = conn.Close()
	}
	w.databases.Close()
}

// TestPooler: all of it works through PgBouncer in transaction mode.
func TestPooler(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.init("a")
	through := w.server.Pooler(t)
	w.exec("ALTER ROLE " + w.name() + "a SUPERUSER") // the pooler knows only the superuser
	w.url = through(w.server.URL(w.name()))
	for id := range 3 {
		run := w.task(fmt.Sprint(id))
		w.want(run, "", "INSERT INTO t VALUES ($1)", fmt.Sprint(id))
		if stored, err := run.Complete(t.Context(), []byte("settled")); stored != nil || err != nil {
			t.Errorf("%q, %v", stored, err)
		}
		if stored, err := run.Stored(t.Context()); string(stored) != "settled" || err != nil {
			t.Errorf("%q, %v", stored, err)
		}
	}
	run := w.task("late", func(g *sql.Grant) { g.Transaction = 300 * time.Millisecond })
	w.refused(run, service.ErrLimit, "takes longer", "SELECT pg_sleep(60)")
	eventually(t, "no statement", func() bool {
		return w.value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_sleep%' AND state = 'active' AND pid <> pg_backend_pid()") == "0"
	})
}
