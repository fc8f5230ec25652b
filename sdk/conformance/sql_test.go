package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/host/relay"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
)

// shop runs a handler of testdata/sql that has a database with the table t (id int PRIMARY KEY).
type shop struct {
	// run runs a task with this input, of the plugin complete or call: the handler with each commit of the manifest.
	run func(t *testing.T, plugin string, input []any) did
}

// did is what became of a task.
type did struct {
	Complete      bool
	Result, Error string
	Attempts      int
}

// newDatabase makes a database with tables, and returns the URL of a role for handlers.
func newDatabase(t *testing.T, tables ...string) (url string) {
	t.Helper()
	server := postgrestest.Shared(t)
	owner, name := server.Connect(t, server.Database(t)), ""
	if err := owner.Query(t.Context(), func(r postgres.Row) { name = r.Text(0) }, "SELECT current_database()"); err != nil {
		t.Fatal(err)
	}
	for _, script := range append(tables, "CREATE ROLE "+name+"_h LOGIN", "GRANT ALL ON ALL TABLES IN SCHEMA public TO "+name+"_h") {
		if err := owner.Script(t.Context(), script); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(relay.Init(t.Context(), owner), relay.GrantHandler(t.Context(), owner, name+"_h")); err != nil {
		t.Fatal(err)
	}
	return server.UserURL(name+"_h", name)
}

// shopTables are the tables of a shop. What is in the second one is checked when a transaction is committed.
const shopTables = "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE later (id int REFERENCES t DEFERRABLE INITIALLY DEFERRED)"

// served is a shop whose handler a host serves.
func served(t *testing.T, language, file string) shop {
	t.Helper()
	url, files, dir := newDatabase(t, shopTables), t.TempDir(), t.TempDir()
	engine := runtimetest.Engine(t, language)
	if err := os.CopyFS(filepath.Join(files, "app"), os.DirFS("testdata/sql")); err != nil {
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
	for _, commit := range []string{"complete", "call"} {
		manifest := "capabilities: {sql: [{database: shop, access: rw, commit: " + commit + "}]}\n"
		if err := errors.Join(os.WriteFile(filepath.Join(dir, commit+".wasm"), module, 0o600),
			os.WriteFile(filepath.Join(dir, commit+".yaml"), []byte(manifest), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	node := start(t, dir)
	if err := os.WriteFile(filepath.Join(node.secrets, node.tenant, "database.shop"), []byte(url), 0o600); err != nil {
		t.Fatal(err)
	}
	return shop{func(t *testing.T, plugin string, input []any) did {
		t.Helper()
		body, err := json.Marshal(input)
		if err != nil {
			t.Fatal(err)
		}
		n := node.bounded(t)
		id, err := n.client.Queue(plugin).Enqueue(n.ctx, body, queue.Options{Retry: queue.Retry{MaxAttempts: 2, Base: 10 * time.Millisecond, Min: 10 * time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		task, err := n.client.Wait(n.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		d := did{Complete: task.Status == queue.Complete, Result: string(task.Result), Attempts: task.Attempts}
		if !d.Complete {
			d.Error = task.Failure().Message
		}
		return d
	}}
}

// native is a shop whose handler a program of testdata/sql runs, as tests of plugins do.
func native(t *testing.T, dir, environment string, program ...string) shop {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program[0], append(program[1:], newDatabase(t, shopTables))...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", environment)
	var said bytes.Buffer
	cmd.Stderr = &said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", cmd, err, &said)
		}
	})
	answers := json.NewDecoder(stdout)
	return shop{func(t *testing.T, plugin string, input []any) (d did) {
		t.Helper()
		if err := errors.Join(json.NewEncoder(stdin).Encode([]any{plugin, input}), answers.Decode(&d)); err != nil {
			t.Fatalf("%s: %v\n%s", input[0], err, &said)
		}
		return d
	}}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// ids returns the IDs in the table from low to high.
func (s shop) ids(t *testing.T, low, high int) string {
	t.Helper()
	return s.run(t, "complete", []any{"ids", []int{low, high}}).Result
}

// TestSQLReadmes runs the tests with a database that the READMEs show, of the handlers that they show.
func TestSQLReadmes(t *testing.T) {
	t.Parallel()
	// blocks returns the handler, and its tests.
	blocks := func(language string, codes ...string) (found []string) {
		text, err := os.ReadFile(filepath.Join("..", language, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		for i, begin := range []string{"\n## Databases\n", "\nTests with a database need "} {
			_, rest, _ := strings.Cut(string(text), begin)
			_, rest, _ = strings.Cut(rest, "```"+codes[i]+"\n")
			rest, _, _ = strings.Cut(rest, "```")
			found = append(found, rest)
		}
		return found
	}
	for language, test := range map[string]func(t *testing.T, dir string) (*exec.Cmd, string){
		"python": func(t *testing.T, dir string) (*exec.Cmd, string) {
			found := blocks("python", "python", "python")
			write(t, dir, "handler.py", found[0])
			write(t, dir, "test_handler.py", "import os\nimport pytest\nimport handler\nimport quern\n"+found[1])
			needs(t, "psycopg")
			return exec.CommandContext(t.Context(), absolute(t, "../../build/venv/bin/python"), "-m", "pytest", "-p", "quern.pytest_plugin", "-q", "."), "1 passed"
		},
		"javascript": func(t *testing.T, dir string) (*exec.Cmd, string) {
			found := blocks("javascript", "ts", "js")
			write(t, dir, "handler.ts", found[0])
			write(t, dir, "handler.test.mjs", "import assert from 'node:assert/strict';\nimport { test } from 'node:test';\nimport { database } from '@quern/sdk';\n"+
				"import { testHost } from '@quern/sdk/testing';\nimport handler from './handler.js';\n"+found[1])
			links(t, dir)
			esbuild := absolute(t, "../../build/engines/downloads/npm-javascript/node_modules/.bin/esbuild")
			if said, err := exec.CommandContext(t.Context(), esbuild, "--outfile="+filepath.Join(dir, "handler.js"), filepath.Join(dir, "handler.ts")).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			return exec.CommandContext(t.Context(), "node", "--test", "handler.test.mjs"), "pass 1"
		},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd, want := test(t, dir)
			url := newDatabase(t, "CREATE TABLE orders (id int PRIMARY KEY, total numeric CHECK (total >= 0))", "CREATE TABLE items (id int, name text, price numeric)")
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "TEST_DATABASE="+url, "NODE_PATH="+absolute(t, packages), "PYTHONPATH="+absolute(t, "../python/package/src"), "PYTHONDONTWRITEBYTECODE=1")
			if said, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(said), want) {
				t.Errorf("%v, want %q\n%s", err, want, said)
			}
		})
	}
}

// packages are those of npm that tests use.
const packages = "../../build/npm/node_modules"

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if text == "" {
		t.Fatalf("the README has no block for %s", name)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// needs ends the test unless there is a module of Python.
func needs(t *testing.T, module string) {
	t.Helper()
	if err := exec.CommandContext(t.Context(), absolute(t, "../../build/venv/bin/python"), "-c", "import "+module).Run(); err != nil {
		runtimetest.Missing(t, "no "+module+" in build/venv: run make deps")
	}
}

// links makes a folder in which modules of Node import the SDK, and in which pg is.
func links(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(absolute(t, packages), "pg")); err != nil {
		runtimetest.Missing(t, "no package pg in build/npm: run make deps")
	}
	scope := filepath.Join(dir, "node_modules", "@quern")
	if err := errors.Join(os.MkdirAll(scope, 0o700), os.Symlink(absolute(t, "../javascript"), filepath.Join(scope, "sdk"))); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "package.json", `{"type": "module"}`)
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

// TestSQL runs handlers with statements in a host with a real database, and as tests of plugins do.
func TestSQL(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]func(t *testing.T) shop{
		"python":     func(t *testing.T) shop { return served(t, "python", "handler.py") },
		"javascript": func(t *testing.T) shop { return served(t, "javascript", "handler.js") },
		"python natively": func(t *testing.T) shop {
			needs(t, "psycopg")
			return native(t, "testdata/sql", "PYTHONPATH="+absolute(t, "../python/package/src"), absolute(t, "../../build/venv/bin/python"), "native.py")
		},
		"javascript natively": func(t *testing.T) shop {
			dir := t.TempDir()
			links(t, dir)
			if err := os.CopyFS(dir, os.DirFS("testdata/sql")); err != nil {
				t.Fatal(err)
			}
			return native(t, dir, "NODE_PATH="+absolute(t, packages), "node", "native.mjs")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			for about, test := range map[string]func(*testing.T, shop, string){
				"Values": testValues, "Arguments": testArguments, "Rows": testRows, "Refused": testRefused, "Nothing": testNothing,
				"Denied": testDenied, "Steps": testSteps,
			} {
				t.Run(about, func(t *testing.T) { test(t, s, name) })
			}
		})
	}
}

func testValues(t *testing.T, s shop, name string) {
	javascript := strings.HasPrefix(name, "javascript")
	var given [][2]any
	for _, v := range values {
		if given = append(given, [2]any{v.kind, v.text}); v.text == "\x00" {
			given[len(given)-1][1] = nil
		}
	}
	task := s.run(t, "complete", []any{"values", given})
	var got [][2]json.RawMessage
	if err := json.Unmarshal([]byte(task.Result), &got); err != nil || len(got) != len(values) {
		t.Fatalf("%v of %+v", err, task)
	}
	for i, v := range values {
		want := v.python
		if javascript && v.javascript != "" {
			want = v.javascript
		}
		if string(got[i][0]) != want {
			t.Errorf("%s %q: %s, want %s", v.kind, v.text, got[i][0], want)
		}
		if same := string(got[i][1]) == "true"; !same && !(v.loses && javascript) && v.kind != "jsonb[]" {
			t.Errorf("%s %q: it comes back as another value", v.kind, v.text)
		}
	}
}

func testArguments(t *testing.T, s shop, _ string) {
	task := s.run(t, "complete", []any{"arguments", nil})
	want := `["9223372036854775807","10000000000000000000000000000000000000000","NaN","true","2026-01-02 01:04:05.006+00","{\"a\": [1, null, \"ü\"]}",` +
		`"{\"a\\\"b\",\"c\\\\d\",NULL,\"NULL\",\"\",\"{,}\"}","\\x00ff",null,"{{1,2},{3,4}}","{\"\\\\x00ff\"}","[]"]`
	if task.Result != want {
		t.Errorf("result\n%s, want\n%s\n%s", task.Result, want, task.Error)
	}
}

func testRows(t *testing.T, s shop, _ string) {
	task := s.run(t, "complete", []any{"rows", nil})
	want := `[[{"n":1,"name":"x1"},{"n":2,"name":"x2"},{"n":3,"name":"x3"}],3,[["n",23],["name",25]],null,4]`
	if task.Result != want {
		t.Errorf("result %s, want %s; %s", task.Result, want, task.Error)
	}
	if got := s.ids(t, 100, 200); got != "[100,101,102,103]" {
		t.Errorf("the rows %s are committed, want 100 to 103", got)
	}
}

func testRefused(t *testing.T, s shop, _ string) {
	task := s.run(t, "complete", []any{"refused", nil})
	want := `[["23505","duplicate key value violates unique constraint \"t_pkey\"","Key (id)=(1) already exists.","public","t","t_pkey",0,` +
		`"duplicate key value violates unique constraint \"t_pkey\": Key (id)=(1) already exists. (SQLSTATE 23505)"],` +
		`["25P02","current transaction is aborted, commands ignored until end of transaction block","","","","",0,` +
		`"current transaction is aborted, commands ignored until end of transaction block (SQLSTATE 25P02)"],` +
		`["42703",8,"column \"nothing\" does not exist (SQLSTATE 42703)"]]`
	if task.Result != want {
		t.Errorf("result\n%s, want\n%s\n%s", task.Result, want, task.Error)
	}
	if got := s.ids(t, 0, 9); got != "[2]" {
		t.Errorf("the rows %s are committed, want 2", got)
	}
}

// testNothing: a task that fails leaves nothing.
func testNothing(t *testing.T, s shop, _ string) {
	for work, want := range map[string]string{
		"uncaught": `SQLError: duplicate key value violates unique constraint "t_pkey": Key \(id\)=\(10\) already exists\. \(SQLSTATE 23505\)`,
		"fail":     `out of ink$`,
		// The handler returns, but its transaction cannot be committed.
		"swallowed": `duplicate key value violates unique constraint "t_pkey"`,
		"deferred":  `violates foreign key constraint "later_id_fkey"`,
		"twice":     `two columns are called a: give them names by AS`,
	} {
		s.fails(t, work, want)
	}
	if got := s.ids(t, 10, 20); got != "[]" {
		t.Errorf("the rows %s are left", got)
	}
}

func (s shop) fails(t *testing.T, work, want string) {
	t.Helper()
	if task := s.run(t, "complete", []any{work, nil}); task.Complete || !regexp.MustCompile(want).MatchString(task.Error) {
		t.Errorf("%s: %+v, want the error %s", work, task, want)
	}
}

func testDenied(t *testing.T, s shop, name string) {
	s.fails(t, "word", `sql.*: .*a statement that begins with ["']CREATE["']: statements begin with SELECT, `)
	if strings.HasSuffix(name, "natively") {
		s.fails(t, "denied", `sql.*: (the test gives no database 'other': quern_host\.databases\['other'\] = 'postgres://|give the database to the test: testHost\({ databases: { "other": "postgres://).* quern plugin test --database other=postgres://`)
		return
	}
	s.fails(t, "denied", `sql other: .*database "other" is not granted: add \{database: "other"\} to capabilities\.sql`)
	s.fails(t, "commit", `sql.commit shop: .*database "shop" is not granted with access: rw and commit: call: add commit: call to database "shop" in capabilities\.sql`)
}

func testSteps(t *testing.T, s shop, _ string) {
	task := s.run(t, "call", []any{"steps", nil})
	if want := `[{"attempt":1,"amount":"1.10"},null]`; task.Result != want || task.Attempts != 2 {
		t.Errorf("%+v, want the result %s in 2 attempts", task, want)
	}
	if got := s.ids(t, 30, 39); got != "[30,32,33]" {
		t.Errorf("the rows %s are committed, want 30, 32, 33", got)
	}
}
