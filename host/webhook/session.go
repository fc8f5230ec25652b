package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// leaveTimeout bounds giving back and leaving.
	leaveTimeout = 5 * time.Second
	// tallyPause is the time between two writes of a session's counts: one script for all deliveries in between.
	tallyPause = 5 * time.Second
	// reservePause is for how long a queue is left alone whose reserve failed.
	reservePause = time.Second
)

// errDrained is the cause with which deliveries end that outlast the grace period, errLost when the lease is lost, and errReplaced when
// Redis hands out their task again: after a failover to a replica that lagged, or because there is another one of its ID.
var (
	errDrained  = errors.New("the runner ends")
	errLost     = errors.New("the lease is lost")
	errReplaced = errors.New("its ID was handed out again")
	errDrain    = errors.New("somebody drains the listener")
)

// session is one life of the runner's listener, from joining to leaving or to the loss of its lease. Its loop alone takes tasks.
type session struct {
	*Runner
	node    *listen.Node
	watch   *listen.Watch
	serves  map[string]bool // queues that the listener is registered for
	ready   map[string]bool // queues that may have tasks
	doubt   map[string]bool // queues whose reserve was not answered
	failing map[string]bool // queues whose last registration or reserve was refused
	looked  time.Time       // when subscriptions were read, and audited when reserved lists
	audited time.Time
	poll    time.Time // when backlogs are to be read
	tally   listen.Tallies

	mu    sync.Mutex
	woken map[string]bool // by messages; guarded by mu
	marks bool            // a message on the control channel; guarded by mu
	wake  chan struct{}   // has a token when there is something to do; never closed
	work  sync.WaitGroup  // deliveries
}

func newSession(r *Runner) *session {
	return &session{
		Runner: r, node: listen.New(r.client), watch: listen.NewWatch(r.client), serves: make(map[string]bool), ready: make(map[string]bool),
		doubt: make(map[string]bool), failing: make(map[string]bool), woken: make(map[string]bool), wake: make(chan struct{}, 1), audited: time.Now(),
	}
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run takes tasks until ctx ends, the tenant has no webhook any more, somebody drains the listener (errDrain), or the lease is
// lost. hurry ends the wait for running deliveries.
func (s *session) run(ctx, hurry context.Context) error {
	defer s.watch.Close()
	if err := s.node.Join(ctx); err != nil {
		return err
	}
	living, end := context.WithCancelCause(context.WithoutCancel(ctx)) // outlives the intake
	var loops sync.WaitGroup
	defer s.work.Wait()
	defer loops.Wait()
	defer end(nil)
	lost := make(chan error, 1) // the loop below reads the first one
	loops.Go(func() {
		err := s.renew(living)
		for lost <- err; errors.Is(err, errDrain); err = s.renew(living) { // it goes on until the listener has left
			listen.Sleep(living, s.node.Lease()/3)
		}
	})
	loops.Go(func() {
		_ = s.watch.Control(living, s.noticed) // without it the poll reads the marks
		s.watch.Run(living, s.announced)
	})
	loops.Go(func() {
		for living.Err() == nil {
			_ = s.tally.Write(living, s.node) // the next ones show it
			listen.Sleep(living, tallyPause)
		}
	})
	s.logger.Info("delivering webhooks", "listener", s.node.ID())
	var err error
	ticker := time.NewTicker(lookInterval / 2)
	defer ticker.Stop()
	for ctx.Err() == nil && err == nil {
		if err = s.step(ctx, living); err != nil || s.idle() {
			break
		}
		select {
		case <-ctx.Done():
		case err = <-lost:
		case <-s.wake:
		case <-ticker.C:
		}
	}
	if errors.Is(err, listen.ErrLeaseLost) { // others have the tasks
		s.stopAll(errLost)
		s.work.Wait()
		return err
	}
	return errors.Join(err, s.finish(living, hurry))
}

// idle tells whether the tenant has no webhook any more, and nothing is left to do for those that it had.
func (s *session) idle() bool {
	s.Runner.mu.Lock()
	defer s.Runner.mu.Unlock()
	return len(s.hooks)+len(s.running)+len(s.serves)+len(s.doubt) == 0
}

// finish waits for deliveries for the grace period, stops the rest, and leaves.
func (s *session) finish(living, hurry context.Context) error {
	done := make(chan struct{})
	go func() { s.work.Wait(); close(done) }()
	grace := time.NewTimer(s.config.Grace)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
	case <-hurry.Done():
	}
	s.stopAll(errDrained)
	ctx, cancel := context.WithTimeout(living, leaveTimeout)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done(): // they cannot be settled
	}
	_ = s.tally.Write(ctx, s.node)
	return s.node.Leave(ctx)
}

