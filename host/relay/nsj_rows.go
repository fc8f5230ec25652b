package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// The duties of nsj-queue-lib take these locks. They are also the locks of the rows 1 and 3.
const (
	retryDuty  = 1
	notifyDuty = 3
)

// nsjRows reads and writes the rows of a queue table. The session that holds the advisory lock of a row's ID owns the
// row.
// Locks of rows in hand belong to the session lock. Those that end with a statement are taken by db, because a session
// gets its own locks once more.
type nsjRows struct {
	table    *nsjTable
	lock, db *postgres.Conn
}

// markPrefix is what stands in the column mensagem of a row in hand, before the ID of its task. It tells a row whose
// relay has died from one whose worker has died.
const markPrefix = "Quern: "

func mark(task string) string { return markPrefix + task }

// nsjName is the SQL of what a row names. $2 is what it names if it names nothing.
const nsjName = "coalesce(nullif(%[1]s.subscriber_id, ''), nullif(%[1]s.processo, ''), $2)"

// sql returns a statement: %[1]s is the table, %[2]s the table of subscribers.
func (n *nsjRows) sql(statement string) string {
	return fmt.Sprintf(statement+"%.0[1]s%.0[2]s", n.table.quoted, n.table.subscribers)
}

// nsjDue is a row that can be claimed. A publication has no queue.
type nsjDue struct {
	id, size int64
	queue    string
}

// dueRows reads the first rows that are due, as workers sort them: publications, and rows for some queues. oldest is
// how long the oldest of them has waited.
func (n *nsjRows) dueRows(ctx context.Context, queues []string) (due []nsjDue, oldest time.Duration, err error) {
	served := make(map[string]bool)
	for _, name := range queues {
		served[name] = true
	}
	names := map[bool][]string{false: {}, true: {}} // by whether they are dead
	rest := n.table.Queues[anyName]
	if rest == "" {
		for _, name := range queues {
			names[false] = append(names[false], name)
			if base, ok := strings.CutSuffix(name, deadSuffix); ok {
				names[true] = append(names[true], base)
			}
		}
	}
	mapped := slices.Sorted(maps.Keys(n.table.Queues))
	for _, dead := range []bool{false, true} {
		names[dead] = slices.DeleteFunc(names[dead], func(name string) bool { return slices.Contains(mapped, name) })
		for _, name := range mapped {
			if name != anyName && served[n.table.queueOf(name, dead)] {
				names[dead] = append(names[dead], name)
			}
		}
	}
	err = n.query(ctx, n.db, func(v postgres.Row) {
		row := nsjDue{id: v.Int(0), size: v.Int(4)}
		if !v.Bool(1) {
			row.queue = n.table.queueOf(v.Text(2), v.Bool(3))
		}
		due, oldest = append(due, row), max(oldest, v.Seconds(5))
	}, `
		SELECT d.id, d.publication, d.name, d.dead, octet_length(coalesce(d.payload, first.payload)), d.age FROM (
		  SELECT * FROM (
		    SELECT t.id, prioridade, data_hora, dead, payload, id_inicial, pub_sub AND NOT dead AS publication,
		      `+fmt.Sprintf(nsjName, "t")+` AS name, extract(epoch FROM clock_timestamp() - data_hora) AS age
		    FROM %[1]s t WHERE status = 'pendente' AND tentativa <= $1 AND data_hora <= clock_timestamp()
		  ) pending
		  WHERE CASE WHEN publication THEN $3::boolean
		    WHEN dead THEN name = ANY ($6::text[]) OR $7::boolean AND name <> ALL ($8::text[])
		    ELSE name = ANY ($4::text[]) OR $5::boolean AND name <> ALL ($8::text[]) END
		  ORDER BY prioridade DESC, data_hora, id LIMIT $9
		) d LEFT JOIN %[1]s first ON first.id = d.id_inicial AND d.payload IS NULL
		ORDER BY d.prioridade DESC, d.data_hora, d.id`,
		n.table.MaxRetry, n.table.bare, n.table.subscribers != "", names[false], rest != "" && served[rest],
		names[true], rest != "" && served[rest+deadSuffix], mapped, lookRows)
	return due, oldest, err
}

