package main

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// nsjPackages returns the folder with the real nsj-queue-lib and what it needs.
func nsjPackages(t *testing.T) string {
	t.Helper()
	packages := absolute(t, "../../build/nsj")
	if _, err := os.Stat(packages); err != nil {
		runtimetest.Missing(t, "left out: there is no nsj-queue-lib; `make deps-all` brings it")
	}
	return packages
}

// nsjTable makes a database with a queue table of nsj-queue-lib. It returns the database's URL, and a function that
// makes a call of Python with the real package.
func nsjTable(t *testing.T, server *postgrestest.Server) (at string, python func(args ...string) *exec.Cmd) {
	t.Helper()
	packages := nsjPackages(t)
	at = server.Database(t)
	place, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	python = func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), absolute(t, "../../build/venv/bin/python"), args...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "DB_DRIVER=POSTGRES",
			"DB_HOST="+place.Hostname(), "DB_PORT="+place.Port(), "DB_BASE="+strings.Trim(place.Path, "/"), "DB_USER="+place.User.Username(),
			"DB_PASS=x", "QUEUE_NAME=fila", "QUEUE_TABLE=fila", "QUEUE_BASE_INTERVAL_RETRY=0")
		return cmd
	}
	schema, err := python("-m", "nsj_queue_lib.db_gen", "public", "fila").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Connect(t, at).Script(t.Context(), string(schema)); err != nil {
		t.Fatal(err)
	}
	return at, python
}

// value returns the first column of the only row of an answer.
func value(t *testing.T, db *postgres.Conn, query string) (text string) {
	t.Helper()
	if err := db.Query(t.Context(), func(v postgres.Row) { text = v.Text(0) }, query); err != nil {
		t.Fatal(err)
	}
	return text
}

