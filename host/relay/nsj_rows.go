package relay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
)

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

// noneOf is the SQL of whether a name, as safeText, is none of an array.
func noneOf(name, array string) string {
	return "(cardinality(" + array + ") = 0 OR " + safeText(name) + " <> ALL (" + array + "))"
}

// mapped returns the names that Nsj.Queues maps to queues.
func (n *nsjRows) mapped() []string { return slices.Sorted(maps.Keys(n.table.Queues)) }

// sql returns a statement: %[1]s is the table, %[2]s the table of subscribers.
func (n *nsjRows) sql(statement string) string {
	return fmt.Sprintf(statement+"%.0[1]s%.0[2]s", n.table.quoted, n.table.subscribers)
}

// nsjDue is a row that can be claimed, or a publication. For its queue, a publication has what it is parked as.
type nsjDue struct {
	id, queue   string
	publication bool
	size        int64
}

func (d nsjDue) rowID() string { return d.id }

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
		row := nsjDue{id: v.Text(0), publication: v.Bool(1), size: v.Int(4)}
		if row.queue = parkedPublication + v.Text(2); !row.publication {
			row.queue = n.table.queueOf(v.Text(2), v.Bool(3))
		}
		due, oldest = append(due, row), max(oldest, v.Seconds(5))
	}, `
		SELECT d.id, d.publication, CASE WHEN d.publication THEN `+safeText("d.name")+` ELSE `+known("d.name")+` END,
		  d.dead, octet_length(coalesce(d.payload, first.payload)),
		  CASE WHEN isfinite(d.data_hora) THEN least(extract(epoch FROM clock_timestamp() - d.data_hora), 3155760000) END
		FROM (
		  SELECT * FROM (
		    SELECT t.id, prioridade, data_hora, dead, payload, id_inicial, pub_sub AND dead IS NOT TRUE AS publication,
		      `+fmt.Sprintf(nsjName, "t")+` AS name
		    FROM %[1]s t WHERE status = 'pendente' AND tentativa <= $1 AND data_hora <= clock_timestamp()
		      AND id <> ALL ($10::bigint[])
		  ) pending
		  WHERE CASE WHEN publication THEN $4::boolean AND `+noneOf("name", "$11::text[]")+`
		    WHEN dead THEN name = ANY ($7::text[]) OR $8::boolean AND name <> ALL ($3)
		    ELSE name = ANY ($5::text[]) OR $6::boolean AND name <> ALL ($3) END
		  ORDER BY prioridade DESC, data_hora, id LIMIT $9
		) d LEFT JOIN %[1]s first ON first.id = d.id_inicial AND d.payload IS NULL
		ORDER BY d.prioridade DESC, d.data_hora, d.id`,
		n.table.MaxRetry, n.table.bare, mapped, n.table.subscribers != "", names[false], rest != "" && served[rest],
		names[true], rest != "" && served[rest+deadSuffix], lookRows, alone, n.claims.most(parkedPublication))
	return due, oldest, err
}

// nsjHeaders are the columns that become headers.
var nsjHeaders = []struct{ column, name string }{
	{"tenant", "nsj-tenant"},
	{"grupo_empresarial", "nsj-grupo-empresarial"},
	{"processo", "nsj-processo"},
	{"chave_externa", "nsj-chave-externa"},
	{"origem", "nsj-origem"},
	{"destino", "nsj-destino"},
	{"tentativa", "nsj-tentativa"},
	{"publication_id", "nsj-publication"},
	{"subscriber_id", "nsj-subscriber"},
	{"live_id", "nsj-live"},
}

// nsjRow is the SQL of what nsjRows.task reads of a row c, beside nsjText: whether it is in hand, what it names, its
// mark, the size of its payload, and whether it is a publication.
func nsjRow() string {
	return "c.id IS NOT NULL, " + known(fmt.Sprintf(nsjName, "c")) + ", c.prioridade, c.dead, " + safeText("c.mensagem") +
		", octet_length(coalesce(c.payload, first.payload)), c.pub_sub AND c.dead IS NOT TRUE"
}

// nsjText is the SQL of what nsjTask.read reads of a row c: its payload, unless it is larger than maxPayload, and what
// becomes its headers. Of a damaged row, this may be no text for this client.
func nsjText() string {
	const payload = "coalesce(c.payload, first.payload)"
	text := fmt.Sprintf(", CASE WHEN octet_length(%[1]s) <= %[2]d THEN %[1]s END", payload, maxPayload)
	for _, header := range nsjHeaders {
		text += ", c." + header.column
	}
	return text
}

