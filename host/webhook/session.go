package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// leaveTimeout bounds the end of a session after the grace period: settling, giving tasks back, and leaving.
	leaveTimeout = 5 * time.Second
	// tallyPause is the time between two writes of a session's counts. One script writes the counts of all deliveries in
	// between.
	tallyPause = 5 * time.Second
	// reservePause is how long nothing is reserved from a queue after its reserve failed.
	reservePause = time.Second
)

// errDrained is why a session ends when an operator drains its listener.
var errDrained = errors.New("an operator drains the listener")

// session is one life of the runner's listener, from joining until it leaves or loses its lease. Only the session's
// loop reserves tasks.
type session struct {
	*Runner
	listener *listen.Listener
	ready    map[string]bool // queues that may have tasks
	doubt    map[string]bool // queues whose reserve was not answered: some of their tasks may be reserved
	looked   time.Time       // when the subscriptions were last read
	audited  time.Time       // when the reserved lists were last read
	polled   time.Time       // when the backlogs are to be read again
	tally    listen.Tallies
	end      context.CancelCauseFunc // ends the intake of tasks

	mu      sync.Mutex
	woken   map[string]bool // queues that messages named since the last step; guarded by mu
	refused map[call]bool   // the calls that Redis refused the last time; guarded by mu
	secrets []string        // names of the secrets that webhooks can use; nil if unknown; guarded by mu
	wake    chan struct{}   // has a token when there is something to do; never closed
	work    sync.WaitGroup  // running deliveries
}

func newSession(r *Runner) *session {
	s := &session{
		Runner: r, ready: make(map[string]bool), doubt: make(map[string]bool), refused: make(map[call]bool),
		woken: make(map[string]bool), wake: make(chan struct{}, 1), audited: time.Now(),
	}
	s.listener = listen.NewListener(r.client, s, s)
	return s
}

// Queues implements listen.User.
func (s *session) Queues() map[string]bool {
	queues := make(map[string]bool)
	for _, name := range s.queues() {
		queues[name] = true
	}
	return queues
}

// Registered implements listen.User.
func (s *session) Registered(name string, _ bool) { s.Wake(name) }

// Unregistered implements listen.User.
func (s *session) Unregistered(string) {}

// Wake implements listen.User.
func (s *session) Wake(name string) {
	s.mu.Lock()
	s.woken[name] = true
	s.mu.Unlock()
	periodic.Notify(s.wake)
}

// Drain implements listen.User.
func (s *session) Drain() { s.end(errDrained) }

// call is a kind of call to Redis. queue is "" if the call is for no single queue.
type call struct{ op, queue string }

// Failed implements periodic.Reports. It logs the first of several refusals in a row.
func (s *session) Failed(op, name string, err error) {
	s.config.Metrics.RedisError(op)
	if queue.IsUnavailable(err) {
		return
	}
	s.mu.Lock()
	first := !s.refused[call{op, name}]
	s.refused[call{op, name}] = true
	s.mu.Unlock()
	switch {
	case first && name != "":
		s.logger.Warn("Redis refuses a queue of webhooks; retrying", "op", op, "queue", name, "error", err)
	case first:
		s.logger.Warn("Redis refuses the listener of webhooks; retrying", "op", op, "error", err)
	}
}

// Succeeded implements periodic.Reports.
func (s *session) Succeeded(op, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refused, call{op, name})
}

// FailedQuietly implements periodic.Reports.
func (s *session) FailedQuietly(op string, _ error) { s.config.Metrics.RedisError(op) }

