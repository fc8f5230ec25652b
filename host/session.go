package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	// leaveTimeout bounds giving back and leaving when a session is to end while Redis is away, and
	// hurriedTimeout the same when it was told twice.
	leaveTimeout   = 5 * time.Second
	hurriedTimeout = time.Second
)

// session is one life of a host in a tenant: a listener ID from joining to leaving, or to the loss
// of its lease.
type session struct {
	*health
	host      *Host
	tenant    string
	client    *queue.Client
	node      *queue.Node
	scheduler *scheduler
	metrics   observer
	logger    hclog.Logger
	settler   *settler
	due       *due
	recovery  *recovery
	steady    *steadiness
	watch     *queue.Subscription
	lease     time.Duration
	underway  underway

	// changed has a token when other queues may have to be served, told when the host has something new
	// to say of itself, marked when there may be a task to cancel, and lost when Redis did not know the
	// listener any more; never closed.
	changed, told, marked, lost chan struct{}

	mu     sync.Mutex
	tasks  map[string]*task // by ID: what runs or is not settled
	taken  uint64           // tasks taken so far
	ending error            // why tasks are stopped; nil while they may run
	joined bool             // known to Redis: it must leave
	// registered are the queues that the session listens to; false for one that it has left.
	registered map[string]bool
	refused    map[string]bool // queues that Redis did not let it listen to
	// known are the tenant's queues: those of the last look at Redis, and what its tasks have enqueued to since.
	known map[string]bool
	// quarantined are the queues whose plugin's version, which is named, was quarantined when they were last reserved from.
	quarantined map[string]string
}

func newSession(tenant string, client *queue.Client, h *Host) *session {
	logger := h.config.Logger.With("tenant", tenant)
	s := &session{
		health: newHealth(h.metrics, logger, h.scheduler.wakeIntake),
		host:   h, tenant: tenant, client: client, node: client.Node(), scheduler: h.scheduler, metrics: h.metrics,
		logger: logger, watch: client.Subscribe(), lease: client.Lease(),
		steady:  &steadiness{lease: client.Lease()},
		changed: make(chan struct{}, 1), told: make(chan struct{}, 1), marked: make(chan struct{}, 1), lost: make(chan struct{}, 1),
		tasks: make(map[string]*task), registered: make(map[string]bool), refused: make(map[string]bool),
		known:       make(map[string]bool),
		quarantined: make(map[string]string),
	}
	s.settler = newSettler(s)
	s.due, s.recovery = newDue(s), newRecovery(s)
	s.follow()
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
	group.Go(func() error { s.audits(ctx); return nil })
	group.Go(func() error { s.settler.Run(ctx); return nil })
	group.Go(func() error { s.due.Run(ctx); return nil })
	group.Go(func() error { s.recovery.Run(ctx); return nil })
	group.Go(func() error { s.control(ctx); return nil })
	group.Go(func() error { s.keepHouse(ctx); return nil })
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
			err = s.recovery.begin(ctx)
		}
		if err == nil {
			err = s.node.Join(ctx)
		}
		switch {
		case err == nil:
			s.mu.Lock()
			s.joined = true
			s.mu.Unlock()
			s.owner().forgetRefusal()
			s.succeeded(opJoin, "")
		case ctx.Err() == nil && queue.IsUnavailable(err):
			s.owner().forgetRefusal()
			s.failed(opJoin, "", err)
		case ctx.Err() == nil:
			s.passed(opJoin, err) // whoever leads the session tells
		}
		return err
	})
}

// owner is the tenant that leads the session.
func (s *session) owner() *tenant { return s.host.tenants[s.tenant] }

