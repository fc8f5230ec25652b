package assemblyscript_test

import (
	"context"
	"errors"
	"os"
	"slices"
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

// Values of PostgreSQL become values of the language, and the other way round; a wrong type fails the task with a remedy.
func TestDatabaseValues(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	url := server.Database(t)
	owner := server.Connect(t, url)
	if err := owner.Script(t.Context(), "CREATE TABLE notes (id int PRIMARY KEY, body text NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	databases, pool := sql.New(sql.Config{}), bind(t, "databases.ts")
	t.Cleanup(databases.Close)
	for input, want := range map[string]string{
		"i8\nSELECT -128 AS v":                                                    "-128",
		"i8\nSELECT 128 AS v":                                                     `column v: "128" is no i8`,
		"u32\nSELECT -1 AS v":                                                     `column v: "-1" is no u32`,
		"u32\nSELECT 4294967295 AS v":                                             "4294967295",
		"u32\nSELECT 42949672960 AS v":                                            `column v: "42949672960" is no u32`,
		"i64\nSELECT 9007199254740993 AS v":                                       "9007199254740993",
		"i64\nSELECT -9223372036854775808 AS v":                                   "-9223372036854775808",
		"i64\nSELECT 9223372036854775808 AS v":                                    `column v: "9223372036854775808" is no i64`,
		"i64\nSELECT 1.5 AS v":                                                    `column v: "1.5" is no i64`,
		"i64\nSELECT '' AS v":                                                     `column v: "" is no i64`,
		"i64\nSELECT '-' AS v":                                                    `column v: "-" is no i64`,
		"i64\nSELECT NULL AS v":                                                   "column v: it is NULL: read a type with null, such as string | null, or look at isNull before",
		"u64\nSELECT 18446744073709551615 AS v":                                   "18446744073709551615",
		"f32\nSELECT 0.5::float4 AS v":                                            "0.5",
		"f64\nSELECT 'NaN'::float8 AS v":                                          "NaN",
		"f64\nSELECT '-Infinity'::float8 AS v":                                    "-Infinity",
		"f64\nSELECT 1e300 AS v":                                                  "1e+300",
		"f64\nSELECT 'a' AS v":                                                    `column v: "a" is no f64`,
		"f64\nSELECT '1a' AS v":                                                   `column v: "1a" is no f64`,
		"bool\nSELECT true AS v":                                                  "true",
		"bool\nSELECT false AS v":                                                 "false",
		"bool\nSELECT 'true' AS v":                                                `column v: "true" is no bool`,
		"string\nSELECT 12345678901234567890.123456789 AS v":                      "12345678901234567890.123456789",
		"string\nSELECT interval '26 h' AS v":                                     "26:00:00",
		"string\nSELECT '\\x00'::bytea AS v":                                      "column v: it is a bytea: read an ArrayBuffer",
		"text\nSELECT NULL::text AS v":                                            "null",
		"text\nSELECT '' AS v":                                                    "<>",
		"text\nSELECT 'null'::jsonb AS v":                                         "<null>",
		"isNull\nSELECT NULL AS v":                                                "true",
		"isNull\nSELECT 1 AS v":                                                   "false",
		"bytes\nSELECT '\\x0061ff'::bytea AS v":                                   "0 97 255",
		"bytes\nSELECT ''::bytea AS v":                                            "",
		"bytes\nSELECT 'a' AS v":                                                  "column v: it is no bytea: read a string",
		"time\nSELECT '1970-01-01'::date AS v":                                    "0",
		"time\nSELECT '2026-11-28 13:05:59.25'::timestamp AS v":                   "1795871159250000000",
		"time\nSELECT '2026-11-28 13:05:59.123456+01'::timestamptz AS v":          "1795867559123456000",
		"time\nSELECT '1969-12-31 23:59:59.5+00'::timestamptz AS v":               "-500000000",
		"time\nSELECT '2024-02-29 23:59:59+00'::timestamptz AS v":                 "1709251199000000000",
		"time\nSELECT '1700-03-01'::date AS v":                                    "-8515238400000000000",
		"time\nSELECT '2261-12-31 23:59:59.999999+00'::timestamptz AS v":          "9214646399999999000",
		"time\nSELECT 'infinity'::timestamptz AS v":                               `column v: "infinity" is no time in nanoseconds: read a string`,
		"time\nSELECT '2300-01-01'::date AS v":                                    `column v: "2300-01-01" is no time in nanoseconds: read a string`,
		"time\nSELECT '0044-03-15 BC'::date AS v":                                 `column v: "0044-03-15 BC" is no time in nanoseconds: read a string`,
		"time\nSELECT '12345-01-01'::date AS v":                                   `column v: "12345-01-01" is no time in nanoseconds: read a string`,
		"i32[]\nSELECT '{}'::int[] AS v":                                          "",
		"i32[]\nSELECT '{1,-2}'::int[] AS v":                                      "1;-2",
		"i32[]\nSELECT '[0:1]={1,2}'::int[] AS v":                                 "1;2",
		"i32[]\nSELECT '{1,NULL}'::int[] AS v":                                    "column v, element 2: it is NULL: read a type with null, such as string | null, or look at isNull before",
		"i32[]\nSELECT 'a' AS v":                                                  `column v: "a" is no array`,
		"i32[]\nSELECT '{1' AS v":                                                 `column v: "{1" is no array`,
		"i32[][]\nSELECT '{{1,2},{3,4}}'::int[] AS v":                             "1;2|3;4",
		`string[]` + "\n" + `SELECT ARRAY['a "b"', 'c\,}', 'NULL', '', 'ü'] AS v`: `a "b";c\,};NULL;;ü`,
		"texts\nSELECT ARRAY['a', NULL, 'NULL'] AS v":                             "<a>;null;<NULL>",
		"bytes[]\nSELECT ARRAY['\\x00ff'::bytea, ''] AS v":                        "0 255;",
		"columns\nSELECT 1 AS a, now() AS \"B c\"":                                "a 23, B c 1184",
		"early\nSELECT 1 AS v":                                                    "column v: there is no row: call next, which tells whether there is one",
		"string\nSELECT 1 AS v WHERE false":                                       "column v: there is no row: call next, which tells whether there is one",
		"string\nSELECT 1 AS a, 2 AS b":                                           "the answer has no column v: it has a, b",
		"string\nSELECT 1/0 AS v":                                                 "division by zero (SQLSTATE 22012)",
		"failure\nINSERT INTO notes VALUES (1, 'a'), (1, 'b')":                    "ESQL true 0 duplicate key value violates unique constraint \"notes_pkey\": Key (id)=(1) already exists. (SQLSTATE 23505)|23505||0|public|notes||notes_pkey OK",
		"failure\nINSERT INTO notes VALUES (1)":                                   "ESQL true 0 null value in column \"body\" of relation \"notes\" violates not-null constraint: Failing row contains (1, null). (SQLSTATE 23502)|23502||0|public|notes|body| OK",
		"failure\nSELECT ides FROM notes":                                         "ESQL true 0 column \"ides\" does not exist (SQLSTATE 42703)|42703|Perhaps you meant to reference the column \"notes.id\".|8|||| OK",
		"failure\nINSERT INTO notes VALUES (1, '')":                               "OK false 1  OK",
		"params": "-128;18446744073709551615;0.5;NaN;-Infinity;1e+300;t;ü\n;\\x00ff;\\x00ff;\\x6e6f6e65;nil;{t,f};{\"a\\\"\\\\\",\"NULL\",\"\"};{\"\\\\x00ff\",NULL};" +
			"1970-01-01 00:00:00+00;1969-12-31 23:59:59.999999+00;2026-11-28 13:05:59.123456+00",
	} {
		run := databases.For(taskOn(url))
		call := runtime.Call{TaskID: "task", Input: []byte(input)}
		call.Services.SQL = run
		got := pool.Run(t.Context(), call)
		run.Close()
		if text := string(got.Output) + strings.TrimPrefix(got.Message, "exit status 1: "); text != want {
			t.Errorf("%q: %q, want %q", input, text, want)
		}
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

// A step that another run of the task commits first has the value of that run, and the statements of this run are undone.
func TestDatabaseStepOfOtherRun(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	url := server.Database(t)
	owner := server.Connect(t, url)
	if err := errors.Join(relay.Init(t.Context(), owner), owner.Script(t.Context(), "CREATE TABLE bills (id int)")); err != nil {
		t.Fatal(err)
	}
	databases, pool := sql.New(sql.Config{}), bind(t, "databases.ts")
	t.Cleanup(databases.Close)
	run, other := databases.For(taskOn(url)), databases.For(taskOn(url))
	defer run.Close()
	defer other.Close()
	call := runtime.Call{TaskID: "task", Input: []byte("step\nINSERT INTO bills VALUES (1)")}
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
	if got := pool.Run(t.Context(), call); string(got.Output) != "second" {
		t.Errorf("%q %s", got.Output, got.Message)
	}
	var ids []string
	if err := owner.Query(t.Context(), func(r postgres.Row) { ids = append(ids, r.Text(0)) }, "SELECT id::text FROM bills"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, []string{"2"}) {
		t.Errorf("bills %v, want 2 alone", ids)
	}
}
