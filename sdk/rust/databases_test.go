package rust_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/host/relay"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/runtime"
)

func TestMain(m *testing.M) {
	code := m.Run()
	postgrestest.End()
	os.Exit(code)
}

// biller does the step bill, and reports progress before it is committed. Then it tells what it cannot read.
const biller = `
#[quern::handler]
fn a(_: Task) -> Result<String, Error> {
    let shop = quern::database("shop");
    let bill = shop.once("bill", || {
        shop.execute("INSERT INTO bills VALUES (1)", &[])?;
        quern::progress(0.5, "")?;
        Ok("first")
    })?;
    let undone = shop.once("undone", || -> Result<String, Error> {
        shop.execute("INSERT INTO bills VALUES (3)", &[])?;
        Err(Error::fatal("no ink"))
    });
    let row = shop.query_one("SELECT 'infinity'::timestamptz AS ever, '1969-12-31'::date AS early, NULL AS none", &[])?;
    let wrong = [row.get::<std::time::SystemTime>("ever").err(), row.get::<std::time::SystemTime>("early").err(), row.get::<i32>("none").err(),
        row.get::<i32>("no").err(), shop.query_one("SELECT 1 WHERE false", &[]).err(), shop.query("SELECT ides FROM bills", &[]).err()];
    let wrong: Vec<_> = wrong.iter().flatten().map(|err| err.to_string()).collect();
    shop.rollback()?;
    Ok(format!("{} {undone:?}\n{}", String::from_utf8(bill)?, wrong.join("\n")))
}
`

// A step that another run of the task commits first has the value of that run. Statements of a step that is not done are undone, and an
// error tells what to do.
func TestDatabase(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	url := server.Database(t)
	owner := server.Connect(t, url)
	if err := errors.Join(relay.Init(t.Context(), owner), owner.Script(t.Context(), "CREATE TABLE bills (id int)")); err != nil {
		t.Fatal(err)
	}
	databases := sql.New(sql.Config{})
	t.Cleanup(databases.Close)
	task := taskOn(url)
	run, other := databases.For(task), databases.For(task)
	defer run.Close()
	defer other.Close()
	call := runtime.Call{TaskID: "task"}
	call.Services.SQL = run
	call.Progress = func(float64, string) {
		_, err := other.Query(t.Context(), "shop", "INSERT INTO bills VALUES (2)", nil)
		if err == nil {
			_, err = other.Commit(t.Context(), "shop", "bill", []byte("second"))
		}
		if err != nil {
			t.Error(err)
		}
	}
	got := bind(t, buildIn(t, crate(t, "biller", biller), "biller", "wasm32-unknown-unknown")).Run(t.Context(), call)
	want := `second Err(Error { status: 65, message: "no ink", delay: None, key: false })
column ever: "infinity" is no SystemTime: read a String
column early: "1969-12-31" is no SystemTime: read a String
column none: it is NULL: read an Option<i32>
the answer has no column no: it has ever, early, none
the answer has no rows: use query_opt if that may be
column "ides" does not exist (SQLSTATE 42703)`
	if string(got.Output) != want {
		t.Errorf("%s\n%s, want\n%s", got.Message, got.Output, want)
	}
	var ids []string
	if err := owner.Query(t.Context(), func(r postgres.Row) { ids = append(ids, r.Text(0)) }, "SELECT id::text FROM bills"); err != nil {
		t.Fatal(err)
	}
	if strings.Join(ids, " ") != "2" {
		t.Errorf("bills %v, want 2 alone", ids)
	}
}

// taskOn returns a task that may do everything on a database, with commit: call.
func taskOn(url string) sql.Task {
	return sql.Task{
		Tenant: "tenant", ID: "task",
		Grant: func(_ context.Context, database string) (sql.Grant, error) {
			return sql.Grant{
				Source: sql.Source{Name: "database.shop", URL: url}, Database: database, Write: true, AtCall: true, Rows: 10, Bytes: 1 << 20,
				Timeout: time.Minute, Transaction: time.Minute, Raise: func(key string) string { return "raise " + key },
			}, nil
		},
		DenyCommit: func(string) error { return nil },
	}
}
