package sql_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
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

var _ = cmp.Or[int]
var _ = binary.LittleEndian
var _ = errors.Is
var _ = context.Background
var _ service.SQL = (*sql.Run)(nil)
var _ = time.Now

func TestFirst(t *testing.T) {
	w := setup(t)
	run := w.databases.For(sql.Task{Tenant: "default", ID: "1", Grant: func(_ context.Context, database string) (sql.Grant, error) {
		return sql.Grant{Source: sql.Source{Name: "database.shop", URL: w.url}, Database: database, Write: true, Rows: 10, Bytes: 1 << 20, Timeout: time.Second * 5, Transaction: 10 * time.Second, Raise: func(k string) string { return "raise " + k }}, nil
	}})
	defer run.Close()
	for _, s := range []string{"select $1::int4 as n, $2::text as t", "insert into t values ($1, $2)", "select * from generate_series(1, 11) where $1::int >0 or $2::text = ''"} {
		a, err := run.Query(t.Context(), "shop", s, []service.SQLValue{{Kind: 1, Data: []byte("42")}, {}})
		t.Logf("%q %v", a, err)
	}
}
