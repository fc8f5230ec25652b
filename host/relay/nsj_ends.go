package relay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// How an attempt ends.
const (
	nsjSuccess = "success"
	nsjFailure = "failure" // a retry follows, if attempts are left
	nsjFinal   = "final"   // a failure after which no attempt is of use
	nsjLost    = "lost"    // nobody knows how: the process died
)

// nsjEnd is the end of an attempt.
type nsjEnd struct {
	id, task, kind, message string
}

func (e nsjEnd) rowID() string { return e.id }

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
// a delay counts from at most a century from now, or from now if its time is before 1970, and is one interval to a
// century. A negative number of attempts counts as 0.
const nsjWrite = `
WITH attempts AS MATERIALIZED (
  SELECT t.*, e.kind AS quern_kind, e.message AS quern_message,
    e.kind IN ('failure', 'lost') AND coalesce(t.tentativa, 1) < $5 AS quern_again,
    CASE WHEN t.data_hora < '1970-01-01' THEN clock_timestamp()
      ELSE least(coalesce(t.data_hora, clock_timestamp()), clock_timestamp() + interval '100 years') END
      + make_interval(secs => least(greatest(coalesce(t.tentativa, 1), 1) * $6::float8, 3155760000)) AS quern_next,
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
  CASE WHEN quern_again THEN quern_next WHEN dead THEN clock_timestamp() + make_interval(secs => $6)
    ELSE clock_timestamp() END,
  CASE WHEN quern_again THEN data_hora_inicial ELSE clock_timestamp() END,
  origem, destino, processo, chave_externa,
  CASE WHEN quern_again THEN greatest(coalesce(tentativa, 1), 0) + 1 ELSE 1 END,
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

// finish writes how tasks ended as a worker of nsj-queue-lib would.
func (n *nsjRows) finish(ctx context.Context, ended []listen.Ended, wrong func(task string, why error) error) error {
	ends := make([]nsjEnd, 0, len(ended))
	var complete []*nsjEnd
	for _, task := range ended {
		id, ok := n.table.rowOf(task.ID)
		if !ok {
			continue
		}
		ends = append(ends, nsjEnd{id: id, task: task.ID})
		if e := &ends[len(ends)-1]; task.Failure == nil {
			complete = append(complete, e)
		} else {
			e.failed(task.Failure)
		}
	}
	if err := n.results(ctx, complete); err != nil {
		return err
	}
	return each(ctx, &n.statements, ends, func(ends []nsjEnd) error {
		return n.writeBlock(ctx, ends, false)
	}, orPlain(func(e nsjEnd) error {
		e.message = asciiText(e.message) // the database's encoding may lack a character
		return n.writeBlock(ctx, []nsjEnd{e}, true)
	}, func(e nsjEnd, why error) error { return wrong(e.task, why) }))
}

// results reads the results of tasks that are complete.
func (n *nsjRows) results(ctx context.Context, complete []*nsjEnd) error {
	ids := make([]string, len(complete))
	for i, e := range complete {
		ids[i] = e.task
	}
	sizes, err := listen.NewFleet(n.claims.client).ResultSizes(ctx, ids)
	if err != nil {
		return err
	}
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(resultReaders)
	for i, e := range complete {
		switch e.kind = nsjSuccess; {
		case sizes[i] == 0:
			e.message = nsjDone
		case sizes[i] > maxNsjResult:
			e.message = fmt.Sprintf("the result has %s: read it with `quern task wait %s`", units.FormatSize(sizes[i]), e.task)
		default:
			readers.Go(func() error {
				result, err := n.claims.client.Result(ctx, e.task, math.MaxInt64)
				if e.message = valid(string(result)); errors.Is(err, queue.ErrNoTask) { // deleted meanwhile
					return nil
				}
				return err
			})
		}
	}
	return readers.Wait()
}

// writeBlock writes ends. plain leaves out the hash of a payload, which cannot be made if the payload is no text.
func (n *nsjRows) writeBlock(ctx context.Context, ends []nsjEnd, plain bool) error {
	marks := make([]*string, len(ends))
	kinds, messages := make([]string, len(ends)), make([]string, len(ends))
	for i, end := range ends {
		if kinds[i], messages[i] = end.kind, end.message; end.task != "" {
			text := mark(end.task)
			marks[i] = &text
		}
	}
	return n.query(ctx, n.db, nil, nsjWrite, idsOf(ends), marks, kinds, messages, n.table.MaxRetry,
		fmt.Sprint(n.table.RetryInterval.Seconds()), n.table.message, nsjAgain, nsjLast, nsjUnknown, nsjUnknownLast, plain)
}