// nsjColumns are the columns that become a task, in the order in which nsjRows.task reads them.
const nsjColumns = `prioridade, dead, tenant, grupo_empresarial, processo, chave_externa, origem, destino, tentativa,
	publication_id, subscriber_id, live_id, mensagem`

// nsjHeaders are the headers with the columns from tenant to live_id.
var nsjHeaders = []string{
	"nsj-tenant", "nsj-grupo-empresarial", "nsj-processo", "nsj-chave-externa", "nsj-origem", "nsj-destino", "nsj-tentativa",
	"nsj-publication", "nsj-subscriber", "nsj-live",
}

// task makes a task of a row: its number, whether it is in hand, what it names, its payload, nsjColumns and the size of
// its payload.
func (n *nsjRows) task(v postgres.Row) *nsjTask {
	t := &nsjTask{
		id: v.Int(0), queue: n.table.queueOf(v.Text(2), v.Bool(5)), payload: slices.Clone(v[3]),
		priority: queue.DefaultPriority, headers: map[string]string{"nsj-id": v.Text(0)},
		task: strings.TrimPrefix(v.Text(16), markPrefix), size: v.Int(17),
	}
	if v[4] != nil {
		t.priority = int(min(max(v.Int(4), 0), 100))
	}
	for i, name := range nsjHeaders {
		if text := v.Text(6 + i); text != "" {
			t.headers[name] = strings.Map(func(r rune) rune {
				if !unicode.IsPrint(r) {
					return unicode.ReplacementChar
				}
				return r
			}, text)
		}
	}
	return t
}

// takeRows runs a statement that locks rows and returns them as task reads them. It
// unlocks those that are not in hand.
func (n *nsjRows) takeRows(ctx context.Context, statement string, args ...any) (tasks []*nsjTask, err error) {
	var others []int64
	err = n.query(ctx, n.lock, func(v postgres.Row) {
		if v.Bool(1) {
			tasks = append(tasks, n.task(v))
		} else {
			others = append(others, v.Int(0))
		}
	}, statement, args...)
	if err != nil {
		return nil, err
	}
	return tasks, n.unlock(ctx, others)
}

// claim locks rows, and claims those that are still pending.
func (n *nsjRows) claim(ctx context.Context, ids []int64) ([]*nsjTask, error) {
	return n.takeRows(ctx, `
		WITH locked AS MATERIALIZED (SELECT id FROM unnest($1::bigint[]) AS u (id) WHERE pg_try_advisory_lock(id)),
		claimed AS (
		  UPDATE %[1]s t SET status = 'processando', mensagem = $3::text || t.id || '-' || $4::text FROM locked
		  WHERE t.id = locked.id AND t.status = 'pendente' RETURNING t.*
		)
		SELECT locked.id, c.id IS NOT NULL, `+fmt.Sprintf(nsjName, "c")+`, `+payloadOf("c")+`,
		  `+columnsOf("c")+`, octet_length(coalesce(c.payload, first.payload))
		FROM locked LEFT JOIN claimed c ON c.id = locked.id
		LEFT JOIN %[1]s first ON first.id = c.id_inicial AND c.payload IS NULL
		ORDER BY c.prioridade DESC, c.data_hora, c.id`,
		ids, n.table.bare, mark(n.table.taskPrefix()), claimWord())
}

// adopt locks the rows that an earlier leader has claimed, except for those in hand. Their payloads are not read.
func (n *nsjRows) adopt(ctx context.Context, inHand []int64) ([]*nsjTask, error) {
	tasks, err := n.takeRows(ctx, `
		WITH claimed AS MATERIALIZED (
		  SELECT id FROM %[1]s WHERE status = 'processando' AND starts_with(mensagem, $3::text || id || '-')
		    AND id <> ALL ($1::bigint[])
		), locked AS MATERIALIZED (SELECT id FROM claimed WHERE pg_try_advisory_lock(id))
		SELECT locked.id, c.id IS NOT NULL, `+fmt.Sprintf(nsjName, "c")+`, NULL,
		  `+columnsOf("c")+`, octet_length(coalesce(c.payload, first.payload))
		FROM locked LEFT JOIN %[1]s c ON c.id = locked.id
		LEFT JOIN %[1]s first ON first.id = c.id_inicial AND c.payload IS NULL`,
		inHand, n.table.bare, mark(n.table.taskPrefix()))
	for _, task := range tasks {
		task.unread = true
	}
	return tasks, err
}

