package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/rollout"
	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// leaveTimeout is how long a session that ends tries to give tasks back and to leave, if Redis is away.
	// hurriedTimeout is the same after a second SIGTERM.
	leaveTimeout   = 5 * time.Second
	hurriedTimeout = time.Second
)

// session is one life of a host in a tenant: a listener from joining to leaving, or to the loss of its lease. It builds
// its parts, none of which refers to the session. It implements listen.User for its listener.
type session struct {
	*common
	access   *tenantAccess
	listener *listen.Listener
	health   *health
	intake   *intake
	settler  *settler
	upkeep   *upkeep.Upkeep
	duties   []periodic.Worker // including those of upkeep
	drain    func()
	about    func() map[string]string
	joined   atomic.Bool // Redis knows the listener, so the listener must leave in the end
}

// common has what the sessions of all tenants share.
type common struct {
	config     Config
	catalog    catalog
	scheduler  *schedule.Scheduler
	dispatcher *dispatcher
	workers    *workers
	metrics    *metrics.Metrics
	services   *guest.Services
	calls      *account.Budget // for tasks and publications that handlers send to Redis at once
	results    *account.Budget // for the results of dependencies that handlers read
	releases   *rollout.Cache
}

// newSession makes a session of a tenant. about returns the fields that the host publishes.
func newSession(client *queue.Client, c *common, t *tenant, about func() map[string]string) *session {
	draining, drain := t.draining, t.drain
	tenant, logger := client.Tenant(), c.config.Logger.With("tenant", client.Tenant())
	health := newHealth(c.metrics, logger, c.dispatcher.plan)
	s := &session{common: c, health: health, drain: drain, about: about}
	listener := listen.NewListener(client, s, health)
	catalog := c.catalog.of(tenant, t.releases)
	access := &tenantAccess{
		client: client, listener: listener, catalog: catalog, logger: logger, calls: c.calls, results: c.results,
		queues: &knownQueues{most: catalog.maxQueues(), names: make(map[string]int64)},
	}
	duty := func(first time.Duration) periodic.Duty { return periodic.Duty{Reports: health, First: first} }
	polls, steadiness := &periodic.Duty{Reports: health, Op: opPoll}, upkeep.NewSteadiness(listener.Lease())
	fleet := upkeep.New(&upkeep.Config{
		Client: client, Node: listener.Node, Fleet: listen.NewFleet(client),
		Logger: logger, Health: health, Metrics: c.metrics, Interval: c.config.Poll, MaxCrashes: c.config.MaxCrashes,
		Steadiness: steadiness,
		Purge: listen.PurgeOptions{
			OlderThan: max(0, c.config.Keep), Keep: max(0, c.config.KeepTasks),
			Foreign: c.config.PurgeForeign,
		},
		Expiry: catalog.expiry, Poll: polls.AskIn, Declared: catalog.declarations, Serves: catalog.runs,
		Running: runningPlugins,
		Publish: listener.Published, Wake: s.Wake,
		Borrow: func(ctx context.Context, size int64) (*account.Share, error) {
			return access.borrow(ctx, c.calls, copies*size)
		},
	})
	releases := &rollout.Follower{
		Duty: duty(0), Tenant: t.releases, Borrow: func(ctx context.Context, size int64) (*account.Share, error) {
			return access.borrow(ctx, c.calls, copies*size)
		},
		Changed:   func() { listener.Publish(); fleet.Declarer.Ask() },
		CrashLoop: 3 * listener.Lease(),
		Fleet: func(ctx context.Context, plugin string, number int) (rollout.Presence, error) {
			return presence(ctx, client, plugin, number)
		},
	}
	fetcher := &rollout.Fetcher{Duty: duty(periodic.UntilAsked), Follower: releases}
	judge := &rollout.Judge{
		Duty: duty(periodic.UntilAsked), Tenant: t.releases,
		Runs: access.runsOf, Stopped: access.releaseStopped, StepOver: releases.Ask,
	}
	releases.Tried, releases.Fetch = judge.Ask, fetcher.Ask
	fleet.Recovery.Reclaimed = judge.Ask // a release in a crash loop is stopped before its task runs again
	listener.Ended = fleet.Advancer.Ask
	listener.Renewed = func(begun, now time.Time, err error) {
		// A lost lease counts as a late renewal, too. It is counted once, because it ends the session.
		if steadiness.Renewed(begun, now, err) || errors.Is(err, listen.ErrLeaseLost) {
			c.metrics.LeaseRenewedLate(tenant)
		}
	}
	shipper := &shipper{Duty: duty(periodic.UntilAsked), listener: listener, metrics: c.metrics, logger: access.logger}
	tally := &tally{Duty: duty(periodic.UntilAsked), node: listener.Node}
	settler := &settler{
		access: access, scheduler: c.scheduler, shipper: shipper, tally: tally, judge: judge, publisher: fleet.Publisher,
		health: health,
		ended:  c.config.Ended, retry: c.config.Retry,
		ahead: new(atomic.Int64), poke: make(chan struct{}, 1), pauses: make(map[string]*periodic.Pause),
	}
	intake := &intake{
		access: access, scheduler: c.scheduler, health: health, polls: polls, shipper: shipper,
		workers: c.workers, ahead: settler.ahead, releases: releases, quarantined: make(map[string]quarantined),
		instead: make(map[instead]*unlogged),
		runner:  &runner{common: c, access: access, settler: settler, draining: draining},
	}
	lookout := &lookout{Duty: duty(periodic.UntilAsked), access: access, scheduler: c.scheduler, poll: polls.Ask}
	poller := &poller{
		Duty: polls, access: access, scheduler: c.scheduler, upkeep: fleet, lookout: lookout, interval: c.config.Poll,
		most: max(minPolled, int64(c.config.MaxQueues)) + 1, busy: make(map[string]bool),
	}
	weigher := &weigher{Duty: duty(0), access: access, scheduler: c.scheduler}
	auditor := &auditor{Duty: duty(listener.Lease()), intake: intake}
	s.access, s.listener, s.intake, s.settler, s.upkeep = access, listener, intake, settler, fleet
	s.duties = append(fleet.Workers(), releases, fetcher, poller, lookout, shipper, tally, judge, auditor, weigher)
	listener.Control = func() { fleet.Ticker.Ask(); releases.Ask(); weigher.Ask() }
	return s
}

