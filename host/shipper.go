package host

import (
	"context"
	"errors"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// shipInterval is how often log lines and progress of running tasks are sent; they are at most a second behind.
const shipInterval = 500 * time.Millisecond

// shipper sends the log lines and the progress of tasks to Redis, in batches. Its duty works while there are tasks.
type shipper struct {
	duty
	calls *health
	node  *queue.Node
	tasks *taskSet
}

func newShipper(h *health, node *queue.Node, tasks *taskSet) *shipper {
	s := &shipper{calls: h, node: node, tasks: tasks}
	s.work = func(ctx context.Context) (pause, wait time.Duration, err error) {
		if !s.ship(ctx) {
			return 0, untilAsked, nil
		}
		return 0, shipInterval, nil
	}
	return s
}

// begun is called when there are new tasks.
func (s *shipper) begun() { s.askBy(time.Now().Add(shipInterval)) }

// ship sends what the tasks wrote and reported, and tells whether there are tasks.
func (s *shipper) ship(ctx context.Context) bool {
	all := s.tasks.all()
	free := make([]*task, 0, len(all))
	for _, t := range all {
		if t.log.sending.TryLock() { // else the settler sends its last lines
			free = append(free, t)
		}
	}
	s.send(ctx, free)
	for _, t := range free {
		t.log.sending.Unlock()
	}
	return len(all) > 0
}

// shipLast sends the rest of what tasks wrote before their end is announced: then who follows a log has all of it.
func (s *shipper) shipLast(ctx context.Context, part []*ended) {
	tasks := make([]*task, len(part))
	for i, e := range part {
		tasks[i] = e.task
		e.task.log.sending.Lock()
		defer e.task.log.sending.Unlock()
	}
	s.send(ctx, tasks)
}

// send sends what the tasks wrote and reported. What Redis does not take now is sent the next time.
func (s *shipper) send(ctx context.Context, tasks []*task) {
	var batches []queue.LogBatch
	var writers, reporters []*task
	var reports []queue.ProgressReport
	for _, t := range tasks {
		if lines := t.log.take(); len(lines) > 0 {
			batches = append(batches, queue.LogBatch{Claim: t.Claim(), Lines: lines})
			writers = append(writers, t)
		}
		if fraction, message, changed := t.progress.take(); changed {
			reports = append(reports, queue.ProgressReport{Claim: t.Claim(), Queue: t.served.queue, Fraction: fraction, Message: message})
			reporters = append(reporters, t)
		}
	}
	if len(batches) > 0 {
		s.retry(ctx, s.node.AppendLogs(ctx, batches), func(i int) {
			at := writers[i].served.place
			s.calls.metrics.LogLinesDropped(at.tenant, at.queue, writers[i].log.putBack(batches[i].Lines))
		})
	}
	if len(reports) > 0 {
		s.retry(ctx, s.node.Progress(ctx, reports), func(i int) { reporters[i].progress.putBack() })
	}
}

// retry puts back what Redis did not take.
func (s *shipper) retry(ctx context.Context, errs []error, putBack func(i int)) {
	var failure error
	for i, err := range errs {
		if err != nil && !errors.Is(err, queue.ErrLost) && !errors.Is(err, queue.ErrNoTask) {
			failure = err
			putBack(i)
		}
	}
	if failure != nil && ctx.Err() == nil {
		s.calls.failedQuietly(opLog, failure)
	}
}
