package host

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/rollout"
	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// batchTasks and batchBytes bound what one script settles; roundTasks and batchBytes bound one round trip.
	batchTasks = listen.MaxWeight
	batchBytes = 4 << 20
	roundTasks = 8 * batchTasks
	// A batch waits until gatherTasks results have come, for at most gatherTime.
	gatherTasks = batchTasks / 2
	gatherTime  = 2 * time.Millisecond
)

// errUnsettled is logged for a result that could not be written before the host ended.
var errUnsettled = errors.New("result not written before the host ended: the task will run again")

// settler writes the outcomes of a session's tasks to Redis. Tasks that end during a write are settled by the next
// write. So batches are large under load, and without load a result does not wait. A failed write is tried again, queue
// by queue, until it succeeds.
type settler struct {
	access    *tenantAccess
	scheduler *schedule.Scheduler
	shipper   *shipper
	tally     *tally
	judge     *rollout.Judge
	publisher *upkeep.Publisher
	health    *health
	ahead     *atomic.Int64 // tasks of the session that are reserved ahead
	ended     func(Ended)   // Config.Ended; nil if it is not set
	retry     queue.Retry   // Config.Retry
	// poke has a token when results wait; never closed.
	poke chan struct{}

	mu      sync.Mutex // guards the fields below; only the scheduler's lock is taken while it is held
	waiting []*ended
	// gathering is true while Run waits for enough results. A single result does not wake Run then.
	gathering bool
	pauses    map[string]*periodic.Pause // the pauses of queues whose last write failed, by queue
	lost      bool                       // the lease is lost: nothing is settled any more
	// stopped has the tasks that were stopped because the tenant is drained. They are given back when all tasks have
	// ended.
	stopped []*ended
}

// put adds tasks that have ended to those that wait to be settled. If the lease is lost, it drops them.
func (s *settler) put(list ...*ended) {
	s.mu.Lock()
	if s.lost {
		s.mu.Unlock()
		for _, e := range list {
			s.done(e, listen.OutcomeLost, queue.ErrLost)
		}
		return
	}
	s.waiting = append(s.waiting, list...)
	wake := !s.gathering || s.gathered()
	s.mu.Unlock()
	if wake {
		periodic.Notify(s.poke)
	}
}

// giveUp drops the results that wait, and all later ones: other hosts have the tasks.
func (s *settler) giveUp() {
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
	for _, e := range s.due(true) {
		s.done(e, listen.OutcomeLost, queue.ErrLost)
	}
}

// Run settles until ctx ends. finish then settles the results that still wait.
func (s *settler) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.poke:
		}
		s.gather(ctx)
		s.flush(ctx, false)
	}
}

// gather waits for more results while tasks that were reserved ahead wait for a slot. These are short tasks, which end
// soon, and one large batch costs Redis less than several small ones.
func (s *settler) gather(ctx context.Context) {
	if !s.gathers(true) {
		return
	}
	defer s.gathers(false)
	enough := time.NewTimer(gatherTime)
	defer enough.Stop()
	for s.gathers(true) {
		select {
		case <-s.poke:
		case <-enough.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// gathers starts gathering or goes on with it if more is true, and stops it otherwise. It also stops it when enough
// results wait, or no more will come soon. It returns false if gathering has stopped.
func (s *settler) gathers(more bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gathering = more && !s.gathered()
	return s.gathering
}

// gathered reports whether enough results wait, or no more will come soon. The caller holds mu.
func (s *settler) gathered() bool { return len(s.waiting) >= gatherTasks || s.ahead.Load() == 0 }

// flush settles the waiting results. It leaves out those of queues whose pause is not over, unless all is true. Results
// that cannot be written wait for the next try. unavailable reports that Redis could not serve.
func (s *settler) flush(ctx context.Context, all bool) (unavailable bool) {
	var results, late []*ended
	for _, e := range s.due(all) {
		switch {
		case errors.Is(e.outcome.Err, errNoSlot):
			late = append(late, e)
		case !s.handleStopped(e):
			results = append(results, e)
		}
	}
	defer s.giveBack(ctx, late) // after the results, because it blocks while Redis is away
	var round []batch
	tasks, size := 0, 0
	for to, list := range byQueue(results) {
		for _, b := range batches(to, list) {
			if len(round) > 0 && (tasks+len(b.results) > roundTasks || size+b.bytes > batchBytes) {
				unavailable = s.write(ctx, round)
				round, tasks, size = nil, 0, 0
			}
			if unavailable { // the other batches would each wait just as long for an answer
				s.keep(b.results)
				continue
			}
			round, tasks, size = append(round, b), tasks+len(b.results), size+b.bytes
		}
	}
	return s.write(ctx, round) || unavailable
}

// keep adds results to those that wait for the next try.
func (s *settler) keep(results []*ended) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, results...)
}

// due removes and returns the waiting results that can be tried now or, if all is true, all waiting results.
func (s *settler) due(all bool) (due []*ended) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all || len(s.pauses) == 0 {
		due, s.waiting = s.waiting, nil
		return due
	}
	now := time.Now()
	var rest []*ended
	for _, e := range s.waiting {
		if pause := s.pauses[e.task.Queue.Name]; pause == nil || pause.Over(now) {
			due = append(due, e)
		} else {
			rest = append(rest, e)
		}
	}
	s.waiting = rest
	return due
}

