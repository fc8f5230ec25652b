package conformance_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/host/relay"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
)

// shop is a host of a handler in testdata/sql, with a database that has the table t (id int PRIMARY KEY).
type shop struct {
	*node
	owner *postgres.Conn
}

// newShop starts a host with the plugins complete and call: the handler with each commit of the manifest.
func newShop(t *testing.T, language, file string) *shop {
	t.Helper()
	server := postgrestest.Shared(t)
	s := &shop{owner: server.Connect(t, server.Database(t))}
	name := s.text(t, "SELECT current_database()")
	for _, script := range []string{"CREATE TABLE t (id int PRIMARY KEY)", "CREATE ROLE " + name + "_h LOGIN", "GRANT ALL ON t TO " + name + "_h"} {
		if err := s.owner.Script(t.Context(), script); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(relay.Init(t.Context(), s.owner), relay.GrantHandler(t.Context(), s.owner, name+"_h")); err != nil {
		t.Fatal(err)
	}
	files, dir := t.TempDir(), t.TempDir()
	handler, err := os.ReadFile(filepath.Join("testdata", "sql", file))
	if err != nil {
		t.Fatal(err)
	}
	engine := runtimetest.Engine(t, language)
	if err := errors.Join(os.Mkdir(filepath.Join(files, "app"), 0o700), os.WriteFile(filepath.Join(files, "app", file), handler, 0o600)); err != nil {
		t.Fatal(err)
	}
	if language == "python" {
		if err := os.CopyFS(filepath.Join(files, "lib"), os.DirFS(filepath.Join(filepath.Dir(engine), "python", "lib"))); err != nil {
			t.Fatal(err)
		}
	}
	module, err := exec.CommandContext(t.Context(), "./append", engine, files).Output()
	if err != nil {
		t.Fatal(err)
	}
	for plugin, commit := range map[string]string{"complete": "complete", "call": "call"} {
		manifest := "capabilities: {sql: [{database: shop, access: rw, commit: " + commit + "}]}\n"
		if err := errors.Join(os.WriteFile(filepath.Join(dir, plugin+".wasm"), module, 0o600),
			os.WriteFile(filepath.Join(dir, plugin+".yaml"), []byte(manifest), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	databases := sql.New(sql.Config{})
	t.Cleanup(databases.Close)
	s.node = start(t, dir, func(services *guest.Config, tenant string) {
		services.Databases = databases
		if err := os.WriteFile(filepath.Join(services.Secrets, tenant, "database.shop"), []byte(server.UserURL(name+"_h", name)), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	return s
}

// text returns the values of an answer, separated by blanks.
func (s *shop) text(t *testing.T, statement string) string {
	t.Helper()
	var all []string
	err := s.owner.Query(t.Context(), func(r postgres.Row) {
		for i := range r {
			all = append(all, r.Text(i))
		}
	}, statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return strings.Join(all, " ")
}

// do has the handler do one of its works.
func (s *shop) do(t *testing.T, plugin, work string, argument any) *queue.Task {
	t.Helper()
	input, err := json.Marshal([]any{work, argument})
	if err != nil {
		t.Fatal(err)
	}
	n := s.bounded(t)
	_, err = n.client.Queue(plugin).Enqueue(n.ctx, input, queue.Options{ID: work, Retry: queue.Retry{MaxAttempts: 2, Base: 10 * time.Millisecond, Min: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	task, err := n.client.Wait(n.ctx, work)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// value is a value of a type, and what the handlers make of it.
type value struct {
	kind, text         string
	python, javascript string // as JSON; javascript is "" if it is the same
	loses              bool   // in JavaScript it does not come back as it was
}

var values = []value{
	{kind: "int8", text: "9223372036854775807", python: `9223372036854775807`, javascript: `"bigint 9223372036854775807"`},
	{kind: "int8", text: "-9007199254740991", python: `-9007199254740991`},
	{kind: "int4", text: "-1", python: `-1`},
	{kind: "int2", text: "7", python: `7`},
	{kind: "numeric", text: "1234567890123456789012345678901234567890.10", python: `"Decimal 1234567890123456789012345678901234567890.10"`, javascript: `"1234567890123456789012345678901234567890.10"`},
	{kind: "numeric", text: "NaN", python: `"Decimal NaN"`, javascript: `"NaN"`},
	{kind: "numeric", text: "-Infinity", python: `"Decimal -Infinity"`, javascript: `"-Infinity"`},
	{kind: "float8", text: "0.1", python: `0.1`},
	{kind: "float8", text: "NaN", python: `"float nan"`, javascript: `"number NaN"`},
	{kind: "float4", text: "-Infinity", python: `"float -inf"`, javascript: `"number -Infinity"`},
	{kind: "bool", text: "t", python: `true`},
	{kind: "bool", text: "f", python: `false`},
	{kind: "text", text: "a\"b\\c\nü", python: `"a\"b\\c\nü"`},
	{kind: "varchar(3)", text: "", python: `""`},
	{kind: "char(3)", text: "a", python: `"a  "`},
	{kind: "bytea", text: `\x00ff27`, python: `"bytes 00ff27"`},
	{kind: "bytea", text: ``, python: `"bytes "`},
	{kind: "json", text: `{"a": [1, null]}`, python: `{"a":[1,null]}`, loses: true},
	{kind: "jsonb", text: `{"a": [1, null, "ü"]}`, python: `{"a":[1,null,"ü"]}`},
	{kind: "jsonb", text: `[]`, python: `[]`},
	{kind: "jsonb", text: `null`, python: `null`},
	{kind: "uuid", text: "11111111-2222-3333-4444-555555555555", python: `"UUID 11111111-2222-3333-4444-555555555555"`, javascript: `"11111111-2222-3333-4444-555555555555"`},
	{kind: "date", text: "2026-11-28", python: `"date 2026-11-28"`, javascript: `"2026-11-28"`},
	{kind: "date", text: "infinity", python: `"infinity"`},
	{kind: "date", text: "0044-03-15 BC", python: `"0044-03-15 BC"`},
	{kind: "time", text: "13:05:59.25", python: `"time 13:05:59.250000"`, javascript: `"13:05:59.25"`},
	{kind: "time", text: "24:00:00", python: `"24:00:00"`},
	{kind: "timestamp", text: "2026-11-28 13:05:59.25", python: `"datetime 2026-11-28 13:05:59.250000"`, javascript: `"2026-11-28 13:05:59.25"`},
	{kind: "timestamptz", text: "2026-11-28 13:05:59.25+02", python: `"datetime 2026-11-28 11:05:59.250000+00:00"`, javascript: `"Date 2026-11-28T11:05:59.250Z"`},
	{kind: "timestamptz", text: "2026-11-28 13:05:59.123456+00", python: `"datetime 2026-11-28 13:05:59.123456+00:00"`, javascript: `"Date 2026-11-28T13:05:59.123Z"`, loses: true},
	{kind: "timestamptz", text: "2026-11-28 13:05:59+00", python: `"datetime 2026-11-28 13:05:59+00:00"`, javascript: `"Date 2026-11-28T13:05:59.000Z"`},
	{kind: "timestamptz", text: "infinity", python: `"infinity"`},
	{kind: "timestamptz", text: "-infinity", python: `"-infinity"`},
	{kind: "timestamptz", text: "0044-03-15 12:00:00+00 BC", python: `"0044-03-15 12:00:00+00 BC"`},
	{kind: "timestamptz", text: "10000-01-01 00:00:00+00", python: `"10000-01-01 00:00:00+00"`},
	{kind: "interval", text: "1 year 2 mons 3 days 04:05:06", python: `"1 year 2 mons 3 days 04:05:06"`},
	{kind: "int4range", text: "[1,5)", python: `"[1,5)"`},
	{kind: "inet", text: "10.0.0.1", python: `"10.0.0.1"`},
	{kind: "int4[]", text: "{1,NULL,-3}", python: `[1,null,-3]`},
	{kind: "int4[]", text: "{}", python: `[]`},
	{kind: "int4[]", text: "{{1,2},{3,NULL}}", python: `[[1,2],[3,null]]`},
	{kind: "int8[]", text: "{9223372036854775807,1}", python: `[9223372036854775807,1]`, javascript: `["bigint 9223372036854775807",1]`},
	{kind: "text[]", text: `{a,NULL,"NULL","","a \"b\" \\ {c},",ü}`, python: `["a",null,"NULL","","a \"b\" \\ {c},","ü"]`},
	{kind: "bool[]", text: "{t,f,NULL}", python: `[true,false,null]`},
	{kind: "numeric[]", text: "{1.10,NaN}", python: `["Decimal 1.10","Decimal NaN"]`, javascript: `["1.10","NaN"]`},
	{kind: "float8[]", text: "{0.1,NaN}", python: `[0.1,"float nan"]`, javascript: `[0.1,"number NaN"]`},
	{kind: "bytea[]", text: `{"\\x00ff",NULL,"\\x"}`, python: `["bytes 00ff",null,"bytes "]`},
	{kind: "jsonb[]", text: `{"{\"a\": \"b\\\"c\"}",NULL}`, python: `[{"a":"b\"c"},null]`, loses: true},
	{kind: "timestamptz[]", text: `{"2026-11-28 13:05:59+00",infinity}`, python: `["datetime 2026-11-28 13:05:59+00:00","infinity"]`, javascript: `["Date 2026-11-28T13:05:59.000Z","infinity"]`},
	{kind: "int4", text: "\x00", python: `null`}, // stands for NULL
}

// TestSQL runs handlers with statements in a host with a real database.
func TestSQL(t *testing.T) {
	t.Parallel()
	for language, file := range map[string]string{"python": "handler.py", "javascript": "handler.js"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, language, file)
			for name, test := range map[string]func(*testing.T, *shop, string){
				"Values": testValues, "Arguments": testArguments, "Rows": testRows, "Refused": testRefused, "Nothing": testNothing,
				"Denied": testDenied, "Steps": testSteps,
			} {
				t.Run(name, func(t *testing.T) { test(t, s, language) })
			}
		})
	}
}

func testValues(t *testing.T, s *shop, language string) {
	var given [][2]any
	for _, v := range values {
		if given = append(given, [2]any{v.kind, v.text}); v.text == "\x00" {
			given[len(given)-1][1] = nil
		}
	}
	task := s.do(t, "complete", "values", given)
	var got [][2]json.RawMessage
	if err := json.Unmarshal(task.Result, &got); err != nil || len(got) != len(values) {
		t.Fatalf("%v of %q: %+v", err, task.Result, task.Failure())
	}
	for i, v := range values {
		want := v.python
		if language == "javascript" && v.javascript != "" {
			want = v.javascript
		}
		if string(got[i][0]) != want {
			t.Errorf("%s %q: %s, want %s", v.kind, v.text, got[i][0], want)
		}
		if same := string(got[i][1]) == "true"; !same && !(v.loses && language == "javascript") && v.kind != "jsonb[]" {
			t.Errorf("%s %q: it comes back as another value", v.kind, v.text)
		}
	}
}

func testArguments(t *testing.T, s *shop, _ string) {
	task := s.do(t, "complete", "arguments", nil)
	want := `["9223372036854775807","10000000000000000000000000000000000000000","NaN","true","2026-01-02 01:04:05.006+00","{\"a\": [1, null, \"ü\"]}",` +
		`"{\"a\\\"b\",\"c\\\\d\",NULL,\"NULL\",\"\",\"{,}\"}","\\x00ff",null,"{{1,2},{3,4}}","{\"\\\\x00ff\"}","[]"]`
	if string(task.Result) != want {
		t.Errorf("result\n%s, want\n%s\n%+v", task.Result, want, task.Failure())
	}
}

func testRows(t *testing.T, s *shop, _ string) {
	task := s.do(t, "complete", "rows", nil)
	want := `[[{"n":1,"name":"x1"},{"n":2,"name":"x2"},{"n":3,"name":"x3"}],3,[["n",23],["name",25]],null,4]`
	if string(task.Result) != want {
		t.Errorf("result %s, want %s; %+v", task.Result, want, task.Failure())
	}
	if got := s.text(t, "SELECT count(*) FROM t WHERE id >= 100"); got != "4" {
		t.Errorf("%s rows are committed, want 4", got)
	}
}

func testRefused(t *testing.T, s *shop, _ string) {
	task := s.do(t, "complete", "refused", nil)
	want := `[["23505","duplicate key value violates unique constraint \"t_pkey\"","Key (id)=(1) already exists.","public","t","t_pkey",0,` +
		`"duplicate key value violates unique constraint \"t_pkey\": Key (id)=(1) already exists. (SQLSTATE 23505)"],` +
		`["25P02","current transaction is aborted, commands ignored until end of transaction block","","","","",0,` +
		`"current transaction is aborted, commands ignored until end of transaction block (SQLSTATE 25P02)"],` +
		`["42703",8,"column \"nothing\" does not exist (SQLSTATE 42703)"]]`
	if string(task.Result) != want {
		t.Errorf("result\n%s, want\n%s\n%+v", task.Result, want, task.Failure())
	}
	if got := s.text(t, "SELECT id FROM t WHERE id < 10"); got != "2" {
		t.Errorf("the rows %q are committed, want 2", got)
	}
}

// testNothing: a task that fails leaves nothing.
func testNothing(t *testing.T, s *shop, _ string) {
	for work, want := range map[string]string{
		"uncaught": `SQLError: duplicate key value violates unique constraint "t_pkey": Key \(id\)=\(10\) already exists\. \(SQLSTATE 23505\)`,
		"fail":     `: out of ink$`,
		"twice":    `two columns are called a: give them names by AS`,
	} {
		task := s.do(t, "complete", work, nil)
		if got := task.Failure().Message; task.Status != queue.Failed || !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %s with %q, want %q", work, task.Status, got, want)
		}
	}
	if got := s.text(t, "SELECT count(*) FROM t WHERE id IN (10, 20)"); got != "0" {
		t.Errorf("%s rows are left", got)
	}
}

func testDenied(t *testing.T, s *shop, _ string) {
	for work, want := range map[string]string{
		"denied": `sql other: .*database "other" is not granted: add \{database: "other"\} to capabilities\.sql`,
		"word":   `sql shop: .*a statement that begins with "CREATE": statements begin with SELECT, `,
		"commit": `sql.commit shop: .*database "shop" is not granted with access: rw and commit: call: add commit: call to database "shop" in capabilities\.sql`,
	} {
		task := s.do(t, "complete", work, nil)
		if got := task.Failure().Message; task.Status != queue.Failed || !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %s with %q, want %q", work, task.Status, got, want)
		}
	}
}

func testSteps(t *testing.T, s *shop, _ string) {
	task := s.do(t, "call", "steps", nil)
	if want := `[{"attempt":1,"amount":"1.10"},null]`; string(task.Result) != want || task.Attempts != 2 {
		t.Errorf("result %s in %d attempts, want %s in 2; %+v", task.Result, task.Attempts, want, task.Failure())
	}
	if got := s.text(t, "SELECT id FROM t WHERE id BETWEEN 30 AND 39 ORDER BY id"); got != "30 32 33" {
		t.Errorf("the rows %q are committed, want 30 32 33", got)
	}
}
