package relay

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/quern-project/quern/host/postgres"
)

// schemaParts lists what schema.sql makes: columns, primary keys, policies and the trigger, as schemaNow names them.
var schemaParts = func() (parts []string) {
	for table, columns := range map[string]string{
		"version": "version", "tenants": "role tenant", "relays": "source holder since until notified error",
		"outbox":         outboxColumns,
		"outbox_refused": outboxColumns + " error refused",
		"outbox_held":    outboxColumns + " relayed",
		"ended":          "tenant id status reason result error attempts ended",
		"runs":           "role tenant task created step settlement committed",
	} {
		for _, column := range strings.Fields(columns) {
			parts = append(parts, "column "+table+"."+column)
		}
	}
	for _, table := range []string{"tenants", "outbox", "ended", "relays", "runs"} {
		parts = append(parts, "primary key of "+table)
	}
	for _, table := range []string{"outbox", "ended", "runs"} {
		parts = append(parts, "row level security of "+table)
	}
	return append(parts, "policy own_tenant on outbox", "policy own_tenant on ended", "policy look on runs",
		"policy make on runs", "policy forget on runs", wakeTrigger)
}()

// boundsNobody follows the name of a policy that was changed.
const boundsNobody = ", which bounds nobody"

const outboxColumns = "seq id queue topic parameters json options tenant created"

// schemaNow reads which parts of schema.sql the database has. A policy counts as ours if it compares the same as ours.
// A policy that somebody else has added, and that permits more, opens the table.
const schemaNow = `
WITH tables AS (
  SELECT oid, relname, relrowsecurity FROM pg_class WHERE relnamespace = to_regnamespace('quern') AND relkind = 'r'
)
SELECT 'column ' || relname || '.' || attname FROM pg_attribute JOIN tables ON tables.oid = attrelid
  WHERE attnum > 0 AND NOT attisdropped
    AND (relname <> 'tenants' OR attname <> 'role' OR atttypid = 'regrole'::regtype)
UNION ALL SELECT 'primary key of ' || relname
  FROM pg_constraint JOIN tables ON tables.oid = conrelid WHERE contype = 'p'
UNION ALL SELECT 'row level security of ' || relname FROM tables WHERE relrowsecurity
UNION ALL SELECT 'policy ' || polname || ' on ' || relname ||
    CASE WHEN pg_get_expr(coalesce(polqual, polwithcheck), polrelid) LIKE
      CASE relname WHEN 'runs' THEN '%SESSION_USER%' ELSE '%my_tenant()%' END THEN '' ELSE '` + boundsNobody + `' END
  FROM pg_policy JOIN tables ON tables.oid = polrelid WHERE polpermissive AND relname IN ('outbox', 'ended', 'runs')
UNION ALL SELECT 'trigger ' || tgname || ' on ' || relname
  FROM pg_trigger JOIN tables ON tables.oid = tgrelid WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')`

// checkSchema notes what differs from the tables that Init makes. Only the tables that are named are looked at; all if
// none is.
func checkSchema(
	ctx context.Context, db *postgres.Conn, note func(bool, string, string, ...any), tables ...string,
) error {
	missing, now, err := missingParts(ctx, db, tables)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		note(false, "schema", "%s", missingText(missing, initRemedy))
	}
	for _, part := range now {
		policy, isPolicy := strings.CutPrefix(part, "policy ")
		if table := tableOf(part); isPolicy && isOf(tables, table) && !slices.Contains(schemaParts, part) {
			name := strings.TrimSuffix(strings.TrimSuffix(policy, boundsNobody), " on "+table)
			note(false, "schema", "the policy %s opens quern.%s to rows of others: "+
				"DROP POLICY %s ON quern.%[2]s, then run `quern database init`",
				name, table, quoteName(name))
		}
	}
	return nil
}

func isOf(tables []string, table string) bool {
	return len(tables) == 0 || slices.Contains(tables, table)
}

// missingParts returns what tables lack, and what the database has.
func missingParts(ctx context.Context, db *postgres.Conn, tables []string) (missing, now []string, err error) {
	if err := db.Query(ctx, func(v postgres.Row) { now = append(now, v.Text(0)) }, schemaNow); err != nil {
		return nil, nil, err
	}
	for _, part := range schemaParts {
		if !slices.Contains(now, part) && isOf(tables, tableOf(part)) {
			missing = append(missing, part)
		}
	}
	slices.Sort(missing)
	return missing, now, nil
}

// What to do about missing parts: first, and when columns are missing after that.
const (
	initRemedy   = "run `quern database init` as the database's owner; if a column stays missing, " + columnRemedy
	columnRemedy = "add the column as `quern database schema` has it; dropping the table loses its rows"
)

// missingText says which parts are missing, and what to do.
func missingText(missing []string, remedy string) string {
	const most = 8
	var wrong []string
	for i, part := range missing {
		if i == most {
			wrong = append(wrong, "…")
			break
		}
		text := part + " is missing"
		if part == wakeTrigger {
			text += ", so new rows wait for up to a second"
		}
		wrong = append(wrong, text)
	}
	return strings.Join(wrong, ", ") + ": " + remedy
}

// wakeTrigger is the trigger that announces new rows.
const wakeTrigger = "trigger wake on outbox"

// checkTables returns an error if tables of Quern lack columns or primary keys, without which no statement works.
func checkTables(ctx context.Context, db *postgres.Conn, remedy string, tables ...string) error {
	missing, _, err := missingParts(ctx, db, tables)
	if err != nil {
		return err
	}
	missing = slices.DeleteFunc(missing, func(part string) bool {
		return !strings.HasPrefix(part, "column ") && !strings.HasPrefix(part, "primary key ")
	})
	if len(missing) > 0 {
		return errors.New("the schema quern is damaged: " + missingText(missing, remedy))
	}
	return nil
}

// tableOf returns the table of a part.
func tableOf(part string) string {
	if column, ok := strings.CutPrefix(part, "column "); ok {
		table, _, _ := strings.Cut(column, ".")
		return table
	}
	part = strings.TrimSuffix(part, boundsNobody)
	return part[strings.LastIndexByte(part, ' ')+1:]
}