// audit makes the queues suspect whose reserved lists have a task that the host does not know, also of those that it has
// left. A reserve may be on its way: the intake, which knows, looks again before it takes anything on.
func (s *session) audit(ctx context.Context) {
	s.mu.Lock()
	names := slices.Collect(maps.Keys(s.registered))
	s.mu.Unlock()
	held, err := s.node.HeldAll(ctx, names)
	if err != nil {
		return // the heartbeat tells, and the next audit looks again
	}
	for name, ids := range held {
		if !s.knowsAll(ids) {
			s.scheduler.suspect(place{s.tenant, name}, s)
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

// checkpoint fetches what an earlier run of a task kept; nil if nothing.
func (s *session) checkpoint(ctx context.Context, id string) (value []byte, err error) {
	err = persist(ctx, func() error {
		value, err = s.client.Checkpoint(ctx, id)
		return err
	})
	return value, err
}

// add makes a task known, in the order in which tasks are taken.
func (s *session) add(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underway.add()
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

func (s *session) knowsAll(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !s.knows(id) })
}

// know notes which queues the tenant has.
func (s *session) know(queues map[string]int64) {
	known := make(map[string]bool, len(queues))
	for name := range queues {
		known[name] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = known
}

// claimQueue tells whether a task may be enqueued to a queue: to one that the tenant has, or to a new one while it has few
// enough, which counts from then on.
func (s *session) claimQueue(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known[name] && len(s.known) >= s.host.config.MaxQueues {
		return false
	}
	s.known[name] = true
	return true
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
	held := len(s.tasks)
	s.mu.Unlock()
	s.logger.Error("lease lost: giving up all tasks and starting anew", "listener", s.node.ID(), "tasks", held)
	s.scheduler.abandon(s)
	s.stopTasks(errLeaseLost)
	s.settler.giveUp()
}

// finish takes nothing more, lets what runs go on for the grace period at most, and stops the rest.
func (s *session) finish(living, hurry context.Context) {
	ended := s.underway.close()
	s.scheduler.wakeIntake() // nobody waits for its memory any more
	s.tell()
	s.logger.Info("draining: taking no more tasks", "running", s.underway.size(), "grace", s.host.config.Grace)
	grace := time.NewTimer(s.host.config.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		s.logger.Warn("grace period over: giving tasks back", "running", s.underway.size())
	case <-hurry.Done():
		s.logger.Warn("second SIGTERM: requeueing running tasks", "running", s.underway.size())
	case <-living.Done(): // something failed for good
	}
	s.stopTasks(errDrained)
	<-ended
}

// leaveWithin is leave, bounded in time. The scheduler forgets the session's queues.
func (s *session) leaveWithin(hurry context.Context) error {
	defer s.scheduler.abandon(s)
	limit := leaveTimeout
	if hurry.Err() != nil {
		limit = hurriedTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	stop := context.AfterFunc(hurry, func() { time.AfterFunc(hurriedTimeout, cancel) })
	defer stop()
	return s.leave(ctx)
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
	s.sweep(ctx)
	if err := persist(ctx, func() error { return s.node.Leave(ctx) }); err != nil {
		return fmt.Errorf("leave tenant %s: %w", s.tenant, err)
	}
	s.logger.Info("left", "listener", s.node.ID())
	return nil
}

// sweep gives back the tasks of which the host does not know, because the answer to their reserve did
// not come.
func (s *session) sweep(ctx context.Context) {
	s.mu.Lock()
	names := slices.Collect(maps.Keys(s.registered))
	s.mu.Unlock()
	var held map[string][]string
	err := persist(ctx, func() (err error) {
		held, err = s.node.HeldAll(ctx, names)
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.logger.Error("queues were not looked through for unknown tasks", "error", err)
	}
	for name, ids := range held {
		ids = slices.DeleteFunc(ids, s.knows)
		err := persist(ctx, func() error { return s.giveBack(ctx, name, ids) })
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.logger.Error("unknown tasks of a queue were not given back", "queue", name, "error", err)
		}
	}
}

// unknown are the tasks in the reserved list of a queue that the host does not know, newest first.
func (s *session) unknown(ctx context.Context, name string) ([]string, error) {
	ids, err := s.node.Held(ctx, name)
	return slices.DeleteFunc(ids, s.knows), err
}

// giveBack releases tasks that the host does not know; the newest come first.
func (s *session) giveBack(ctx context.Context, name string, ids []string) error {
	for part := range slices.Chunk(ids, settleTasks) {
		batch := s.node.Adopt(ctx, queue.ReserveRequest{Queue: name}, part)
		if batch.Err != nil {
			return batch.Err
		}
		holds := make([]queue.Claim, len(batch.Tasks))
		for i, reservation := range batch.Tasks {
			holds[i] = reservation.Claim()
		}
		if len(holds) == 0 {
			continue
		}
		if _, err := s.node.Release(ctx, name, holds); err != nil {
			return err
		}
	}
	return nil
}

// quarantine notes whether the version that was to run a queue's tasks is quarantined, and logs when that changes.
func (s *session) quarantine(want *queue.ReserveRequest, is bool) {
	s.mu.Lock()
	before := s.quarantined[want.Queue]
	delete(s.quarantined, want.Queue)
	if is {
		s.quarantined[want.Queue] = want.Digest
	}
	s.mu.Unlock()
	switch {
	case is && before != want.Digest:
		s.logger.Error("plugin is quarantined: tasks of this version ended several hosts, the others wait; replace it, or see `quern plugin release`",
			"queue", want.Queue, "plugin", want.Plugin, "digest", want.Digest)
	case !is && before != "":
		s.logger.Info("plugin is not quarantined any more", "queue", want.Queue, "plugin", want.Plugin, "digest", want.Digest)
	}
}

// yieldDuty gives a duty back, also when ctx has ended: else nobody has it until its term is over.
func (s *session) yieldDuty(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hurriedTimeout)
	defer cancel()
	return s.node.YieldDuty(ctx, name)
}

// reachable tells whether the session stands and Redis served its last calls.
func (s *session) reachable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joined && s.healthy()
}

// available tells whether the session's queues may be reserved from.
func (s *session) available(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending == nil && s.underway.open() && s.mayReserve(now)
}

// poke leaves a token in a channel that holds one.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
