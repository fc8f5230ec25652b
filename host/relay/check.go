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

// The rights of the two roles. An application cannot read or change the rows of others.
const (
	applicationRights = `
GRANT USAGE ON SCHEMA quern TO %[1]s;
GRANT INSERT (id, queue, topic, parameters, json, options, tenant), SELECT (id) ON quern.outbox TO %[1]s;
GRANT SELECT ON quern.ended TO %[1]s`
	relayRights = `
GRANT USAGE ON SCHEMA quern TO %[1]s;
GRANT SELECT ON quern.version TO %[1]s;
GRANT SELECT ON SEQUENCE quern.outbox_seq_seq TO %[1]s;
GRANT SELECT, DELETE ON quern.outbox TO %[1]s;
GRANT SELECT, INSERT ON quern.outbox_refused TO %[1]s;
GRANT SELECT, INSERT, DELETE ON quern.outbox_held TO %[1]s;
GRANT SELECT, INSERT, UPDATE, DELETE ON quern.ended TO %[1]s;
GRANT SELECT, INSERT, UPDATE ON quern.relays TO %[1]s`
)

// GrantApplication gives a role the right to enqueue and to read how its tasks ended.
func GrantApplication(ctx context.Context, db *postgres.Conn, role string) error {
	return grant(ctx, db, applicationRights, role)
}

// GrantRelay gives a role what a relay needs.
func GrantRelay(ctx context.Context, db *postgres.Conn, role string) error {
	return grant(ctx, db, relayRights, role)
}

func grant(ctx context.Context, db *postgres.Conn, rights, role string) error {
	err := db.Script(ctx, fmt.Sprintf(rights, `"`+strings.ReplaceAll(role, `"`, `""`)+`"`))
	if postgres.State(err) == "42704" {
		return fmt.Errorf("%w: make it with CREATE ROLE, or name another", err)
	}
	return err
}

// minVersion is the oldest server that is supported, as server_version_num.
const minVersion = 140000

// Check looks at what a relay needs of a database, and at what slows one down.
func Check(ctx context.Context, db *postgres.Conn) ([]Finding, error) {
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
	if err := checkRights(ctx, db, note); err != nil {
		return nil, err
	}
	heard, err := hears(ctx, db)
	if err != nil {
		return nil, err
	}
	note(heard, "notifications", "%s", map[bool]string{
		true:  "arrive",
		false: "do not arrive, so new rows wait for up to a second: a pooler swallows them; give the relay the URL without it with --direct",
	}[heard])
	return all, checkHorizon(ctx, db, note)
}

// checkRights finds rights of a relay that the role lacks.
func checkRights(ctx context.Context, db *postgres.Conn, note func(bool, string, string, ...any)) error {
	var missing []string
	err := db.Query(ctx, func(v postgres.Row) { missing = append(missing, v.Text(0)) }, `
		SELECT concat(r.what, ' on ', t.name) FROM (VALUES
		  ('quern.outbox', 'SELECT'), ('quern.outbox', 'DELETE'), ('quern.outbox_refused', 'INSERT'),
		  ('quern.outbox_held', 'INSERT'), ('quern.outbox_held', 'DELETE'), ('quern.ended', 'INSERT'),
		  ('quern.ended', 'UPDATE'), ('quern.ended', 'DELETE'), ('quern.relays', 'INSERT'), ('quern.relays', 'UPDATE')
		) AS r (name, what) JOIN LATERAL (SELECT r.name) AS t (name) ON NOT has_table_privilege(r.name, r.what)`)
	text := "all that a relay needs"
	if len(missing) > 0 {
		text = strings.Join(missing, ", ") + " missing: give them with `quern database init --grant-relay ROLE`"
	}
	note(len(missing) == 0, "rights", "%s", text)
	return err
}

// maxDead is the number of dead rows from which on it is told who keeps them.
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
	if len(holders) > 0 {
		text += ", kept by " + strings.Join(holders, ", ") + ": end it, so that vacuum can remove them"
	}
	note(dead < maxDead || len(holders) == 0, "dead rows", "%s", text)
	return err
}
