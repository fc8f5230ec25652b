package relay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
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

// known is the SQL of a name that leads to a queue: one of $3, or the name of a queue. Others are NULL, because they
// need not be readable.
func known(name string) string {
	return "CASE WHEN " + name + " = ANY ($3::text[]) OR " + isName(name) + " THEN " + name + " END"
}

// mapped returns the names that Nsj.Queues maps to queues.
func (n *nsjRows) mapped() []string { return slices.Sorted(maps.Keys(n.table.Queues)) }

// sql returns a statement: %[1]s is the table, %[2]s the table of subscribers.
func (n *nsjRows) sql(statement string) string {
	return fmt.Sprintf(statement+"%.0[1]s%.0[2]s", n.table.quoted, n.table.subscribers)
}

// nsjDue is a row that can be claimed. A publication has no queue.
type nsjDue struct {
	id, size int64
	queue    string
}

// dueRows reads the first rows that are due, as workers sort them: publications, and rows for some queues, without
// those that are to be left alone. oldest is how long the oldest of them has waited.
func (n *nsjRows) dueRows(
	ctx context.Context, queues, alone []string,
) (due []nsjDue, oldest time.Duration, err error) {
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
	mapped := n.mapped()
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
		SELECT d.id, d.publication, `+known("d.name")+`, d.dead, octet_length(coalesce(d.payload, first.payload)),
		  CASE WHEN isfinite(d.data_hora) THEN least(extract(epoch FROM clock_timestamp() - d.data_hora), 3155760000) END
		FROM (
		  SELECT * FROM (
		    SELECT t.id, prioridade, data_hora, dead, payload, id_inicial, pub_sub AND dead IS NOT TRUE AS publication,
		      `+fmt.Sprintf(nsjName, "t")+` AS name
		    FROM %[1]s t WHERE status = 'pendente' AND tentativa <= $1 AND data_hora <= clock_timestamp()
		      AND id <> ALL ($10::bigint[])
		  ) pending
		  WHERE CASE WHEN publication THEN $4::boolean
		    WHEN dead THEN name = ANY ($7::text[]) OR $8::boolean AND name <> ALL ($3)
		    ELSE name = ANY ($5::text[]) OR $6::boolean AND name <> ALL ($3) END
		  ORDER BY prioridade DESC, data_hora, id LIMIT $9
		) d LEFT JOIN %[1]s first ON first.id = d.id_inicial AND d.payload IS NULL
		ORDER BY d.prioridade DESC, d.data_hora, d.id`,
		n.table.MaxRetry, n.table.bare, mapped, n.table.subscribers != "", names[false], rest != "" && served[rest],
		names[true], rest != "" && served[rest+deadSuffix], lookRows, alone)
	return due, oldest, err
}

// nsjHeaders are the columns that become headers.
var nsjHeaders = []struct{ column, name string }{
	{"tenant", "nsj-tenant"}, {"grupo_empresarial", "nsj-grupo-empresarial"}, {"processo", "nsj-processo"},
	{"chave_externa", "nsj-chave-externa"}, {"origem", "nsj-origem"}, {"destino", "nsj-destino"},
	{"tentativa", "nsj-tentativa"}, {"publication_id", "nsj-publication"}, {"subscriber_id", "nsj-subscriber"},
	{"live_id", "nsj-live"},
}

// nsjRow is the SQL of what nsjRows.task reads of a row c, beside nsjText: whether it is in hand, what it names, its
// mark, and the size of its payload.
func nsjRow() string {
	return "c.id IS NOT NULL, " + known(fmt.Sprintf(nsjName, "c")) + ", c.prioridade, c.dead, " + safeText("c.mensagem") +
		", octet_length(coalesce(c.payload, first.payload))"
}

// nsjText is the SQL of what nsjTask.read reads of a row c: its payload, unless it is larger than maxPayload, and what
// becomes its headers. Of a damaged row, this may be no text for this client.
func nsjText() string {
	text := fmt.Sprintf(", CASE WHEN octet_length(%[1]s) <= %[2]d THEN %[1]s END", "coalesce(c.payload, first.payload)", maxPayload)
	for _, header := range nsjHeaders {
		text += ", c." + header.column
	}
	return text
}

// task makes a task of the number of a row and of what nsjRow and nsjText read; without nsjText, this is still to be
// read.
func (n *nsjRows) task(v postgres.Row) *nsjTask {
	t := &nsjTask{
		id: v.Int(0), queue: n.table.queueOf(v.Text(2), v.Bool(4)), priority: queue.DefaultPriority,
		task: strings.TrimPrefix(v.Text(5), markPrefix), size: v.Int(6), unread: true,
	}
	if v[3] != nil {
		t.priority = int(min(max(v.Int(3), 0), 100))
	}
	if len(v) > 7 {
		t.read(v[7:])
	}
	return t
}

// read reads what nsjText has.
func (t *nsjTask) read(v postgres.Row) {
	t.payload, t.unread = slices.Clone(v[0]), false
	t.headers = map[string]string{"nsj-id": strconv.FormatInt(t.id, 10)}
	for i, header := range nsjHeaders {
		if text := v.Text(1 + i); text != "" {
			t.headers[header.name] = strings.Map(func(r rune) rune {
				if !unicode.IsPrint(r) {
					return unicode.ReplacementChar
				}
				return r
			}, text)
		}
	}
}

// takeRows runs a statement that locks rows and returns them as task reads them. It unlocks those that are not in hand.
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

// claim locks rows, and claims those that are still pending. It calls wrong for those that cannot be claimed.
func (n *nsjRows) claim(ctx context.Context, ids []int64, wrong func(id int64, why error) error) ([]*nsjTask, error) {
	tasks, err := n.claimRows(ctx, ids, nsjText())
	if !ofRow(err) {
		return tasks, err
	}
	// One of the rows cannot be claimed, or its text cannot be read: the reader of payloads finds out.
	err = each(ids, func(ids []int64) error {
		some, err := n.claimRows(ctx, ids, "")
		tasks = append(tasks, some...)
		return err
	}, wrong)
	return tasks, err
}

// claimRows claims rows, and reads their text or nothing of it.
func (n *nsjRows) claimRows(ctx context.Context, ids []int64, text string) ([]*nsjTask, error) {
	tasks, err := n.takeRows(ctx, `
		WITH locked AS MATERIALIZED (SELECT id FROM unnest($1::bigint[]) AS u (id) WHERE pg_try_advisory_lock(id)),
		claimed AS (
		  UPDATE %[1]s t SET status = 'processando', mensagem = $4::text || t.id || '-' || $5::text FROM locked
		  WHERE t.id = locked.id AND t.status = 'pendente' RETURNING t.*
		)
		SELECT locked.id, `+nsjRow()+text+`
		FROM locked LEFT JOIN claimed c ON c.id = locked.id
		LEFT JOIN %[1]s first ON first.id = c.id_inicial AND c.payload IS NULL
		ORDER BY c.prioridade DESC, c.data_hora, c.id`,
		ids, n.table.bare, n.mapped(), mark(n.table.taskPrefix()), claimWord())
	if ofRow(err) { // the statement is undone, but not its locks
		return nil, cmp.Or(n.unlock(ctx, ids), err)
	}
	return tasks, err
}

// adopt locks the rows that an earlier leader has claimed, except for those in hand. Their text is not read.
func (n *nsjRows) adopt(ctx context.Context, inHand []int64) ([]*nsjTask, error) {
	return n.takeRows(ctx, `
		WITH claimed AS MATERIALIZED (
		  SELECT id FROM %[1]s WHERE status = 'processando' AND starts_with(mensagem, $4::text || id || '-')
		    AND id <> ALL ($1::bigint[])
		), locked AS MATERIALIZED (SELECT id FROM claimed WHERE pg_try_advisory_lock(id))
		SELECT locked.id, `+nsjRow()+`
		FROM locked LEFT JOIN %[1]s c ON c.id = locked.id
		LEFT JOIN %[1]s first ON first.id = c.id_inicial AND c.payload IS NULL`,
		inHand, n.table.bare, n.mapped(), mark(n.table.taskPrefix()))
}

// payloads reads the text of rows that are still claimed for their tasks. It calls wrong for those that cannot be read.
func (n *nsjRows) payloads(ctx context.Context, tasks []*nsjTask, wrong func(t *nsjTask, why error) error) error {
	byRow := make(map[int64]*nsjTask, len(tasks))
	for _, task := range tasks {
		byRow[task.id] = task
	}
	return each(tasks, func(tasks []*nsjTask) error {
		ids, marks := marksOf(tasks)
		return n.query(ctx, n.db, func(v postgres.Row) { byRow[v.Int(0)].read(v[1:]) }, `
			SELECT c.id`+nsjText()+` FROM %[1]s c JOIN unnest($1::bigint[], $2::text[]) AS e (id, mark) ON e.id = c.id
			LEFT JOIN %[1]s first ON first.id = c.id_inicial AND c.payload IS NULL
			WHERE c.status = 'processando' AND c.mensagem = e.mark`, ids, marks)
	}, wrong)
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
	return each(tasks, func(tasks []*nsjTask) error {
		ids, marks := marksOf(tasks)
		return n.exec(ctx, n.db, `
			UPDATE %[1]s t SET status = 'pendente', mensagem = NULL FROM unnest($1::bigint[], $2::text[]) AS e (id, mark)
			WHERE t.id = e.id AND t.status = 'processando' AND t.mensagem = e.mark`, ids, marks)
	}, func(*nsjTask, error) error { return nil }) // the next leader adopts it
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

// nsjWrite writes ends into rows that are claimed with a mark, or with any if the mark is NULL. A retry is a new row,
// and so is a dead one, after the last attempt. A repeat changes nothing. Times of damaged rows stay within the type:
// a delay counts from at most a century from now, and is at most a century.
const nsjWrite = `
WITH attempts AS MATERIALIZED (
  SELECT t.*, e.kind AS quern_kind, e.message AS quern_message,
    e.kind IN ('failure', 'lost') AND coalesce(t.tentativa, 1) < $5 AS quern_again,
    least(coalesce(t.data_hora, clock_timestamp()), clock_timestamp() + interval '100 years')
      + make_interval(secs => least(greatest(coalesce(t.tentativa, 1), 0) * $6::float8, 3155760000)) AS quern_next,
    coalesce(t.payload, first.payload) AS quern_payload
  FROM %[1]s t
  JOIN unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) AS e (id, mark, kind, message) ON e.id = t.id
  LEFT JOIN %[1]s first ON first.id = t.id_inicial AND t.payload IS NULL
  WHERE t.status = 'processando' AND (e.mark IS NULL OR t.mensagem = e.mark)
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
  CASE WHEN quern_again THEN quern_next WHEN dead THEN clock_timestamp() + make_interval(secs => $6) ELSE clock_timestamp() END,
  CASE WHEN quern_again THEN data_hora_inicial ELSE clock_timestamp() END,
  origem, destino, processo, chave_externa,
  CASE WHEN quern_again THEN coalesce(tentativa, 1) + 1 ELSE 1 END,
  CASE WHEN quern_again THEN 'agendada' ELSE 'pendente' END,
  CASE WHEN quern_again THEN id END,
  CASE WHEN quern_again THEN data_hora END,
  CASE WHEN quern_again THEN CASE quern_kind WHEN 'lost' THEN 'processando' ELSE 'pendente' END END,
  tenant, grupo_empresarial,
  CASE WHEN NOT quern_again THEN quern_payload END,
  CASE WHEN quern_again THEN payload_hash WHEN NOT $12::boolean THEN ` + nsjHash + ` END,
  pub_sub, publication_id, subscriber_id, dead OR NOT quern_again,
  CASE WHEN quern_again THEN live_id ELSE coalesce(id_inicial, id) END,
  prioridade
FROM attempts WHERE quern_kind <> 'success'`

// nsjHash is the hash of quern_payload: hexadecimal digits, as nsj-queue-lib writes it.
const nsjHash = `convert_to(encode(sha256(convert_to(nullif(quern_payload, ''),
	CASE getdatabaseencoding() WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END)), 'hex'), 'UTF8')`

// write writes ends. It calls wrong for those that cannot be written.
func (n *nsjRows) write(ctx context.Context, ends []nsjEnd, wrong func(e nsjEnd, why error) error) error {
	err := each(ends, func(ends []nsjEnd) error { return n.writeBlock(ctx, ends, false) }, func(e nsjEnd, _ error) error {
		err := n.writePlain(ctx, e)
		if ofRow(err) {
			return wrong(e, err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write ends: %w", err)
	}
	return nil
}

// writePlain writes an end without what may have failed: characters that the database's encoding lacks, and the hash
// of the payload.
func (n *nsjRows) writePlain(ctx context.Context, e nsjEnd) error {
	e.message = asciiText(e.message)
	return n.writeBlock(ctx, []nsjEnd{e}, true)
}

func (n *nsjRows) writeBlock(ctx context.Context, ends []nsjEnd, plain bool) error {
	ids, marks := make([]int64, len(ends)), make([]*string, len(ends))
	kinds, messages := make([]string, len(ends)), make([]string, len(ends))
	for i, end := range ends {
		if ids[i], kinds[i], messages[i] = end.id, end.kind, end.message; end.task != "" {
			text := mark(end.task)
			marks[i] = &text
		}
	}
	return n.exec(ctx, n.db, nsjWrite, ids, marks, kinds, messages, n.table.MaxRetry,
		fmt.Sprint(n.table.RetryInterval.Seconds()), n.table.message, nsjAgain, nsjLast, nsjUnknown, nsjUnknownLast, plain)
}

// copyToSubscribers makes a row for each subscriber of publications, and returns how many publications it ended. It
// calls wrong for those that cannot be copied.
func (n *nsjRows) copyToSubscribers(
	ctx context.Context, ids []int64, wrong func(id int64, why error) error,
) (ended int, err error) {
	err = each(ids, func(ids []int64) error {
		return n.query(ctx, n.db, func(v postgres.Row) { ended += int(v.Int(0)) }, nsjCopy,
			ids, nsjPublished, nsjNobody, n.table.message)
	}, wrong)
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

// duties does what the workers of nsj-queue-lib do every few minutes: rows whose time has come become pending, and
// those whose worker died are tried again. It leaves some rows alone, and calls wrong for those that cannot be changed.
func (n *nsjRows) duties(ctx context.Context, alone []string, wrong func(id int64, why error) error) error {
	others := " AND id <> ALL (" + literal("{"+strings.Join(alone, ",")+"}") + "::bigint[])"
	err := n.duty(ctx, "status = 'agendada' AND data_hora <= clock_timestamp()"+others, n.makePending, wrong)
	if err != nil {
		return err
	}
	inHand := strings.ReplaceAll(literal(mark(n.table.taskPrefix())), "%", "%%")
	return n.duty(ctx, "status = 'processando' AND starts_with(mensagem, "+inHand+" || id || '-') IS NOT TRUE"+others,
		n.retryLost, wrong)
}

// duty does a duty on the rows that a condition finds. If one of them makes that fail, it is done on the others.
func (n *nsjRows) duty(
	ctx context.Context, where string, do func(ctx context.Context, where string, plain bool) error,
	wrong func(id int64, why error) error,
) error {
	err := do(ctx, where, false)
	if !ofRow(err) {
		return err
	}
	var ids []int64
	err = n.query(ctx, n.db, func(v postgres.Row) { ids = append(ids, v.Int(0)) },
		"SELECT id FROM %[1]s WHERE "+where+" ORDER BY id LIMIT $1", batchRows)
	if err != nil {
		return err
	}
	of := func(ids []int64) string { return where + " AND id = ANY ('{" + joined(ids) + "}'::bigint[])" }
	return each(ids, func(ids []int64) error { return do(ctx, of(ids), false) }, func(id int64, _ error) error {
		err := do(ctx, of([]int64{id}), true)
		if ofRow(err) {
			return wrong(id, err)
		}
		return err
	})
}

func joined(ids []int64) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
}

// makePending makes rows pending whose time has come.
func (n *nsjRows) makePending(ctx context.Context, where string, _ bool) error {
	return n.exec(ctx, n.db, `
		WITH duty AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($2) AS ours),
		due AS (
		  UPDATE %[1]s SET status = 'pendente' WHERE status = 'agendada'
		    AND id IN (SELECT id FROM %[1]s, duty WHERE ours AND `+where+`) RETURNING id
		)
		SELECT pg_notify($1, '') FROM (SELECT FROM due LIMIT 1) any_row`, n.table.bare, notifyDuty)
}

// retryLost ends attempts whose worker has died.
func (n *nsjRows) retryLost(ctx context.Context, where string, plain bool) (err error) {
	if err := n.exec(ctx, n.db, "BEGIN"); err != nil {
		return err
	}
	var ends []nsjEnd
	err = n.query(ctx, n.db, func(v postgres.Row) { ends = append(ends, nsjEnd{id: v.Int(0), kind: nsjLost}) }, `
		WITH duty AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($1) AS ours),
		busy AS MATERIALIZED (SELECT id FROM %[1]s, duty WHERE ours AND `+where+` LIMIT $2)
		SELECT id FROM busy WHERE pg_try_advisory_xact_lock(id)`, retryDuty, batchRows)
	if err == nil && len(ends) > 0 {
		err = n.writeBlock(ctx, ends, plain)
	}
	if err != nil {
		return cmp.Or(n.exec(ctx, n.db, "ROLLBACK"), err)
	}
	return n.exec(ctx, n.db, "COMMIT")
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
		SELECT CASE WHEN name = ANY ($3::text[]) THEN name ELSE `+safeText("name")+` END, dead, count(*), publication FROM (
		  SELECT `+fmt.Sprintf(nsjName, "t")+` AS name, dead, pub_sub AND dead IS NOT TRUE AS publication FROM %[1]s t
		  WHERE status = 'pendente' AND tentativa <= $1 AND data_hora <= clock_timestamp() LIMIT $4
		) pending GROUP BY name, dead, publication`, n.table.MaxRetry, n.table.bare, n.mapped(), maxCounted)
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
