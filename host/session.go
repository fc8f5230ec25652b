package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	// logInterval is how often running tasks' log lines are sent; they are at most a second behind.
	logInterval = 500 * time.Millisecond
	// leaveTimeout bounds giving back and leaving when the host ends while Redis is away, and
	// hurriedTimeout the same when it was told twice.
	leaveTimeout   = 5 * time.Second
	hurriedTimeout = time.Second
)

// session is one life of a host in a tenant: a listener ID from joining to leaving, or to the loss
// of its lease.
type session struct {
	tenant    string
	client    *queue.Client
	node      *queue.Node
	scheduler *scheduler
	metrics   observer
	logger    hclog.Logger
	settler   *settler
	due       *due
	watch     *queue.Watch
	lease     time.Duration
	poll      time.Duration
	about     func() map[string]string

	mu      sync.Mutex
	tasks   map[string]*task // by ID: what runs or is not settled
	taken   uint64           // tasks taken so far
	ending  error            // why tasks are stopped; nil while they may run
	away    bool             // Redis did not serve the last call
	pause   time.Duration    // how long reserving stops after the next failure
	resumes time.Time        // when reserving may go on
	joined  bool             // known to Redis: it must leave

	// desired are the queues to serve, registered those that it does; both guarded by mu.
	desired    map[string]bool
	registered map[string]bool
	// changed has a token when desired was set; never closed.
	changed chan struct{}
}

func newSession(tenant string, client *queue.Client, h *Host) *session {
	s := &session{
		tenant: tenant, client: client, node: client.Node(), scheduler: h.scheduler, metrics: h.metrics,
		logger: h.config.Logger.With("tenant", tenant), watch: client.Watch(),
		lease: client.Lease(), poll: h.config.Poll, about: func() map[string]string { return h.about(tenant) },
		tasks: make(map[string]*task), desired: make(map[string]bool), registered: make(map[string]bool),
		changed: make(chan struct{}, 1),
	}
	s.settler = &settler{session: s, metrics: h.metrics, poke: make(chan struct{}, 1)}
	s.due = newDue(s)
	return s
}

// Run leads the session until ctx ends (then it returns nil; the host then calls leave), or until
// its lease is lost or Redis cannot be used at all.
func (s *session) Run(ctx context.Context) error {
	defer s.watch.Close()
	if err := s.join(ctx); err != nil {
		return err
	}
	s.logger.Info("joined", "listener", s.node.ID())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.heartbeat(ctx) })
	group.Go(func() error { s.settler.Run(ctx); return nil })
	group.Go(func() error { s.due.Run(ctx); return nil })
	group.Go(func() error { s.register(ctx); return nil })
	group.Go(func() error { s.shipLogs(ctx); return nil })
	group.Go(func() error {
		s.watch.Run(ctx, func(name string) { s.scheduler.wake(place{s.tenant, name}) })
		return nil
	})
	err := group.Wait()
	if errors.Is(err, queue.ErrLeaseLost) {
		s.abandon()
	}
	return err
}

