package relay

import (
	"context"
	"fmt"
	"strings"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
)

// raquelLibrary has the columns of Raquel's table, with the types that it gives them, or its documentation.
var raquelLibrary = library{"Raquel 0.3", "Raquel's create_all()", "SELECT, UPDATE", false, [][2]string{
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
}}

// RaquelIndex returns the SQL that makes the index with which claims stay fast, also those of Raquel's own workers: its
// own indexes lead past all rows that have ended.
func RaquelIndex(table string) string {
	_, bare, _ := parseTable(table)
	return createIndex(bare, table)
}

func createIndex(bare, table string) string {
	return "CREATE INDEX CONCURRENTLY IF NOT EXISTS " + indexName(bare) + " ON " + table +
		" (queue, scheduled_at) WHERE status <> 'success'"
}

// indexName returns the name of the index of RaquelIndex, which is in the schema of its table.
func indexName(bare string) string { return quoteName(nameWith(bare, "_due")) }

// InitRaquel makes the index of RaquelIndex.
func InitRaquel(ctx context.Context, db *postgres.Conn, table string) error {
	found, err := raquelLibrary.find(ctx, db, table)
	if err != nil {
		return err
	}
	valid, err := found.index(ctx, db)
	if err != nil || valid == "t" {
		return err
	}
	if valid == "f" { // an earlier attempt was interrupted
		if _, err := db.Exec(ctx, "DROP INDEX CONCURRENTLY "+found.schema+"."+indexName(found.bare)); err != nil {
			return fmt.Errorf("remove the index that an interrupted attempt has left: %w", err)
		}
	}
	_, err = db.Exec(ctx, createIndex(found.bare, found.quoted))
	if postgres.State(err) == "42501" {
		return fmt.Errorf("make the index of %s: %w: connect as the owner of the table", table, err)
	}
	return err
}

// index returns whether the table's index for claims can be used: t or f, or "" if there is none.
func (t *tableName) index(ctx context.Context, db *postgres.Conn) (valid string, err error) {
	err = db.Query(ctx, func(v postgres.Row) { valid = v.Text(0) },
		"SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", t.schema+"."+indexName(t.bare))
	return valid, err
}

// find finds the table, and what its columns take.
func (r *raquelTable) find(ctx context.Context, db *postgres.Conn) (err error) {
	if r.tableName, err = raquelLibrary.find(ctx, db, r.Table); err != nil {
		return err
	}
	return db.Query(ctx, func(v postgres.Row) { r.errorType, r.traceType = v.Text(0), v.Text(1) }, `
		SELECT max(type) FILTER (WHERE attname = 'error'), max(type) FILTER (WHERE attname = 'error_trace')
		FROM (SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute WHERE attrelid = $1::regclass) c`,
		r.quoted)
}

// GrantRaquel gives a role what a relay needs of a table of Raquel.
func GrantRaquel(ctx context.Context, db *postgres.Conn, table, role string) error {
	found, err := raquelLibrary.find(ctx, db, table)
	if err != nil {
		return err
	}
	return grant(ctx, db, found.schema, []right{{raquelLibrary.rights, found.quoted}}, role)
}

// maxQueueNames bounds how many names of queues a check reads.
const maxQueueNames = 1000

// checkRaquelTable looks at what the relay needs of a table of Raquel.
func checkRaquelTable(
	ctx context.Context, db *postgres.Conn, table string, note func(bool, string, string, ...any),
) error {
	check, remedy := "raquel "+table, "make it with `quern database init --raquel "+table+"`"
	source := raquelTable{Raquel: Raquel{Table: table}}
	if err := source.find(ctx, db); err != nil {
		note(false, check, "%s", err)
		return nil //nolint:nilerr // it is the finding
	}
	note(true, check, "the columns and rights that a relay needs")
	valid, err := source.index(ctx, db)
	if err != nil {
		return err
	}
	note(valid == "t", check, "%s", map[string]string{
		"t": "has the index for claims",
		"f": "an interrupted attempt has left an index that is not valid: " + remedy,
		"":  "has no index for claims, which get slower with each row that has ended: " + remedy,
	}[valid])
	if err := checkLeader(ctx, db, check, source.name(), "quern relay --raquel "+table, note); err != nil {
		return err
	}
	var refused []string
	err = db.Query(ctx, func(v postgres.Row) {
		if !v.Bool(1) || queue.ValidTarget(v.Text(0)) != nil {
			refused = append(refused, fmt.Sprintf("%q", v.Text(0)))
		}
	}, fmt.Sprintf("SELECT DISTINCT %s, %s FROM %s WHERE status <> 'success' LIMIT %d", safeText("queue"), isName("queue"),
		source.quoted, maxQueueNames))
	if err != nil {
		return err
	}
	if len(refused) > 0 {
		note(false, check, "queues with names that no host can serve: %s: use 1 to 128 characters from 0x21 to 0x7e; "+
			"workers of Raquel still serve them", strings.Join(refused, ", "))
	}
	return nil
}