// row makes a claim of the number of a row and of what nsjRow and nsjText read; without nsjText, this is still to be
// read.
func (n *nsjRows) row(v postgres.Row) *claim {
	priority := queue.DefaultPriority
	if v[3] != nil {
		priority = int(min(max(v.Int(3), 0), 100))
	}
	c := &claim{
		row: v.Text(0), queue: n.table.queueOf(v.Text(2), v.Bool(4)), size: v.Int(6), unread: true,
		publication: v.Bool(7),
		spec: queue.Spec{Options: queue.Options{
			ID: strings.TrimPrefix(v.Text(5), markPrefix), Once: forgetAfter, Report: n.table.report, Priority: &priority,
			Retry: queue.Retry{MaxAttempts: 1}, // a retry is another row
		}},
	}
	if len(v) > 8 {
		c.readNsj(v[8:])
	}
	return c
}

// readNsj reads what nsjText has.
func (c *claim) readNsj(v postgres.Row) {
	c.spec.Parameters, c.unread = slices.Clone(v[0]), false
	c.spec.Headers = map[string]string{"nsj-id": c.row}
	for i, header := range nsjHeaders {
		if text := v.Text(1 + i); text != "" {
			c.spec.Headers[header.name] = strings.Map(func(r rune) rune {
				if !unicode.IsPrint(r) {
					return unicode.ReplacementChar
				}
				return r
			}, text)
		}
	}
}

// takeRows runs a statement that locks rows and returns them as row reads them. It unlocks those that are not claimed.
func (n *nsjRows) takeRows(ctx context.Context, statement string, args ...any) (claimed []*claim, err error) {
	var others []string
	err = n.query(ctx, n.lock, func(v postgres.Row) {
		if v.Bool(1) {
			claimed = append(claimed, n.row(v))
		} else {
			others = append(others, v.Text(0))
		}
	}, statement, args...)
	if err != nil {
		return nil, err
	}
	return claimed, n.unlock(ctx, others)
}

// claimRows locks rows, and claims those that are still pending. Those that cannot be claimed are parked.
func (n *nsjRows) claimRows(ctx context.Context, rows []nsjDue) ([]*claim, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	claimed, err := n.claimThese(ctx, rows, nsjText())
	if !ofRow(err) {
		return claimed, err
	}
	// One of the rows cannot be claimed, or its text cannot be read: read finds out.
	err = each(ctx, &n.statements, rows, func(rows []nsjDue) error {
		some, err := n.claimThese(ctx, rows, "")
		claimed = append(claimed, some...)
		return err
	}, func(row nsjDue, why error) error { return n.claims.parkRow(row.queue, row.id, why) })
	return claimed, err
}

