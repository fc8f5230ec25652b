package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// reportWait is how long a call waits for reports.
	reportWait = 2 * time.Second
	// resultReaders is the number of results that are read at a time.
	resultReaders = 8
	// maxResult is the maximum size of a result that is written. resultReaders of them are in memory at a time.
	maxResult = 16 << 20
)

// writeEnds writes ends. A repeat changes nothing, also if the task was deleted meanwhile.
const writeEnds = `
INSERT INTO quern.ended AS e (tenant, id, status, reason, result, error, attempts, ended)
SELECT DISTINCT ON (id) $1, id, status, nullif(reason, ''), result, nullif(error, ''), attempts, to_timestamp(ended)
FROM unnest($2::text[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::int[], $8::float8[])
  AS u (id, status, reason, result, error, attempts, ended)
ON CONFLICT (tenant, id) DO UPDATE SET status = excluded.status, reason = excluded.reason, result = excluded.result,
  error = excluded.error, attempts = excluded.attempts, ended = excluded.ended
WHERE excluded.status <> 'deleted' AND excluded.ended >= e.ended`

// report writes the ends of a tenant's tasks, until ctx ends.
func (o *outboxTerm) report(ctx context.Context, client *queue.Client) error {
	db, err := o.relay.connect(ctx, ", reports")
	if err != nil {
		return err
	}
	defer db.Close()
	var pause periodic.Pause
	for {
		err := o.reportBlock(ctx, db, client)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			pause.Succeeded()
		case !queue.IsUnavailable(err):
			return err
		case !pause.Sleep(ctx):
			return ctx.Err()
		}
	}
}

// reportBlock writes one block of ends.
func (o *outboxTerm) reportBlock(ctx context.Context, db *postgres.Conn, client *queue.Client) error {
	back := o.tenant(client.Tenant())
	reports, err := back.Reports(ctx, o.reports, reportWait)
	if err != nil || len(reports) == 0 {
		return err
	}
	var block []end
	size := 0
	for some := range slices.Chunk(reports, resultReaders) {
		ends, err := o.readEnds(ctx, client, some)
		if err != nil {
			return err
		}
		for _, end := range ends {
			block, size = append(block, end), size+len(end.result)
		}
		if size < batchBytes {
			continue
		}
		if err := writeEnded(ctx, db, client.Tenant(), block); err != nil {
			return err
		}
		block, size = nil, 0
	}
	if len(block) > 0 {
		if err := writeEnded(ctx, db, client.Tenant(), block); err != nil {
			return err
		}
	}
	if err := back.ForgetReports(ctx, o.reports, reports); err != nil {
		return err
	}
	o.relay.config.Metrics.RelayRows(o.relay.config.Name, "ended", len(reports))
	return nil
}

// end is the end of a task.
type end struct {
	id, status, reason, failure string
	result                      []byte // nil for none
	attempts                    int64
	at                          time.Time
}

// readEnds reads how tasks ended. Those that wait or run again are left out: their next end is reported too.
func (o *outboxTerm) readEnds(ctx context.Context, client *queue.Client, reports []listen.Report) ([]end, error) {
	ends := make([]end, len(reports))
	readers, ctx := errgroup.WithContext(ctx)
	for i, report := range reports {
		readers.Go(func() (err error) {
			ends[i], err = readEnd(ctx, client, report.Task)
			if err != nil && !queue.IsUnavailable(err) && ctx.Err() == nil { // it would be the same again
				o.relay.log.Error("cannot read how a task ended", "task_id", report.Task, "error", err)
				ends[i], err = end{}, nil
			}
			return err
		})
	}
	if err := readers.Wait(); err != nil {
		return nil, err
	}
	ended := ends[:0]
	for _, end := range ends {
		if end.status != "" {
			ended = append(ended, end)
		}
	}
	return ended, nil
}

func readEnd(ctx context.Context, client *queue.Client, id string) (end, error) {
	task, err := client.Summary(ctx, id)
	if errors.Is(err, queue.ErrNoTask) {
		return end{id: id, status: "deleted", at: time.Now()}, nil
	}
	if err != nil || task.Status != queue.Complete && task.Status != queue.Failed {
		return end{}, err
	}
	ended := end{id: id, status: string(task.Status), attempts: int64(max(task.Attempts, 1)), at: task.Updated}
	if task.Status == queue.Failed {
		failure := task.Failure()
		ended.reason, ended.failure, ended.attempts = string(failure.Reason), valid(failure.Message), int64(task.Attempts)
		return ended, nil
	}
	ended.result, err = client.Result(ctx, id, maxResult)
	switch {
	case errors.Is(err, queue.ErrTooLarge):
		ended.failure = fmt.Sprintf("the result has more than %s: read it with `quern task wait %s`",
			units.FormatSize(maxResult), id)
		return ended, nil
	case errors.Is(err, queue.ErrNoTask): // deleted meanwhile
		return ended, nil
	}
	return ended, err
}

// valid returns text that PostgreSQL accepts.
func valid(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "\ufffd")
}

// writeEnded writes ends into quern.ended.
func writeEnded(ctx context.Context, db *postgres.Conn, tenant string, ends []end) error {
	var ids, statuses, reasons, failures, times []string
	var results []*string
	var attempts []int64
	for _, end := range ends {
		var result *string
		if end.result != nil {
			text := fmt.Sprintf(`\x%x`, end.result)
			result = &text
		}
		ids, statuses, reasons = append(ids, end.id), append(statuses, end.status), append(reasons, end.reason)
		failures, results, attempts = append(failures, end.failure), append(results, result), append(attempts, end.attempts)
		times = append(times, fmt.Sprintf("%.6f", float64(end.at.UnixMicro())/1e6))
	}
	_, err := exec(ctx, db, writeEnds, tenant, ids, statuses, reasons, results, failures, attempts, times)
	if err != nil {
		return fmt.Errorf("write ends: %w", err)
	}
	return nil
}

// reportName returns a name for the reports of a table's tasks that no other table has, also if several databases
// relay to one tenant.
func reportName(ctx context.Context, db *postgres.Conn, kind, table string) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	const of = `SELECT md5(concat_ws(' ', %s, current_database(), $1::regclass::oid))`
	set := func(v postgres.Row) { name = kind + "-" + v.Text(0)[:16] }
	err = db.Query(ctx, set, fmt.Sprintf(of, "(SELECT system_identifier FROM pg_control_system())"), table)
	if postgres.State(err) == "42501" { // some providers keep it from users
		err = db.Query(ctx, set, fmt.Sprintf(of, "NULL"), table)
	}
	return name, err
}
