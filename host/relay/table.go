package relay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
)

// library says how another library makes its tables, and what a relay needs of one.
type library struct {
	version    string      // such as Raquel 0.3
	make       string      // how to make the table
	rights     string      // privileges, separated by commas
	partitions bool        // whether the table may have partitions
	columns    [][2]string // names, and the types that a column may have
}

// tableName is the name of a table in a database.
type tableName struct {
	quoted string // in SQL, with its schema
	schema string // quoted
	bare   string // without schema and quotes
}

// maxName is how many bytes of a name PostgreSQL keeps.
const maxName = 63

// namePattern matches the name of a table in SQL: the schema, if it has one, and the table.
var namePattern = regexp.MustCompile(`^(?:(` + namePart + `)\.)?(` + namePart + `)$`)

const namePart = `[\pL_][\pL\pN_$]*|"(?:[^"]|"")+"`

// parseTable splits the name of a table. The schema is empty if the name has none.
func parseTable(table string) (schema, bare string, err error) {
	parts := namePattern.FindStringSubmatch(table)
	if parts == nil {
		return "", "", fmt.Errorf("%w: %q is no name of a table: write TABLE or SCHEMA.TABLE, with \"…\" around capitals",
			queue.ErrInvalid, table)
	}
	for i, part := range parts[1:] {
		name, isQuoted := strings.CutPrefix(part, `"`)
		if name = strings.ToLower(name); isQuoted {
			name = strings.ReplaceAll(part[1:len(part)-1], `""`, `"`)
		}
		if len(name) > maxName {
			return "", "", fmt.Errorf("%w: the name %s of a table has %d bytes, and PostgreSQL keeps %d: write the name that psql's \\dt shows",
				queue.ErrInvalid, part, len(name), maxName)
		}
		parts[i+1] = name
	}
	return parts[1], parts[2], nil
}

// ValidTable returns an error if a text is no name of a table.
func ValidTable(table string) error {
	_, _, err := parseTable(table)
	return err
}

// quoteName returns a name as SQL has it.
func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// nameWith returns a name with a suffix, and cuts the name so that PostgreSQL keeps all of it. What is cut is told
// apart by a hash.
func nameWith(name, suffix string) string {
	if len(name)+len(suffix) <= maxName {
		return name + suffix
	}
	hash := fmt.Sprintf("_%.4x", sha256.Sum256([]byte(name)))
	return strings.ToValidUTF8(name[:maxName-len(suffix)-len(hash)], "") + hash + suffix
}

// find finds a table. The error says what it lacks of columns and rights.
func (l *library) find(ctx context.Context, db *postgres.Conn, table string) (found tableName, err error) {
	none := tableName{}
	if err := ValidTable(table); err != nil {
		return none, err
	}
	var kind string
	allowed := true
	err = db.Query(ctx, func(v postgres.Row) {
		found, kind = tableName{v.Text(0), v.Text(1), v.Text(2)}, v.Text(3)
		for i, privilege := range []string{"SELECT", "INSERT", "UPDATE"} {
			allowed = allowed && (v.Bool(4+i) || !strings.Contains(l.rights, privilege))
		}
	}, `SELECT format('%I.%I', nspname, relname), quote_ident(nspname), relname, relkind,
		has_table_privilege(c.oid, 'SELECT'), has_table_privilege(c.oid, 'INSERT'), has_table_privilege(c.oid, 'UPDATE')
		FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = to_regclass($1)`, table)
	switch {
	case postgres.State(err) == "42501":
		return none, fmt.Errorf("%w: GRANT USAGE ON SCHEMA %s TO %s", err, namePattern.FindStringSubmatch(table)[1], role(ctx, db))
	case err != nil:
		return none, err
	case found == none:
		return none, fmt.Errorf("the database has no table %s that the role %s sees: name it with its schema, as in app.jobs, "+
			"or make it with %s", table, role(ctx, db), l.make)
	case kind == "p" && !l.partitions:
		return none, fmt.Errorf("%s is partitioned, and PostgreSQL makes no index for such a table without a lock: name one "+
			"without partitions", table)
	case kind != "r" && kind != "p":
		return none, fmt.Errorf("%s is no table: name a table of %s", table, l.version)
	}
	wrong, err := l.wrong(ctx, db, found.quoted, kind == "r")
	switch {
	case err != nil:
		return none, err
	case len(wrong) > 0:
		return none, fmt.Errorf("the table %s is not as %s makes it: %s: change it to what %s makes", table, l.version,
			strings.Join(wrong, ", "), l.make)
	case !allowed:
		return none, fmt.Errorf("the role %s lacks rights on %s: GRANT %s ON %s TO %[1]s", role(ctx, db), table, l.rights, found.quoted)
	}
	return found, nil
}

// wrong returns what differs from the table that the library makes.
func (l *library) wrong(
	ctx context.Context, db *postgres.Conn, quoted string, unique bool,
) (wrong []string, err error) {
	types := make(map[string]string)
	err = db.Query(ctx, func(v postgres.Row) { types[v.Text(0)] = v.Text(1) }, `
		SELECT attname, typname FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped`, quoted)
	key := false
	err = errors.Join(err, db.Query(ctx, func(v postgres.Row) { key = v.Bool(0) }, `
		SELECT EXISTS (SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
		WHERE indrelid = $1::regclass AND indisunique AND indpred IS NULL AND indnkeyatts = 1 AND attname = 'id'
		  AND attnotnull)`, quoted))
	for _, column := range l.columns {
		want := strings.Fields(column[1])
		switch is, ok := types[column[0]]; {
		case !ok:
			wrong = append(wrong, column[0]+" is missing")
		case !slices.Contains(want, is):
			wrong = append(wrong, fmt.Sprintf("%s is %s and should be %s", column[0], is, want[0]))
		}
	}
	if unique && !key {
		wrong = append(wrong, "id is no primary key")
	}
	return wrong, err
}

// role returns the role of a connection, in SQL.
func role(ctx context.Context, db *postgres.Conn) (name string) {
	_ = db.Query(ctx, func(v postgres.Row) { name = v.Text(0) }, "SELECT quote_ident(current_user)")
	return name
}
