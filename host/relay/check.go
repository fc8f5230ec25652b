package relay

import (
	"context"
	"fmt"
	"strings"

	"github.com/quern-project/quern/host/postgres"
)

// Finding is the result of one check of a database.
type Finding struct {
	OK    bool   `json:"ok"`
	Check string `json:"check"`
	Text  string `json:"text"`
}

// right is a privilege of a role on a table or a sequence.
type right struct{ privileges, object string }

// relayRights are what a relay needs.
var relayRights = []right{
	{"SELECT", "quern.version"},
	{"SELECT", "quern.outbox_seq_seq"},
	{"SELECT, DELETE", "quern.outbox"},
	{"SELECT, INSERT", "quern.outbox_refused"},
	{"SELECT, INSERT, DELETE", "quern.outbox_held"},
	{"SELECT, INSERT, UPDATE, DELETE", "quern.ended"},
	{"SELECT, INSERT, UPDATE", "quern.relays"},
}

// applicationRights are what an application needs to enqueue and to read how its tasks ended. It cannot read or change
// the rows of others.
var applicationRights = []right{
	{"INSERT (id, queue, topic, parameters, json, options, tenant), SELECT (id)", "quern.outbox"},
	{"SELECT", "quern.ended"},
}

// handlerRights are what the role needs with which the handlers of a tenant connect. Policies let it see and make only
// rows of its own.
var handlerRights = []right{{"SELECT, INSERT (tenant, task, created, step, settlement), DELETE", "quern.runs"}}

// GrantHandler gives a role what the transactions of handlers need.
func GrantHandler(ctx context.Context, db *postgres.Conn, role string) error {
	return grant(ctx, db, "quern", handlerRights, role)
}

// GrantApplication gives a role the right to enqueue and to read how its tasks ended.
func GrantApplication(ctx context.Context, db *postgres.Conn, role string) error {
	return grant(ctx, db, "quern", applicationRights, role)
}

// GrantTenant makes a role belong to a tenant: it inserts and reads rows of that tenant alone.
func GrantTenant(ctx context.Context, db *postgres.Conn, role, tenant string) error {
	_, err := db.Exec(ctx, `INSERT INTO quern.tenants VALUES (quote_ident($1)::regrole, $2)
		ON CONFLICT (role) DO UPDATE SET tenant = excluded.tenant`, role, tenant)
	return err
}

// GrantRelay gives a role what a relay needs.
func GrantRelay(ctx context.Context, db *postgres.Conn, role string) error {
	return grant(ctx, db, "quern", relayRights, role)
}

// grant gives a role rights on objects of a schema.
func grant(ctx context.Context, db *postgres.Conn, schema string, rights []right, role string) error {
	role = `"` + strings.ReplaceAll(role, `"`, `""`) + `"`
	script := "GRANT USAGE ON SCHEMA " + schema + " TO " + role
	for _, r := range rights {
		script += fmt.Sprintf("; GRANT %s ON %s TO %s", r.privileges, r.object, role)
	}
	err := db.Script(ctx, script)
	if postgres.State(err) == "42704" {
		return fmt.Errorf("%w: make it with CREATE ROLE, or name another", err)
	}
	return err
}

// minVersion is the oldest server that is supported, as server_version_num.
const minVersion = 140000

// Check looks at what a relay needs of a database, and at what slows one down; also of tables of Raquel
// and of nsj-queue-lib.
func Check(ctx context.Context, db *postgres.Conn, raquel, nsj []string) ([]Finding, error) {
	var all []Finding
	note := func(ok bool, check, format string, args ...any) {
		all = append(all, Finding{ok, check, fmt.Sprintf(format, args...)})
	}
	err := db.Query(ctx, func(v postgres.Row) {
		note(v.Int(0) >= minVersion, "version", "PostgreSQL %s; 14 or newer is needed", db.ServerVersion())
		note(!v.Bool(1), "role", "%s", map[bool]string{
			true:  "the role " + v.Text(2) + " is a superuser: give the relay a role of its own, with `quern database init --grant-relay ROLE`",
			false: "the role " + v.Text(2) + " is no superuser",
		}[v.Bool(1)])
	}, "SELECT current_setting('server_version_num'), rolsuper, rolname FROM pg_roles WHERE rolname = current_user")
	if err != nil {
		return nil, err
	}
	if err := checkVersion(ctx, db); err != nil {
		note(false, "tables", "%s", err)
		return all, nil
	}
	note(true, "tables", "version %d", schemaVersion)
	before := len(all)
	if err := checkSchema(ctx, db, note); err != nil {
		return nil, err
	}
	if len(all) > before {
		return all, nil // the other checks need what is missing
	}
	if err := checkTenants(ctx, db, note); err != nil {
		return nil, err
	}
	if err := checkRights(ctx, db, note); err != nil {
		return nil, err
	}
	heard, err := canListen(ctx, db, channel)
	if err != nil {
		return nil, err
	}
	note(heard, "notifications", "%s", map[bool]string{
		true:  "arrive",
		false: "do not arrive, so new rows wait for up to a second: a pooler swallows them; give the relay the URL without it with --direct",
	}[heard])
	if err := checkHorizon(ctx, db, note); err != nil {
		return nil, err
	}
	state, err := Look(ctx, db)
	if err != nil {
		return nil, err
	}
	if err := checkLeader(ctx, db, "relay", outboxTable{}.name(), "quern relay", note); err != nil {
		return nil, err
	}
	for _, table := range raquel {
		if err := checkRaquelTable(ctx, db, table, note); err != nil {
			return nil, err
		}
	}
	for _, table := range nsj {
		if err := checkNsjTable(ctx, db, table, note); err != nil {
			return nil, err
		}
	}
	note(true, "rows", "%d wait, the oldest for %.0f s; %d are refused", state.Waiting, state.OldestAge, state.Refused)
	return all, nil
}