// run delivers until ctx ends, the tenant has no webhook any more, somebody drains the listener (then it returns
// errDrained), or the lease is lost. hurry ends the wait for running deliveries.
func (s *session) run(ctx, hurry context.Context) error {
	if err := s.listener.Join(ctx); err != nil {
		return err
	}
	ctx, s.end = context.WithCancelCause(ctx)
	defer s.end(nil)
	living, die := context.WithCancel(context.WithoutCancel(ctx)) // living continues when ctx, and so the intake, ends
	var loops sync.WaitGroup
	defer s.work.Wait()
	defer loops.Wait()
	defer die()
	running := make(chan struct{})
	loops.Go(func() { defer close(running); s.end(s.listener.Run(living)) })
	loops.Go(func() {
		for living.Err() == nil {
			_ = s.tally.Write(living, s.listener.Node) // counts that cannot be written are lost
			periodic.Sleep(living, tallyPause)
		}
	})
	if s.config.SecretNames != nil {
		loops.Go(func() {
			for living.Err() == nil {
				s.findSecrets(living)
				periodic.Sleep(living, lookInterval)
			}
		})
	}
	s.logger.Info("delivering webhooks", "listener", s.listener.ID())
	ticker := time.NewTicker(lookInterval / 2)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if s.step(ctx, living); s.idle() {
			break
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-ticker.C:
		}
	}
	err := context.Cause(ctx)
	if errors.Is(err, listen.ErrLeaseLost) { // other hosts get the tasks
		s.listener.Tasks.StopAll(listen.ErrLeaseLost)
		s.work.Wait()
		return err
	}
	if !errors.Is(err, errDrained) {
		err = nil
	}
	return errors.Join(err, s.finish(hurry, func() { die(); <-running }))
}

// findSecrets publishes the names of the secrets that webhooks can use, if they have changed.
func (s *session) findSecrets(ctx context.Context) {
	names, err := service.Await(ctx, func() ([]string, error) { // the folder may be on another machine
		return s.config.SecretNames(), nil
	})
	if err != nil {
		return
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, queue.WebhookSecrets) })
	s.mu.Lock()
	same := s.secrets != nil && slices.Equal(names, s.secrets)
	s.secrets = append([]string{}, names...)
	s.mu.Unlock()
	if !same {
		s.listener.Publish()
	}
}

// idle reports whether the tenant has no webhook any more, and nothing is left to do for former webhooks.
func (s *session) idle() bool {
	return len(s.queues())+s.listener.Tasks.Active()+len(s.listener.Listening())+len(s.doubt) == 0
}

// finish waits for running deliveries for the grace period or until hurry ends, and stops those that still run. Then it
// calls end, which ends the listener's loops, and leaves.
func (s *session) finish(hurry context.Context, end func()) error {
	idle := s.listener.Tasks.Close()
	s.listener.Publish()
	grace := time.NewTimer(s.config.Grace)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
	case <-hurry.Done():
	}
	s.listener.Tasks.StopAll(listen.ErrDraining)
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	select {
	case <-idle:
	case <-ctx.Done(): // the remaining deliveries cannot be settled in time
	}
	end()
	_ = s.tally.Write(ctx, s.listener.Node)
	_ = s.listener.GiveBackUnknown(ctx) // other hosts take what is not given back when the lease ends
	return s.listener.Leave(ctx)
}

// About implements listen.User.
func (s *session) About() map[string]string {
	open, _ := s.listener.Tasks.State()
	queues, _ := json.Marshal(append([]string{}, s.queues()...))
	off, _ := json.Marshal(s.off())
	s.mu.Lock()
	secrets, _ := json.Marshal(s.secrets)
	s.mu.Unlock()
	return map[string]string{
		"kind": listen.KindWebhook, "name": s.config.Name, "version": s.config.Version, "queues": string(queues),
		"destinations_off": string(off), "webhook_secrets": string(secrets),
		"draining": strconv.FormatBool(!open),
		"slots":    strconv.Itoa(s.config.Places), "slots_in_use": strconv.Itoa(s.listener.Tasks.Active()),
	}
}

// step does what is due now. If Redis is away, a later step tries again.
func (s *session) step(ctx, living context.Context) {
	now := time.Now()
	s.mu.Lock()
	maps.Copy(s.ready, s.woken)
	clear(s.woken)
	s.mu.Unlock()
	if now.Sub(s.looked) > lookInterval && s.look(ctx) == nil {
		s.looked = now
		maps.DeleteFunc(s.ready, func(name string, _ bool) bool { return !s.serves(name) })
		if !maps.Equal(s.Queues(), s.listener.Listening()) {
			s.listener.Follow()
		}
	}
	if now.After(s.polled) && s.readBacklogs(ctx) == nil {
		s.polled = now.Add(periodic.Jitter(s.config.Poll))
	}
	if len(s.doubt) > 0 || now.Sub(s.audited) > s.listener.Lease() {
		s.audit(ctx, living)
	}
	s.reserve(ctx, living, now)
}

