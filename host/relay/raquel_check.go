package relay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
)

// raquelColumns are the columns of Raquel's table, with the types that it gives them, or its documentation.
var raquelColumns = []struct{ name, types string }{
	{"id", "uuid"},
	{"queue", "varchar text"},
	{"payload", "varchar text"},
	{"status", "varchar text"},
	{"max_age", "int8 int4"},
	{"max_retry_count", "int4 int8"},
	{"min_retry_delay", "int4 int8"},
	{"max_retry_delay", "int4 int8"},
	{"backoff_base", "int4 int8"},
	{"enqueued_at", "int8"},
	{"scheduled_at", "int8"},
	{"attempts", "int4 int8"},
	{"error", "varchar text"},
	{"error_trace", "varchar text"},
	{"claimed_by", "varchar text"},
	{"claimed_at", "int8"},
	{"finished_at", "int8"},
}

// checkRaquel returns the quoted name of a table of Raquel, or an error if it is none, or the role lacks rights.
func checkRaquel(ctx context.Context, db *postgres.Conn, table string) (quoted string, err error) {
	var kind string
	var readable, writable bool
	err = db.Query(ctx, func(v postgres.Row) {
		quoted, kind, readable, writable = v.Text(0), v.Text(1), v.Bool(2), v.Bool(3)
	}, `SELECT format('%I.%I', nspname, relname), relkind, has_table_privilege(c.oid, 'SELECT'),
		has_table_privilege(c.oid, 'UPDATE')
		FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = to_regclass($1)`, table)
	switch {
	case postgres.State(err) == "42602" || postgres.State(err) == "42601":
		return "", fmt.Errorf("%q is no name of a table: write TABLE or SCHEMA.TABLE, with \"…\" around capitals", table)
	case err != nil && postgres.State(err) != "42501":
		return "", err
	case quoted == "" || err != nil:
		return "", fmt.Errorf("the database has no table %s that this role sees: make it with Raquel's create_all(), or "+
			"name it with its schema, as in app.jobs", table)
	case kind == "p":
		return "", fmt.Errorf("%s is partitioned, which Raquel does not make and PostgreSQL makes no index for without a "+
			"lock: name one without partitions", table)
	case kind != "r":
		return "", fmt.Errorf("%s is no table: name Raquel's table", table)
	}
	types := make(map[string]string)
	err = db.Query(ctx, func(v postgres.Row) { types[v.Text(0)] = v.Text(1) }, `
		SELECT attname, typname FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped`, quoted)
	if err != nil {
		return "", err
	}
	var wrong []string
	for _, column := range raquelColumns {
		switch is, ok := types[column.name]; {
		case !ok:
			wrong = append(wrong, column.name+" is missing")
		case !slices.Contains(strings.Fields(column.types), is):
			wrong = append(wrong, fmt.Sprintf("%s is %s and should be %s", column.name, is, strings.Fields(column.types)[0]))
		}
	}
	switch {
	case len(wrong) > 0:
		return "", fmt.Errorf("the table %s is not as Raquel 0.3 makes it: %s: change it with Raquel's migrations", table,
			strings.Join(wrong, ", "))
	case !readable || !writable:
		return "", fmt.Errorf("the role has no right to SELECT and UPDATE the table %[1]s: give it with "+
			"`quern database init --raquel %[1]s --grant-relay ROLE`", table)
	}
	return quoted, nil
}

// RaquelIndex returns the SQL that makes the index with which claims stay fast, also those of Raquel's own workers: its
// own indexes lead past all rows that have ended.
func RaquelIndex(table string) string {
	return "CREATE INDEX CONCURRENTLY IF NOT EXISTS " + raquelIndexName(table) + " ON " + table +
		" (queue, scheduled_at) WHERE status <> 'success'"
}

// raquelIndexName returns the name of the index of RaquelIndex, which is in the schema of its table.
func raquelIndexName(table string) string {
	name := table[strings.LastIndexByte(table, '.')+1:]
	return `"` + strings.Trim(name, `"`) + `_due"`
}