// claimThese claims rows, and reads their text or nothing of it.
func (n *nsjRows) claimThese(ctx context.Context, rows []nsjDue, text string) ([]*claim, error) {
	ids := idsOf(rows)
	claimed, err := n.takeRows(ctx, `
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
	return claimed, err
}

// adopt locks the rows that an earlier leader has claimed, and takes them in hand: at most maxInHand. Their text is not
// read.
func (n *nsjRows) adopt(ctx context.Context) error {
	room := maxInHand - len(n.claims.hand)
	if room <= 0 {
		return nil
	}
	adopted, err := n.takeRows(ctx, `
		WITH claimed AS MATERIALIZED (
		  SELECT id FROM %[1]s WHERE status = 'processando' AND starts_with(mensagem, $4::text || id || '-')
		    AND id <> ALL ($1::bigint[])
		), locked AS MATERIALIZED (SELECT id FROM claimed WHERE pg_try_advisory_lock(id) LIMIT $5)
		SELECT locked.id, `+nsjRow()+`
		FROM locked LEFT JOIN %[1]s c ON c.id = locked.id
		LEFT JOIN %[1]s first ON first.id = c.id_inicial AND c.payload IS NULL`,
		idsOf(slices.Collect(maps.Values(n.claims.hand))), n.table.bare, n.mapped(), mark(n.table.taskPrefix()), room)
	for _, c := range adopted {
		c.adopted = true
	}
	n.claims.take(adopted...)
	return err
}

func (n *nsjRows) read(ctx context.Context, unread []*claim, wrong func(c *claim, why error) error) error {
	byRow := make(map[string]*claim, len(unread))
	for _, c := range unread {
		byRow[c.row] = c
	}
	return each(ctx, &n.statements, unread, func(some []*claim) error {
		ids, marks := marksOf(some)
		return n.query(ctx, n.db, func(v postgres.Row) { byRow[v.Text(0)].readNsj(v[1:]) }, `
			SELECT c.id`+nsjText()+` FROM %[1]s c JOIN unnest($1::bigint[], $2::text[]) AS e (id, mark) ON e.id = c.id
			LEFT JOIN %[1]s first ON first.id = c.id_inicial AND c.payload IS NULL
			WHERE c.status = 'processando' AND c.mensagem = e.mark`, ids, marks)
	}, wrong)
}

// unlock gives locks back.
func (n *nsjRows) unlock(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return n.query(ctx, n.lock, nil, "SELECT pg_advisory_unlock(id) FROM unnest($1::bigint[]) AS u (id)", ids)
}

// marksOf returns the numbers and the marks of rows, as arguments.
func marksOf(some []*claim) (ids, marks []string) {
	ids, marks = idsOf(some), make([]string, len(some))
	for i, c := range some {
		marks[i] = mark(c.spec.ID)
	}
	return ids, marks
}

// hold returns which rows are still claimed for these tasks. The locks keep them.
func (n *nsjRows) hold(ctx context.Context, inHand []*claim) (map[string]bool, error) {
	ours := make(map[string]bool)
	ids, marks := marksOf(inHand)
	err := n.query(ctx, n.db, func(v postgres.Row) { ours[strings.TrimPrefix(v.Text(0), markPrefix)] = true }, `
		SELECT e.mark FROM %[1]s t JOIN unnest($1::bigint[], $2::text[]) AS e (id, mark) ON e.id = t.id
		WHERE t.status = 'processando' AND t.mensagem = e.mark`, ids, marks)
	return ours, err
}

// unclaim makes claimed rows pending again. Their locks stay until release: if this process ends between, the task may
// run although its row runs again.
func (n *nsjRows) unclaim(ctx context.Context, given []*claim, wrong func(c *claim, why error) error) error {
	n.given = n.given || len(given) > 0
	return each(ctx, &n.statements, given, func(some []*claim) error {
		ids, marks := marksOf(some)
		return n.query(ctx, n.db, nil, `
			UPDATE %[1]s t SET status = 'pendente', mensagem = NULL FROM unnest($1::bigint[], $2::text[]) AS e (id, mark)
			WHERE t.id = e.id AND t.status = 'processando' AND t.mensagem = e.mark`, ids, marks)
	}, wrong)
}

func (n *nsjRows) claimAgain(ctx context.Context, given *claim) (again bool, err error) {
	err = n.query(ctx, n.db, func(postgres.Row) { again = true },
		"UPDATE %[1]s SET status = 'processando', mensagem = $2 WHERE id = $1 AND status = 'pendente' RETURNING id",
		given.row, mark(given.spec.ID))
	return again, err
}

// release gives locks back, and wakes the workers of nsj-queue-lib if rows were given back.
func (n *nsjRows) release(ctx context.Context, dropped []*claim) error {
	err := n.unlock(ctx, idsOf(dropped))
	if err == nil && n.given {
		n.given = false
		err = n.query(ctx, n.db, nil, "SELECT pg_notify($1, '')", n.table.bare)
	}
	return err
}

// nsjNamed is what pending rows name.
type nsjNamed struct {
	name string
	dead bool
}

// names returns what pending rows name, without those to leave alone, and how many they are: of the first maxCounted.
func (n *nsjRows) names(ctx context.Context, alone []string) (names []nsjNamed, waiting int64, err error) {
	err = n.query(ctx, n.db, func(v postgres.Row) {
		waiting += v.Int(2)
		if !v.Bool(3) {
			names = append(names, nsjNamed{v.Text(0), v.Bool(1)})
		}
	}, `
		SELECT CASE WHEN name = ANY ($3::text[]) THEN name ELSE `+safeText("name")+` END, dead, count(*), publication FROM (
		  SELECT `+fmt.Sprintf(nsjName, "t")+` AS name, dead, pub_sub AND dead IS NOT TRUE AS publication FROM %[1]s t
		  WHERE status = 'pendente' AND tentativa <= $1 AND data_hora <= clock_timestamp()
		    AND id <> ALL ($5::bigint[]) LIMIT $4
		) pending GROUP BY name, dead, publication`, n.table.MaxRetry, n.table.bare, n.mapped(), maxCounted, alone)
	return names, waiting, err
}

// query runs a statement with a bound.
func (n *nsjRows) query(
	ctx context.Context, db *postgres.Conn, each func(postgres.Row), statement string, args ...any,
) error {
	return n.run(ctx, db, each, n.sql(statement), args...)
}

// rollback undoes a transaction.
func (n *nsjRows) rollback(ctx context.Context) error {
	if _, err := exec(ctx, n.db, "ROLLBACK"); err != nil {
		return databaseError{error: err}
	}
	return nil
}