// readBacklogs finds queues with tasks that no message announced, and adds them to ready.
func (s *session) readBacklogs(ctx context.Context) error {
	found, err := listen.NewFleet(s.client).Backlogs(ctx, slices.Sorted(maps.Keys(s.listener.Listening())))
	for _, one := range found.Queues {
		if one.Pending > 0 {
			s.ready[one.Queue] = true
		}
	}
	return err
}

// serves reports whether a queue has a webhook.
func (r *Runner) serves(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, is := r.hooks[name]
	return is
}

// reserve reserves tasks for the free places. The order of the queues is random, so that each queue is sometimes the
// first to get places. After a failed reserve, nothing is reserved from its queue for reservePause.
func (s *session) reserve(ctx, living context.Context, now time.Time) {
	var requests []listen.ReserveRequest
	for name := range s.ready {
		if places := s.take(name, now); places > 0 {
			requests = append(requests, s.request(name, places))
		}
	}
	if len(requests) == 0 || ctx.Err() != nil {
		for _, request := range requests {
			s.free(request.Queue, request.Count)
		}
		return
	}
	for i, reply := range s.listener.Reserve(context.WithoutCancel(ctx), requests) {
		name, count := requests[i].Queue, requests[i].Count
		switch {
		case errors.Is(reply.Err, listen.ErrLeaseLost):
			s.listener.Lost()
		case reply.Err != nil: // some tasks may be reserved nevertheless
			s.Failed("reserve", name, reply.Err)
			s.doubt[name] = true
			s.hold(name, now.Add(reservePause))
		case len(reply.Tasks) < count && reply.Dropped+reply.Passed == 0:
			s.Succeeded("reserve", name)
			delete(s.ready, name)
		default:
			s.Succeeded("reserve", name)
			periodic.Notify(s.wake)
		}
		s.begin(living, name, reply)
		s.free(name, count-len(reply.Tasks))
	}
}

func (s *session) request(name string, places int) listen.ReserveRequest {
	return listen.ReserveRequest{Queue: name, Count: places, Start: true, Plugin: PluginName}
}

// audit adopts the tasks in the reserved lists that the session does not know, because the answer to their reserve was
// lost.
func (s *session) audit(ctx, living context.Context) {
	unknown, err := s.listener.Unknown(ctx)
	if err != nil {
		return
	}
	s.audited, s.doubt = time.Now(), make(map[string]bool)
	for name, ids := range unknown {
		reply := s.listener.Adopt(ctx, s.request(name, 0), ids)
		if reply.Err != nil {
			s.doubt[name] = true
		}
		s.adopted(name, len(reply.Tasks))
		s.begin(living, name, reply)
	}
}

// adopted takes places for n tasks that the listener already holds, even beyond the bounds. It takes memory for as many
// of the tasks as the budget allows.
func (s *session) adopted(name string, n int) {
	s.Runner.mu.Lock()
	defer s.Runner.mu.Unlock()
	for range n {
		if share := s.config.Small.TryTake(s.client.Tenant(), placeBytes); share != nil {
			s.paid[name] = append(s.paid[name], share)
		}
	}
	s.destination(s.hooks[name].destination).open += n
	s.open += n
}

