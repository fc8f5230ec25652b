package relay

import (
	"cmp"
	"context"
	"strings"

	"github.com/quern-project/quern/host/postgres"
)

// The duties of nsj-queue-lib take these locks. They are also the locks of the rows 1 and 3.
const (
	retryDuty  = 1
	notifyDuty = 3
)

// nsjNamedAs is the SQL of what a row names, to count parked rows by it.
const nsjNamedAs = "coalesce(nullif(subscriber_id, ''), nullif(processo, ''), '')"

// duties does what the workers of nsj-queue-lib do every few minutes: rows whose time has come become pending, and
// those whose worker died are tried again. Rows that cannot be changed are parked.
func (n *nsjRows) duties(ctx context.Context) error {
	err := n.duty(ctx, "status = 'agendada' AND data_hora <= clock_timestamp()", n.makePending)
	if err != nil {
		return err
	}
	inHand := strings.ReplaceAll(literal(mark(n.table.taskPrefix())), "%", "%%")
	return n.duty(ctx, "status = 'processando' AND starts_with(mensagem, "+inHand+" || id || '-') IS NOT TRUE", n.retryLost)
}

// duty does a duty on the rows that a condition finds. If one of them makes that fail, it is done on the first of them,
// without those that are parked or like too many parked ones.
func (n *nsjRows) duty(
	ctx context.Context, where string, do func(ctx context.Context, where string, full []string, plain bool) error,
) error {
	where += " AND id <> ALL (" + array(n.claims.alone()) + ") AND " + noneOf(nsjNamedAs, "$1::text[]")
	full := n.claims.most(parkedByDuty)
	err := do(ctx, where, full, false)
	if !ofRow(err) {
		return err
	}
	var rows []dutyRow
	err = n.query(ctx, n.db, func(v postgres.Row) { rows = append(rows, dutyRow{v.Text(0), v.Text(1)}) },
		"SELECT id, "+safeText(nsjNamedAs)+" FROM %[1]s WHERE "+where+" ORDER BY id LIMIT $2", full, batchRows)
	if err != nil {
		return err
	}
	_, err = n.claims.doDuty(ctx, &n.statements, rows, func(ids []string, plain bool) error {
		return do(ctx, where+" AND id = ANY ("+array(ids)+")", full, plain)
	})
	return err
}

// array is the SQL of an array of numbers.
func array(ids []string) string { return literal("{"+strings.Join(ids, ",")+"}") + "::bigint[]" }

// makePending makes rows pending whose time has come.
func (n *nsjRows) makePending(ctx context.Context, where string, full []string, _ bool) error {
	return n.query(ctx, n.db, nil, `
		WITH duty AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($3) AS ours),
		due AS (
		  UPDATE %[1]s SET status = 'pendente' WHERE status = 'agendada'
		    AND id IN (SELECT id FROM %[1]s, duty WHERE ours AND `+where+`) RETURNING id
		)
		SELECT pg_notify($2, '') FROM (SELECT FROM due LIMIT 1) any_row`, full, n.table.bare, notifyDuty)
}

// retryLost ends attempts whose worker has died.
func (n *nsjRows) retryLost(ctx context.Context, where string, full []string, plain bool) (err error) {
	if err := n.query(ctx, n.db, nil, "BEGIN"); err != nil {
		return err
	}
	var ends []nsjEnd
	err = n.query(ctx, n.db, func(v postgres.Row) { ends = append(ends, nsjEnd{id: v.Text(0), kind: nsjLost}) }, `
		WITH duty AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($2) AS ours),
		busy AS MATERIALIZED (SELECT id FROM %[1]s, duty WHERE ours AND `+where+` LIMIT $3)
		SELECT id FROM busy WHERE pg_try_advisory_xact_lock(id)`, full, retryDuty, batchRows)
	if err == nil && len(ends) > 0 {
		err = n.writeBlock(ctx, ends, plain)
	}
	if err != nil {
		return cmp.Or(n.rollback(ctx), err)
	}
	return n.query(ctx, n.db, nil, "COMMIT")
}

// copyToSubscribers makes a row for each subscriber of publications, and returns how many publications it ended. Those
// that cannot be copied fail.
func (n *nsjRows) copyToSubscribers(ctx context.Context, publications []nsjDue) (ended int, err error) {
	err = each(ctx, &n.statements, publications, func(some []nsjDue) error {
		return n.query(ctx, n.db, func(v postgres.Row) { ended += int(v.Int(0)) }, nsjCopy,
			idsOf(some), nsjPublished, nsjNobody, n.table.message)
	}, func(row nsjDue, why error) error {
		if postgres.State(why) == lockNotAvailable {
			return n.claims.parkRow(row.queue, row.id, why)
		}
		return n.failPublication(ctx, row, why)
	})
	return ended, err
}

// nsjCopy makes a row for each subscriber of publications, and ends them.
const nsjCopy = `
WITH locked AS MATERIALIZED (SELECT id FROM unnest($1::bigint[]) AS u (id) WHERE pg_try_advisory_xact_lock(id)),
publications AS MATERIALIZED (
  SELECT t.*, coalesce(t.payload, first.payload) AS quern_payload FROM %[1]s t JOIN locked ON locked.id = t.id
  LEFT JOIN %[1]s first ON first.id = t.id_inicial AND t.payload IS NULL
  WHERE t.status = 'pendente' FOR UPDATE OF t
), copies AS MATERIALIZED (
  SELECT id, origem, destino, processo, chave_externa, tenant, grupo_empresarial, prioridade,
    quern_subscriber, quern_copy AS quern_payload
  FROM (
    SELECT p.*, s.id AS quern_subscriber, json_build_object('publication', p.quern_payload, 'subscription',
      json_build_object(
      'id', s.id, 'tenant', s.tenant, 'grupo_empresarial', s.grupo_empresarial, 'processo', s.processo, 'url', s.url,
      'http_method', s.http_method, 'headers', s.headers, 'ativo', s.ativo,
      'created_at', to_char(s.created_at, 'YYYY-MM-DD"T"HH24:MI:SS')))::text AS quern_copy
    FROM publications p JOIN %[2]s s ON s.processo = p.processo AND s.ativo
      AND (s.tenant IS NULL OR s.tenant = p.tenant)
      AND (s.grupo_empresarial IS NULL OR s.grupo_empresarial = p.grupo_empresarial)
  ) c
), inserted AS (
  INSERT INTO %[1]s (origem, destino, processo, chave_externa, tentativa, status, tenant, grupo_empresarial,
    publication_id, subscriber_id, prioridade, payload, payload_hash)
  SELECT origem, destino, processo, chave_externa, 1, 'pendente', tenant, grupo_empresarial, id, quern_subscriber,
    prioridade, quern_payload, ` + nsjHash + ` FROM copies
), ended AS (
  UPDATE %[1]s t SET status = 'sucesso', mensagem = left(CASE
    WHEN EXISTS (SELECT FROM copies WHERE copies.id = t.id) THEN $2::text ELSE $3::text END, $4)
  FROM publications p WHERE p.id = t.id RETURNING t.id
)
SELECT count(*) FROM ended`
