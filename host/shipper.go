package host

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// shipInterval is how often log lines and progress of running tasks are sent; they are at most a second behind.
const shipInterval = 500 * time.Millisecond

// lateBytes bounds the records that wait in a session after the ends of their tasks. Each counts as its bytes and
// lateRecord: those that were too large have no bytes.
const (
	lateBytes  = 4 << 20
	lateRecord = 1 << 10
)

// shipper sends the log lines, the progress and the records of tasks to Redis, in batches. The duty starts when the
// intake asks for it, and stops when there are no tasks and no late records.
type shipper struct {
	periodic.Duty
	listener *listen.Listener
	metrics  *metrics.Metrics
	logger   hclog.Logger

	mu    sync.Mutex
	late  []listen.RunRecord // of settled runs, which Redis could not take before; guarded by mu
	pause periodic.Pause     // until they are tried again; used only by the run under way
}

// RunOnce implements periodic.Worker.
func (s *shipper) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	wait = periodic.UntilAsked
	if left := s.pause.Left(time.Now()); left > 0 {
		wait = left
	} else if s.keepLate(ctx) {
		wait = s.pause.Failed(time.Now())
	} else {
		s.pause.Succeeded()
	}
	all := s.listener.Tasks.All()
	if len(all) == 0 {
		return 0, wait, nil
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

// keepRecords stores the records of runs. Those that Redis cannot take now are sent again with the ends of their tasks.
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
	waits := s.store(ctx, records)
	for i, e := range of {
		if !waits[i] {
			e.record = nil
		}
	}
}

// store stores records, and reports which of them Redis may take later. One that it refuses is lost.
func (s *shipper) store(ctx context.Context, records []listen.RunRecord) (waits []bool) {
	waits = make([]bool, len(records))
	if len(records) > 0 {
		errs := s.listener.KeepRecords(ctx, records)
		s.retry(ctx, errs, func(i int) { waits[i] = queue.IsUnavailable(errs[i]) || ctx.Err() != nil })
	}
	return waits
}

// settled takes over the record of a run whose task was settled before Redis could take the record. The oldest records
// are dropped if too many wait.
func (s *shipper) settled(e *ended) {
	if e.record == nil {
		return
	}
	s.mu.Lock()
	s.late = append(s.late, *e.record)
	e.record = nil
	size, dropped := 0, 0
	for i := len(s.late) - 1; i >= 0; i-- {
		if size += len(s.late[i].Bytes) + lateRecord; size > lateBytes {
			dropped = i + 1
			break
		}
	}
	s.late = slices.Delete(s.late, 0, dropped)
	s.mu.Unlock()
	if dropped > 0 {
		s.logger.Warn("records of runs are dropped: Redis cannot take them, and too many wait", "records", dropped)
	}
	s.AskIn(shipInterval)
}

// keepLate stores the late records. It reports whether some still wait.
func (s *shipper) keepLate(ctx context.Context) (more bool) {
	s.mu.Lock()
	late := s.late
	s.late = nil
	s.mu.Unlock()
	var rest []listen.RunRecord
	for i, waits := range s.store(ctx, late) {
		if waits {
			rest = append(rest, late[i])
		}
	}
	s.mu.Lock()
	s.late = append(rest, s.late...)
	more = len(s.late) > 0
	s.mu.Unlock()
	return more
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
		errs := s.listener.AppendLogs(ctx, logs)
		for i, err := range errs {
			if at := writers[i].Queue; errors.Is(err, manage.ErrQuota) {
				s.metrics.LogLinesDropped(at.Tenant, at.Name, len(logs[i].Lines))
				errs[i] = nil
			}
		}
		s.retry(ctx, errs, func(i int) {
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
