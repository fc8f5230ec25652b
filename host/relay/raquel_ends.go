package relay

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

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

// raquelEnd is the end of an attempt of a row.
type raquelEnd struct {
	id, task       string
	attempts       int64 // before this one
	kind           string
	failure, trace string
	after          *time.Duration // the delay that the handler asked for
	ago            time.Duration  // how long ago it ended
}

func (e raquelEnd) rowID() string { return e.id }

// newRaquelEnd returns what the end of a task means for its row. now is Redis's time.
func newRaquelEnd(task *listen.Ended, now time.Time) (e raquelEnd, ok bool) {
	e.id, e.attempts, ok = parseRaquelTask(task.ID)
	if e.task, e.kind = task.ID, endSuccess; !task.At.IsZero() {
		e.ago = max(0, now.Sub(task.At))
	}
	failure := task.Failure
	if failure == nil {
		return e, ok
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
	return e, ok
}

// exitStatus is what a host puts before the words of a handler.
var exitStatus = regexp.MustCompile(`^exit status \d+(?: \([a-z ]*\))?: `)

// ownWords returns the message of a failure in the words of the handler alone, if it has said any.
func ownWords(message string) string { return message[len(exitStatus.FindString(message)):] }

// finish writes ends as Raquel's DequeueContextManager does. NULL options count as Raquel's defaults. A repeat changes
// nothing, because the row is not claimed any more.
func (r *raquelRows) finish(ctx context.Context, ended []listen.Ended, wrong func(task string, why error) error) error {
	now, err := r.claims.client.Clock(ctx)
	if err != nil {
		return err
	}
	ends := make([]raquelEnd, 0, len(ended))
	for _, task := range ended {
		if e, ok := newRaquelEnd(&task, now); ok {
			ends = append(ends, e)
		}
	}
	for some := range slices.Chunk(ends, batchRows) {
		err := each(ctx, &r.statements, some, func(ends []raquelEnd) error {
			return r.writeBlock(ctx, ends)
		}, orPlain(func(e raquelEnd) error {
			e.failure, e.trace = asciiText(e.failure), asciiText(e.trace) // the database's encoding may lack a character
			return r.writeBlock(ctx, []raquelEnd{e})
		}, func(e raquelEnd, why error) error { return wrong(e.task, why) }))
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *raquelRows) writeBlock(ctx context.Context, ends []raquelEnd) error {
	var kinds, failures, traces []string
	var attempts, ago []int64
	var after []*string
	for _, e := range ends {
		kinds, attempts = append(kinds, e.kind), append(attempts, e.attempts)
		failures, traces, ago = append(failures, e.failure), append(traces, e.trace), append(ago, e.ago.Milliseconds())
		var asked *string
		if e.after != nil {
			text := fmt.Sprint(e.after.Milliseconds())
			asked = &text
		}
		after = append(after, asked)
	}
	statement := fmt.Sprintf(writeRaquel, r.quoted, nowMS, again, r.errorType, r.traceType)
	return r.query(ctx, nil, statement, r.owner, idsOf(ends), kinds, attempts, failures, traces, after, ago)
}

// writeRaquel writes ends. As in Raquel, max_retry_count is the number of attempts, the first delay is twice the base,
// an exhausted row keeps the error of the attempt before, and a reschedule counts from scheduled_at. Numbers stay
// within the types of their columns, and delays within a century. A delay of a damaged row that is not above 0 is a
// second, and one that counts from before 1970 counts from now, because such a row would never wait.
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
    WHEN %[3]s THEN at + coalesce(nullif(greatest(0, least(greatest(coalesce(min_retry_delay, 1000),
      coalesce(asked, coalesce(backoff_base, 1000) * power(2, least(greatest(attempt, -62), 61) + 1))),
      coalesce(max_retry_delay, 43200000), 3155760000000)::bigint), 0), 1000)
    WHEN kind = 'later' THEN CASE WHEN scheduled_at < 0 THEN at ELSE scheduled_at END
      + least(coalesce(asked, nullif(greatest(min_retry_delay, 0), 0), 1000), 3155760000000)
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