// group is what the results of a batch have in common.
type group struct {
	queue   string
	breaker *plugins.TenantVersion // what ran them, if it has a circuit breaker, else nil
}

func byQueue(list []*ended) map[group][]*ended {
	groups := make(map[group][]*ended)
	for _, e := range list {
		to := group{queue: e.task.Queue.Name}
		if e.task.version.Manifest.Breaker.Failures > 0 {
			to.breaker = e.task.version
		}
		groups[to] = append(groups[to], e)
	}
	return groups
}

// batch is what one script settles: results of one group.
type batch struct {
	group
	results []*ended
	bytes   int
}

// batches cuts the results of a group into batches. The list must have at least one result.
func batches(to group, list []*ended) (all []batch) {
	base := to.circuitBreaker().Weight()
	begin, tasks, size := 0, base, 0
	for i, e := range list {
		more, bytes := e.settlement.Weight(), e.size()
		if i > begin && (tasks+more > batchTasks || size+bytes > batchBytes) {
			all, begin, tasks, size = append(all, batch{to, list[begin:i], size}), i, base, 0
		}
		tasks, size = tasks+more, size+bytes
	}
	return append(all, batch{to, list[begin:], size})
}

// finish settles the remaining results when the session ends. Tasks that cannot be settled in time stay in the reserved
// list; other hosts take them when the lease ends.
func (s *settler) finish(ctx context.Context) {
	var pause periodic.Pause
	for s.flush(ctx, true) && periodic.Sleep(ctx, pause.Failed(time.Now())) {
	}
	s.shipper.keepLate(ctx)
	for _, e := range s.due(true) {
		s.done(e, listen.OutcomeLost, errUnsettled)
	}
	s.mu.Lock()
	stopped := s.stopped
	s.stopped = nil
	s.mu.Unlock()
	s.giveBack(ctx, stopped)
}

// handleStopped reports whether a task was stopped. If so, it handles the task itself, because there is no result to
// settle.
func (s *settler) handleStopped(e *ended) (was bool) {
	switch err := e.outcome.Err; {
	case e.outcome.Kind != runtime.Cancelled, errors.Is(err, queue.ErrCancelled):
		return false
	case errors.Is(err, listen.ErrDraining):
		s.mu.Lock()
		s.stopped = append(s.stopped, e)
		s.mu.Unlock()
	case errors.Is(err, queue.ErrNoTask):
		s.done(e, listen.OutcomeLost, queue.ErrNoTask)
	case errors.Is(err, listen.ErrReplaced):
		s.done(e, listen.OutcomeLost, listen.ErrReplaced)
	default:
		s.done(e, listen.OutcomeLost, queue.ErrLost)
	}
	return true
}

