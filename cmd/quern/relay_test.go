package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// An application with a role of its own enqueues by INSERT; the relay has a role of its own too.
func TestRelay(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	url := server.Database(t)
	u := newUser(t, queuetest.Shared(t).URL())
	owner := server.Connect(t, url)
	application, relay := "shop_"+queuetest.Tenant(), "relay_"+queuetest.Tenant()
	for _, role := range []string{application, relay} {
		if _, err := owner.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN"); err != nil {
			t.Fatal(err)
		}
	}
	of := func(role string) string { return strings.Replace(url, "postgres@", role+"@", 1) }
	on := func(args string) []string { return append(strings.Fields(args), "--postgres", of(relay)) }

	if r := u.run("database", "check", "--postgres", url); r.status != exitRefused || !strings.Contains(r.stdout, "quern database init") {
		t.Errorf("check before init: %+v", r)
	}
	for range 2 {
		u.must("database", "init", "--postgres", url, "--grant", application, "--grant-relay", relay)
	}
	if got := u.must(on("database check")...); strings.Contains(got, "✗") {
		t.Error(got)
	}
	if r := u.run("database", "check", "--postgres", of(application)); r.status != exitRefused {
		t.Errorf("check with the rights of an application: %+v", r)
	}
	if schema := u.must("database", "schema"); !strings.Contains(schema, "CREATE TABLE IF NOT EXISTS quern.outbox") {
		t.Error(schema)
	}

	shop := server.Connect(t, of(application))
	insert := func(values string) {
		t.Helper()
		if _, err := shop.Exec(t.Context(), "INSERT INTO quern.outbox (id, queue, json, options) VALUES "+values); err != nil {
			t.Fatal(err)
		}
	}
	insert(`('good', 'mail', '{"to": "ada"}', '{"report": true}'), ('bad', 'mail', NULL, '{"after": ["nosuch"]}')`)
	c := u.start(on("relay --hold 1h")...)
	eventually(t, "the task of a row", func() bool { return u.run("task", "show", "good").status == exitDone })
	eventually(t, "the refused row", func() bool { return strings.Contains(u.must(on("outbox ls")...), "does not exist") })
	number := regexp.MustCompile(`(?m)^(\d+) `).FindStringSubmatch(u.must(on("outbox ls")...))
	if number == nil {
		t.Fatal(u.must(on("outbox ls")...))
	}
	if got := u.must(on("outbox show " + number[1])...); !strings.Contains(got, "nosuch") {
		t.Error(got)
	}
	u.must("enqueue", "mail", "--id", "nosuch")
	for args, want := range map[string]string{"outbox retry --all": "1 row put into the outbox again\n", "outbox ls --state held": "good"} {
		if got := u.run(append(strings.Fields(args), "--postgres", url)...); !strings.Contains(got.stdout, want) {
			t.Errorf("%s: %+v, want %q", args, got, want)
		}
	}
	eventually(t, "the task of the row that was retried", func() bool { return u.run("task", "show", "bad").status == exitDone })
	c.stop()
	if status := c.wait(); status != exitDone {
		t.Errorf("exit %d\n%s", status, c.stderr)
	}

	// A role of a tenant inserts and reads rows of that tenant alone.
	acme := "acme_" + queuetest.Tenant()
	if _, err := owner.Exec(t.Context(), "CREATE ROLE "+acme+" LOGIN"); err != nil {
		t.Fatal(err)
	}
	u.must("database", "init", "--postgres", url, "--grant", acme, "--for-tenant", "acme")
	insertion := func(role, columns, values string) error {
		_, err := server.Connect(t, of(role)).Exec(t.Context(), "INSERT INTO quern.outbox (queue"+columns+") VALUES ('mail'"+values+") RETURNING id")
		return err
	}
	for _, tenant := range []string{"'other'", "NULL"} {
		if err := insertion(acme, ", tenant", ", "+tenant); postgres.State(err) != "42501" {
			t.Errorf("a row for the tenant %s: %v", tenant, err)
		}
	}
	if err := errors.Join(insertion(acme, "", ""), insertion(acme, ", tenant", ", 'acme'"), insertion(application, ", tenant", ", 'other'")); err != nil {
		t.Error(err)
	}
	var rows string
	for role, want := range map[string]string{acme: "2", application: "3"} {
		if err := server.Connect(t, of(role)).Query(t.Context(), func(v postgres.Row) { rows = v.Text(0) }, "SELECT count(id) FROM quern.outbox"); err != nil || rows != want {
			t.Errorf("%s sees %s rows, want %s: %v", role, rows, want, err)
		}
	}

	for args, want := range map[string]string{
		"database init --for-tenant acme --postgres " + url: "--grant",
		"database init --nsj fila --postgres " + url:        "without --grant-relay",
		"outbox ls":                               "--postgres",
		"outbox ls --postgres mysql://x":          "postgres://USER",
		"outbox ls --postgres postgres://h/d":     "missing",
		"outbox show x --postgres " + url:         "outbox ls",
		"outbox retry --postgres " + url:          "--all",
		"outbox again --postgres " + url:          "--since",
		"relay --postgres " + url + "&sslmod=off": "sslmod",
	} {
		if r := u.run(strings.Fields(args)...); r.status != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	if r := u.run("outbox", "ls", "--postgres", "postgres://me:secret@127.0.0.1:1/d"); r.status != exitRefused || strings.Contains(r.stderr, "secret") {
		t.Errorf("away: %+v", r)
	}
}
