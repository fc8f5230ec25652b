package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/backoff"
	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// leaveTimeout bounds giving back and leaving when a session ends while Redis is away, and hurriedTimeout the same
	// after a second SIGTERM.
	leaveTimeout   = 5 * time.Second
	hurriedTimeout = time.Second
)

// session is one life of a host in a tenant: a listener ID from joining to leaving, or to the loss of its lease. It
// builds the parts that work for it, none of which knows the session, and leads them.
type session struct {
	*common
	access    *tenantAccess
	tasks     *taskSet
	health    *health
	lease     *leaseKeeper
	intake    *intake
	settler   *settler
	registrar *registrar
	canceller *canceller
	upkeep    *upkeep.Upkeep
	duties    []upkeep.Worker // all of them
	watch     *listen.Watch
	joined    atomic.Bool // known to Redis: it must leave
}

// common is shared by the sessions of all tenants.
type common struct {
	config     Config
	catalog    catalog
	scheduler  *schedule.Scheduler
	dispatcher *dispatcher
	workers    *workers
	metrics    *metrics.Metrics
	services   *guest.Services
	calls      *account.Budget // of what calls of handlers send
	results    *account.Budget // of what they read, and keep until the end of their task
}

// newSession makes a session that drain ends, which closes draining; about returns what the host publishes.
func newSession(client *queue.Client, c *common, draining <-chan struct{}, drain func(), about func() map[string]string) *session {
	tenant, node, logger := client.Tenant(), listen.New(client), c.config.Logger.With("tenant", client.Tenant())
	catalog := c.catalog.of(tenant)
	access := &tenantAccess{
		client: client, node: node, catalog: catalog, logger: logger, calls: c.calls, results: c.results,
		queues: &knownQueues{most: catalog.maxQueues(), names: make(map[string]int64)},
	}
	health := newHealth(c.metrics, logger, c.dispatcher.plan)
	duty := func(op string, first time.Duration) upkeep.Duty {
		return upkeep.Duty{Reports: health, Op: op, First: first}
	}
	tasks, polls, watch := &taskSet{tasks: make(map[string]*task)}, &upkeep.Duty{Reports: health, Op: opPoll}, listen.NewWatch(client)
	lease := &leaseKeeper{
		lease: node.Lease(), steadiness: upkeep.NewSteadiness(node.Lease()), node: node, health: health, about: about, drain: drain,
		late: func() { c.metrics.LeaseRenewedLate(tenant) },
		news: make(chan struct{}, 1), missing: make(chan struct{}, 1), asked: make(chan chan struct{}),
	}
	fleet := upkeep.New(&upkeep.Config{
		Client: client, Node: node, Fleet: listen.NewFleet(client),
		Logger: logger, Health: health, Metrics: c.metrics, Interval: c.config.Poll, MaxCrashes: c.config.MaxCrashes, Steadiness: lease.steadiness,
		Purge:  listen.PurgeOptions{OlderThan: max(0, c.config.Keep), Keep: max(0, c.config.KeepTasks), Foreign: c.config.PurgeForeign},
		Expiry: catalog.expiry, Poll: polls.AskIn, Declared: catalog.declarations, Serves: catalog.runs, Running: runningPlugins, Publish: lease.published,
		Wake: func(name string) { c.scheduler.Announced(access.queue(name)) },
		Borrow: func(ctx context.Context, size int64) (*account.Share, error) {
			return access.borrow(ctx, c.calls, copies*size)
		},
	})
	shipper := &shipper{Duty: duty("", upkeep.UntilAsked), node: node, tasks: tasks, metrics: c.metrics}
	tally := &tally{Duty: duty("", upkeep.UntilAsked), node: node}
	settler := &settler{
		access: access, tasks: tasks, scheduler: c.scheduler, shipper: shipper, tally: tally, publisher: fleet.Publisher, health: health, ended: c.config.Ended,
		ahead: new(atomic.Int64), poke: make(chan struct{}, 1), pauses: make(map[string]*backoff.Pause),
	}
	intake := &intake{
		access: access, tasks: tasks, scheduler: c.scheduler, health: health, lease: lease, polls: polls, shipper: shipper,
		workers: c.workers, ahead: settler.ahead, quarantined: make(map[string]string),
		runner: &runner{common: c, access: access, tasks: tasks, settler: settler, draining: draining},
	}
	registrar := &registrar{
		Duty: duty("", 0), access: access, watch: watch,
		scheduler: c.scheduler, source: intake, publish: lease.publish, listens: make(map[string]bool), refused: make(map[string]bool),
	}
	lookout := &lookout{Duty: duty("", upkeep.UntilAsked), access: access, scheduler: c.scheduler, poll: polls.Ask}
	poller := &poller{
		Duty: polls, access: access, scheduler: c.scheduler, upkeep: fleet, lookout: lookout, registrar: registrar, interval: c.config.Poll,
		most: max(leastPolled, int64(c.config.MaxQueues)) + 1, busy: make(map[string]bool),
	}
	canceller := &canceller{Duty: duty(opControl, node.Lease()/3), access: access, tasks: tasks, drain: drain}
	auditor := &auditor{Duty: duty("", node.Lease()), intake: intake, registrar: registrar}
	return &session{
		common: c, access: access, tasks: tasks, health: health, lease: lease, intake: intake, settler: settler, registrar: registrar,
		canceller: canceller, upkeep: fleet, watch: watch,
		duties: append(fleet.Workers(), poller, lookout, registrar, canceller, shipper, tally, auditor),
	}
}