// payloads reads the payloads of adopted rows that are still claimed for their tasks.
func (n *nsjRows) payloads(ctx context.Context, tasks []*nsjTask) error {
	byRow := make(map[int64]*nsjTask, len(tasks))
	for _, task := range tasks {
		byRow[task.id] = task
	}
	ids, marks := marksOf(tasks)
	return n.query(ctx, n.db, func(v postgres.Row) {
		task := byRow[v.Int(0)]
		task.payload, task.unread = slices.Clone(v[1]), false
	}, `
		SELECT t.id, `+payloadOf("t")+` FROM %[1]s t JOIN unnest($1::bigint[], $2::text[]) AS e (id, mark) ON e.id = t.id
		LEFT JOIN %[1]s first ON first.id = t.id_inicial AND t.payload IS NULL
		WHERE t.status = 'processando' AND t.mensagem = e.mark`, ids, marks)
}

// payloadOf returns the SQL of a row's payload, which is NULL if it is larger than maxPayload.
func payloadOf(table string) string {
	payload := "coalesce(" + table + ".payload, first.payload)"
	return fmt.Sprintf("CASE WHEN octet_length(%[1]s) <= %[2]d THEN %[1]s END", payload, maxPayload)
}

func columnsOf(table string) string {
	names := strings.Split(nsjColumns, ",")
	for i, name := range names {
		names[i] = table + "." + strings.TrimSpace(name)
	}
	return strings.Join(names, ", ")
}

// unlock gives locks back.
func (n *nsjRows) unlock(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	err := n.exec(ctx, n.lock, "SELECT pg_advisory_unlock(id) FROM unnest($1::bigint[]) AS u (id)", ids)
	return err
}

// marksOf returns the numbers and the marks of rows, as arguments.
func marksOf(tasks []*nsjTask) (ids []int64, marks []string) {
	ids, marks = make([]int64, len(tasks)), make([]string, len(tasks))
	for i, task := range tasks {
		ids[i], marks[i] = task.id, mark(task.task)
	}
	return ids, marks
}

// claimed returns which rows are still claimed for these tasks.
func (n *nsjRows) claimed(ctx context.Context, tasks []*nsjTask) (map[int64]bool, error) {
	ours := make(map[int64]bool)
	ids, marks := marksOf(tasks)
	err := n.query(ctx, n.db, func(v postgres.Row) { ours[v.Int(0)] = true }, `
		SELECT t.id FROM %[1]s t JOIN unnest($1::bigint[], $2::text[]) AS e (id, mark) ON e.id = t.id
		WHERE t.status = 'processando' AND t.mensagem = e.mark`, ids, marks)
	return ours, err
}

// unclaim makes claimed rows pending again. Their locks stay.
func (n *nsjRows) unclaim(ctx context.Context, tasks []*nsjTask) error {
	ids, marks := marksOf(tasks)
	err := n.exec(ctx, n.db, `
		UPDATE %[1]s t SET status = 'pendente', mensagem = NULL FROM unnest($1::bigint[], $2::text[]) AS e (id, mark)
		WHERE t.id = e.id AND t.status = 'processando' AND t.mensagem = e.mark`, ids, marks)
	return err
}

// claimAgain undoes unclaim.
func (n *nsjRows) claimAgain(ctx context.Context, task *nsjTask) error {
	err := n.exec(ctx, n.db, "UPDATE %[1]s SET status = 'processando', mensagem = $2 WHERE id = $1 AND status = 'pendente'",
		task.id, mark(task.task))
	return err
}

// notify wakes the workers of nsj-queue-lib.
func (n *nsjRows) notify(ctx context.Context) error {
	err := n.exec(ctx, n.db, "SELECT pg_notify($1, '')", n.table.bare)
	return err
}

