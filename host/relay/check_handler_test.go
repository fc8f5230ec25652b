package relay_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/host/relay"
)

// The check of a role of handlers names what no such role should have, and what it lacks.
func TestCheckHandler(t *testing.T) {
	t.Parallel()
	server := postgrestest.Shared(t)
	owner := server.Connect(t, server.Database(t))
	var name string
	if err := owner.Query(t.Context(), func(r postgres.Row) { name = r.Text(0) }, "SELECT current_database()"); err != nil {
		t.Fatal(err)
	}
	role := name + "_h"
	do := func(script string) {
		t.Helper()
		if err := owner.Script(t.Context(), strings.ReplaceAll(script, "ROLE_H", role)); err != nil {
			t.Fatal(err)
		}
	}
	advice := func() (text string) {
		t.Helper()
		findings, err := relay.CheckHandler(t.Context(), server.Connect(t, server.UserURL(role, name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			if f.Check == "locks" {
				text = f.Text
			}
		}
		return text
	}
	failed := func() string {
		t.Helper()
		findings, err := relay.CheckHandler(t.Context(), server.Connect(t, server.UserURL(role, name)))
		if err != nil {
			t.Fatal(err)
		}
		var wrong []string
		for _, f := range findings {
			if !f.OK {
				wrong = append(wrong, f.Check+": "+f.Text)
			}
		}
		return strings.Join(wrong, "; ")
	}
	want := func(words string) {
		t.Helper()
		if got := failed(); (got == "") != (words == "") || !strings.Contains(got, words) {
			t.Errorf("%q, want %q", got, words)
		}
	}
	do("CREATE ROLE ROLE_H LOGIN")
	want(fmt.Sprintf("commit: it cannot commit with its tasks: run `quern database init --grant-handler %s`", role))
	if err := relay.Init(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if err := relay.GrantHandler(t.Context(), owner, role); err != nil {
		t.Fatal(err)
	}
	want("")
	if got := advice(); !strings.Contains(got, "see Tenants in `quern help sql`") {
		t.Errorf("advisory locks: %q", got)
	}
	do(manualScript(t))
	if got := advice(); got != "it may not take advisory locks" {
		t.Errorf("advisory locks after the script of the manual: %q", got)
	}
	want("")
	do("CREATE TABLE own (); ALTER TABLE own OWNER TO ROLE_H")
	want("owner: it owns tables (1)")
	do("DROP TABLE own; GRANT pg_read_server_files TO ROLE_H")
	want("members: it is a member of pg_read_server_files")
	do("ALTER ROLE ROLE_H BYPASSRLS")
	want("role: the role " + role + " is a superuser, or no policy binds it")
}

// manualScript returns the script of the page sql that takes advisory locks from handlers, for a role that there is.
func manualScript(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../cmd/quern/manual/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "```sql\nDO ")
	script, _, found := strings.Cut(script, "```")
	if !found || !strings.Contains(script, "TO app, relay") {
		t.Fatal("the page sql has no script for advisory locks")
	}
	return "DO " + strings.ReplaceAll(script, "TO app, relay", "TO CURRENT_USER")
}
