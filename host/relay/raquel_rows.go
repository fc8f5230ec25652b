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

	"github.com/google/uuid"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
)

// This file has the statements on a table of Raquel. All times are those of the database. Statements have no names and
// literal limits, so that each is planned for its arguments: a plan for any limit sorts the whole backlog. Sums of a
// row's numbers are numeric, because those of a damaged row can exceed bigint, which would fail the statement for all
// rows.

// nowMS is the database's time as Raquel writes times.
const nowMS = "floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint"

// claimable are the rows of a queue that a worker of Raquel would claim after it has marked expired ones, without ours.
// Its first condition is that of RaquelIndex.
func (r *raquelRows) claimable() string {
	return `status <> 'success' AND scheduled_at <= ` + nowMS + `
		AND (status IN ('queued', 'failed') OR status = 'claimed' AND claimed_at <= ` + nowMS +
		fmt.Sprintf(" - %d", raquelReclaim.Milliseconds()) + ` AND claimed_by IS DISTINCT FROM ` + literal(r.owner) + `)
		AND (max_age IS NULL OR enqueued_at + max_age::numeric >= ` + nowMS + `
			AND (scheduled_at + max_age::numeric > ` + nowMS + ` OR status = 'claimed'))`
}

// query runs a statement with a bound.
func (r *raquelRows) query(ctx context.Context, each func(postgres.Row), statement string, args ...any) error {
	return r.run(ctx, r.db, each, statement, args...)
}

// literal quotes a text for SQL.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// firstDue returns which of some queues have claimable rows, and how long the first of each has been due. It leaves
// parked rows out. Each queue maps to the time from which to look: see raquelAhead.low.
func (r *raquelRows) firstDue(
	ctx context.Context, queues map[string]int64,
) (map[string]time.Duration, error) {
	due := make(map[string]time.Duration)
	if len(queues) == 0 {
		return due, nil
	}
	var names []string
	var lows []int64
	for name, low := range queues {
		names, lows = append(names, name), append(lows, low)
	}
	err := r.query(ctx, func(v postgres.Row) { due[v.Text(0)] = time.Duration(v.Int(1)) * time.Millisecond }, `
		SELECT name, `+dueFor+` FROM unnest($1::text[], $2::bigint[]) AS q (name, low), LATERAL (
			SELECT scheduled_at FROM `+r.quoted+` WHERE queue = name AND scheduled_at >= low
			AND id <> ALL ($3::uuid[]) AND `+r.claimable()+` ORDER BY scheduled_at LIMIT 1) first`, names, lows, r.claims.alone())
	return due, err
}

// waiting counts the claimable rows of some queues, up to maxCounted, without parked ones.
func (r *raquelRows) waiting(ctx context.Context, queues []string) (n int64, err error) {
	err = r.query(ctx, func(v postgres.Row) { n = v.Int(0) }, fmt.Sprintf(`SELECT count(*) FROM (
		SELECT FROM %s WHERE queue = ANY ($1::text[]) AND id <> ALL ($2::uuid[]) AND %s LIMIT %d) w`,
		r.quoted, r.claimable(), maxCounted), queues, r.claims.alone())
	return n, err
}

// dueFor is the SQL of how long a row has been due, in milliseconds, up to a century.
const dueFor = "least(" + nowMS + " - scheduled_at::numeric, 3155760000000)"

// rowColumns are what readRow reads. %d is the largest payload that is read. A damaged row may have a queue that is no
// text for this client.
var rowColumns = `id, CASE WHEN ` + isName("queue") + ` THEN queue END, coalesce(attempts, 0),
	CASE WHEN size <= %d THEN payload END, size, scheduled_at, ` + dueFor + `,
	CASE WHEN max_age IS NOT NULL THEN least(greatest(enqueued_at + max_age::numeric - ` + nowMS + `, 1), 86400000) END`

// raquelRow is a claimed row.
type raquelRow struct {
	*claim
	due int64         // scheduled_at
	age time.Duration // how long it had been due when it was claimed
}

func (r *raquelTable) readRow(v postgres.Row) raquelRow {
	attempts := v.Int(2)
	return raquelRow{
		due: v.Int(5), age: time.Duration(v.Int(6)) * time.Millisecond,
		claim: &claim{
			row: v.Text(0), queue: v.Text(1), size: v.Int(4),
			// It has one attempt: the row has the others.
			spec: queue.Spec{Parameters: []byte(v.Text(3)), Options: queue.Options{
				ID: raquelTask(v.Text(0), attempts), Once: forgetAfter, Report: r.report,
				Retry: queue.Retry{
					MaxAttempts: 1, MaxReschedules: -1, MaxAge: time.Duration(v.Int(7)) * time.Millisecond,
				},
				Headers: map[string]string{"raquel-id": v.Text(0), "raquel-attempt": fmt.Sprint(attempts + 1)},
			}},
		},
	}
}

const raquelPrefix = "raquel-"

