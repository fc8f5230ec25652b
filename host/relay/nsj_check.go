package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/runtime/units"
)

// nsjLibrary has the columns of a queue table of nsj-queue-lib, with the types that it gives them.
var nsjLibrary = library{"nsj-queue-lib 1.2", nsjMake, "SELECT, INSERT, UPDATE", true, [][2]string{
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
}}

// subscriberLibrary has those of a table of subscribers.
var subscriberLibrary = library{"nsj-queue-lib 1.2", nsjMake, "SELECT", false, [][2]string{
	{"id", "varchar text"},
	{"tenant", "int8 int4"},
	{"grupo_empresarial", "varchar text"},
	{"processo", "varchar text"},
	{"url", "varchar text"},
	{"http_method", "varchar text"},
	{"headers", "json jsonb"},
	{"ativo", "bool"},
	{"created_at", "timestamptz"},
}}

const nsjMake = "the SQL of `python -m nsj_queue_lib.db_gen SCHEMA NAME`"

// defaultMessage is how many characters the column mensagem has, as nsj-queue-lib makes it.
const defaultMessage = 500

// check resolves the names of the tables. The error says what the database lacks.
func (n *nsjTable) check(ctx context.Context, db *postgres.Conn) (err error) {
	var mod int64
	var usable string
	if n.tableName, err = nsjLibrary.find(ctx, db, n.Table); err != nil {
		return err
	}
	err = db.Query(ctx, func(v postgres.Row) { mod, n.sequence, usable = v.Int(0), v.Text(1), v.Text(2) }, `
		SELECT atttypmod, pg_get_serial_sequence($1, 'id'), has_sequence_privilege(pg_get_serial_sequence($1, 'id'), 'USAGE')
		FROM pg_attribute WHERE attrelid = $1::regclass AND attname = 'mensagem'`, n.quoted)
	if err != nil {
		return err
	}
	n.message = defaultMessage
	if mod > 4 { // the length that a varchar is declared with, and 4
		n.message = min(n.message, int(mod)-4)
	}
	switch least := len(mark(n.taskPrefix())) + len("-9223372036854775808-") + len(claimWord()); {
	case usable == "f":
		return fmt.Errorf("the role %s may not use the sequence of %s: GRANT USAGE ON SEQUENCE %s TO %[1]s", role(ctx, db), n.Table, n.sequence)
	case n.message < least:
		return fmt.Errorf("the column mensagem of %s takes %d characters, and the relay needs %d: ALTER TABLE %s ALTER mensagem TYPE varchar(%d)",
			n.Table, n.message, least, n.quoted, defaultMessage)
	}
	subscribers := tableName{}
	name := n.schema + "." + quoteName(nameCut(n.bare+"_subscriber"))
	switch {
	case n.Subscribers != "":
		subscribers, err = subscriberLibrary.find(ctx, db, n.Subscribers)
	case name != n.schema+"."+quoteName(n.bare) && exists(ctx, db, name):
		subscribers, err = subscriberLibrary.find(ctx, db, name)
	}
	if err != nil {
		return err
	}
	n.subscribers = subscribers.quoted
	n.report, err = reportName(ctx, db, "nsj", n.quoted)
	return err
}

// checkTrigger notes whether a trigger announces new rows. Other libraries and people may have given it another name.
func (n *nsjTable) checkTrigger(
	ctx context.Context, db *postgres.Conn, check string, note func(bool, string, string, ...any),
) error {
	remedy := fmt.Sprintf("make it with the CREATE FUNCTION and CREATE TRIGGER of `python -m nsj_queue_lib.db_gen %s %s`",
		n.schema, n.bare)
	ok := false
	err := db.Query(ctx, func(v postgres.Row) {
		if ok = ok || v.Bool(1); !ok {
			remedy = fmt.Sprintf("ALTER TABLE %s ENABLE TRIGGER %s", n.quoted, v.Text(0))
		}
	}, `SELECT quote_ident(tgname), tgenabled IN ('O', 'A') FROM pg_trigger t JOIN pg_proc p ON p.oid = tgfoid
		WHERE tgrelid = $1::regclass AND NOT tgisinternal AND tgtype & 4 <> 0 AND prosrc ILIKE '%notify%'`, n.quoted)
	if err == nil && !ok {
		note(false, check, "no trigger announces new rows, so they wait for up to a second: %s", remedy)
	}
	return err
}

// nameCut cuts a name as PostgreSQL does.
func nameCut(name string) string { return strings.ToValidUTF8(name[:min(len(name), maxName)], "") }

// exists reports whether this role sees a table.
func exists(ctx context.Context, db *postgres.Conn, table string) (is bool) {
	err := db.Query(ctx, func(v postgres.Row) { is = v.Bool(0) }, "SELECT to_regclass($1) IS NOT NULL", table)
	return is || err != nil // find tells what is wrong
}

// GrantNsj gives a role what a relay needs of a queue table of nsj-queue-lib, and of its table of subscribers.
func GrantNsj(ctx context.Context, db *postgres.Conn, table, name string) error {
	n := newNsjTable(Nsj{Table: table})
	if err := n.check(ctx, db); err != nil {
		return err
	}
	rights := []right{{nsjLibrary.rights, n.quoted}}
	if n.sequence != "" {
		rights = append(rights, right{"USAGE", "SEQUENCE " + n.sequence})
	}
	if n.subscribers != "" {
		rights = append(rights, right{subscriberLibrary.rights, n.subscribers})
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
	if err := n.checkTrigger(ctx, db, check, note); err != nil {
		return err
	}
	own, err := db.OwnSession(ctx)
	if err != nil {
		return err
	}
	if !own {
		note(false, check, "the URL leads through a pooler, and locks need a session of their own: give the relay the URL without it with --direct")
	}
	if err := checkLeader(ctx, db, check, n.name(), "quern relay --nsj "+table, note); err != nil {
		return err
	}
	names, waiting, err := newNsjRows(n, db, db, nil).names(ctx, []string{})
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