// Queues implements listen.User.
func (s *session) Queues() map[string]bool { return s.access.catalog.queues() }

// Registered implements listen.User.
func (s *session) Registered(name string, again bool) {
	if again {
		s.access.logger.Warn("queue did not know this listener any more: registered again", "queue", name)
		return
	}
	s.access.queues.add(name)
	s.scheduler.Serve(s.access.queue(name), s.intake)
	s.access.logger.Info("serving queue", "queue", name)
}

// Unregistered implements listen.User.
func (s *session) Unregistered(name string) {
	s.scheduler.Leave(s.access.queue(name))
	s.health.Succeeded(opReserve, name) // there may be no later reserve to end the refusal
	s.access.logger.Info("left queue", "queue", name)
}

// Wake implements listen.User.
func (s *session) Wake(name string) { s.scheduler.Announced(s.access.queue(name)) }

// Drain implements listen.User.
func (s *session) Drain() { s.drain() }

// About implements listen.User.
func (s *session) About() map[string]string { return s.about() }

// Run runs the session until ctx ends, its lease is lost, or the tenant refuses it. When ctx ends, it returns nil, and
// the caller then calls leave. Run calls reached when the session has joined. It also calls reached when Redis is away,
// because that is no refusal.
func (s *session) Run(ctx context.Context, reached func()) error {
	if err := s.join(ctx, reached); err != nil {
		return err
	}
	s.access.logger.Info("joined", "listener", s.listener.ID())
	err := s.work(ctx)
	if errors.Is(err, listen.ErrLeaseLost) {
		s.abandon()
	}
	return err
}

