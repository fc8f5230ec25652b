package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/runtime/units"
)

// nsjTypes are the columns of a queue table of nsj-queue-lib 1.2, with the types that it gives them.
var nsjTypes = [][2]string{
	{"id", "int8 int4"},
	{"id_inicial", "int8 int4"},
	{"data_hora_inicial", "timestamptz"},
	{"data_hora", "timestamptz"},
	{"origem", "varchar text"},
	{"destino", "varchar text"},
	{"processo", "varchar text"},
	{"chave_externa", "varchar text"},
	{"proxima_tentativa", "timestamptz"},
	{"tentativa", "int4 int8"},
	{"status", "varchar text"},
	{"reenfileirado", "bool"},
	{"estouro_tentativas", "bool"},
	{"mensagem", "varchar text"},
	{"id_anterior", "int8 int4"},
	{"data_hora_anterior", "timestamptz"},
	{"status_anterior", "varchar text"},
	{"mensagem_anterior", "varchar text"},
	{"payload", "text varchar"},
	{"tenant", "int8 int4"},
	{"grupo_empresarial", "varchar text"},
	{"payload_hash", "bytea"},
	{"pub_sub", "bool"},
	{"publication_id", "int8 int4"},
	{"subscriber_id", "varchar text"},
	{"dead", "bool"},
	{"live_id", "int8 int4"},
	{"prioridade", "int4 int8"},
}

// nsjSubscriberTypes are those of a table of subscribers.
var nsjSubscriberTypes = [][2]string{
	{"id", "varchar text"},
	{"tenant", "int8 int4"},
	{"grupo_empresarial", "varchar text"},
	{"processo", "varchar text"},
	{"url", "varchar text"},
	{"http_method", "varchar text"},
	{"headers", "json jsonb"},
	{"ativo", "bool"},
	{"created_at", "timestamptz"},
}

// What a relay needs of these tables.
const (
	nsjRights           = "SELECT, INSERT, UPDATE"
	nsjSubscriberRights = "SELECT"
)

// defaultMessage is how many characters the column mensagem has, as nsj-queue-lib makes it.
const defaultMessage = 500

// check resolves the names of the tables. The error says what the database lacks.
func (n *nsjTable) check(ctx context.Context, db *postgres.Conn) (err error) {
	var mod int64
	var usable string
	if n.quoted, n.bare, err = findNsj(ctx, db, n.Table, nsjTypes, nsjRights); err != nil {
		return err
	}
	err = db.Query(ctx, func(v postgres.Row) { mod, n.sequence, usable, n.schema = v.Int(0), v.Text(1), v.Text(2), v.Text(3) }, `
		SELECT atttypmod, pg_get_serial_sequence($1, 'id'), has_sequence_privilege(pg_get_serial_sequence($1, 'id'), 'USAGE'),
		  (SELECT quote_ident(nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = attrelid)
		FROM pg_attribute WHERE attrelid = $1::regclass AND attname = 'mensagem'`, n.quoted)
	if err != nil {
		return err
	}
	if usable == "f" {
		return fmt.Errorf("the role %s may not use the sequence of %s: GRANT USAGE ON SEQUENCE %s TO %[1]s", role(ctx, db), n.Table, n.sequence)
	}
	n.message = defaultMessage
	if mod > 4 { // the length that a varchar is declared with, and 4
		n.message = min(n.message, int(mod)-4)
	}
	if n.Subscribers != "" {
		n.subscribers, _, err = findNsj(ctx, db, n.Subscribers, nsjSubscriberTypes, nsjSubscriberRights)
	} else if name := n.schema + "." + quoteName(n.bare+"_subscriber"); exists(ctx, db, name) {
		n.subscribers, _, err = findNsj(ctx, db, name, nsjSubscriberTypes, nsjSubscriberRights)
	}
	if err != nil {
		return err
	}
	n.report, err = reportName(ctx, db, "nsj", n.quoted)
	return err
}

// role returns the role of a connection.
func role(ctx context.Context, db *postgres.Conn) (name string) {
	_ = db.Query(ctx, func(v postgres.Row) { name = v.Text(0) }, "SELECT quote_ident(current_user)")
	return name
}

// exists reports whether this role sees a table.
func exists(ctx context.Context, db *postgres.Conn, table string) (is bool) {
	err := db.Query(ctx, func(v postgres.Row) { is = v.Bool(0) }, "SELECT to_regclass($1) IS NOT NULL", table)
	return is || err != nil // findNsj tells what is wrong
}

