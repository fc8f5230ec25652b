package host

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// settleTasks and settleBytes bound what one script settles or gives back.
	settleTasks = queue.MaxWeight
	settleBytes = 4 << 20
	// settleParallel is how many settle scripts are under way at a time.
	settleParallel = 4
)

// ending is what became of a task on this host.
type ending struct {
	task    *task
	outcome runtime.Outcome
	took    time.Duration
	// settlement is what becomes of it, decided once: a repeat must say the same.
	settlement queue.Settlement
}

// size is about how many bytes of memory its settlement keeps.
func (e *ending) size() int {
	size := len(e.settlement.Result)
	for i := range e.settlement.Children {
		size += e.settlement.Children[i].Size()
	}
	return size
}

// settler writes to Redis what became of a session's tasks. What ends while a write is under way
// goes with the next one: large batches under load, no delay when idle. What Redis does not take is
// tried again, queue by queue, until it does.
type settler struct {
	session *session
	metrics observer
	// poke has a token when something waits; never closed.
	poke chan struct{}

	mu      sync.Mutex
	waiting []ending            // guarded by mu
	pauses  map[string]*backoff // by queue: those whose last try failed; guarded by mu
	// lost says that the session's lease is: nothing is settled any more; guarded by mu.
	lost bool
	// returned are the tasks to give back, which the session does when all have ended; guarded by mu.
	returned []ending
}

func newSettler(s *session) *settler {
	return &settler{session: s, metrics: s.metrics, poke: make(chan struct{}, 1), pauses: make(map[string]*backoff)}
}

// put hands over a task that has ended.
func (s *settler) put(e ending) {
	s.mu.Lock()
	lost := s.lost
	if !lost {
		s.waiting = append(s.waiting, e)
	}
	s.mu.Unlock()
	if lost {
		s.done(e, "lost", queue.ErrLost)
		return
	}
	poke(s.poke)
}

// giveUp drops what waits, and all that ends from now on: it is another host's.
func (s *settler) giveUp() {
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
	for _, e := range s.takeWaiting(true) {
		s.done(e, "lost", queue.ErrLost)
	}
}

// Run settles until ctx ends; what waits then is finish's.
func (s *settler) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.poke:
		}
		s.flush(ctx, false)
	}
}

// flush settles what waits now, except for queues whose pause is not over, unless all is asked for.
// What is not settled waits again; unserved tells that this is because Redis did not serve.
func (s *settler) flush(ctx context.Context, all bool) (unserved bool) {
	groups := make(map[string][]ending)
	for _, e := range s.takeWaiting(all) {
		if !s.drops(e) {
			groups[e.task.served.queue] = append(groups[e.task.served.queue], e)
		}
	}
	var failed atomic.Bool
	var round errgroup.Group
	round.SetLimit(settleParallel)
	for name, list := range groups {
		for _, part := range parts(list) {
			settle := func() error {
				if err := s.settle(ctx, name, part); queue.IsUnavailable(err) {
					failed.Store(true)
				}
				return nil
			}
			if len(groups) == 1 && len(part) == len(list) {
				_ = settle() // here, where the stack is large by now
				continue
			}
			round.Go(settle)
		}
	}
	_ = round.Wait() // the parts report for themselves
	return failed.Load()
}

// takeWaiting takes what waits and may be tried now, or all of it.
func (s *settler) takeWaiting(all bool) []ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all || len(s.pauses) == 0 {
		waiting := s.waiting
		s.waiting = nil
		return waiting
	}
	var ripe, rest []ending
	now := time.Now()
	for _, e := range s.waiting {
		if pause := s.pauses[e.task.served.queue]; pause == nil || pause.over(now) {
			ripe = append(ripe, e)
		} else {
			rest = append(rest, e)
		}
	}
	s.waiting = rest
	return ripe
}

// parts cuts a list into what one script may settle.
func parts(list []ending) (all [][]ending) {
	for len(list) > 0 {
		n, tasks, size := 0, 0, 0
		for n < len(list) {
			more, bytes := list[n].settlement.Weight(), list[n].size()
			if n > 0 && (tasks+more > settleTasks || size+bytes > settleBytes) {
				break
			}
			n, tasks, size = n+1, tasks+more, size+bytes
		}
		all, list = append(all, list[:n]), list[n:]
	}
	return all
}

// finish settles what is left when the host ends; what cannot be settled in time stays in the
// reserved list until the end of the lease gives it to others.
func (s *settler) finish(ctx context.Context) {
	var pause backoff
	for s.flush(ctx, true) && sleep(ctx, pause.failed(time.Now())) {
	}
	for _, e := range s.takeWaiting(true) {
		s.done(e, "lost", errUnsettled)
	}
	s.giveBack(ctx)
}