// How an attempt ends.
const (
	nsjSuccess = "success"
	nsjFailure = "failure" // a retry follows, if attempts are left
	nsjFinal   = "final"   // a failure after which no attempt is of use
	nsjLost    = "lost"    // nobody knows how: the process died
)

// nsjEnd is the end of an attempt.
type nsjEnd struct {
	id                  int64
	task, kind, message string
}

// The messages of nsj-queue-lib.
const (
	nsjDone        = "Concluído com sucesso"
	nsjAgain       = ". Tarefa reenfileirada."
	nsjLast        = ". Máximo de tentativas atingido."
	nsjUnknown     = "Falha desconhecida de processamento (processamento abortado repentinamente)"
	nsjUnknownLast = ", e máximo de tentativas atingido."
	nsjPublished   = "Publicado para os assinantes, com sucesso!"
	nsjNobody      = "Não haviam assinantes configurados! Tarefa descartada sem nenhuma ação."
)

// maxNsjResult is the maximum size of a result that is read for the column mensagem.
const maxNsjResult = 64 << 10

// failed sets the end of a task that failed.
func (e *nsjEnd) failed(failure *queue.Failure) {
	e.kind, e.message = nsjFailure, valid(ownWords(failure.Message))
	switch {
	case failure.Reason == queue.ReasonCrashed:
		e.kind = nsjLost
	case failure.Reason == queue.ReasonCancelled, failure.ExitCode != nil && *failure.ExitCode == listen.ExitFatal,
		strings.HasPrefix(failure.Limit, "input="):
		e.kind = nsjFinal
	}
}

// nsjWrite writes ends into rows that are claimed with a mark. A retry is a new row, and so is a dead one, after the
// last attempt. A repeat changes nothing.
const nsjWrite = `
WITH attempts AS MATERIALIZED (
  SELECT t.*, e.kind AS quern_kind, e.message AS quern_message,
    e.kind IN ('failure', 'lost') AND t.tentativa < $5 AS quern_again,
    t.data_hora + t.tentativa * $6::interval AS quern_next, coalesce(t.payload, first.payload) AS quern_payload
  FROM %[1]s t
  JOIN unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) AS e (id, mark, kind, message) ON e.id = t.id
  LEFT JOIN %[1]s first ON first.id = t.id_inicial AND t.payload IS NULL
  WHERE t.status = 'processando' AND t.mensagem IS NOT DISTINCT FROM e.mark
  FOR UPDATE OF t
), ended AS (
  UPDATE %[1]s t SET
    status = CASE quern_kind WHEN 'success' THEN 'sucesso' WHEN 'lost' THEN 'falha_processando' ELSE 'falha' END,
    mensagem = CASE
      WHEN quern_kind = 'success' THEN left(quern_message, $7::int)
      WHEN quern_kind = 'lost' AND quern_again THEN left($10::text || $8::text, $7)
      WHEN quern_kind = 'lost' THEN left($10::text || $11::text, $7)
      WHEN quern_again THEN left(quern_message, $7 - length($8::text)) || $8::text
      ELSE left(quern_message, $7 - length($9::text)) || $9::text END,
    reenfileirado = t.reenfileirado OR quern_kind <> 'success' AND quern_again,
    estouro_tentativas = t.estouro_tentativas OR quern_kind <> 'success' AND NOT quern_again,
    proxima_tentativa = CASE WHEN quern_again THEN quern_next ELSE t.proxima_tentativa END
  FROM attempts a WHERE a.id = t.id
)
INSERT INTO %[1]s (id_inicial, data_hora, data_hora_inicial, origem, destino, processo, chave_externa, tentativa,
  status, id_anterior, data_hora_anterior, status_anterior, tenant, grupo_empresarial, payload, payload_hash, pub_sub,
  publication_id, subscriber_id, dead, live_id, prioridade)
SELECT CASE WHEN quern_again THEN coalesce(id_inicial, id) END,
  CASE WHEN quern_again THEN quern_next WHEN dead THEN clock_timestamp() + $6::interval ELSE clock_timestamp() END,
  CASE WHEN quern_again THEN data_hora_inicial ELSE clock_timestamp() END,
  origem, destino, processo, chave_externa,
  CASE WHEN quern_again THEN tentativa + 1 ELSE 1 END,
  CASE WHEN quern_again THEN 'agendada' ELSE 'pendente' END,
  CASE WHEN quern_again THEN id END,
  CASE WHEN quern_again THEN data_hora END,
  CASE WHEN quern_again THEN CASE quern_kind WHEN 'lost' THEN 'processando' ELSE 'pendente' END END,
  tenant, grupo_empresarial,
  CASE WHEN NOT quern_again THEN quern_payload END,
  CASE WHEN quern_again THEN payload_hash ELSE ` + nsjHash + ` END,
  pub_sub, publication_id, subscriber_id, dead OR NOT quern_again,
  CASE WHEN quern_again THEN live_id ELSE coalesce(id_inicial, id) END,
  prioridade
FROM attempts WHERE quern_kind <> 'success'`