// Operators learn at once what is wrong with a queue table of nsj-queue-lib, and how to mend it.
func TestNsjCommands(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	at, _ := nsjTable(t, server)
	db := server.Connect(t, at)
	exec := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := db.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	u := newUser(t, queuetest.Shared(t).URL())
	role := "relay_" + queuetest.Tenant()
	exec("CREATE ROLE "+role+" LOGIN", "CREATE TABLE wrong (id text)", "CREATE VIEW seen AS SELECT * FROM fila", "CREATE SCHEMA app",
		`CREATE TABLE app."Fila" (LIKE fila INCLUDING ALL)`)
	of := strings.Replace(at, "postgres@", role+"@", 1)
	check := func(tables, want string) {
		t.Helper()
		if r := u.run("database", "check", "--postgres", of, "--nsj", tables); !strings.Contains(r.stdout, want) {
			t.Errorf("check of %s:\n%s\nwant %q", tables, r.stdout, want)
		}
	}
	u.must("database", "init", "--postgres", at, "--grant-relay", role)
	check("fila", "GRANT SELECT, INSERT, UPDATE ON public.fila TO "+role)
	check("app.fila", "GRANT USAGE ON SCHEMA app TO "+role)
	check("nosuch", "no table nosuch that the role "+role+" sees")
	check("wrong", "the table wrong is not as nsj-queue-lib 1.2 makes it: id is text and should be int8, id_inicial is missing")
	check("seen", "seen is no table")
	if r := u.run("database", "check", "--postgres", of, "--nsj", "a.b.c.d"); !strings.Contains(r.stderr, "is no name of a table") {
		t.Errorf("%+v", r)
	}
	u.must("database", "init", "--postgres", at, "--nsj", `fila,app."Fila"`, "--grant-relay", role)
	exec("INSERT INTO fila (processo, dead) VALUES ('p', true), ('q', false), (NULL, false)")
	check("fila", "subscribers are in public.fila_subscriber")
	check("fila", "3 rows wait, for the queues fila, p.dead, q")
	check(`app."Fila"`, "publications are left to workers of nsj-queue-lib")
	check(`app."Fila"`, "no trigger announces new rows")
	exec(`CREATE TRIGGER wake AFTER INSERT ON app."Fila" FOR EACH ROW EXECUTE FUNCTION ` + value(t, db, `SELECT f.oid::regproc
		FROM pg_trigger JOIN pg_proc f ON f.oid = tgfoid WHERE tgrelid = 'fila'::regclass AND prosrc ILIKE '%notify%' LIMIT 1`) + "()")
	if r := u.run("database", "check", "--postgres", of, "--nsj", `fila,app."Fila"`); r.status != exitDone {
		t.Errorf("%+v", r)
	}
	pooled := server.Pooler(t)(at)
	if r := u.run("database", "check", "--postgres", pooled, "--nsj", "fila"); !strings.Contains(r.stdout, "locks need a session of their own") {
		t.Errorf("%+v", r)
	}

	for args, want := range map[string]string{
		"--nsj fila --tenants a,b":                     "its rows name no tenant, so give one",
		"--nsj fila --hold 1h":                         "hold and not_before are for the outbox",
		"--nsj fila --keep-ended 1h":                   "--keep-ended is for the outbox",
		"--nsj-max-retry 5":                            "--nsj-max-retry without --nsj",
		"--nsj fila --nsj-max-retry 0":                 "use 1 to 1000000",
		"--nsj fila --nsj-retry-interval 10000h":       "retry_interval",
		"--nsj fila --tenants blueque --postgres mysq": "postgres://USER",
	} {
		r := u.run(append([]string{"relay", "--postgres", at}, strings.Fields(args)...)...)
		if r.status != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "shop.url"), at)
	for entry, want := range map[string]string{
		"nsj: {}":                                      "nsj has no table: write nsj: {table: fila}",
		"nsj: {table: fila, max_retries: 1}":           "max_retries",
		"nsj: {table: fila, max_retry: -1}":            "max_retry -1: use 1 to 1000000",
		"nsj: {table: fila, retry_interval: 5}":        `"5" is not a duration: write it with its unit, such as 5m`,
		"nsj: {table: fila, queues: {x: a b}}":         `queues: "x"`,
		"nsj: {table: fila}, raquel: {table: jobs}":    "write a source for each",
		"nsj: {table: fila}, tenants: [blueque, acme]": `tenant "acme" is not served here`,
	} {
		sources := write(t, filepath.Join(dir, "sources.yaml"), "- {postgres: {file: shop.url}, "+entry+"}\n")
		if r := u.run("serve", "--plugins", dir, "--sources", sources); r.status != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %q", entry, r, want)
		}
	}
}

// A host runs the rows of the tables of --sources, in the queues to which these map them.
func TestNsjSources(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	at, _ := nsjTable(t, server)
	db := server.Connect(t, at)
	u := newUser(t, queuetest.Start(t).URL())
	u.must("database", "init", "--postgres", at)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "shop.url"), at)
	sources := write(t, filepath.Join(dir, "sources.yaml"),
		"- {name: shop, postgres: {file: shop.url}, nsj: {table: fila, max_retry: 1, retry_interval: 1h, queues: {Pedido Novo: pedido}}}\n")
	guest := runtimetest.BuildCHandler(t, string(content(t, "../../host/relay/testdata/nsj.c")))
	_, address := u.host(folder(t, map[string][]byte{"pedido": guest, "pedido.dead": guest}), "--sources", sources)
	if _, err := db.Exec(t.Context(), "INSERT INTO fila (processo, payload) VALUES ('Pedido Novo', 'fail alive'), ('other', 'x')"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the rows", func() bool {
		return value(t, db, "SELECT string_agg(concat(processo, ' ', status, ' ', dead), ', ' ORDER BY id) FROM fila") ==
			"Pedido Novo falha f, other pendente f, Pedido Novo sucesso t"
	})
	eventually(t, "the metrics", func() bool {
		_, body := get(t, "http://"+address+"/metrics")
		return strings.Contains(body, `quern_relay_rows_total{result="ended",source="shop"} 2`)
	})
}