// raquelTask returns the ID of a row's task. There is one for each attempt.
func raquelTask(id string, attempts int64) string {
	return fmt.Sprintf("%s%s-%d", raquelPrefix, id, attempts)
}

// parseRaquelTask reads it.
func parseRaquelTask(task string) (id string, attempts int64, ok bool) {
	const length = 36 // of a UUID
	rest, ours := strings.CutPrefix(task, raquelPrefix)
	if !ours || len(rest) <= length || rest[length] != '-' || uuid.Validate(rest[:length]) != nil {
		return "", 0, false
	}
	attempts, err := strconv.ParseInt(rest[length+1:], 10, 64)
	return rest[:length], attempts, err == nil
}

// claimUpTo claims up to limit rows of a queue that were due at low or later, in this order, and after the first one at
// most batchBytes. Those that cannot be claimed are parked.
func (r *raquelRows) claimUpTo(ctx context.Context, limit int, name string, low int64) (rows []raquelRow, err error) {
	of := func(ids, lock string) string {
		return fmt.Sprintf(`SELECT id AS first, scheduled_at AS at, coalesce(octet_length(payload), 0)::bigint AS size FROM %s
			WHERE queue = $1 AND scheduled_at >= $2 AND id %s AND %s ORDER BY scheduled_at LIMIT %d %s`,
			r.quoted, ids, r.claimable(), limit, lock)
	}
	const others, these, lock = "<> ALL ($3::uuid[])", "= ANY ($3::uuid[])", "FOR UPDATE SKIP LOCKED"
	alone := r.claims.alone()
	rows, err = r.claimFound(ctx, of(others, lock), maxPayload, name, low, alone)
	if !ofRow(err) {
		return rows, err
	}
	// One of the rows cannot be claimed, or its payload cannot be read: read finds out.
	var found []*claim
	err = r.query(ctx, func(v postgres.Row) { found = append(found, &claim{row: v.Text(0)}) }, of(others, ""), name, low, alone)
	if err != nil {
		return nil, err
	}
	err = each(ctx, &r.statements, found, func(found []*claim) error {
		some, err := r.claimFound(ctx, of(these, lock), -1, name, low, idsOf(found))
		for _, row := range some {
			row.unread = true
		}
		rows = append(rows, some...)
		return err
	}, func(c *claim, why error) error { return r.claims.parkRow(name, c.row, why) })
	return rows, err
}

// claimFound claims the rows that a statement finds. Payloads that are larger than largest are not read.
func (r *raquelRows) claimFound(
	ctx context.Context, found string, largest int, name string, low int64, ids []string,
) (rows []raquelRow, err error) {
	err = r.query(ctx, func(v postgres.Row) { rows = append(rows, r.readRow(v)) }, fmt.Sprintf(`
		WITH first AS (%[1]s),
		sized AS (SELECT first, size, sum(size) OVER (ORDER BY at, first) - size AS before FROM first)
		UPDATE %[2]s SET status = 'claimed', claimed_at = %[3]s, claimed_by = %[4]s
		FROM sized WHERE id = first AND before < %[5]d
		RETURNING %[6]s`, found, r.quoted, nowMS, literal(r.owner), batchBytes, fmt.Sprintf(rowColumns, largest)),
		name, low, ids)
	if err != nil {
		return nil, err // also if a deferred trigger has undone it
	}
	slices.SortStableFunc(rows, func(a, b raquelRow) int { return cmp.Compare(a.due, b.due) })
	return rows, nil
}

// unknown returns rows that are claimed by this relay and not in hand, without their payloads: at most limit.
func (r *raquelRows) unknown(ctx context.Context, limit int) (rows []*claim, err error) {
	err = r.query(ctx, func(v postgres.Row) { rows = append(rows, r.readRow(v).claim) }, fmt.Sprintf(`
		SELECT %s FROM (
			SELECT *, coalesce(octet_length(payload), 0)::bigint AS size FROM %s
			WHERE status <> 'success' AND status = 'claimed' AND claimed_by = $1
			AND id NOT IN (SELECT unnest($2::uuid[])) LIMIT %d
		) sized`, fmt.Sprintf(rowColumns, -1), r.quoted, limit),
		r.owner, idsOf(slices.Collect(maps.Values(r.claims.hand))))
	return rows, err
}

func (r *raquelRows) read(ctx context.Context, unread []*claim, wrong func(c *claim, why error) error) error {
	byRow := make(map[string]*claim)
	for _, c := range unread {
		byRow[c.row] = c
	}
	return each(ctx, &r.statements, unread, func(some []*claim) error {
		return r.query(ctx, func(v postgres.Row) {
			c := byRow[v.Text(0)]
			c.spec.Parameters, c.unread = []byte(v.Text(1)), false
		}, fmt.Sprintf("SELECT id, CASE WHEN octet_length(payload) <= %d THEN payload END FROM %s"+ourRows,
			maxPayload, r.quoted), idsOf(some), r.owner)
	}, wrong)
}

// ourRows are those of some rows that are claimed by this relay.
const ourRows = ` WHERE id = ANY ($1::uuid[]) AND status = 'claimed' AND claimed_by = $2`

