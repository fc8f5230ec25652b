package host

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// shipInterval is how often log lines and progress of running tasks are sent; they are at most a second behind.
const shipInterval = 500 * time.Millisecond

// shipper sends the log lines and the progress of tasks to Redis, in batches. The duty starts when the intake asks for
// it, and stops when there are no tasks.
type shipper struct {
	periodic.Duty
	listener *listen.Listener
	metrics  *metrics.Metrics
}

// RunOnce implements periodic.Worker.
func (s *shipper) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	all := s.listener.Tasks.All()
	if len(all) == 0 {
		return 0, periodic.UntilAsked, nil
	}
	free := make([]*task, 0, len(all))
	for _, held := range all {
		if t := taskOf(held.Value); t != nil && t.log.sending.TryLock() { // if locked, the settler sends its last lines
			free = append(free, t)
		}
	}
	s.send(ctx, free)
	for _, t := range free {
		t.log.sending.Unlock()
	}
	return 0, shipInterval, nil
}

// shipLast sends the last lines of tasks, and the records of their runs, before their end is announced. So followers of
// a log get all lines.
func (s *shipper) shipLast(ctx context.Context, round ...batch) {
	var tasks []*task
	for _, b := range round {
		tasks = slices.Grow(tasks, len(b.results))
		for _, e := range b.results {
			tasks = append(tasks, e.task)
			e.task.log.sending.Lock()
			defer e.task.log.sending.Unlock()
		}
	}
	s.send(ctx, tasks)
	s.keepRecords(ctx, round)
}

// keepRecords stores the records of runs. One that Redis refuses is lost: the end of its task is not to wait for it.
func (s *shipper) keepRecords(ctx context.Context, round []batch) {
	var records []listen.RunRecord
	var of []*ended
	for _, b := range round {
		for _, e := range b.results {
			if e.record != nil {
				records, of = append(records, *e.record), append(of, e)
			}
		}
	}
	if len(records) > 0 {
		s.retry(ctx, s.listener.KeepRecords(ctx, records), func(int) {})
	}
	for _, e := range of {
		e.record = nil
	}
}

// send sends the lines and the progress of tasks. What cannot be sent now is sent the next time.
func (s *shipper) send(ctx context.Context, tasks []*task) {
	var logs []listen.LogBatch
	var writers, reporters []*task
	var reports []listen.ProgressReport
	for _, t := range tasks {
		if lines := t.log.cut(); len(lines) > 0 {
			logs = append(logs, listen.LogBatch{Claim: t.Claim(), Lines: lines})
			writers = append(writers, t)
		}
		if report := t.progress.Swap(nil); report != nil {
			reports = append(reports, *report)
			reporters = append(reporters, t)
		}
	}
	if len(logs) > 0 {
		s.retry(ctx, s.listener.AppendLogs(ctx, logs), func(i int) {
			at := writers[i].Queue
			s.metrics.LogLinesDropped(at.Tenant, at.Name, writers[i].log.putBack(logs[i].Lines))
		})
	}
	if len(reports) > 0 {
		s.retry(ctx, s.listener.Progress(ctx, reports), func(i int) {
			reporters[i].progress.CompareAndSwap(nil,
				&reports[i])
		})
	}
}

// retry calls putBack for each write that failed, unless its task is lost or deleted. errs has the error of each write.
func (s *shipper) retry(ctx context.Context, errs []error, putBack func(i int)) {
	var failure error
	for i, err := range errs {
		if err != nil && !errors.Is(err, queue.ErrLost) && !errors.Is(err, queue.ErrNoTask) {
			failure = err
			putBack(i)
		}
	}
	if failure != nil && ctx.Err() == nil {
		s.Reports.FailedQuietly(opLog, failure)
	}
}