// join loads the scripts and makes the node known, as soon as Redis is there.
func (s *session) join(ctx context.Context) error {
	return persist(ctx, func() error {
		err := s.client.Prepare(ctx)
		if err == nil {
			err = s.node.Join(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.failed("join", err)
			return err
		}
		s.succeeded()
		s.mu.Lock()
		s.joined = err == nil
		s.mu.Unlock()
		return err
	})
}

// heartbeat renews the lease every third of it. While Redis is away that fails, but nobody else can
// take the lease then either. Once a lease length it compares reserved lists with what runs.
func (s *session) heartbeat(ctx context.Context) error {
	ticker := time.NewTicker(s.lease / 3)
	defer ticker.Stop()
	for beat := 1; ; beat++ {
		err := s.node.Renew(ctx, s.about())
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, queue.ErrLeaseLost):
			return err
		case err != nil:
			s.failed("renew", err)
		default:
			s.succeeded()
		}
		if beat%3 == 0 {
			s.audit(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// audit makes a queue suspect whose reserved list has a task that the host does not know. A reserve
// may be on its way: the intake, which knows, looks again before it takes anything on.
func (s *session) audit(ctx context.Context) {
	for _, name := range s.scheduler.takeTouched(s) {
		ids, err := s.node.Held(ctx, name)
		if err != nil {
			return
		}
		for _, id := range ids {
			if !s.knows(id) {
				s.scheduler.suspect(place{s.tenant, name})
				break
			}
		}
	}
}

// serve says which queues the session is to listen to.
func (s *session) serve(queues map[string]bool) {
	s.mu.Lock()
	s.desired = queues
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// register follows desired: it registers and leaves queues, again and again while Redis is away.
func (s *session) register(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		_ = persist(ctx, func() error {
			err := s.registerOnce(ctx)
			if err != nil && ctx.Err() == nil {
				s.failed("register", err)
			}
			return err
		})
	}
}

func (s *session) registerOnce(ctx context.Context) error {
	s.mu.Lock()
	desired, registered := maps.Clone(s.desired), maps.Clone(s.registered)
	s.mu.Unlock()
	for name := range registered {
		if desired[name] {
			continue
		}
		s.scheduler.leave(place{s.tenant, name})
		_ = s.watch.Remove(ctx, name) // without it, messages of a queue that is not served are passed over
		if err := s.node.Unregister(ctx, name); err != nil {
			return err
		}
		s.mark(name, false)
		s.logger.Info("left queue", "queue", name)
	}
	for name := range desired {
		if registered[name] {
			continue
		}
		if err := s.node.Register(ctx, name); err != nil {
			return err
		}
		s.mark(name, true)
		s.scheduler.serve(place{s.tenant, name}, s)
		if err := s.watch.Add(ctx, name); err != nil {
			// The poll finds what is not announced; the subscription comes back by itself.
			s.failed("subscribe", err)
		}
		s.logger.Info("serving queue", "queue", name)
	}
	return nil
}

func (s *session) mark(queue string, registered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if registered {
		s.registered[queue] = true
	} else {
		delete(s.registered, queue)
	}
}

// shipLogs sends what running tasks write, in batches.
func (s *session) shipLogs(ctx context.Context) {
	ticker := time.NewTicker(logInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var batches []queue.LogBatch
		s.mu.Lock()
		for _, t := range s.tasks {
			if lines := t.log.take(); len(lines) > 0 {
				batches = append(batches, queue.LogBatch{Hold: t.hold(), Lines: lines})
			}
		}
		s.mu.Unlock()
		s.appendLogs(ctx, batches)
	}
}

func (s *session) appendLogs(ctx context.Context, batches []queue.LogBatch) {
	if len(batches) == 0 {
		return
	}
	for _, err := range s.node.AppendLogs(ctx, batches) {
		if err != nil && !errors.Is(err, queue.ErrLost) && !errors.Is(err, queue.ErrNoTask) && ctx.Err() == nil {
			s.failed("log", err)
			return
		}
	}
}

// parameters fetches what was too large to come with the reserve.
func (s *session) parameters(ctx context.Context, id string) (value []byte, err error) {
	err = persist(ctx, func() error {
		value, err = s.client.Parameters(ctx, id)
		return err
	})
	return value, err
}

// add makes a task known, in the order in which tasks are taken.
func (s *session) add(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken++
	t.number = s.taken
	s.tasks[t.ID] = t
}

// begin lets a known task be stopped.
func (s *session) begin(t *task, stop context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.stop = stop
	if s.ending != nil {
		stop(s.ending)
	}
}

func (s *session) remove(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[t.ID] == t {
		delete(s.tasks, t.ID)
	}
}

func (s *session) knows(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.tasks[id]
	return ok
}

// stopTasks ends what runs, and what begins later.
func (s *session) stopTasks(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = cause
	for _, t := range s.tasks {
		if t.stop != nil {
			t.stop(cause)
		}
	}
}

// abandon ends a session whose lease is lost: everything that it held belongs to others.
func (s *session) abandon() {
	s.mu.Lock()
	registered := maps.Clone(s.registered)
	held := len(s.tasks)
	s.mu.Unlock()
	s.logger.Error("lease lost: giving up all tasks and starting anew", "listener", s.node.ID(), "tasks", held)
	for name := range registered {
		s.scheduler.leave(place{s.tenant, name})
	}
	s.stopTasks(errLeaseLost)
	s.settler.giveUp()
}

// leave settles and gives back what is left when all tasks have ended, and takes the node out of
// Redis. What cannot be given back stays in its reserved lists until the lease ends.
func (s *session) leave(ctx context.Context) error {
	s.settler.finish(ctx)
	s.mu.Lock()
	joined := s.joined
	s.mu.Unlock()
	if !joined {
		return nil
	}
	err := persist(ctx, func() error { return s.node.Leave(ctx) })
	if err != nil {
		return fmt.Errorf("leave tenant %s: %w", s.tenant, err)
	}
	s.logger.Info("left", "listener", s.node.ID())
	return nil
}

// available tells whether reserving may be tried.
func (s *session) available(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending == nil && !now.Before(s.resumes)
}

// failed books a call that Redis did not serve: the first of a row is logged, each is counted, and
// reserving pauses, for longer each time.
func (s *session) failed(op string, err error) {
	s.metrics.redisError(op)
	s.mu.Lock()
	first := !s.away
	s.away = true
	s.pause = min(max(2*s.pause, minBackoff), maxBackoff)
	s.resumes = time.Now().Add(s.pause)
	pause := s.pause
	s.mu.Unlock()
	time.AfterFunc(pause, s.scheduler.wakeIntake)
	if first {
		s.logger.Warn("redis does not serve: reserving stops until it does", "op", op, "error", err)
	} else {
		s.logger.Debug("redis still does not serve", "op", op, "error", err)
	}
}

func (s *session) succeeded() {
	s.mu.Lock()
	back := s.away
	s.away, s.pause, s.resumes = false, 0, time.Time{}
	s.mu.Unlock()
	if back {
		s.logger.Info("redis serves again")
		s.scheduler.wakeIntake()
	}
}

// reachable tells whether Redis served the last call.
func (s *session) reachable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined && !s.away
}
