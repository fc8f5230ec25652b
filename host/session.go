package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// leaveTimeout bounds giving back and leaving when a session ends while Redis is away, and hurriedTimeout the same after a
	// second SIGTERM.
	leaveTimeout   = 5 * time.Second
	hurriedTimeout = time.Second
)

// session is one life of a host in a tenant: a listener ID from joining to leaving, or to the loss of its lease. It builds
// the parts that work for it, none of which knows the session, and leads them.
type session struct {
	access    *tenantAccess
	tasks     *taskSet
	health    *health
	lease     *leaseKeeper
	intake    *intake
	settler   *settler
	registrar *registrar
	poller    *poller
	recovery  *recovery
	housework *housekeeper
	shipper   *shipper
	canceller *canceller
	watch     *queue.Subscription
	config    *Config
	joined    atomic.Bool // known to Redis: it must leave
}

// common is what the sessions of all tenants share.
type common struct {
	config    Config
	catalog   *catalog
	scheduler *scheduler
	workers   *workers
	metrics   *metrics.Metrics
	services  *guest.Services
}

// newSession makes a session that drain ends, which closes draining; about is what the host publishes.
func newSession(client *queue.Client, c *common, draining <-chan struct{}, drain func(), about func() map[string]string) *session {
	tenant, logger := client.Tenant(), c.config.Logger.With("tenant", client.Tenant())
	s := &session{
		access: &tenantAccess{
			client: client, node: client.Node(), logger: logger,
			queues: &knownQueues{most: c.config.MaxQueues, names: make(map[string]bool)},
		},
		tasks: newTaskSet(), health: newHealth(c.metrics, logger, c.scheduler.again), watch: client.Subscribe(), config: &c.config,
	}
	expiry := func(name string) (time.Duration, string) { return c.catalog.expiry(tenant, name) }
	maxAge := func(name string) time.Duration { age, _ := expiry(name); return age }
	s.lease = newLeaseKeeper(s.access.node, client.Lease(), s.health, about, drain)
	s.shipper = newShipper(s.health, s.access.node, s.tasks)
	s.settler = &settler{
		tenant: tenant, node: s.access.node, tasks: s.tasks, scheduler: c.scheduler, shipper: s.shipper, health: s.health, logger: logger,
		poke: make(chan struct{}, 1), pauses: make(map[string]*backoff),
	}
	runner := &runner{
		tasks: s.tasks, access: s.access, metrics: c.metrics, logger: logger, retry: c.config.Retry, services: c.services,
		draining: draining, ran: c.scheduler.ended, settle: s.settler.put,
	}
	s.recovery = &recovery{access: s.access, steadiness: &s.lease.steadiness, maxCrashes: c.config.MaxCrashes}
	mover := &mover{
		access: s.access, expiry: expiry, moves: make(map[string]moves),
	}
	s.poller = &poller{
		access: s.access, scheduler: c.scheduler, mover: mover, interval: c.config.Poll, leaseEnds: s.recovery.leaseEnds,
		expires: func(name string) bool { return maxAge(name) > 0 },
	}
	mover.next = s.poller.pollAt
	s.intake = &intake{
		access: s.access, tasks: s.tasks, scheduler: c.scheduler, health: s.health, maxAge: maxAge,
		run:   func(ctx context.Context, t *task) { c.workers.begin(func() { runner.run(ctx, t) }) },
		begun: s.shipper.begun, next: s.poller.pollAt, lost: s.lease.lost, quarantined: make(map[string]string),
	}
	s.registrar = &registrar{
		access: s.access, desired: func() map[string]bool { return c.catalog.queues(tenant) }, watch: s.watch, scheduler: c.scheduler,
		source: s.intake, calls: s.health, publish: s.lease.publish,
		listens: make(map[string]bool), refused: make(map[string]bool),
	}
	mover.wake, s.poller.listening = s.intake.wake, s.registrar.listening
	s.registrar.changed.Store(true)
	s.canceller = &canceller{access: s.access, tasks: s.tasks, watch: s.watch, drain: drain}
	s.housework = &housekeeper{access: s.access, purge: queue.PurgeOptions{
		OlderThan: max(0, c.config.Keep), Keep: max(0, c.config.KeepTasks), Foreign: c.config.PurgeForeign,
	}}
	mover.work, mover.health, mover.op = mover.runOnce, s.health, opDue
	s.poller.work, s.poller.health, s.poller.op = s.poller.runOnce, s.health, opPoll
	s.recovery.work, s.recovery.health, s.recovery.op = s.recovery.runOnce, s.health, opReclaim
	s.canceller.work, s.canceller.health, s.canceller.op = s.canceller.runOnce, s.health, opControl
	s.housework.work, s.housework.health, s.housework.op = s.housework.runOnce, s.health, opPurge
	s.registrar.work = s.registrar.runOnce
	return s
}

