package host

import (
	"context"
	"errors"
	"sort"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// settleTasks and settleBytes bound one settle script.
	settleTasks = 500
	settleBytes = 4 << 20
	// settleParallel is how many queues are settled at a time.
	settleParallel = 4
	// minBackoff to maxBackoff is the pause before a call is repeated while Redis is away or refuses.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// ending is what became of a task on this host.
type ending struct {
	task    *task
	outcome runtime.Outcome
	took    time.Duration
}

// settler writes to Redis what became of a session's tasks. What ends while a write is under way
// goes with the next one: large batches under load, no delay when idle.
type settler struct {
	session *session
	metrics observer

	mu      sync.Mutex
	waiting []ending
	// poke has a token when something waits; never closed.
	poke chan struct{}
	// lost says that the session's lease is: nothing is settled any more; guarded by mu.
	lost bool
	// returned are the tasks to give back, which the session does when all have ended; guarded by mu.
	returned []ending
}

// put hands over a task that has ended.
func (s *settler) put(e ending) {
	s.mu.Lock()
	if s.lost {
		s.mu.Unlock()
		s.done(e, "lost", queue.ErrLost)
		return
	}
	s.waiting = append(s.waiting, e)
	s.mu.Unlock()
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// giveUp drops what waits, and all that ends from now on: it is another host's.
func (s *settler) giveUp() {
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
	for _, e := range s.takeWaiting() {
		s.done(e, "lost", queue.ErrLost)
	}
}

// Run settles until ctx ends; what waits then is flush's.
func (s *settler) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.poke:
		}
		s.flush(ctx)
	}
}

// flush settles what waits now, repeating until it is done or ctx ends; what is not settled then
// waits again.
func (s *settler) flush(ctx context.Context) {
	batch := s.takeWaiting()

	groups := make(map[string][]ending)
	for _, e := range batch {
		if s.drops(e) {
			continue
		}
		groups[e.task.served.queue] = append(groups[e.task.served.queue], e)
	}
	var round errgroup.Group
	round.SetLimit(settleParallel)
	for name, list := range groups {
		for len(list) > 0 {
			n, size := 0, 0
			for n < len(list) && n < settleTasks && (n == 0 || size+len(list[n].outcome.Output) <= settleBytes) {
				size += len(list[n].outcome.Output)
				n++
			}
			part := list[:n]
			list = list[n:]
			round.Go(func() error {
				if !s.settle(ctx, name, part) {
					s.mu.Lock()
					s.waiting = append(s.waiting, part...)
					s.mu.Unlock()
				}
				return nil
			})
		}
	}
	_ = round.Wait() // the parts report for themselves
}

func (s *settler) takeWaiting() []ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.waiting
	s.waiting = nil
	return waiting
}

// finish settles what is left when the host ends; what cannot be settled in time stays in the
// reserved list until the end of the lease gives it to others.
func (s *settler) finish(ctx context.Context) {
	s.flush(ctx)
	for _, e := range s.takeWaiting() {
		s.done(e, "lost", context.Cause(ctx))
	}
	s.giveBack(ctx)
}

// drops takes care of a task that was stopped: it has no result to settle.
func (s *settler) drops(e ending) bool {
	if e.outcome.Kind != runtime.Cancelled {
		return false
	}
	switch {
	case errors.Is(e.outcome.Err, errDrained):
		s.mu.Lock()
		s.returned = append(s.returned, e)
		s.mu.Unlock()
	case errors.Is(e.outcome.Err, queue.ErrNoTask):
		s.done(e, "lost", queue.ErrNoTask)
	default:
		s.done(e, "lost", queue.ErrLost)
	}
	return true
}

// settle writes one part, all of one queue, and repeats it while Redis is away or refuses. It tells
// whether the part is done with; it is not when ctx ended before.
func (s *settler) settle(ctx context.Context, name string, part []ending) bool {
	s.appendLogs(ctx, part)
	settlements := make([]queue.Settlement, len(part))
	for i, e := range part {
		settlements[i] = queue.Settlement{Hold: e.task.hold(), Result: e.outcome.Output, Failure: Failure(e.outcome)}
	}
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		errs, err := s.session.node.Settle(ctx, name, settlements)
		if err == nil {
			s.session.succeeded()
			for i, e := range part {
				s.settled(e, errs[i])
			}
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.session.failed("settle", err)
		if !queue.IsUnavailable(err) {
			// Something in Redis is not as it should be; the other queues must not wait for it. The
			// tasks stay in the reserved list, and known, so that they are not run again here.
			for _, e := range part {
				s.abandon(e, err)
			}
			return true
		}
		if !sleep(ctx, pause) {
			return false
		}
	}
}