func (s *session) stopAll(why error) {
	s.Runner.mu.Lock()
	defer s.Runner.mu.Unlock()
	for _, d := range s.running {
		d.stop(why)
	}
}

// announced notes that a queue may have tasks.
func (s *session) announced(name string) {
	s.mu.Lock()
	s.woken[name] = true
	s.mu.Unlock()
	s.poke()
}

// noticed notes that tasks may be marked.
func (s *session) noticed() {
	s.mu.Lock()
	s.marks = true
	s.mu.Unlock()
	s.poke()
}

// renew renews the lease until ctx ends; an error means that it is lost, or that somebody drains the listener.
func (s *session) renew(ctx context.Context) error {
	for ctx.Err() == nil {
		drain, err := s.node.Renew(ctx, s.about())
		switch {
		case errors.Is(err, listen.ErrLeaseLost):
			return err
		case drain:
			return errDrain
		}
		listen.Sleep(ctx, s.node.Lease()/3)
	}
	return nil
}

// about is what the listener publishes.
func (s *session) about() map[string]string {
	s.Runner.mu.Lock()
	running := len(s.running)
	s.Runner.mu.Unlock()
	queues, _ := json.Marshal(append([]string{}, s.queues()...))
	off, _ := json.Marshal(s.off())
	return map[string]string{
		"kind": listen.KindWebhook, "name": s.config.Name, "version": s.config.Version, "queues": string(queues), "destinations_off": string(off),
		"slots": strconv.Itoa(s.config.Places), "slots_in_use": strconv.Itoa(running),
	}
}

// step does what there is to do now. What fails because Redis is away is tried again with a later step; an error is that of run.
func (s *session) step(ctx, living context.Context) error {
	now := time.Now()
	s.mu.Lock()
	woken, marks := s.woken, s.marks
	s.woken, s.marks = make(map[string]bool), false
	s.mu.Unlock()
	if now.Sub(s.looked) > lookInterval {
		if s.look(ctx) == nil && s.register(ctx) == nil {
			s.looked = now
		}
	}
	for name := range woken {
		s.ready[name] = true
	}
	if now.After(s.poll) && s.readBacklogs(ctx) == nil {
		around := 0.8 + 0.4*rand.Float64() //nolint:gosec // so that hosts do not poll in step
		s.poll, marks = now.Add(time.Duration(around*float64(s.config.Poll))), true
	}
	if marks && s.readMarks(ctx) {
		return errDrain
	}
	if len(s.doubt) > 0 || now.Sub(s.audited) > s.node.Lease() {
		s.audit(ctx, living)
	}
	return s.reserve(ctx, living, now)
}

// try notes whether Redis does what it is asked for a queue, and logs the first refusal of a row.
func (s *session) try(what, name string, err error) error {
	switch {
	case err == nil:
		delete(s.failing, name)
	case !s.failing[name] && !queue.IsUnavailable(err):
		s.failing[name] = true
		s.logger.Warn("Redis refuses a queue of webhooks; retrying", "op", what, "queue", name, "error", err)
	}
	return err
}

// register makes the listener serve what it should, and leave what has no running deliveries.
func (s *session) register(ctx context.Context) error {
	wanted := s.queues()
	var coming []string
	for _, name := range wanted {
		if !s.serves[name] {
			coming = append(coming, name)
		}
	}
	for i, err := range s.node.RegisterAll(ctx, coming) {
		if s.try("register", coming[i], err) == nil {
			s.serves[coming[i]], s.ready[coming[i]] = true, true
			_ = s.watch.Add(ctx, coming[i]) // the poll finds what is not announced
		} else if queue.IsUnavailable(err) {
			return err
		}
	}
	for name := range s.serves {
		if _, is := slices.BinarySearch(wanted, name); is {
			continue
		}
		if err := s.node.Unregister(ctx, name); err != nil {
			return err
		}
		delete(s.serves, name)
		delete(s.ready, name)
		_ = s.watch.Remove(ctx, name)
	}
	return nil
}

