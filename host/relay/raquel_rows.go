package relay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// raquelRows has the statements on a table of Raquel. All times are those of the database. Statements have no names and
// literal limits, so that each is planned for its arguments: a plan for any limit sorts the whole backlog.
type raquelRows struct {
	*raquelTable
	db    *postgres.Conn
	owner string // claimed_by of our rows
}

// nowMS is the database's time as Raquel writes times.
const nowMS = "floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint"

// Sums of a row's numbers are numeric, because those of a damaged row can exceed bigint, which would fail the statement
// for all rows.

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
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := r.db.Query(ctx, each, statement, args...); err != nil {
		return databaseError{err}
	}
	return nil
}

// exec runs a statement that returns no rows.
func (r *raquelRows) exec(ctx context.Context, statement string, args ...any) error {
	return r.query(ctx, func(postgres.Row) {}, statement, args...)
}

// literal quotes a text for SQL.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// due returns which of some queues have claimable rows, and how long the first of each has been due. Each queue maps to
// the time from which to look: see raquelQueue.low.
func (r *raquelRows) due(
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
			SELECT scheduled_at FROM `+r.quoted+` WHERE queue = name AND scheduled_at >= low AND `+r.claimable()+`
			ORDER BY scheduled_at LIMIT 1) first`, names, lows)
	return due, err
}

// waiting counts the claimable rows of some queues, up to maxCounted.
func (r *raquelRows) waiting(ctx context.Context, queues []string) (n int64, err error) {
	err = r.query(ctx, func(v postgres.Row) { n = v.Int(0) }, fmt.Sprintf(`SELECT count(*) FROM (
		SELECT FROM %s WHERE queue = ANY ($1::text[]) AND %s LIMIT %d) w`, r.quoted, r.claimable(), maxCounted), queues)
	return n, err
}

// dueFor is the SQL of how long a row has been due, in milliseconds, up to a century.
const dueFor = "least(" + nowMS + " - scheduled_at::numeric, 3155760000000)"

// jobColumns are what readJob reads. %d is the largest payload that is read. A damaged row may have a queue that is no
// text for this client.
var jobColumns = `id, CASE WHEN ` + isName("queue") + ` THEN queue END, coalesce(attempts, 0),
	CASE WHEN size <= %d THEN payload END, size, scheduled_at, ` + dueFor + `,
	CASE WHEN max_age IS NOT NULL THEN least(greatest(enqueued_at + max_age::numeric - ` + nowMS + `, 1), 86400000) END`

func readJob(v postgres.Row) *raquelJob {
	return &raquelJob{
		id: v.Text(0), queue: v.Text(1), attempts: v.Int(2), payload: []byte(v.Text(3)), size: v.Int(4),
		due: v.Int(5), age: time.Duration(v.Int(6)) * time.Millisecond,
		left: time.Duration(v.Int(7)) * time.Millisecond,
	}
}

// claim claims up to limit rows of a queue that were due at low or later, in this order, and after the first one at
// most batchBytes. It leaves some rows alone, and calls wrong for those that cannot be claimed.
func (r *raquelRows) claim(
	ctx context.Context, name string, low int64, limit int, alone []string, wrong func(id string, why error) error,
) (jobs []*raquelJob, err error) {
	const first = `SELECT id AS first, scheduled_at AS at, coalesce(octet_length(payload), 0)::bigint AS size FROM %[1]s
		WHERE queue = $1 AND scheduled_at >= $2 AND id <> ALL ($3::uuid[]) AND %[2]s ORDER BY scheduled_at LIMIT %[3]d`
	jobs, err = r.claimOf(ctx, maxPayload, fmt.Sprintf(first, r.quoted, r.claimable(), limit)+" FOR UPDATE SKIP LOCKED",
		name, low, alone)
	if !ofRow(err) {
		return jobs, err
	}
	// One of the rows cannot be claimed, or its payload cannot be read: the reader of payloads finds out.
	var ids []string
	err = r.query(ctx, func(v postgres.Row) { ids = append(ids, v.Text(0)) },
		fmt.Sprintf(first, r.quoted, r.claimable(), limit), name, low, alone)
	if err != nil {
		return nil, err
	}
	err = each(ids, func(ids []string) error {
		some, err := r.claimOf(ctx, -1, fmt.Sprintf(`
			SELECT id AS first, scheduled_at AS at, coalesce(octet_length(payload), 0)::bigint AS size FROM %s
			WHERE queue = $1 AND scheduled_at >= $2 AND id = ANY ($3::uuid[]) AND %s ORDER BY scheduled_at
			FOR UPDATE SKIP LOCKED`, r.quoted, r.claimable()), name, low, ids)
		jobs = append(jobs, some...)
		return err
	}, wrong)
	return jobs, err
}

// claimOf claims the rows that a statement finds. Payloads that are larger than largest are not read.
func (r *raquelRows) claimOf(
	ctx context.Context, largest int, found, name string, low int64, ids []string,
) (jobs []*raquelJob, err error) {
	err = r.query(ctx, func(v postgres.Row) { jobs = append(jobs, readJob(v)) }, fmt.Sprintf(`
		WITH first AS (%[1]s),
		sized AS (SELECT first, size, sum(size) OVER (ORDER BY at, first) - size AS before FROM first)
		UPDATE %[2]s SET status = 'claimed', claimed_at = %[3]s, claimed_by = %[4]s
		FROM sized WHERE id = first AND before < %[5]d
		RETURNING %[6]s`, found, r.quoted, nowMS, literal(r.owner), batchBytes, fmt.Sprintf(jobColumns, largest)), name, low, ids)
	slices.SortStableFunc(jobs, func(a, b *raquelJob) int { return cmp.Compare(a.due, b.due) })
	for _, job := range jobs {
		job.unread = largest < 0
	}
	return jobs, err
}

// claimed returns the next of our rows whose ID is after another, without their payloads.
func (r *raquelRows) claimed(ctx context.Context, after string) (jobs []*raquelJob, err error) {
	err = r.query(ctx, func(v postgres.Row) { jobs = append(jobs, readJob(v)) }, fmt.Sprintf(`
		SELECT %s FROM (
			SELECT *, coalesce(octet_length(payload), 0)::bigint AS size FROM %s
			WHERE status = 'claimed' AND claimed_by = $1 AND id > $2::uuid ORDER BY id LIMIT %d
		) sized ORDER BY id`, fmt.Sprintf(jobColumns, -1), r.quoted, batchRows),
		r.owner, cmp.Or(after, "00000000-0000-0000-0000-000000000000"))
	return jobs, err
}

// payloads reads the payloads of rows that are still ours. It calls wrong for those that cannot be read.
func (r *raquelRows) payloads(
	ctx context.Context, jobs map[string]*raquelJob, wrong func(id string, why error) error,
) error {
	return each(slices.Collect(maps.Keys(jobs)), func(ids []string) error {
		return r.query(ctx, func(v postgres.Row) {
			job := jobs[v.Text(0)]
			job.payload, job.unread = []byte(v.Text(1)), false
		}, fmt.Sprintf(`SELECT id, CASE WHEN octet_length(payload) <= %d THEN payload END FROM %s
			WHERE id = ANY ($1::uuid[]) AND status = 'claimed' AND claimed_by = $2`, maxPayload, r.quoted), ids, r.owner)
	}, wrong)
}

// renew renews the claims of rows, and returns which of them are still ours.
func (r *raquelRows) renew(ctx context.Context, jobs []*raquelJob) (map[string]bool, error) {
	ours := make(map[string]bool, len(jobs))
	for some := range slices.Chunk(jobs, batchRows) {
		err := each(idsOf(some), func(ids []string) error {
			return r.query(ctx, func(v postgres.Row) { ours[v.Text(0)] = true }, `UPDATE `+r.quoted+` SET claimed_at = `+nowMS+`
				WHERE id = ANY ($1::uuid[]) AND status = 'claimed' AND claimed_by = $2 RETURNING id`, ids, r.owner)
		}, func(id string, _ error) error {
			ours[id] = true // until a worker takes it
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return ours, nil
}

// unclaim leaves rows to others.
func (r *raquelRows) unclaim(ctx context.Context, jobs []*raquelJob) error {
	return each(idsOf(jobs), func(ids []string) error {
		return r.exec(ctx, `UPDATE `+r.quoted+` SET status = 'queued', claimed_at = NULL, claimed_by = NULL
			WHERE id = ANY ($1::uuid[]) AND status = 'claimed' AND claimed_by = $2`, ids, r.owner)
	}, func(string, error) error { return nil }) // the claim gets old
}

// claimAgain undoes unclaim, and reports whether the row was still there to claim.
func (r *raquelRows) claimAgain(ctx context.Context, job *raquelJob) (again bool, err error) {
	err = r.query(ctx, func(postgres.Row) { again = true }, `UPDATE `+r.quoted+` SET status = 'claimed', claimed_at = `+nowMS+`,
		claimed_by = $3 WHERE id = $1 AND coalesce(attempts, 0) = $2 AND status = 'queued' RETURNING id`,
		job.id, job.attempts, r.owner)
	return again, err
}

// expire marks the rows of queues whose age is over. It calls wrong for those that cannot be marked.
func (r *raquelRows) expire(
	ctx context.Context, queues, alone []string, wrong func(id string, why error) error,
) error {
	const expired = `status <> 'success' AND status IN ('queued', 'failed') AND scheduled_at + max_age::numeric <= ` + nowMS
	for more := len(queues) > 0; more; {
		var ids []string
		err := r.query(ctx, func(v postgres.Row) { ids = append(ids, v.Text(0)) }, fmt.Sprintf(`
			SELECT id FROM %s WHERE queue = ANY ($1::text[]) AND id <> ALL ($2::uuid[]) AND %s LIMIT %d FOR UPDATE SKIP LOCKED`,
			r.quoted, expired, batchRows), queues, alone)
		if err != nil {
			return err
		}
		more = len(ids) == batchRows
		err = each(ids, func(ids []string) error {
			return r.exec(ctx, "UPDATE "+r.quoted+" SET status = 'expired' WHERE id = ANY ($1::uuid[]) AND "+expired, ids)
		}, func(id string, why error) error {
			more = false
			return wrong(id, why)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func idsOf(jobs []*raquelJob) []string {
	ids := make([]string, len(jobs))
	for i, job := range jobs {
		ids[i] = job.id
	}
	return ids
}

// The ways in which an attempt of a row ends.
const (
	endSuccess   = "success"
	endFailed    = "failed"    // failed or exhausted, as the row allows
	endFatal     = "exhausted" // whatever the row allows
	endLater     = "later"     // Raquel's reschedule
	endReject    = "reject"    // Raquel's reject
	endExpired   = "expired"
	endCancelled = "cancelled"
)

// jobEnd is the end of an attempt of a row.
type jobEnd struct {
	raquelJob
	kind           string
	failure, trace string
	after          *time.Duration // the delay that the handler asked for
	ago            time.Duration  // how long ago it ended
}

// newJobEnd returns what the end of a task means for its row. now is Redis's time.
func newJobEnd(j raquelJob, task *listen.Ended, now time.Time) jobEnd {
	e := jobEnd{raquelJob: j, kind: endSuccess, ago: max(0, now.Sub(task.At))}
	failure := task.Failure
	if failure == nil {
		return e
	}
	e.failure = valid(ownWords(failure.Message))
	e.trace = valid(cmp.Or(failure.Stderr, strings.Join(failure.Backtrace, "\n")))
	if failure.RetryAfter > 0 {
		after := time.Duration(min(failure.RetryAfter, century.Seconds()) * float64(time.Second))
		e.after = &after
	}
	switch code := failure.ExitCode; {
	case failure.Reason == queue.ReasonExpired:
		e.kind = endExpired
	case failure.Reason == queue.ReasonCancelled:
		e.kind = endCancelled
	case failure.Reason == queue.ReasonRejected:
		e.kind = endReject
	case code != nil && *code == listen.ExitLater:
		e.kind = endLater
	case code != nil && *code == listen.ExitFatal, strings.HasPrefix(failure.Limit, "input="):
		e.kind = endFatal // another attempt would end the same way
	default:
		e.kind = endFailed
	}
	return e
}

// exitStatus is what a host puts before the words of a handler.
var exitStatus = regexp.MustCompile(`^exit status \d+(?: \([a-z ]*\))?: `)

// ownWords returns the message of a failure in the words of the handler alone, if it has said any.
func ownWords(message string) string { return message[len(exitStatus.FindString(message)):] }

// write writes ends into their rows, as Raquel's DequeueContextManager does. NULL options count as Raquel's defaults. A
// repeat changes nothing, because the row is not claimed any more. write calls wrong for ends that cannot be written.
func (r *raquelRows) write(ctx context.Context, ends []jobEnd, wrong func(e jobEnd, why error) error) error {
	for some := range slices.Chunk(ends, batchRows) {
		err := each(some, func(ends []jobEnd) error { return r.writeBlock(ctx, ends) }, func(e jobEnd, _ error) error {
			e.failure, e.trace = asciiText(e.failure), asciiText(e.trace) // the database's encoding may lack a character
			err := r.writeBlock(ctx, []jobEnd{e})
			if ofRow(err) {
				return wrong(e, err)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("write ends: %w", err)
		}
	}
	return nil
}

func (r *raquelRows) writeBlock(ctx context.Context, ends []jobEnd) error {
	var ids, kinds, failures, traces []string
	var attempts, ago []int64
	var after []*string
	for _, e := range ends {
		ids, kinds, attempts = append(ids, e.id), append(kinds, e.kind), append(attempts, e.attempts)
		failures, traces, ago = append(failures, e.failure), append(traces, e.trace), append(ago, e.ago.Milliseconds())
		var asked *string
		if e.after != nil {
			text := fmt.Sprint(e.after.Milliseconds())
			asked = &text
		}
		after = append(after, asked)
	}
	return r.exec(ctx, fmt.Sprintf(writeRaquel, r.quoted, nowMS, again, r.errorType, r.traceType), r.owner, ids, kinds,
		attempts, failures, traces, after, ago)
}

// writeRaquel writes ends. As in Raquel, max_retry_count is the number of attempts, the first delay is twice the base,
// an exhausted row keeps the error of the attempt before, and a reschedule counts from scheduled_at. Numbers stay
// within the types of their columns, and delays within a century.
const (
	again       = "(kind = 'failed' AND (attempt::numeric + 2 > max_retry_count) IS NOT TRUE)"
	writeRaquel = `