// begin starts the deliveries of the tasks in a reply.
func (s *session) begin(living context.Context, name string, reply listen.ReserveReply) {
	s.Runner.mu.Lock()
	h := s.hooks[name] // zero if the subscription was deleted meanwhile
	s.Runner.mu.Unlock()
	for _, reservation := range reply.Tasks {
		d := &delivery{Task: listen.NewTask(name, reservation, &reply, time.Now()), queue: name}
		wait, _ := d.Waited()
		if tracer := s.config.Tracer; tracer != nil {
			d.span, d.Headers = tracer.Begin(trace.Task{
				Tenant: s.client.Tenant(), Queue: name, ID: d.ID, Plugin: PluginName, Listener: s.listener.ID(),
				Attempt: d.Attempts + 1,
				Size:    d.Size, Headers: d.Headers, Since: time.Now().Add(-wait),
			})
		}
		s.Runner.mu.Lock()
		d.share = s.paidFor(name)
		s.destination(h.destination).name(d.ID)
		counts := s.config.Metrics.Tasks(s.client.Tenant(), s.show(name), PluginName)
		s.Runner.mu.Unlock()
		s.listener.Tasks.Add(&d.Task)
		s.tally.Started(listen.Tally{Queue: name}, wait)
		s.work.Go(func() { s.runOne(living, d, h, counts, wait) })
	}
}

// runOne delivers a task and settles it.
func (s *session) runOne(living context.Context, d *delivery, h hook, counts *metrics.Tasks, wait time.Duration) {
	traceID := trace.SampledID(d.Headers[queue.HeaderTraceparent])
	counts.Started(traceID, wait)
	ctx, stop := context.WithCancelCause(living)
	defer stop(nil)
	s.listener.Tasks.Begin(&d.Task, stop)
	begun := time.Now()
	settlement, released := s.deliver(ctx, d, h)
	d.took = time.Since(begun)
	d.Parameters = nil
	d.share.Shrink(placeBytes)
	d.span.Ran(string(settlement.Reason()), 0, 0)
	outcome, why := s.settle(living, ctx, d, settlement, released)
	reason := string(why)
	d.span.Settled(string(outcome), reason)
	s.listener.Tasks.Remove(&d.Task)
	s.listener.Tasks.Ran(&d.Task)
	d.share.Give()
	counts.Done(string(outcome), reason, traceID, time.Since(begun))
	if s.config.Ended != nil && outcome != listen.OutcomeReleased && outcome != listen.OutcomeLost {
		ended := Ended{d.queue, d.ID, d.code, d.took, settlement.Failure, settlement.Requeue != "", 0}
		if settlement.Requeue == listen.RequeueReschedule {
			ended.PutOffs = d.Reschedules + 1
		}
		s.config.Ended(ended)
	}
	s.tally.Settled(listen.Tally{Queue: d.queue}, outcome, why)
	periodic.Notify(s.wake)
}

// settle writes how a delivery ended or, if released is true, gives the task back. While Redis is away or a key is
// damaged, settle tries again: an unsettled delivery would be sent again. When the listener has left, other hosts take
// its unsettled deliveries.
func (s *session) settle(living, run context.Context, d *delivery, settlement listen.Settlement,
	released bool,
) (listen.Outcome, queue.Reason) {
	logged := false
	for pause := (periodic.Pause{Longest: maxJoinPause}); ; {
		if why := context.Cause(run); errors.Is(why, listen.ErrLeaseLost) || errors.Is(why, listen.ErrReplaced) ||
			living.Err() != nil {
			return listen.OutcomeLost, ""
		}
		var errs []error
		var err error
		if released {
			errs, err = s.listener.Release(living, d.queue, []listen.Claim{d.Claim()})
		} else {
			errs, err = s.listener.Settle(living, d.queue, []listen.Settlement{settlement})
		}
		if err == nil {
			err = errs[0]
		}
		switch {
		case errors.Is(err, queue.ErrLost) || errors.Is(err, queue.ErrNoTask):
			return listen.OutcomeLost, ""
		case errors.Is(err, queue.ErrCancelled): // cancelled meanwhile: the task is not tried again
			return listen.OutcomeFailed, queue.ReasonCancelled
		case err != nil && !errors.Is(err, queue.ErrNoLetter):
			if !logged && !queue.IsUnavailable(err) {
				logged = true
				s.logger.Error("a delivery cannot be settled; retrying", "queue", d.queue, "task_id", d.ID, "error", err)
			}
			if run.Err() == nil { // a newer run may replace this run, and would wait for it
				pause.Sleep(run)
			} else {
				pause.Sleep(living)
			}
		case released:
			return listen.OutcomeReleased, ""
		default:
			return settlement.Outcome(), settlement.Reason()
		}
	}
}