// checkLeader notes which relay leads a source, and what keeps it from its work. command starts one.
func checkLeader(
	ctx context.Context, db *postgres.Conn, check, source, command string, note func(bool, string, string, ...any),
) error {
	holder, failure := "", ""
	err := db.Query(ctx, func(v postgres.Row) { holder, failure = v.Text(0), v.Text(1) },
		"SELECT holder, error FROM quern.relays WHERE source = $1 AND until > clock_timestamp()", source)
	switch {
	case err != nil:
		return err
	case holder == "":
		note(true, check, "none leads yet: start `%s`, or a host with --sources", command)
	case failure != "":
		note(false, check, "%s leads, and has an error: %s", holder, failure)
	default:
		note(true, check, "%s leads", holder)
	}
	return nil
}

// checkTenants names roles of quern.tenants that were dropped.
func checkTenants(ctx context.Context, db *postgres.Conn, note func(bool, string, string, ...any)) error {
	return db.Query(ctx, func(v postgres.Row) {
		note(false, "tenants", "quern.tenants has a role that does not exist, of the tenant %s: DELETE FROM quern.tenants WHERE role = '%s'",
			v.Text(1), v.Text(0))
	}, "SELECT role::oid, tenant FROM quern.tenants WHERE role::oid NOT IN (SELECT oid FROM pg_roles)")
}

// checkRights finds rights of a relay that the role lacks.
func checkRights(ctx context.Context, db *postgres.Conn, note func(bool, string, string, ...any)) error {
	var missing []string
	for _, r := range relayRights {
		for _, privilege := range strings.Split(r.privileges, ", ") {
			function := "has_table_privilege"
			if strings.HasSuffix(r.object, "_seq") {
				function = "has_sequence_privilege"
			}
			err := db.Query(ctx, func(v postgres.Row) {
				if !v.Bool(0) {
					missing = append(missing, privilege+" on "+r.object)
				}
			}, "SELECT "+function+"($1, $2)", r.object, privilege)
			if err != nil {
				return err
			}
		}
	}
	text := "all that a relay needs"
	if len(missing) > 0 {
		text = strings.Join(missing, ", ") + " missing: give them with `quern database init --grant-relay ROLE`"
	}
	note(len(missing) == 0, "rights", "%s", text)
	return nil
}

// maxDead is the number of dead rows beyond which the check fails.
const maxDead = 100_000

// checkHorizon names who keeps PostgreSQL from removing dead rows of the outbox, if there are many.
func checkHorizon(ctx context.Context, db *postgres.Conn, note func(bool, string, string, ...any)) error {
	var dead int64
	err := db.Query(ctx, func(v postgres.Row) { dead = v.Int(0) },
		"SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'quern.outbox'::regclass")
	if err != nil {
		return err
	}
	var holders []string
	err = db.Query(ctx, func(v postgres.Row) { holders = append(holders, v.Text(0)) }, `
		SELECT format('process %s (%s) for %s s', pid, coalesce(nullif(application_name, ''), usename, backend_type),
		  round(extract(epoch FROM clock_timestamp() - coalesce(xact_start, backend_start))))
		FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND datname = current_database()
		  AND pid <> pg_backend_pid() AND xact_start < clock_timestamp() - interval '1 minute'
		UNION ALL SELECT format('prepared transaction %s', gid) FROM pg_prepared_xacts
		UNION ALL SELECT format('replication slot %s', slot_name) FROM pg_replication_slots WHERE xmin IS NOT NULL
		LIMIT 10`)
	text := fmt.Sprintf("%d dead rows", dead)
	switch {
	case len(holders) > 0:
		text += ", kept by " + strings.Join(holders, ", ") + ": end it, so that vacuum can remove them"
	case dead >= maxDead:
		text += ": a role with pg_read_all_stats sees which transaction keeps them"
	}
	note(dead < maxDead, "dead rows", "%s", text)
	return err
}