// nsjHash is the hash of quern_payload: hexadecimal digits, as nsj-queue-lib writes it.
const nsjHash = "convert_to(encode(sha256(convert_to(nullif(quern_payload, ''), 'UTF8')), 'hex'), 'UTF8')"

// write writes ends.
func (n *nsjRows) write(ctx context.Context, ends []nsjEnd) error {
	ids, marks := make([]int64, len(ends)), make([]*string, len(ends))
	kinds, messages := make([]string, len(ends)), make([]string, len(ends))
	for i, end := range ends {
		text := mark(end.task)
		ids[i], marks[i], kinds[i], messages[i] = end.id, &text, end.kind, end.message
	}
	return n.writeMarked(ctx, ids, marks, kinds, messages)
}

func (n *nsjRows) writeMarked(ctx context.Context, ids []int64, marks []*string, kinds, messages []string) error {
	err := n.exec(ctx, n.db, nsjWrite, ids, marks, kinds, messages, n.table.MaxRetry, interval(n.table.RetryInterval),
		n.table.message, nsjAgain, nsjLast, nsjUnknown, nsjUnknownLast)
	if err != nil {
		return fmt.Errorf("write ends: %w", err)
	}
	return nil
}

// copyToSubscribers makes a row for each subscriber of publications, and returns how many publications it ended.
func (n *nsjRows) copyToSubscribers(ctx context.Context, ids []int64) (ended int, err error) {
	err = n.query(ctx, n.db, func(v postgres.Row) { ended = int(v.Int(0)) }, `
		WITH locked AS MATERIALIZED (SELECT id FROM unnest($1::bigint[]) AS u (id) WHERE pg_try_advisory_xact_lock(id)),
		publications AS MATERIALIZED (
		  SELECT t.*, coalesce(t.payload, first.payload) AS quern_payload FROM %[1]s t JOIN locked ON locked.id = t.id
		  LEFT JOIN %[1]s first ON first.id = t.id_inicial AND t.payload IS NULL
		  WHERE t.status = 'pendente' FOR UPDATE OF t
		), copies AS MATERIALIZED (
		  SELECT p.*, s.id AS quern_subscriber, json_build_object('publication', p.quern_payload, 'subscription',
		    json_build_object(
		    'id', s.id, 'tenant', s.tenant, 'grupo_empresarial', s.grupo_empresarial, 'processo', s.processo, 'url', s.url,
		    'http_method', s.http_method, 'headers', s.headers, 'ativo', s.ativo,
		    'created_at', to_char(s.created_at, 'YYYY-MM-DD"T"HH24:MI:SS')))::text AS quern_copy
		  FROM publications p JOIN %[2]s s ON s.processo = p.processo AND s.ativo
		    AND (s.tenant IS NULL OR s.tenant = p.tenant)
		    AND (s.grupo_empresarial IS NULL OR s.grupo_empresarial = p.grupo_empresarial)
		), inserted AS (
		  INSERT INTO %[1]s (origem, destino, processo, chave_externa, tentativa, status, tenant, grupo_empresarial,
		    publication_id, subscriber_id, prioridade, payload, payload_hash)
		  SELECT origem, destino, processo, chave_externa, 1, 'pendente', tenant, grupo_empresarial, id, quern_subscriber,
		    prioridade, quern_copy, `+strings.ReplaceAll(nsjHash, "quern_payload", "quern_copy")+` FROM copies
		), ended AS (
		  UPDATE %[1]s t SET status = 'sucesso', mensagem = left(CASE
		    WHEN EXISTS (SELECT FROM copies WHERE copies.id = t.id) THEN $2::text ELSE $3::text END, $4)
		  FROM publications p WHERE p.id = t.id RETURNING t.id
		)
		SELECT count(*) FROM ended`, ids, nsjPublished, nsjNobody, n.table.message)
	return ended, err
}

