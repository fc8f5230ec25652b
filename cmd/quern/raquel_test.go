package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// raquelPackages returns the folder with the real package and what it needs.
func raquelPackages(t *testing.T) string {
	t.Helper()
	packages := absolute(t, "../../build/raquel")
	if _, err := os.Stat(packages); err != nil {
		runtimetest.Missing(t, "left out: there is no Raquel; `make deps-all` brings it")
	}
	return packages
}

// raquelTable makes a database with a table of Raquel. It returns the database's URL, and a function that starts a
// Python process with the real package.
func raquelTable(t *testing.T, server *postgrestest.Server) (url string, python func() *queuetest.Driver) {
	t.Helper()
	packages := raquelPackages(t)
	url = server.Database(t)
	python = func() *queuetest.Driver {
		return queuetest.StartDriver(t, "Raquel", string(content(t, "../../host/relay/testdata/raquel.py")), packages,
			strings.Replace(url, "postgres://", "postgresql+psycopg2://", 1))
	}
	python().Do(nil, "create_all")
	return url, python
}

func count(t *testing.T, db *postgres.Conn, where string) (n int64) {
	t.Helper()
	if err := db.Query(t.Context(), func(v postgres.Row) { n = v.Int(0) }, "SELECT count(*) FROM jobs WHERE "+where); err != nil {
		t.Fatal(err)
	}
	return n
}

// Operators learn at once what is wrong with a table of Raquel, and how to mend it.
func TestRaquelCommands(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	url, python := raquelTable(t, server)
	db := server.Connect(t, url)
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
	exec("CREATE ROLE "+role+" LOGIN", "CREATE TABLE wrong (id text, queue text)", "CREATE VIEW seen AS SELECT * FROM jobs",
		`CREATE SCHEMA app`, `CREATE TABLE app."Jobs" (LIKE jobs INCLUDING ALL)`)
	of := strings.Replace(url, "postgres@", role+"@", 1)
	check := func(tables, want string) {
		t.Helper()
		if r := u.run("database", "check", "--postgres", of, "--raquel", tables); !strings.Contains(r.stdout, want) {
			t.Errorf("check of %s:\n%s\nwant %q", tables, r.stdout, want)
		}
	}
	u.must("database", "init", "--postgres", url, "--grant-relay", role)
	check("jobs", "the role "+role+" lacks rights on jobs: GRANT SELECT, UPDATE ON public.jobs TO "+role)
	exec("GRANT SELECT, UPDATE ON jobs TO " + role)
	check("jobs", "has no index for claims, which get slower with each row that has ended: make it with `quern database init --raquel jobs`")
	check("nosuch", "no table nosuch that the role "+role+" sees: name it with its schema, as in app.jobs, or make it with Raquel's create_all()")
	check("wrong", "the table wrong is not as Raquel 0.3 makes it: id is text and should be uuid, payload is missing")
	check("seen", "seen is no table")
	if r := u.run("database", "check", "--postgres", of, "--raquel", "a.b.c.d"); !strings.Contains(r.stderr, "is no name of a table") {
		t.Errorf("%+v", r)
	}
	u.must("database", "init", "--postgres", url, "--raquel", `jobs,app."Jobs"`, "--grant-relay", role)
	python().Do(nil, "enqueue", "no such queue", "0", map[string]any{})
	check("jobs", `queues with names that no host can serve: "no such queue"`)
	exec("DELETE FROM jobs")
	if r := u.run("database", "check", "--postgres", of, "--raquel", `jobs,app."Jobs"`); r.status != exitDone {
		t.Errorf("%+v", r)
	}
	if got := u.must("database", "schema", "--raquel", "jobs"); !strings.Contains(got, "CREATE INDEX CONCURRENTLY IF NOT EXISTS") {
		t.Error(got)
	}
	exec("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'jobs_due'::regclass")
	check("jobs", "an interrupted attempt has left an index that is not valid")
	u.must("database", "init", "--postgres", url, "--raquel", "jobs")
	if r := u.run("database", "init", "--postgres", of, "--raquel", "wrong"); r.status != exitRefused {
		t.Errorf("%+v", r)
	}
	if r := u.run("relay", "--postgres", of, "--raquel", "jobs,nosuch"); r.status != exitRefused || !strings.Contains(r.stderr, "no table nosuch that the role") {
		t.Errorf("%+v", r)
	}

	for args, want := range map[string]string{
		"--raquel=":                   "it names no table: write one, such as jobs",
		"--raquel jobs,,":             "it names no table: write one, such as jobs",
		"--raquel a:b":                "is no name of a table",
		"--raquel jobs --tenants a,b": "its rows name no tenant, so give one",
		"--raquel jobs --hold 1h":     "hold and not_before are for the outbox",
		"--raquel jobs --not-before 2026-01-01T00:00:00Z":   "hold and not_before are for the outbox",
		"--raquel jobs --tenants blueque --postgres mysql:": "postgres://USER",
	} {
		r := u.run(append([]string{"relay", "--postgres", url}, strings.Fields(args)...)...)
		if r.status != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "shop.url"), url)
	for entry, want := range map[string]string{
		"raquel: {}":                               "raquel has no table: write raquel: {table: jobs}",
		"raquel: {table: jobs, queue: q}":          "queue",
		"raquel: {table: jobs, queues: [a b]}":     "a b",
		"raquel: {table: jobs}, hold: 1h":          "hold and not_before are for the outbox",
		"raquel: jobs":                             `line 1: "jobs" is not a table: write raquel: {table: jobs}`,
		"raquel: ":                                 "line 1: raquel: an empty value is not a table: write raquel: {table: jobs}",
		"raquel: {table: [a]}":                     "line 1: a list is not a text",
		"raquel: {table: a b}":                     "is no name of a table",
		"not_before: yesterday":                    `line 1: not_before: "yesterday" is not a time: write it like 2026-01-31T12:00:00Z`,
		"not_before: [a]":                          "is not a time: write it like",
		"raquel: {table: jobs}, tenants: [nobody]": `tenant "nobody" is not served here`,
	} {
		sources := write(t, filepath.Join(dir, "sources.yaml"), "- {postgres: {file: shop.url}, "+entry+"}\n")
		if r := u.run("serve", "--plugins", dir, "--sources", sources); r.status != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %q", entry, r, want)
		}
	}
}