// write settles batches in one round trip. Batches that Redis does not accept wait for the next try. unavailable
// reports that Redis could not serve.
func (s *settler) write(ctx context.Context, round []batch) (unavailable bool) {
	if len(round) == 0 {
		return false
	}
	s.shipper.shipLast(ctx, round...)
	requests := make([]listen.SettleRequest, len(round))
	for i, b := range round {
		settlements := make([]listen.Settlement, len(b.results))
		for j, e := range b.results {
			settlements[j] = e.settlement
		}
		requests[i] = listen.SettleRequest{
			Queue: b.queue, Settlements: settlements, Wake: boundedQueues(b.results), Breaker: b.circuitBreaker(),
		}
	}
	var damaged []batch
	for i, reply := range s.access.listener.SettleAll(ctx, requests) {
		b := round[i]
		if reply.Err != nil {
			s.putBack(ctx, b, reply.Err)
			unavailable = unavailable || queue.IsUnavailable(reply.Err)
			continue
		}
		s.succeeded(b.queue)
		if rest := s.answered(b.results, reply.Errs); len(rest) > 0 {
			damaged = append(damaged, batch{group: b.group, results: rest})
		}
	}
	return s.write(ctx, damaged) || unavailable
}

// answered ends the tasks for which Redis gave a final answer. It returns the tasks that must be settled as failed
// instead: their children cannot be enqueued, because a key of the children's queue is damaged, or the tenant has used
// up a quota. In the second case, they are tried again, because there may be room later.
func (s *settler) answered(results []*ended, errs []error) (rest []*ended) {
	tasks, slots := make([]*listen.Task, 0, len(results)), make([]*schedule.Slot, 0, len(results))
	for i, e := range results {
		full := errors.Is(errs[i], queue.ErrQueueFull)
		if full || errors.Is(errs[i], queue.ErrDamaged) {
			// The error names queues and IDs that the guest chose, so it can contain secrets.
			e.settlement = listen.Settlement{Claim: e.task.Claim(), Failure: &queue.Failure{
				Reason: queue.ReasonError, Message: e.task.secrets.Text([]byte(errs[i].Error())),
			}}
			if full {
				e.settlement = e.settlement.TryAgain(e.task.policy(s.retry), e.task.Attempts+1).
					NoLaterThan(e.task.expires(), e.task.Clock(time.Now()))
			}
			rest = append(rest, e)
			continue
		}
		s.written(e, errs[i])
		tasks, slots = append(tasks, &e.task.Task), append(slots, &e.task.Slot)
	}
	s.access.listener.Tasks.Remove(tasks...)
	s.scheduler.Settled(slots...)
	return rest
}

// putBack makes a batch wait for the next try. An error that concerns only its queue blocks that queue, so that its
// results do not pile up. Other queues go on.
func (s *settler) putBack(ctx context.Context, b batch, err error) {
	s.mu.Lock()
	s.waiting = append(s.waiting, b.results...)
	pause := s.pauses[b.queue]
	if pause == nil {
		pause = new(periodic.Pause)
		s.pauses[b.queue] = pause
	}
	left := pause.Failed(time.Now())
	if !queue.IsUnavailable(err) {
		s.scheduler.Block(s.access.queue(b.queue), true)
	}
	s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	s.health.Failed(opSettle, b.queue, err)
	time.AfterFunc(left, func() { periodic.Notify(s.poke) })
}

// succeeded ends the pause of a queue, and unblocks it.
func (s *settler) succeeded(name string) {
	s.mu.Lock()
	if s.pauses[name] != nil {
		delete(s.pauses, name)
		s.scheduler.Block(s.access.queue(name), false)
	}
	s.mu.Unlock()
	s.health.Succeeded(opSettle, name)
}

// written reports how a task ended, where err is Redis's answer to the settlement of the task.
func (s *settler) written(e *ended, err error) {
	outcome := e.settlement.Outcome()
	switch {
	case errors.Is(err, queue.ErrNoLetter):
		s.health.NoDeadLetter(opSettle, e.task.Queue.Name, err.Error())
		err = nil
	case errors.Is(err, queue.ErrCancelled): // cancelled while its result was on its way, so not tried again
		e.settlement = cancelled(e)
		outcome, err = listen.OutcomeFailed, nil
	case err != nil:
		outcome = listen.OutcomeLost
	case outcome == listen.OutcomeComplete:
		s.publisher.Accept(e.settlement.Publications)
	}
	if err == nil {
		s.shipper.settled(e)
	}
	s.report(e, outcome, err)
}