func (r *raquelRows) hold(ctx context.Context, inHand []*claim) (map[string]bool, error) {
	now := time.Now()
	var due, refused []*claim
	for _, c := range inHand {
		if now.Before(c.renewAt) {
			refused = append(refused, c)
		} else {
			due = append(due, c)
		}
	}
	ours, err := r.renew(ctx, due)
	if err != nil {
		return nil, err
	}
	note := func(v postgres.Row) { ours[raquelTask(v.Text(0), v.Int(1))] = true }
	for some := range slices.Chunk(refused, batchRows) {
		err := r.query(ctx, note, `SELECT id, coalesce(attempts, 0) FROM `+r.quoted+ourRows, idsOf(some), r.owner)
		if err != nil {
			return nil, err
		}
	}
	return ours, nil
}

// renew renews the claims of rows, and returns the tasks of those that are still ours. It notes those that it skipped
// because others have locked them.
func (r *raquelRows) renew(ctx context.Context, due []*claim) (ours map[string]bool, err error) {
	ours = make(map[string]bool, len(due))
	skipped := make(map[string]bool)
	for some := range slices.Chunk(due, batchRows) {
		err := each(ctx, &r.statements, some, func(some []*claim) error {
			return r.query(ctx, func(v postgres.Row) {
				ours[raquelTask(v.Text(0), v.Int(2))] = true
				if !v.Bool(1) {
					skipped[v.Text(0)] = true
				}
			}, `
				WITH ours AS MATERIALIZED (
				  SELECT id, coalesce(attempts, 0) AS attempts FROM `+r.quoted+ourRows+`
				), free AS MATERIALIZED (
				  SELECT id FROM `+r.quoted+` WHERE id IN (SELECT id FROM ours) AND status = 'claimed' AND claimed_by = $2
				  FOR UPDATE SKIP LOCKED
				), held AS (UPDATE `+r.quoted+` SET claimed_at = `+nowMS+` WHERE id IN (SELECT id FROM free))
				SELECT id, id IN (SELECT id FROM free), attempts FROM ours`, idsOf(some), r.owner)
		}, func(c *claim, _ error) error {
			ours[c.spec.ID], c.renewAt = true, time.Now().Add(r.claims.wait) // it is ours until a worker takes it
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	isHeld := func(c *claim) bool { return !skipped[c.row] }
	r.skipped, r.renewed = slices.DeleteFunc(slices.Clone(due), isHeld), time.Now()
	return ours, nil
}

func (r *raquelRows) unclaim(ctx context.Context, given []*claim, wrong func(c *claim, why error) error) error {
	return each(ctx, &r.statements, given, func(some []*claim) error {
		return r.query(ctx, nil, "UPDATE "+r.quoted+" SET status = 'queued', claimed_at = NULL, claimed_by = NULL"+ourRows,
			idsOf(some), r.owner)
	}, wrong)
}

func (r *raquelRows) claimAgain(ctx context.Context, given *claim) (again bool, err error) {
	_, attempts, _ := parseRaquelTask(given.spec.ID)
	err = r.query(ctx, func(postgres.Row) { again = true }, `
		UPDATE `+r.quoted+` SET status = 'claimed', claimed_at = `+nowMS+`, claimed_by = $3
		WHERE id = $1 AND coalesce(attempts, 0) = $2 AND status = 'queued' RETURNING id`,
		given.row, attempts, r.owner)
	return again, err
}

// release does nothing: what is not renewed gets old.
func (*raquelRows) release(context.Context, []*claim) error { return nil }

// expire marks the rows of queues whose age is over. Those that cannot be marked are parked.
func (r *raquelRows) expire(ctx context.Context, queues []string) error {
	const expired = `status <> 'success' AND status IN ('queued', 'failed')
		AND scheduled_at + max_age::numeric <= ` + nowMS
	for more := true; more; {
		full := r.claims.most(parkedByDuty)
		some := slices.DeleteFunc(slices.Clone(queues), func(name string) bool { return slices.Contains(full, name) })
		if len(some) == 0 {
			return nil
		}
		var rows []dutyRow
		err := r.query(ctx, func(v postgres.Row) { rows = append(rows, dutyRow{v.Text(0), v.Text(1)}) }, fmt.Sprintf(`
			SELECT id, queue FROM %s WHERE queue = ANY ($1::text[]) AND id <> ALL ($2::uuid[]) AND %s LIMIT %d
			FOR UPDATE SKIP LOCKED`, r.quoted, expired, batchRows), some, r.claims.alone())
		if err != nil {
			return err
		}
		parked, err := r.claims.doDuty(ctx, &r.statements, rows, func(ids []string, _ bool) error {
			return r.query(ctx, nil, "UPDATE "+r.quoted+" SET status = 'expired' WHERE id = ANY ($1::uuid[]) AND "+expired, ids)
		})
		if err != nil {
			return err
		}
		more = len(rows) == batchRows && parked == 0
	}
	return nil
}
