package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"

	"github.com/quern-project/quern/host/account"
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
	*common
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
	tally     *tally
	publisher *publisher
	canceller *canceller
	advancer  *advancer
	ticker    *ticker
	declarer  *declarer
	watch     *listen.Watch
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
	calls     *account.Budget // of what calls of handlers send
	results   *account.Budget // of what they read, and keep until the end of their task
}

// newSession makes a session that drain ends, which closes draining; about is what the host publishes.
func newSession(client *queue.Client, c *common, draining <-chan struct{}, drain func(), about func() map[string]string) *session {
	tenant, logger := client.Tenant(), c.config.Logger.With("tenant", client.Tenant())
	access := &tenantAccess{
		client: client, node: listen.New(client), logger: logger, calls: c.calls, results: c.results,
		queues: &knownQueues{most: c.catalog.maxQueues(tenant), names: make(map[string]int64)},
	}
	tasks, health := &taskSet{tasks: make(map[string]*task)}, newHealth(c.metrics, logger, c.scheduler.again)
	expiry := func(name string) (time.Duration, string) { return c.catalog.expiry(tenant, name) }
	s := &session{common: c, access: access, tasks: tasks, health: health, watch: listen.NewWatch(client)}
	s.lease = &leaseKeeper{
		steadiness: steadiness{lease: access.node.Lease()}, node: access.node, health: health, about: about, drain: drain,
		late: func() { c.metrics.LeaseRenewedLate(tenant) },
		news: make(chan struct{}, 1), missing: make(chan struct{}, 1), asked: make(chan chan struct{}),
	}
	s.shipper = &shipper{duty: duty{health: health}, node: access.node, tasks: tasks}
	s.tally = &tally{duty: duty{health: health}, node: access.node}
	s.publisher = &publisher{duty: duty{health: health, op: opPublish}, access: access}
	s.settler = &settler{
		access: access, tasks: tasks, scheduler: c.scheduler, shipper: s.shipper, tally: s.tally, publisher: s.publisher, health: health, ended: c.config.Ended,
		ahead: new(atomic.Int64), poke: make(chan struct{}, 1), pauses: make(map[string]*backoff),
	}
	s.recovery = &recovery{
		duty: duty{health: health, op: opReclaim}, access: access, steadiness: &s.lease.steadiness, maxCrashes: c.config.MaxCrashes,
	}
	mover := &mover{
		duty: duty{health: health, op: opDue}, access: access, scheduler: c.scheduler, expiry: expiry, moves: make(map[string]moves),
	}
	s.poller = &poller{
		duty: duty{health: health, op: opPoll}, access: access, scheduler: c.scheduler, mover: mover, interval: c.config.Poll,
		leaseEnds: s.recovery.leaseEnds, expiry: expiry, most: max(leastPolled, int64(c.config.MaxQueues)) + 1, busy: make(map[string]bool),
	}
	mover.next = s.poller.pollAt
	s.poller.lookout = &lookout{duty: duty{health: health}, access: access, scheduler: c.scheduler, poll: s.poller.ask}
	runner := &runner{common: c, access: access, tasks: tasks, settler: s.settler, draining: draining}
	s.intake = &intake{
		access: access, tasks: tasks, scheduler: c.scheduler, health: health, lease: s.lease, poller: s.poller, shipper: s.shipper, expiry: expiry,
		workers: c.workers, runner: runner, ahead: s.settler.ahead, quarantined: make(map[string]string),
	}
	s.registrar = &registrar{
		duty: duty{health: health}, access: access, desired: func() map[string]bool { return c.catalog.queues(tenant) }, watch: s.watch,
		scheduler: c.scheduler, source: s.intake, publish: s.lease.publish, listens: make(map[string]bool), refused: make(map[string]bool),
	}
	s.registrar.changed.Store(true)
	s.poller.listening = s.registrar.listening
	s.ticker = &ticker{duty: duty{health: health, op: opTick}, access: access, metrics: c.metrics, interval: c.config.Poll}
	s.declarer = &declarer{
		duty: duty{health: health, op: opDeclare}, access: access, publish: s.lease.published,
		declared: func() []declaration { return c.catalog.declarations(tenant) },
		serves:   func(plugin string) bool { return c.catalog.runs(tenant, plugin) },
	}
	s.canceller = &canceller{duty: duty{health: health, op: opControl}, access: access, tasks: tasks, drain: drain}
	s.advancer = &advancer{duty: duty{health: health, op: opAdvance}, access: access, interval: c.config.Poll}
	s.housework = &housekeeper{duty: duty{health: health, op: opPurge}, access: access, purge: manage.PurgeOptions{
		OlderThan: max(0, c.config.Keep), Keep: max(0, c.config.KeepTasks), Foreign: c.config.PurgeForeign,
	}}
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
	if errors.Is(err, listen.ErrLeaseLost) {
		s.abandon()
	}
	return err
}