// circuitBreaker returns the circuit breaker of the version that ran the batch; nil if it has none.
func (g group) circuitBreaker() *listen.Breaker {
	if g.breaker == nil {
		return nil
	}
	m := &g.breaker.Manifest
	return &listen.Breaker{
		Plugin: g.breaker.Name, Digest: g.breaker.Digest, Queues: m.Queues,
		Failures: m.Breaker.Failures, Pause: m.Breaker.Pause, MaxPause: m.Breaker.MaxPause,
	}
}

// boundedQueues lists the queues whose tasks may have waited for one of the results, because their plugin bounds how
// many of its tasks run in the fleet.
func boundedQueues(results []*ended) []string {
	names := make(map[string]bool)
	for _, e := range results {
		for _, name := range e.task.bound {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// done reports how a task ended, and removes it from the listener's tasks and from the scheduler.
func (s *settler) done(e *ended, outcome listen.Outcome, err error) {
	s.report(e, outcome, err)
	s.access.listener.Tasks.Remove(&e.task.Task)
	s.scheduler.Settled(&e.task.Slot)
}

// report counts and logs how a task ended.
func (s *settler) report(e *ended, outcome listen.Outcome, err error) {
	t, m := e.task, s.health.metrics
	reason := ""
	if outcome == listen.OutcomeFailed || outcome == listen.OutcomeRetried {
		reason = string(e.settlement.Failure.Reason)
	}
	m.LogLinesDropped(t.Queue.Tenant, t.Queue.Name, len(t.log.cut()))
	t.counts.Done(string(outcome), reason, trace.SampledID(t.Headers[queue.HeaderTraceparent]), e.took)
	if t.side != "" {
		m.ReleaseTask(t.Queue.Tenant, t.version.Name, t.side, string(outcome))
	}
	s.tally.settled(t, outcome, e.settlement.Failure, len(e.settlement.Result))
	s.onTrial(e, outcome)
	t.span.Settled(string(outcome), reason)
	if errors.Is(err, queue.ErrLost) && e.outcome.Kind != runtime.HostFault && !errors.Is(e.outcome.Err, errNoSlot) {
		m.ResultRefused(t.Queue.Tenant, t.Queue.Name)
	}
	if outcome != listen.OutcomeComplete || s.access.logger.IsDebug() {
		s.log(e, outcome, reason, err)
	}
	if s.ended != nil && err == nil && outcome != listen.OutcomeReleased {
		putOff := e.settlement.Requeue == listen.RequeueReschedule
		s.ended(Ended{
			Tenant: t.Queue.Tenant, Queue: t.Queue.Name, ID: t.ID, Took: e.took, Failure: e.settlement.Failure,
			Again: e.settlement.Requeue != "", PutOff: putOff, Quiet: putOff && !WorthALine(t.Reschedules+1),
		})
	}
}

func (s *settler) log(e *ended, outcome listen.Outcome, reason string, err error) {
	t := e.task
	fields := t.logged("digest", t.version.Digest, "attempt", t.Attempts+1, "run", t.Run,
		"outcome", string(outcome), "took", e.took, "cpu", e.outcome.CPU, "fuel", e.outcome.Fuel)
	switch {
	case e.outcome.Kind == runtime.HostFault:
		text, trace, _ := strings.Cut(e.outcome.Err.Error(), "\n")
		s.access.logger.Error("task met an internal error", append(append(fields, "error", text), traceFields(trace)...)...)
	case errors.Is(err, queue.ErrLost) && errors.Is(e.outcome.Err, errNoSlot):
		s.access.logger.Debug("task reserved ahead was lost before it had a slot", fields...)
	case errors.Is(err, queue.ErrLost):
		s.access.logger.Warn("task result refused: another host holds the task", fields...)
	case errors.Is(err, queue.ErrNoTask):
		s.access.logger.Info("task was deleted while it ran", fields...)
	case errors.Is(err, listen.ErrReplaced):
		s.access.logger.Info("former run of a task has ended", fields...)
	case err != nil:
		s.access.logger.Error("task could not be settled", append(fields, "error", err)...)
	case outcome == listen.OutcomeFailed:
		level := hclog.Warn
		if reason == string(queue.ReasonCancelled) {
			level = hclog.Info // not a fault: somebody asked for it
		}
		if s.ended != nil {
			level = hclog.Debug // Config.Ended tells the same
		}
		s.access.logger.Log(level, "task failed", append(fields, failureFields(e.settlement.Failure)...)...)
	case e.away != nil && e.settlement.Requeue != "":
		level := hclog.Debug // package sql has told why
		if errors.Is(e.away, sql.ErrConnectionLost) {
			level = hclog.Warn
		}
		s.access.logger.Log(level, "task put off: its database does not serve",
			append(fields, "delay", e.settlement.Delay, "error", t.secrets.Text([]byte(e.away.Error())))...)
	case e.settlement.Requeue == listen.RequeueReschedule && !WorthALine(t.Reschedules+1):
		s.access.logger.Debug("task has put itself off", append(fields, failureFields(e.settlement.Failure)...)...)
	case e.settlement.Requeue == listen.RequeueReschedule:
		level, times := hclog.Info, t.Reschedules+1
		if s.ended != nil {
			level = hclog.Debug
		}
		fields = append(fields, "delay", e.settlement.Delay, "times", times)
		if times == manage.ManyReschedules {
			level = hclog.Warn
			fields = append(fields, "remedy", "this counts no attempt: let the handler fail if it should count")
		}
		s.access.logger.Log(level, "task has put itself off", append(fields, failureFields(e.settlement.Failure)...)...)
	case e.settlement.Requeue != "":
		level := hclog.Info
		if s.ended != nil {
			level = hclog.Debug
		}
		fields = append(fields, "delay", e.settlement.Delay)
		s.access.logger.Log(level, "task will be tried again", append(fields, failureFields(e.settlement.Failure)...)...)
	default:
		s.access.logger.Debug("task settled", fields...)
	}
}

// WorthALine reports whether the nth put-off of a task is worth a line, in the log or elsewhere: each of the first
// three is, and then the 10th, the 100th and so on.
func WorthALine(n int) bool {
	for n > 3 && n%10 == 0 {
		n /= 10
	}
	return n <= 3 && n > 0
}

// failureFields returns the log fields that describe a failure.
func failureFields(f *queue.Failure) []any {
	_, trace, _ := strings.Cut(f.Message, "\n")
	return append([]any{"reason", string(f.Reason), "error", f.Headline()},
		traceFields(cmp.Or(trace, strings.Join(f.Backtrace, "\n")))...)
}

// traceFields returns a trace as one field in one line, so that a search for the task's ID finds all of it.
func traceFields(trace string) []any {
	if trace = strings.TrimSpace(trace); trace == "" {
		return nil
	}
	return []any{"trace", hclog.Quote(trace)}
}

// giveBack releases tasks that did not run, or were stopped because the host ends. It begins with the newest task, so
// that the oldest task ends up at the very front of its queue.
func (s *settler) giveBack(ctx context.Context, list []*ended) {
	slices.SortFunc(list, func(a, b *ended) int { return cmp.Compare(b.task.Number(), a.task.Number()) })
	for to, list := range byQueue(list) {
		s.release(ctx, to, list)
	}
}

func (s *settler) release(ctx context.Context, from group, results []*ended) {
	name := from.queue
	s.shipper.shipLast(ctx, batch{group: from, results: results})
	claims := make([]listen.Claim, len(results))
	for i, e := range results {
		claims[i] = e.task.Claim()
	}
	var errs []error
	err := listen.Persist(ctx, func(context.Context) error {
		more, err := s.access.listener.Release(ctx, name, claims[len(errs):])
		errs = append(errs, more...)
		return err
	})
	for i, e := range results {
		switch {
		case i >= len(errs):
			s.done(e, listen.OutcomeLost, err)
		case errors.Is(errs[i], queue.ErrCancelled):
			e.settlement = cancelled(e)
			s.done(e, listen.OutcomeFailed, nil)
		case errs[i] != nil:
			s.done(e, listen.OutcomeLost, errs[i])
		default:
			s.done(e, listen.OutcomeReleased, nil)
		}
	}
	if err == nil {
		s.scheduler.Announced(s.access.queue(name)) // a message may not come: Pub/Sub can be forbidden
	}
}
