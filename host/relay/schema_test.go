package relay

import (
	"fmt"
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

// The check names what somebody has changed in Quern's tables, and init mends what it made.
func TestCheckSchema(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]string{
		"ALTER TABLE quern.runs DISABLE ROW LEVEL SECURITY":          "row level security of runs is missing",
		"ALTER TABLE quern.ended DISABLE ROW LEVEL SECURITY":         "row level security of ended is missing",
		"DROP POLICY make ON quern.runs":                             "policy make on runs is missing",
		"DROP POLICY own_tenant ON quern.outbox":                     "policy own_tenant on outbox is missing",
		"ALTER TABLE quern.runs DROP CONSTRAINT runs_pkey":           "primary key of runs is missing",
		"ALTER TABLE quern.outbox DROP CONSTRAINT outbox_pkey":       "primary key of outbox is missing",
		"ALTER TABLE quern.ended DROP CONSTRAINT ended_pkey":         "primary key of ended is missing",
		"ALTER TABLE quern.relays DROP CONSTRAINT relays_pkey":       "primary key of relays is missing",
		"DROP TRIGGER wake ON quern.outbox":                          "trigger wake on outbox is missing, so new rows wait",
		"ALTER TABLE quern.outbox DISABLE TRIGGER wake":              "trigger wake on outbox is missing",
		"DROP TABLE quern.relays":                                    "column relays.holder is missing",
		"CREATE POLICY \"all on\" ON quern.runs USING (true)":        `DROP POLICY "all on" ON quern.runs`,
		"CREATE POLICY \"of, all\" ON quern.outbox USING (true)":     `DROP POLICY "of, all" ON quern.outbox`,
		"ALTER POLICY look ON quern.runs USING (true)":               `DROP POLICY "look" ON quern.runs`,
		"ALTER TABLE quern.tenants ALTER COLUMN role TYPE name":      "column tenants.role is missing", // it was one once
		"ALTER TABLE quern.outbox DROP COLUMN options":               "column outbox.options is missing",
		"ALTER TABLE quern.relays DROP COLUMN error":                 "column relays.error is missing", // init does not use it
		"INSERT INTO quern.tenants VALUES (4000000000::oid, 'acme')": "DELETE FROM quern.tenants WHERE role = '4000000000'",
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			wrong := func() (text string) {
				findings, err := Check(t.Context(), w.db, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range findings {
					if !f.OK && f.Check != "role" {
						text += f.Text + "; "
					}
				}
				return text
			}
			if got := wrong(); got != "" {
				t.Fatalf("before: %s", got)
			}
			w.exec(change)
			got := wrong()
			if !strings.Contains(got, want) {
				t.Fatalf("%q, want %q", got, want)
			}
			findings, err := CheckHandler(t.Context(), w.db)
			if text := fmt.Sprint(findings); err != nil || strings.Contains(text, want) != strings.Contains(want, "runs") {
				t.Errorf("for handlers: %s, %v", text, err)
			}
			err = Init(t.Context(), w.db)
			if strings.Contains(change, "DROP COLUMN") {
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "missing: add the column") {
					t.Errorf("init: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(want, "is missing") {
				if got := wrong(); got != "" {
					t.Errorf("after init: %s", got)
				}
			}
		})
	}
}

// The check tells of each source which relay leads it, and what keeps that relay from its work.
func TestCheckLeader(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.exec(raquelDocumented)
	leaders := func() (text string) {
		findings, err := Check(t.Context(), n.db, []string{"jobs"}, []string{"fila"})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			if strings.Contains(f.Text, " leads") {
				text += fmt.Sprintf("%t %s: %s\n", f.OK, f.Check, f.Text)
			}
		}
		return text
	}
	want := "true relay: none leads yet: start `quern relay`, or a host with --sources\n" +
		"true raquel jobs: none leads yet: start `quern relay --raquel jobs`, or a host with --sources\n" +
		"true nsj fila: none leads yet: start `quern relay --nsj fila`, or a host with --sources\n"
	if got := leaders(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	n.exec(`INSERT INTO quern.relays (source, holder, since, until, notified, error) SELECT *, 'host 1', now(), now() + interval '1 hour', true, 'queue full'
		FROM unnest(ARRAY['outbox', 'raquel:jobs', 'nsj:fila'])`)
	want = "false relay: host 1 leads, and has an error: queue full\n" +
		"false raquel jobs: host 1 leads, and has an error: queue full\n" +
		"false nsj fila: host 1 leads, and has an error: queue full\n"
	if got := leaders(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	n.exec("UPDATE quern.relays SET error = NULL")
	want = "true relay: host 1 leads\ntrue raquel jobs: host 1 leads\ntrue nsj fila: host 1 leads\n"
	if got := leaders(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