// work runs the parts until ctx ends, or the lease is lost.
func (s *session) work(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	var settling sync.WaitGroup
	settling.Go(func() { s.settler.Run(ctx) })
	defer settling.Wait()
	defer periodic.Start(ctx, s.duties...)()
	defer end()
	return s.listener.Run(ctx)
}

// join loads the scripts into Redis and registers the listener. While Redis is away, it tries again.
func (s *session) join(ctx context.Context, reached func()) error {
	return listen.Persist(ctx, func(context.Context) error {
		err := listen.Prepare(ctx, s.access.client)
		if err == nil {
			err = s.upkeep.Recovery.Begin(ctx)
		}
		if err == nil {
			err = s.listener.Join(ctx)
		}
		switch {
		case err == nil:
			s.joined.Store(true)
			if err := listen.NewFleet(s.access.client).SetMaxQueues(ctx, s.access.catalog.maxQueues()); err != nil {
				s.health.FailedQuietly(listen.OpJoin, err) // other hosts set the same bound
			}
			s.grantQuotas(ctx)
			reached()
			s.health.Succeeded(listen.OpJoin, "")
		case ctx.Err() == nil && queue.IsUnavailable(err):
			reached()
			s.health.Failed(listen.OpJoin, "", err)
		case ctx.Err() == nil:
			s.health.FailedQuietly(listen.OpJoin, err) // tenant.serve logs it
		}
		return err
	})
}

// grantQuotas makes known what the host's file says of the tenant's quotas.
func (s *session) grantQuotas(ctx context.Context) {
	quotas, ok := s.config.Quotas[s.access.client.Tenant()]
	if !ok {
		return
	}
	if err := manage.GrantQuotas(ctx, s.access.client, quotas); err != nil {
		s.access.logger.Error("the quotas of the file of grants were not stored: others count until the next start", "error", err)
	}
}

// abandon gives up all tasks of a session whose lease is lost, because other hosts take these tasks.
func (s *session) abandon() {
	s.access.logger.Error("lease lost: giving up all tasks and joining again", "listener", s.listener.ID(),
		"tasks", len(s.listener.Tasks.All()))
	s.scheduler.Abandon(s.intake)
	s.listener.Tasks.StopAll(listen.ErrLeaseLost)
	s.settler.giveUp()
}

// finish stops reserving, lets the running tasks go on for at most the grace period, and then stops those that still
// run.
func (s *session) finish(living, hurry context.Context) {
	tasks, logger := &s.listener.Tasks, s.access.logger
	idle := tasks.Close()
	s.dispatcher.plan() // so that no other tenant waits for memory behind this one's tasks
	s.listener.Publish()
	logger.Info("draining: taking no more tasks", "running", tasks.Active(), "grace", s.config.Grace)
	grace := time.NewTimer(s.config.Grace)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
		logger.Warn("grace period over: requeueing running tasks", "running", tasks.Active())
	case <-hurry.Done():
		logger.Warn("second SIGTERM: requeueing running tasks", "running", tasks.Active())
	case <-living.Done(): // the host ends, because something failed for good
	}
	tasks.StopAll(listen.ErrDraining)
	<-idle
}

// leave is called when no task runs any more. It settles or gives back the remaining tasks, and removes the listener
// from Redis.
// Tasks that it cannot give back in time stay in the reserved lists until the lease ends. The scheduler forgets the
// session's queues.
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
	if err := s.listener.GiveBackUnknown(ctx); err != nil && ctx.Err() == nil {
		s.access.logger.Error("reserved tasks that this host does not know were not given back", "error", reasons(err))
	}
	if err := listen.Persist(ctx, s.listener.Leave); err != nil {
		return fmt.Errorf("leave tenant %s: %w", s.access.client.Tenant(), err)
	}
	s.access.logger.Info("left", "listener", s.listener.ID())
	return nil
}

// reachable reports whether the session has joined and no op is in trouble: see health.healthy.
func (s *session) reachable() bool { return s.joined.Load() && s.health.healthy() }