// duties does what the workers of nsj-queue-lib do every few minutes: rows whose time has come become pending, and
// those whose worker died are tried again.
func (n *nsjRows) duties(ctx context.Context) error {
	err := n.exec(ctx, n.db, `
		WITH duty AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($2) AS ours),
		due AS (
		  UPDATE %[1]s SET status = 'pendente' WHERE status = 'agendada' AND id IN (
		    SELECT id FROM %[1]s, duty WHERE ours AND status = 'agendada' AND data_hora <= clock_timestamp())
		  RETURNING id
		)
		SELECT pg_notify($1, '') FROM (SELECT FROM due LIMIT 1) any_row`, n.table.bare, notifyDuty)
	if err != nil {
		return err
	}
	var ids []int64
	var marks []*string
	if err := n.exec(ctx, n.db, "BEGIN"); err != nil {
		return err
	}
	err = n.query(ctx, n.db, func(v postgres.Row) {
		ids, marks = append(ids, v.Int(0)), append(marks, nil)
		if v[1] != nil {
			text := v.Text(1)
			marks[len(marks)-1] = &text
		}
	}, `
		WITH duty AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($2) AS ours),
		busy AS MATERIALIZED (
		  SELECT id, mensagem FROM %[1]s, duty
		  WHERE ours AND status = 'processando' AND starts_with(mensagem, $1::text || id || '-') IS NOT TRUE LIMIT $3
		)
		SELECT id, mensagem FROM busy WHERE pg_try_advisory_xact_lock(id)`, mark(n.table.taskPrefix()), retryDuty, batchRows)
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		kinds := make([]string, len(ids))
		for i := range kinds {
			kinds[i] = nsjLost
		}
		if err := n.writeMarked(ctx, ids, marks, kinds, make([]string, len(ids))); err != nil {
			return err
		}
	}
	err = n.exec(ctx, n.db, "COMMIT")
	return err
}

// nsjNamed is what pending rows name.
type nsjNamed struct {
	name string
	dead bool
}

// names returns what pending rows name, and how many they are: of the first maxCounted of them.
func (n *nsjRows) names(ctx context.Context) (names []nsjNamed, waiting int64, err error) {
	err = n.query(ctx, n.db, func(v postgres.Row) {
		waiting += v.Int(2)
		if !v.Bool(3) {
			names = append(names, nsjNamed{v.Text(0), v.Bool(1)})
		}
	}, `
		SELECT name, dead, count(*), publication FROM (
		  SELECT `+fmt.Sprintf(nsjName, "t")+` AS name, dead, pub_sub AND NOT dead AS publication FROM %[1]s t
		  WHERE status = 'pendente' AND tentativa <= $1 AND data_hora <= clock_timestamp() LIMIT $3
		) pending GROUP BY name, dead, publication`, n.table.MaxRetry, n.table.bare, maxCounted)
	return names, waiting, err
}

// query and exec run a statement with a bound.
func (n *nsjRows) query(
	ctx context.Context, db *postgres.Conn, each func(postgres.Row), statement string, args ...any,
) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := db.Query(ctx, each, n.sql(statement), args...); err != nil {
		return databaseError{err}
	}
	return nil
}

func (n *nsjRows) exec(ctx context.Context, db *postgres.Conn, statement string, args ...any) error {
	if _, err := exec(ctx, db, n.sql(statement), args...); err != nil {
		return databaseError{err}
	}
	return nil
}