// drops takes care of a task that was stopped: it has no result to settle.
func (s *settler) drops(e ending) bool {
	if e.outcome.Kind != runtime.Cancelled || errors.Is(e.outcome.Err, errCancelled) {
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

// settle writes one part, all of one queue, once. What Redis does not take waits for the next try.
func (s *settler) settle(ctx context.Context, name string, part []ending) error {
	s.session.lastLogs(ctx, part)
	settlements := make([]queue.Settlement, len(part))
	for i, e := range part {
		settlements[i] = e.settlement
	}
	errs, err := s.session.node.Settle(ctx, name, settlements, fleetQueues(part)...)
	if err != nil {
		s.putBack(ctx, name, part, err)
		return err
	}
	s.served(name)
	var rest []ending
	for i, e := range part {
		if errors.Is(errs[i], queue.ErrDamaged) {
			e.settlement = childless(e, errs[i])
			rest = append(rest, e)
			continue
		}
		s.settled(e, errs[i])
	}
	if len(rest) > 0 {
		return s.settle(ctx, name, rest)
	}
	return nil
}

// childless is what becomes of a task whose children cannot come into being: it has failed, for good, because somebody
// has to mend the queue first.
func childless(e ending, err error) queue.Settlement {
	return queue.Settlement{Claim: e.task.hold(), Failure: &queue.Failure{
		Reason: queue.ReasonError, Message: e.task.secrets.Text([]byte(err.Error())), // it names queues and IDs that the guest chose
	}}
}

// putBack makes a part wait for the next try. An error that is about the queue alone stalls it: the
// others must neither wait for it, nor may it pile up results.
func (s *settler) putBack(ctx context.Context, name string, part []ending, err error) {
	s.mu.Lock()
	s.waiting = append(s.waiting, part...)
	pause := s.pauses[name]
	if pause == nil {
		pause = new(backoff)
		s.pauses[name] = pause
	}
	left := pause.failed(time.Now())
	s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	s.session.failed(opSettle, name, err)
	if !queue.IsUnavailable(err) {
		s.session.scheduler.stall(place{s.session.tenant, name}, true)
	}
	time.AfterFunc(left, func() { poke(s.poke) })
}

// served ends the pauses of a queue.
func (s *settler) served(name string) {
	s.mu.Lock()
	failed := s.pauses[name] != nil
	delete(s.pauses, name)
	s.mu.Unlock()
	if failed {
		s.session.scheduler.stall(place{s.session.tenant, name}, false)
	}
	s.session.succeeded(opSettle, name)
}

// settled books the answer that Redis gave for one task.
func (s *settler) settled(e ending, err error) {
	outcome := "failed"
	switch {
	case errors.Is(err, queue.ErrNoLetter):
		s.session.unburied(opSettle, e.task.served.queue, err.Error())
		err = nil
	case errors.Is(err, queue.ErrCancelled): // meanwhile: it is not tried again
		e.settlement = cancelled(e)
		err = nil
	case err != nil:
		outcome = "lost"
	case e.settlement.Failure == nil:
		outcome = "complete"
	case e.settlement.Requeue == queue.RequeueRetry:
		outcome = "retried"
	case e.settlement.Requeue == queue.RequeueReschedule:
		outcome = "rescheduled"
	}
	s.done(e, outcome, err)
}

// fleetQueues are the queues whose tasks may wait for these to end, because their plugin may run only
// so many in the fleet.
func fleetQueues(part []ending) []string {
	wake := make(map[string]bool)
	for _, e := range part {
		if manifest := &e.task.version.Manifest; manifest.MaxRunning > 0 {
			for _, name := range manifest.Queues {
				wake[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(wake))
}

// done books the end of a task: metrics, log, and the scheduler's count.
func (s *settler) done(e ending, outcome string, err error) {
	t := e.task
	reason := ""
	if outcome == "failed" || outcome == "retried" {
		reason = string(e.settlement.Failure.Reason)
	}
	s.session.remove(t)
	s.session.scheduler.settled(t)
	s.metrics.logLinesDropped(t.served.place, len(t.log.take()))
	s.metrics.done(t, outcome, reason, e.took)
	logger := s.session.logger
	if outcome == "complete" && !logger.IsDebug() {
		return
	}
	fields := []any{
		"task_id", t.ID, "queue", t.served.queue, "plugin", t.version.Name, "digest", t.version.Digest, "attempt", t.Attempts + 1, "run", t.Run,
		"outcome", outcome, "took", e.took, "cpu", e.outcome.CPU, "fuel", e.outcome.Fuel,
	}
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
		logger.Info("task failed", append(fields, "reason", reason, "error", e.settlement.Failure.Message)...)
	case e.settlement.Requeue != "":
		logger.Info("task will be tried again", append(fields, "reason", reason, "in", e.settlement.Delay, "error", e.settlement.Failure.Message)...)
	default:
		logger.Debug("task settled", fields...)
	}
}

// giveBack releases the tasks that were stopped for the host's end, newest first, so that the oldest
// is at the very front of its queue in the end. All of them must have ended.
func (s *settler) giveBack(ctx context.Context) {
	s.mu.Lock()
	returned := s.returned
	s.returned = nil
	s.mu.Unlock()
	slices.SortFunc(returned, func(a, b ending) int { return cmp.Compare(b.task.number, a.task.number) })
	groups := make(map[string][]ending)
	for _, e := range returned {
		groups[e.task.served.queue] = append(groups[e.task.served.queue], e)
	}
	for name, list := range groups {
		for part := range slices.Chunk(list, settleTasks) {
			s.release(ctx, name, part)
		}
	}
}

func (s *settler) release(ctx context.Context, name string, part []ending) {
	s.session.lastLogs(ctx, part)
	holds := make([]queue.Claim, len(part))
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
		case errors.Is(errs[i], queue.ErrCancelled):
			e.settlement = cancelled(e)
			s.done(e, "failed", nil)
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
