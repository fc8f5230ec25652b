package relay

import (
	"strings"
	"testing"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A role that is renamed still belongs to its tenant, also in tables of a program that knew roles by their name.
func TestTenantOfRenamedRole(t *testing.T) {
	t.Parallel()
	w := setup(t)
	role := "app_" + strings.ReplaceAll(queuetest.Tenant(), "-", "_")
	w.exec("CREATE ROLE " + role)
	w.exec("ALTER TABLE quern.tenants ALTER COLUMN role TYPE name")
	w.exec("INSERT INTO quern.tenants VALUES ($1, 'a'), ('nobody', 'b')", role)
	if err := Init(t.Context(), w.db); err == nil || !strings.Contains(err.Error(), "do not exist: nobody") {
		t.Fatal(err)
	}
	w.exec("ROLLBACK")
	w.exec("DELETE FROM quern.tenants WHERE role = 'nobody'")
	if err := Init(t.Context(), w.db); err != nil {
		t.Fatal(err)
	}
	if err := GrantApplication(t.Context(), w.db, role); err != nil {
		t.Fatal(err)
	}
	w.exec("ALTER ROLE " + role + " RENAME TO \"" + role + " New\"")
	if err := GrantTenant(t.Context(), w.db, role+" New", "a"); err != nil {
		t.Fatal(err)
	}
	w.exec("INSERT INTO quern.ended VALUES ('a', '1', 'complete', NULL, NULL, NULL, 1, now()), ('b', '2', 'complete', NULL, NULL, NULL, 1, now())")
	w.exec("SET SESSION AUTHORIZATION \"" + role + " New\"")
	if got := w.value("SELECT string_agg(id, ' ') FROM quern.ended"); got != "1" {
		t.Errorf("it reads %q, want 1", got)
	}
	if _, err := w.db.Exec(t.Context(), "INSERT INTO quern.outbox (queue, tenant) VALUES ('q', 'b')"); postgres.State(err) != "42501" {
		t.Errorf("it inserts rows of another tenant: %v", err)
	}
}