// Run leads the session until ctx ends (then it returns nil, and the tenant calls leave), or until its lease is lost or
// Redis cannot be used at all. reached is called when Redis is away, or lets the session join.
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
		if err := s.watch.Control(ctx, func() { s.canceller.Ask(); s.upkeep.Ticker.Ask() }); err != nil && ctx.Err() == nil {
			s.health.FailedQuietly(opSubscribe, err) // the subscription comes back by itself
		}
		if err := s.watch.Ended(ctx, s.upkeep.Advancer.Ask); err != nil && ctx.Err() == nil {
			s.health.FailedQuietly(opSubscribe, err)
		}
		s.watch.Run(ctx, func(name string) { s.scheduler.Announced(s.access.queue(name)) })
	})
	defer loops.Wait()
	defer upkeep.Start(ctx, s.duties...)()
	defer end()
	return s.lease.Run(ctx)
}

// join loads the scripts and makes the listener known, as soon as Redis is there.
func (s *session) join(ctx context.Context, reached func()) error {
	return listen.Persist(ctx, func(context.Context) error {
		err := listen.Prepare(ctx, s.access.client)
		if err == nil {
			err = s.upkeep.Recovery.Begin(ctx)
		}
		if err == nil {
			err = s.access.node.Join(ctx)
		}
		switch {
		case err == nil:
			s.joined.Store(true)
			if err := listen.NewFleet(s.access.client).SetMaxQueues(ctx, s.access.catalog.maxQueues()); err != nil {
				s.health.FailedQuietly(opJoin, err) // other hosts have the same bound
			}
			reached()
			s.health.Succeeded(opJoin, "")
		case ctx.Err() == nil && queue.IsUnavailable(err):
			reached()
			s.health.Failed(opJoin, "", err)
		case ctx.Err() == nil:
			s.health.FailedQuietly(opJoin, err) // the tenant reports it
		}
		return err
	})
}

// abandon ends a session whose lease is lost: other hosts have all its tasks.
func (s *session) abandon() {
	s.access.logger.Error("lease lost: giving up all tasks and joining again", "listener", s.access.node.ID(), "tasks", len(s.tasks.all()))
	s.scheduler.Abandon(s.intake)
	s.tasks.stopAll(errLeaseLost)
	s.settler.giveUp()
}

// finish takes nothing more, lets what runs go on for the grace period at most, and stops the rest.
func (s *session) finish(living, hurry context.Context) {
	idle, logger := s.tasks.close(), s.access.logger
	s.dispatcher.plan() // nobody waits for its memory any more
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

// leave settles and gives back what is left when all tasks have ended, and takes the listener out of Redis. What cannot
// be given back in time stays in its reserved lists until the lease ends. The scheduler forgets the session's queues.
func (s *session) leave(hurry context.Context) error {
	defer s.scheduler.Abandon(s.intake)
	limit := leaveTimeout
	if hurry.Err() != nil {
		limit = hurriedTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer context.AfterFunc(hurry, func() { time.AfterFunc(hurriedTimeout, cancel) })()
	s.settler.finish(ctx)
	s.settler.tally.write(ctx)
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

// reachable reports whether the session has joined and Redis served its last calls.
func (s *session) reachable() bool { return s.joined.Load() && s.health.healthy() }