// findNsj returns the quoted and the bare name of a table. The error says what it lacks of columns and rights.
func findNsj(
	ctx context.Context, db *postgres.Conn, table string, types [][2]string, rights string,
) (quoted, bare string, err error) {
	var kind string
	var allowed bool
	err = db.Query(ctx, func(v postgres.Row) {
		quoted, bare, kind, allowed = v.Text(0), v.Text(1), v.Text(2), true
		for i := range strings.Split(rights, ", ") {
			allowed = allowed && v.Bool(3+i)
		}
	}, `SELECT format('%I.%I', nspname, relname), relname, relkind, has_table_privilege(c.oid, 'SELECT'),
		has_table_privilege(c.oid, 'INSERT'), has_table_privilege(c.oid, 'UPDATE')
		FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = to_regclass($1)`, table)
	switch state := postgres.State(err); {
	case state == "42602" || state == "42601":
		return "", "", fmt.Errorf("%q is no name of a table: write TABLE or SCHEMA.TABLE, with \"…\" around capitals", table)
	case state == "42501":
		schema, _, _ := strings.Cut(table, ".")
		return "", "", fmt.Errorf("%w: GRANT USAGE ON SCHEMA %s TO %s", err, schema, role(ctx, db))
	case err != nil:
		return "", "", err
	case quoted == "":
		return "", "", fmt.Errorf("the database has no table %s that the role %s sees: name it with its schema, as in app.fila, or make it "+
			"with the SQL of `python -m nsj_queue_lib.db_gen SCHEMA NAME`", table, role(ctx, db))
	case kind != "r" && kind != "p":
		return "", "", fmt.Errorf("%s is no table: name a table of nsj-queue-lib", table)
	}
	has := make(map[string]string)
	err = db.Query(ctx, func(v postgres.Row) { has[v.Text(0)] = v.Text(1) }, `
		SELECT attname, typname FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped`, quoted)
	if err != nil {
		return "", "", err
	}
	var wrong []string
	for _, column := range types {
		want := strings.Fields(column[1])
		switch is, ok := has[column[0]]; {
		case !ok:
			wrong = append(wrong, column[0]+" is missing")
		case !slices.Contains(want, is):
			wrong = append(wrong, fmt.Sprintf("%s is %s and should be %s", column[0], is, want[0]))
		}
	}
	switch {
	case len(wrong) > 0:
		return "", "", fmt.Errorf("the table %s is not as nsj-queue-lib 1.2 makes it: %s: change it to what `python -m nsj_queue_lib.db_gen` prints",
			table, strings.Join(wrong, ", "))
	case !allowed:
		return "", "", fmt.Errorf("the role %s lacks rights on %s: GRANT %s ON %s TO %[1]s", role(ctx, db), table, rights, quoted)
	}
	return quoted, bare, nil
}

// quoteName returns a name as SQL has it.
func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// GrantNsj gives a role what a relay needs of a queue table of nsj-queue-lib, and of its table of subscribers.
func GrantNsj(ctx context.Context, db *postgres.Conn, table, name string) error {
	n := newNsjTable(Nsj{Table: table})
	if err := n.check(ctx, db); err != nil {
		return err
	}
	rights := []right{{nsjRights, n.quoted}}
	if n.sequence != "" {
		rights = append(rights, right{"USAGE", "SEQUENCE " + n.sequence})
	}
	if n.subscribers != "" {
		rights = append(rights, right{nsjSubscriberRights, n.subscribers})
	}
	return grant(ctx, db, n.schema, rights, name)
}

// checkNsjTable looks at what the relay needs of a queue table of nsj-queue-lib.
func checkNsjTable(
	ctx context.Context, db *postgres.Conn, table string, note func(bool, string, string, ...any),
) error {
	check := "nsj " + table
	n := newNsjTable(Nsj{Table: table})
	if err := n.check(ctx, db); err != nil {
		note(false, check, "%s", err)
		return nil //nolint:nilerr // it is the finding
	}
	text := "subscribers are in " + n.subscribers
	if n.subscribers == "" {
		text = "there is no table " + table + "_subscriber, so publications are left to workers of nsj-queue-lib"
	}
	note(true, check, "the columns and rights that a relay needs; %s", text)
	own, err := db.OwnSession(ctx)
	if err != nil {
		return err
	}
	if !own {
		note(false, check, "the URL leads through a pooler, and locks need a session of their own: give the relay the URL without it with --direct")
	}
	rows := nsjRows{table: n, lock: db, db: db}
	names, waiting, err := rows.names(ctx)
	if err != nil {
		return err
	}
	var queues []string
	for _, row := range names {
		queues = append(queues, n.queueOf(row.name, row.dead))
	}
	slices.Sort(queues)
	text = units.Count(waiting, "row waits", "rows wait")
	if len(queues) > 0 {
		text += ", for the queues " + strings.Join(queues, ", ")
	}
	note(true, check, "%s", text)
	return nil
}