// readBacklogs finds tasks that nobody announced.
func (s *session) readBacklogs(ctx context.Context) error {
	found, err := listen.NewFleet(s.client).Backlogs(ctx, slices.Sorted(maps.Keys(s.serves)))
	for _, one := range found.Queues {
		if one.Pending > 0 {
			s.ready[one.Queue] = true
		}
	}
	return err
}

// readMarks stops the deliveries that somebody cancelled, and tells whether somebody drains the listener.
func (s *session) readMarks(ctx context.Context) (drain bool) {
	s.Runner.mu.Lock()
	ids := slices.Collect(maps.Keys(s.running))
	s.Runner.mu.Unlock()
	cancelled, drain, _ := s.node.Marks(ctx, ids) // the next poll reads them again
	s.Runner.mu.Lock()
	defer s.Runner.mu.Unlock()
	for _, id := range cancelled {
		if d := s.running[id]; d != nil {
			d.stop(queue.ErrCancelled)
		}
	}
	return drain
}

// reserve takes tasks for the places that there are. The queue that comes first differs: destinations share places. One whose
// reserve fails is left alone for a moment. An error says that the lease is lost.
func (s *session) reserve(ctx, living context.Context, now time.Time) (lost error) {
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
		return nil
	}
	again := false
	for i, reply := range s.node.Reserve(context.WithoutCancel(ctx), requests) {
		name, count := requests[i].Queue, requests[i].Count
		switch {
		case errors.Is(reply.Err, listen.ErrLeaseLost):
			lost = reply.Err
		case s.try("reserve", name, reply.Err) != nil: // tasks may be reserved all the same
			s.doubt[name] = true
			s.hold(name, now.Add(reservePause))
		case len(reply.Tasks) < count && reply.Dropped+reply.Passed == 0:
			delete(s.ready, name)
		default:
			again = true
		}
		s.begin(living, name, reply)
		s.free(name, count-len(reply.Tasks))
	}
	if again {
		s.poke()
	}
	return lost
}

func (s *session) request(name string, places int) listen.ReserveRequest {
	return listen.ReserveRequest{Queue: name, Count: places, Start: true, Plugin: PluginName}
}

// audit takes on tasks in the reserved lists that the runner does not know, because the answer to their reserve was lost, and has
// it register again where Redis has lost the listener.
func (s *session) audit(ctx, living context.Context) {
	served := slices.Sorted(maps.Keys(s.serves))
	held, err := s.node.HeldAll(ctx, served)
	if err != nil {
		return
	}
	s.audited, s.doubt = time.Now(), make(map[string]bool)
	lost, _ := s.node.Unregistered(ctx, served) // the next audit asks again
	for _, name := range lost {
		delete(s.serves, name)
	}
	for name, ids := range held {
		s.Runner.mu.Lock()
		ids = slices.DeleteFunc(ids, func(id string) bool { return s.running[id] != nil })
		s.Runner.mu.Unlock()
		for part := range slices.Chunk(ids, listen.MaxClaims) {
			reply := s.node.Adopt(ctx, s.request(name, 0), part)
			if reply.Err != nil {
				s.doubt[name] = true
				continue
			}
			s.adopted(name, len(reply.Tasks))
			s.begin(living, name, reply)
		}
	}
}

// adopted takes places for tasks that are held already, whether there are some or not, and of their memory what there is.
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