// appendLogs sends what the tasks have written since the last time, before their end is announced,
// so that who follows a log has all of it then. Logs are not worth a second try.
func (s *settler) appendLogs(ctx context.Context, part []ending) {
	var batches []queue.LogBatch
	for _, e := range part {
		if lines := e.task.log.take(); len(lines) > 0 {
			batches = append(batches, queue.LogBatch{Hold: e.task.hold(), Lines: lines})
		}
	}
	s.session.appendLogs(ctx, batches)
}

// settled books the answer that Redis gave for one task.
func (s *settler) settled(e ending, err error) {
	outcome := "failed"
	switch {
	case err != nil:
		outcome = "lost"
	case e.outcome.Kind == runtime.Complete:
		outcome = "complete"
	}
	s.done(e, outcome, err)
}

// done books the end of a task: metrics, log, and the scheduler's count.
func (s *settler) done(e ending, outcome string, err error) {
	t := e.task
	reason := ""
	if f := Failure(e.outcome); f != nil && outcome == "failed" {
		reason = string(f.Reason)
	}
	s.session.remove(t)
	s.session.scheduler.settled(1)
	s.metrics.done(t, outcome, reason, e.took)
	fields := []any{
		"task_id", t.ID, "queue", t.served.queue, "plugin", t.version.Name, "digest", t.version.Digest, "attempt", t.Attempts + 1,
		"outcome", outcome, "took", e.took,
	}
	logger := s.session.logger
	switch {
	case e.outcome.Kind == runtime.HostFault:
		logger.Error("task met an internal error", append(fields, "error", e.outcome.Err)...)
	case errors.Is(err, queue.ErrLost):
		s.metrics.refused(t.served.place)
		logger.Warn("task result refused: another holds the task", fields...)
	case errors.Is(err, queue.ErrNoTask):
		logger.Info("task was deleted while it ran", fields...)
	case err != nil:
		logger.Error("task could not be settled", append(fields, "error", err)...)
	case outcome == "failed":
		logger.Info("task failed", append(fields, "reason", reason, "error", e.outcome.Message)...)
	default:
		logger.Debug("task settled", fields...)
	}
}

// abandon books a task that cannot be settled; it stays known.
func (s *settler) abandon(e ending, err error) {
	s.session.scheduler.settled(1)
	s.metrics.done(e.task, "lost", "", e.took)
	s.session.logger.Error("task could not be settled", "task_id", e.task.ID, "queue", e.task.served.queue, "error", err)
}

// giveBack releases the tasks that were stopped for the host's end, newest first, so that the oldest
// is at the very front of its queue in the end. All of them must have ended.
func (s *settler) giveBack(ctx context.Context) {
	s.mu.Lock()
	returned := s.returned
	s.returned = nil
	s.mu.Unlock()
	sort.Slice(returned, func(i, j int) bool { return returned[i].task.number > returned[j].task.number })
	groups := make(map[string][]ending)
	for _, e := range returned {
		groups[e.task.served.queue] = append(groups[e.task.served.queue], e)
	}
	for name, list := range groups {
		for len(list) > 0 {
			part := list[:min(len(list), settleTasks)]
			list = list[len(part):]
			s.release(ctx, name, part)
		}
	}
}

func (s *settler) release(ctx context.Context, name string, part []ending) {
	s.appendLogs(ctx, part)
	holds := make([]queue.Hold, len(part))
	for i, e := range part {
		holds[i] = e.task.hold()
	}
	var errs []error
	err := persist(ctx, func() error {
		var err error
		errs, err = s.session.node.Release(ctx, name, holds)
		return err
	})
	for i, e := range part {
		switch {
		case err != nil:
			s.done(e, "lost", err)
		case errs[i] != nil:
			s.done(e, "lost", errs[i])
		default:
			s.done(e, "released", nil)
		}
	}
}

// persist repeats a call while Redis is away or refuses, until ctx ends.
func persist(ctx context.Context, call func() error) error {
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		err := call()
		if !queue.IsUnavailable(err) || !sleep(ctx, pause) {
			return err
		}
	}
}

// sleep waits, and tells whether it did to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