// InitRaquel makes the index of RaquelIndex.
func InitRaquel(ctx context.Context, db *postgres.Conn, table string) error {
	quoted, err := checkRaquel(ctx, db, table)
	if err != nil {
		return err
	}
	valid, err := raquelIndex(ctx, db, quoted)
	if err != nil || valid == "t" {
		return err
	}
	if valid == "f" { // an earlier attempt was interrupted
		schema, _, _ := strings.Cut(quoted, ".")
		if _, err := db.Exec(ctx, "DROP INDEX CONCURRENTLY "+schema+"."+raquelIndexName(quoted)); err != nil {
			return fmt.Errorf("remove the index that an interrupted attempt has left: %w", err)
		}
	}
	_, err = db.Exec(ctx, RaquelIndex(quoted))
	if postgres.State(err) == "42501" {
		return fmt.Errorf("make the index of %s: %w: connect as the owner of the table", table, err)
	}
	return err
}

// raquelIndex returns whether the table's index can be used: t or f, or "" if there is none.
func raquelIndex(ctx context.Context, db *postgres.Conn, quoted string) (valid string, err error) {
	schema, _, _ := strings.Cut(quoted, ".")
	err = db.Query(ctx, func(v postgres.Row) { valid = v.Text(0) },
		"SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", schema+"."+raquelIndexName(quoted))
	return valid, err
}

// GrantRaquel gives a role what a relay needs of a table of Raquel.
func GrantRaquel(ctx context.Context, db *postgres.Conn, table, role string) error {
	quoted, err := checkRaquel(ctx, db, table)
	if err != nil {
		return err
	}
	schema, _, _ := strings.Cut(quoted, ".")
	return grant(ctx, db, schema, []right{{"SELECT, UPDATE", quoted}}, role)
}

// maxQueueNames bounds how many names of queues a check reads.
const maxQueueNames = 1000

// checkRaquelTable looks at what the relay needs of a table of Raquel.
func checkRaquelTable(
	ctx context.Context, db *postgres.Conn, table string, note func(bool, string, string, ...any),
) error {
	check, remedy := "raquel "+table, "make it with `quern database init --raquel "+table+"`"
	quoted, err := checkRaquel(ctx, db, table)
	if err != nil {
		note(false, check, "%s", err)
		return nil //nolint:nilerr // it is the finding
	}
	note(true, check, "the columns and rights that a relay needs")
	valid, err := raquelIndex(ctx, db, quoted)
	if err != nil {
		return err
	}
	note(valid == "t", check, "%s", map[string]string{
		"t": "has the index for claims",
		"f": "an interrupted attempt has left an index that is not valid: " + remedy,
		"":  "has no index for claims, which get slower with each row that has ended: " + remedy,
	}[valid])
	source, leads := raquelTable{quoted: quoted}, ""
	err = db.Query(ctx, func(v postgres.Row) { leads = v.Text(0) + " leads " + v.Text(1) },
		"SELECT holder, error FROM quern.relays WHERE source = $1 AND until > clock_timestamp()", source.name())
	if err != nil {
		return err
	}
	note(true, check, "%s", cmp.Or(strings.TrimSpace(leads),
		"none leads yet: start `quern relay --raquel "+table+"`, or a host with --sources"))
	var refused []string
	err = db.Query(ctx, func(v postgres.Row) {
		if queue.ValidTarget(v.Text(0)) != nil {
			refused = append(refused, fmt.Sprintf("%q", v.Text(0)))
		}
	}, fmt.Sprintf("SELECT DISTINCT queue FROM %s WHERE status <> 'success' LIMIT %d", quoted, maxQueueNames))
	if err != nil {
		return err
	}
	if len(refused) > 0 {
		note(false, check, "queues with names that no host can serve: %s: use 1 to 128 characters from 0x21 to 0x7e; "+
			"workers of Raquel still serve them", strings.Join(refused, ", "))
	}
	return nil
}