// begin delivers the tasks of a reply.
func (s *session) begin(living context.Context, name string, reply listen.ReserveReply) {
	s.Runner.mu.Lock()
	h := s.hooks[name] // none if its subscription has gone meanwhile
	s.Runner.mu.Unlock()
	for _, task := range reply.Tasks {
		ctx, stop := context.WithCancelCause(living)
		d := &delivery{Reservation: task, queue: name, stop: stop, over: make(chan struct{}), skew: time.Until(reply.Clock)}
		wait := time.Duration(0)
		if since := task.Since(); !since.IsZero() {
			wait = reply.Clock.Sub(since)
		}
		if tracer := s.config.Tracer; tracer != nil {
			d.span, d.Headers = tracer.Begin(trace.Task{
				Tenant: s.client.Tenant(), Queue: name, ID: d.ID, Plugin: PluginName, Listener: s.node.ID(), Attempt: d.Attempts + 1,
				Size: d.Size, Headers: d.Headers, Since: time.Now().Add(-max(0, wait)),
			})
		}
		traceID := trace.SampledID(d.Headers[queue.HeaderTraceparent])
		s.Runner.mu.Lock()
		d.share = s.paidFor(name)
		former := s.running[task.ID]
		s.running[task.ID] = d
		s.destination(h.destination).name(task.ID)
		counts := s.config.Metrics.Tasks(s.client.Tenant(), s.show(name), PluginName)
		s.Runner.mu.Unlock()
		counts.Started(traceID, wait)
		s.tally.Started(listen.Tally{Queue: name}, wait)
		s.work.Go(func() {
			defer close(d.over)
			defer stop(nil)
			if former != nil {
				former.stop(errReplaced)
				<-former.over
			}
			begun := time.Now()
			settlement := s.deliver(ctx, d, h)
			d.Parameters = nil
			d.share.Shrink(placeBytes)
			d.span.Ran(reasonOf(settlement), 0, 0)
			outcome, reason := s.settle(living, ctx, d, settlement)
			d.span.Settled(outcome, reason)
			s.Runner.mu.Lock()
			if s.running[d.ID] == d {
				delete(s.running, d.ID)
			}
			s.Runner.mu.Unlock()
			d.share.Give()
			counts.Done(outcome, reason, traceID, time.Since(begun))
			s.tally.Settled(listen.Tally{Queue: name}, outcome, queue.Reason(reason))
			s.poke()
		})
	}
}

// settle writes what became of a delivery, or gives it back, again and again while Redis is away or a key is damaged: a delivery
// that is held and forgotten would be sent again. When the listener has left, other hosts take those that are unsettled.
func (s *session) settle(living, run context.Context, d *delivery, settlement listen.Settlement) (outcome, reason string) {
	back := settlement.Failure == nil && settlement.Result == nil
	told := false
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, maxJoinPause) {
		if why := context.Cause(run); errors.Is(why, errLost) || errors.Is(why, errReplaced) || living.Err() != nil {
			return "lost", ""
		}
		var errs []error
		var err error
		if back {
			errs, err = s.node.Release(living, d.queue, []listen.Claim{d.Claim()})
		} else {
			errs, err = s.node.Settle(living, d.queue, []listen.Settlement{settlement})
		}
		if err == nil {
			err = errs[0]
		}
		switch {
		case errors.Is(err, queue.ErrLost) || errors.Is(err, queue.ErrNoTask):
			return "lost", ""
		case errors.Is(err, queue.ErrCancelled): // meanwhile: it is not tried again
			return "failed", string(queue.ReasonCancelled)
		case err != nil && !errors.Is(err, queue.ErrNoLetter):
			if !told && !queue.IsUnavailable(err) {
				told = true
				s.logger.Error("a delivery cannot be settled; retrying", "queue", d.queue, "task_id", d.ID, "error", err)
			}
			if run.Err() == nil { // it may be replaced, and the next one waits for this
				listen.Sleep(run, pause)
			} else {
				listen.Sleep(living, pause)
			}
		case back:
			return "released", ""
		case settlement.Failure == nil:
			return "complete", ""
		case settlement.Requeue == listen.RequeueRetry:
			return "retried", reasonOf(settlement)
		case settlement.Requeue != "":
			return "rescheduled", reasonOf(settlement)
		default:
			return "failed", reasonOf(settlement)
		}
	}
}

// reasonOf is why a delivery failed, "" if it did not.
func reasonOf(s listen.Settlement) string {
	if s.Failure == nil {
		return ""
	}
	return string(cmp.Or(s.Failure.Reason, queue.ReasonError))
}