UPDATE %[1]s j SET
  status = CASE WHEN %[3]s THEN 'failed' WHEN kind = 'failed' THEN 'exhausted'
    WHEN kind IN ('later', 'reject') THEN 'queued' ELSE kind END,
  attempts = CASE WHEN kind IN ('expired', 'cancelled') THEN j.attempts
    ELSE greatest(attempt, least(attempt::numeric + 1, 2147483647)) END,
  finished_at = CASE WHEN kind IN ('success', 'failed', 'exhausted') THEN at
    WHEN kind = 'later' THEN NULL ELSE finished_at END,
  error = CASE WHEN %[3]s OR kind = 'exhausted' THEN failure::%[4]s ELSE error END,
  error_trace = CASE WHEN %[3]s OR kind = 'exhausted' THEN nullif(trace, '')::%[5]s ELSE error_trace END,
  scheduled_at = CASE
    WHEN %[3]s THEN at + least(greatest(coalesce(min_retry_delay, 1000),
      coalesce(asked, coalesce(backoff_base, 1000) * power(2, least(greatest(attempt, -62), 61) + 1))),
      coalesce(max_retry_delay, 43200000), 3155760000000)::bigint
    WHEN kind = 'later' THEN greatest(scheduled_at + least(coalesce(asked, min_retry_delay, 1000)::numeric, 3155760000000),
      -9223372036854775808)
    ELSE scheduled_at END,
  claimed_at = CASE WHEN kind IN ('reject', 'expired') THEN NULL ELSE claimed_at END,
  claimed_by = CASE WHEN kind IN ('reject', 'expired') THEN NULL ELSE claimed_by END
FROM (
  SELECT *, %[2]s - ago AS at
  FROM unnest($2::uuid[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[])
    AS u (ended, kind, attempt, failure, trace, asked, ago)
) e
WHERE j.id = ended AND status = 'claimed' AND claimed_by = $1 AND coalesce(j.attempts, 0) = attempt`
)