// work runs the parts until ctx ends, or the lease is lost.
func (s *session) work(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { s.settler.Run(ctx) })
	loops.Go(func() {
		if err := s.watch.Control(ctx, func() { s.canceller.ask(); s.ticker.ask() }); err != nil && ctx.Err() == nil {
			s.health.failedQuietly(opSubscribe, err) // the subscription comes back by itself
		}
		if err := s.watch.Ended(ctx, s.advancer.ask); err != nil && ctx.Err() == nil {
			s.health.failedQuietly(opSubscribe, err)
		}
		s.watch.Run(ctx, func(name string) { s.scheduler.wake(s.access.place(name)) })
	})
	defer loops.Wait()
	lease := s.access.node.Lease()
	defer new(duty).start(ctx, lease, func(ctx context.Context) (pause, wait time.Duration, err error) {
		s.intake.audit(ctx, s.registrar.ever())
		return lease, lease, nil
	})()
	defer s.poller.start(ctx, 0, s.poller.runOnce)()
	defer s.poller.mover.start(ctx, untilAsked, s.poller.mover.runOnce)()
	defer s.poller.lookout.start(ctx, untilAsked, s.poller.lookout.runOnce)()
	defer s.recovery.start(ctx, 0, s.recovery.runOnce)()
	defer s.registrar.start(ctx, 0, s.registrar.runOnce)()
	defer s.canceller.start(ctx, lease/3, s.canceller.runOnce)()
	defer s.advancer.start(ctx, 0, s.advancer.runOnce)()
	defer s.ticker.start(ctx, 0, s.ticker.runOnce)()
	defer s.declarer.start(ctx, 0, s.declarer.runOnce)()
	defer s.housework.start(ctx, s.housework.someTime(), s.housework.runOnce)()
	defer s.shipper.start(ctx, untilAsked, s.shipper.runOnce)()
	defer s.tally.start(ctx, untilAsked, s.tally.runOnce)()
	defer s.publisher.start(ctx, publishInterval/2, s.publisher.runOnce)()
	defer end()
	return s.lease.Run(ctx)
}

// join loads the scripts and makes the listener known, as soon as Redis is there.
func (s *session) join(ctx context.Context, reached func()) error {
	return listen.Persist(ctx, func(context.Context) error {
		err := listen.Prepare(ctx, s.access.client)
		if err == nil {
			err = s.recovery.begin(ctx)
		}
		if err == nil {
			err = s.access.node.Join(ctx)
		}
		switch {
		case err == nil:
			s.joined.Store(true)
			if err := manage.New(s.access.client).SetMaxQueues(ctx, s.catalog.maxQueues(s.access.client.Tenant())); err != nil {
				s.health.failedQuietly(opJoin, err) // other hosts have the same bound
			}
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
	s.access.logger.Error("lease lost: giving up all tasks and joining again", "listener", s.access.node.ID(), "tasks", len(s.tasks.all()))
	s.scheduler.abandon(s.intake)
	s.tasks.stopAll(errLeaseLost)
	s.settler.giveUp()
}

// finish takes nothing more, lets what runs go on for the grace period at most, and stops the rest.
func (s *session) finish(living, hurry context.Context) {
	idle, logger := s.tasks.close(), s.access.logger
	s.scheduler.again() // nobody waits for its memory any more
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
	defer s.scheduler.abandon(s.intake)
	limit := leaveTimeout
	if hurry.Err() != nil {
		limit = hurriedTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer context.AfterFunc(hurry, func() { time.AfterFunc(hurriedTimeout, cancel) })()
	s.settler.finish(ctx)
	s.tally.write(ctx)
	if !s.joined.Load() {
		return nil
	}
	s.intake.sweep(ctx, s.registrar.ever())
	if err := listen.Persist(ctx, func(context.Context) error { return s.access.node.Leave(ctx) }); err != nil {
		return fmt.Errorf("leave tenant %s: %w", s.access.client.Tenant(), err)
	}
	s.access.logger.Info("left", "listener", s.access.node.ID())
	return nil
}

// reachable tells whether the session has joined and Redis served its last calls.
func (s *session) reachable() bool { return s.joined.Load() && s.health.healthy() }