// An empty item of --sources is refused: the decoder leaves it out.
func TestSourcesEmptyItem(t *testing.T) {
	t.Parallel()
	u, dir := newUser(t, queuetest.Shared(t).URL()), t.TempDir()
	write(t, filepath.Join(dir, "shop.url"), "postgres://shop@127.0.0.1/shop")
	for text, want := range map[string]string{
		"- null\n":                            "line 1: expected a mapping",
		"- {postgres: {file: shop.url}}\n-\n": "line 2: expected a mapping",
	} {
		sources := write(t, filepath.Join(dir, "sources.yaml"), text)
		if r := u.run("serve", "--plugins", dir, "--sources", sources); r.status != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %+v, want %q", text, r, want)
		}
	}
}

// A host runs the rows of the tables of --sources, of the queues that these name.
func TestRaquelSources(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	url, python := raquelTable(t, server)
	db := server.Connect(t, url)
	u := newUser(t, queuetest.Start(t).URL())
	u.must("database", "init", "--postgres", url, "--raquel", "jobs")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "shop.url"), url)
	sources := write(t, filepath.Join(dir, "sources.yaml"), "- {name: shop, postgres: {file: shop.url}, raquel: {table: jobs, queues: [q]}}\n")
	guest := runtimetest.BuildCHandler(t, string(content(t, "../../host/relay/testdata/raquel.c")))
	_, address := u.host(folder(t, map[string][]byte{"q": guest, "other": guest}), "--sources", sources)
	client := python()
	var other string
	client.Do(&other, "enqueue", "other", "0", map[string]any{})
	client.Do(nil, "enqueue", "q", "0", map[string]any{})
	eventually(t, "the end of a row", func() bool { return count(t, db, "queue = 'q' AND status = 'success'") == 1 })
	if count(t, db, "queue = 'other' AND status = 'queued'") != 1 {
		t.Error("a row of another queue was claimed")
	}
	eventually(t, "the metrics", func() bool {
		_, body := get(t, "http://"+address+"/metrics")
		return strings.Contains(body, `quern_relay_rows_total{result="ended",source="shop"} 1`)
	})
}