// Run leads the session until ctx ends (then it returns nil, and the tenant calls leave), or until its lease is lost or Redis
// cannot be used at all. reached is called when Redis is away, or lets the session join.
func (s *session) Run(ctx context.Context, reached func()) error {
	defer s.watch.Close()
	if err := s.join(ctx, reached); err != nil {
		return err
	}
	s.access.logger.Info("joined", "listener", s.access.node.ID())
	err := s.work(ctx)
	if errors.Is(err, queue.ErrLeaseLost) {
		s.abandon()
	}
	return err
}

// work runs the parts until ctx ends, or the lease is lost.
func (s *session) work(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { s.settler.Run(ctx) })
	loops.Go(func() { s.watch.Run(ctx, s.intake.wake) })
	defer loops.Wait()
	lease := s.access.client.Lease()
	auditor := &duty{work: func(ctx context.Context) (pause, wait time.Duration, err error) {
		s.intake.audit(ctx, s.registrar.ever())
		return lease, lease, nil
	}}
	defer auditor.start(ctx, lease)()
	defer s.poller.start(ctx, 0)()
	defer s.poller.mover.start(ctx, untilAsked)()
	defer s.recovery.start(ctx, 0)()
	defer s.registrar.start(ctx, 0)()
	defer s.canceller.start(ctx, 0)()
	defer s.housework.start(ctx, s.housework.someTime())()
	defer s.shipper.start(ctx, untilAsked)()
	defer end()
	return s.lease.Run(ctx)
}

// join loads the scripts and makes the listener known, as soon as Redis is there.
func (s *session) join(ctx context.Context, reached func()) error {
	return persist(ctx, func() error {
		err := s.access.client.Prepare(ctx)
		if err == nil {
			err = s.recovery.begin(ctx)
		}
		if err == nil {
			err = s.access.node.Join(ctx)
		}
		switch {
		case err == nil:
			s.joined.Store(true)
			reached()
			s.health.succeeded(opJoin, "")
		case ctx.Err() == nil && queue.IsUnavailable(err):
			reached()
			s.health.failed(opJoin, "", err)
		case ctx.Err() == nil:
			s.health.failedQuietly(opJoin, err) // the tenant reports it
		}
		return err
	})
}

// abandon ends a session whose lease is lost: other hosts have all its tasks.
func (s *session) abandon() {
	s.access.logger.Error("lease lost: giving up all tasks and joining again", "listener", s.access.node.ID(), "tasks", len(s.tasks.ids()))
	s.intake.scheduler.abandon(s.intake)
	s.tasks.stopAll(errLeaseLost)
	s.settler.giveUp()
}

// finish takes nothing more, lets what runs go on for the grace period at most, and stops the rest.
func (s *session) finish(living, hurry context.Context) {
	idle, logger := s.tasks.close(), s.access.logger
	s.intake.scheduler.again() // nobody waits for its memory any more
	s.lease.publish()
	logger.Info("draining: taking no more tasks", "running", s.tasks.running(), "grace", s.config.Grace)
	grace := time.NewTimer(s.config.Grace)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
		logger.Warn("grace period over: requeueing running tasks", "running", s.tasks.running())
	case <-hurry.Done():
		logger.Warn("second SIGTERM: requeueing running tasks", "running", s.tasks.running())
	case <-living.Done(): // something failed for good
	}
	s.tasks.stopAll(errDrained)
	<-idle
}

// leave settles and gives back what is left when all tasks have ended, and takes the listener out of Redis. What cannot be
// given back in time stays in its reserved lists until the lease ends. The scheduler forgets the session's queues.
func (s *session) leave(hurry context.Context) error {
	defer s.intake.scheduler.abandon(s.intake)
	limit := leaveTimeout
	if hurry.Err() != nil {
		limit = hurriedTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer context.AfterFunc(hurry, func() { time.AfterFunc(hurriedTimeout, cancel) })()
	s.settler.finish(ctx)
	if !s.joined.Load() {
		return nil
	}
	s.intake.sweep(ctx, s.registrar.ever())
	if err := persist(ctx, func() error { return s.access.node.Leave(ctx) }); err != nil {
		return fmt.Errorf("leave tenant %s: %w", s.access.client.Tenant(), err)
	}
	s.access.logger.Info("left", "listener", s.access.node.ID())
	return nil
}

// reachable tells whether the session has joined and Redis served its last calls.
func (s *session) reachable() bool { return s.joined.Load() && s.health.healthy() }
