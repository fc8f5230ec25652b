package sql

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// DefaultPool is how many connections a tenant's tasks on one host have to a database.
	DefaultPool = 8
	// DefaultConnections is how many connections a host has to all databases together.
	DefaultConnections = 100

	connectPatience = 5 * time.Second // how long connecting may take
	poolPatience    = 5 * time.Second // how long a task waits for a connection
	forgetTime      = 3 * time.Minute // how long a pool is kept that no task asks for and whose database does not serve
	idleTime        = time.Minute     // how long a connection is kept that no task uses
	fullPause       = time.Minute     // the time between two log lines about a pool without a free connection
	lifetime        = 30 * time.Minute

	// After a failure to connect, nobody tries for shortestAway, and longer after each further failure.
	shortestAway, longestAway = time.Second, 30 * time.Second
)

// Config configures Databases.
type Config struct {
	// Application names the connections in pg_stat_activity. Default "quern".
	Application string
	// MaxConnections bounds the connections to all databases. Default DefaultConnections.
	MaxConnections int
	// Tenants is how many tenants share the connections. If there are several, one uses at most half of them.
	Tenants int
	// Undo makes every commit a savepoint of one transaction, which is undone at the end: for tests of handlers.
	Undo bool
	// Open returns which of these tasks of a tenant have not ended. Without it, rows of quern.runs are kept for ever.
	Open func(ctx context.Context, tenant string, tasks []string) (map[string]bool, error)
	// Keep is how long rows of tasks that have ended are kept. Default DefaultKeep.
	Keep time.Duration
	// Sweep is the time between two deletions of such rows. Default 1m.
	Sweep time.Duration
	// Logger gets what operators should know. Default none.
	Logger hclog.Logger
}

// Databases has the connections of a host to the databases of its tenants. Its methods are safe for concurrent use.
type Databases struct {
	config Config
	counts counts

	mu      sync.Mutex // guards the fields below, and those of pools
	pools   map[poolKey]*pool
	open    int            // connections, idle ones included
	inUse   int            // those of open that are not idle
	used    map[string]int // the same by tenant
	waiters []*waiter      // the tasks that wait for a connection, the oldest first
	closed  bool
	resets  sync.WaitGroup // connections that are being made pristine
}

// poolKey identifies a pool. A secret that changes its URL gets a new pool.
type poolKey struct{ tenant, source, url string }

// pool has the connections of one tenant to one database.
type pool struct {
	key     poolKey
	size    int       // as the task that asked last has it
	asked   time.Time // when a task asked for it last
	address *postgres.Address
	idle    []*connection  // the last one was used last
	used    int            // connections in use or being opened
	commits bool           // tasks have left rows in quern.runs
	opening int            // those of used that are being opened
	full    time.Time      // when a task that waited in vain was logged last
	away    periodic.Pause // the pause after a failure
	failed  map[need]error // what fails, from the failure until it succeeds
}

// need is what a host needs of a database.
type need string

const (
	correctURL  need = "URL"
	connecting  need = "connect"
	configuring need = "settings"
	runsTable   need = "quern.runs"
)

// connection is a connection of a pool. Its owner is one transaction at a time.
type connection struct {
	*postgres.Conn
	pool   *pool
	reused bool // a transaction used it before
	since  time.Time
	until  time.Time // the end of its lifetime
}

// waiter is a task that waits for a connection of a pool.
type waiter struct {
	pool      *pool
	commits   bool         // it needs quern.runs
	got       chan opening // has room for the only answer
	abandoned bool         // the task has ended
}

// New returns Databases. Close closes their connections.
func New(config Config) *Databases {
	config.Application = cmp.Or(config.Application, "quern")
	config.MaxConnections = cmp.Or(config.MaxConnections, DefaultConnections)
	config.Keep, config.Sweep = cmp.Or(config.Keep, DefaultKeep), cmp.Or(config.Sweep, sweepPause)
	if config.Logger == nil {
		config.Logger = hclog.NewNullLogger()
	}
	return &Databases{config: config, pools: make(map[poolKey]*pool), used: make(map[string]int)}
}

// Close closes all connections that no task uses, waits for those that are being made pristine, and lets others close
// when they are given back.
func (d *Databases) Close() {
	d.mu.Lock()
	d.closed = true
	d.serve()
	d.mu.Unlock()
	d.resets.Wait()
	d.CloseIdle(time.Time{})
}

// CloseIdle closes the connections that no task has used since a time, zero for all, and forgets pools without any.
func (d *Databases) CloseIdle(since time.Time) {
	d.mu.Lock()
	var old []*connection
	forget := time.Now().Add(-forgetTime)
	for key, p := range d.pools {
		for len(p.idle) > 0 && (since.IsZero() || p.idle[0].since.Before(since)) {
			old = append(old, p.idle[0])
			p.idle = p.idle[1:]
		}
		if len(p.idle) == 0 && p.used == 0 && p.away.Over(time.Now()) && (len(p.failed) == 0 || p.asked.Before(forget)) {
			delete(d.pools, key)
		}
	}
	d.gone(len(old))
	d.mu.Unlock()
	for _, c := range old {
		c.Close()
	}
}

// gone records that connections were closed. The caller holds mu.
func (d *Databases) gone(n int) {
	d.open -= n
	d.serve()
}

// pool returns the pool of a source. The error says that its URL is wrong, and wraps service.ErrUnavailable.
func (d *Databases) pool(tenant string, source Source) (*pool, error) {
	key := poolKey{tenant, source.Name, source.URL}
	d.mu.Lock()
	defer d.mu.Unlock()
	size := cmp.Or(source.Pool, DefaultPool)
	if p := d.pools[key]; p != nil {
		p.size, p.asked = size, time.Now()
		return p, p.failed[correctURL]
	}
	address, err := postgres.Parse(source.URL)
	for other, p := range d.pools {
		if other.tenant == tenant && other.source == source.Name {
			clear(p.failed) // of a URL that has been corrected
		}
	}
	p := &pool{
		key: key, size: size, asked: time.Now(), address: address,
		away: periodic.Pause{Shortest: shortestAway, Longest: longestAway}, failed: make(map[need]error),
	}
	d.pools[key] = p
	if err != nil {
		return p, d.isAway(p, correctURL, fmt.Errorf("the secret %s: %w", source.Name, err))
	}
	return p, nil
}

// acquire takes a connection from a pool, and opens one if none is idle. commits says that it is of no use without
// quern.runs. The error wraps service.ErrUnavailable, or is that of ctx.
func (d *Databases) acquire(ctx context.Context, p *pool, commits bool) (*connection, error) {
	w := &waiter{pool: p, commits: commits, got: make(chan opening, 1)}
	d.mu.Lock()
	d.waiters = append(d.waiters, w)
	d.serve()
	d.mu.Unlock()
	select {
	case got := <-w.got:
		return got.connection, got.err
	default:
	}
	defer func(begun time.Time) { d.counts.waited.Add(int64(time.Since(begun))) }(time.Now())
	patient, stop := context.WithTimeout(ctx, poolPatience)
	defer stop()
	for done := patient.Done(); ; done = ctx.Done() {
		select {
		case got := <-w.got:
			return got.connection, got.err
		case <-done:
			switch why := d.stopWaiting(ctx, w); {
			case ctx.Err() != nil:
				d.abandon(w)
				return nil, ctx.Err()
			case why != nil:
				return nil, why
			}
		}
	}
}

// stopWaiting removes a task from those that wait for a free connection, and returns why none was free. It returns nil
// if a connection was free, or is being opened. It logs the reason, unless the task was cancelled.
func (d *Databases) stopWaiting(ctx context.Context, w *waiter) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.waiters, w)
	if i < 0 {
		return nil
	}
	d.waiters = slices.Delete(d.waiters, i, i+1)
	p := w.pool
	err := fmt.Errorf("no connection is free after %s: all %d of the host are in use: raise --database-connections",
		poolPatience, d.config.MaxConnections)
	if p.used >= p.size {
		err = fmt.Errorf("no connection to %s is free after %s: all %d are in use: raise pool of this database in the grants",
			p.key.source, poolPatience, p.size)
	} else if d.used[p.key.tenant] >= d.most() {
		err = fmt.Errorf("no connection is free after %s: the tenant uses all %d that one tenant may have: raise --database-connections",
			poolPatience, d.most())
	}
	if now := time.Now(); ctx.Err() == nil && now.Sub(p.full) > fullPause {
		p.full = now
		d.config.Logger.Warn("no connection to a database is free: tasks that use it are put off", "tenant", p.key.tenant,
			"database", p.key.source, "error", err)
	}
	return fmt.Errorf("%w: %w", service.ErrUnavailable, err)
}

// abandon leaves the connection that a task has got, or that is being opened for it, to the next task.
func (d *Databases) abandon(w *waiter) {
	d.mu.Lock()
	w.abandoned = true
	d.mu.Unlock()
	select {
	case got := <-w.got:
		if got.connection != nil {
			d.put(got.connection)
		}
	default:
	}
}

// most returns how many connections the tasks of one tenant can use: half of all, if the host serves several tenants.
func (d *Databases) most() int {
	if d.config.Tenants > 1 {
		return (d.config.MaxConnections + 1) / 2
	}
	return d.config.MaxConnections
}

// serve answers the waiting tasks that can be served, those of the tenant with the fewest connections first, and of
// these the oldest. The caller holds mu.
func (d *Databases) serve() {
	for {
		best := -1
		now := time.Now()
		for i, w := range d.waiters {
			if (best < 0 || d.used[w.pool.key.tenant] < d.used[d.waiters[best].pool.key.tenant]) && d.canServe(w, now) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		w := d.waiters[best]
		d.waiters = slices.Delete(d.waiters, best, best+1)
		d.take(w, now)
	}
}

// canServe reports whether take has an answer now. The caller holds mu.
func (d *Databases) canServe(w *waiter, now time.Time) bool {
	p := w.pool
	return d.closed || p.isAway(now, w.commits) ||
		p.used < p.size && d.used[p.key.tenant] < d.most() && d.inUse < d.config.MaxConnections
}

// take gives a task an idle connection or an error, or opens a connection for it. The caller holds mu.
func (d *Databases) take(w *waiter, now time.Time) {
	if d.closed {
		w.got <- opening{err: fmt.Errorf("%w: the host ends", service.ErrUnavailable)}
		return
	}
	p := w.pool
	for len(p.idle) > 0 {
		c := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if now.Before(c.until) {
			d.use(p, 1)
			c.reused = true
			w.got <- opening{connection: c}
			return
		}
		d.open--
		d.resets.Go(c.Close)
	}
	if p.isAway(now, w.commits) {
		w.got <- opening{err: p.why()}
		return
	}
	if d.open >= d.config.MaxConnections {
		d.evict()
	}
	d.open++
	p.opening++
	d.use(p, 1)
	d.resets.Go(func() { d.connect(w) })
}

// isAway reports whether a database does not serve a task, which commits or not, and must not be tried now. After a
// failure to connect, one task tries for all. The caller holds mu.
func (p *pool) isAway(now time.Time, commits bool) bool {
	failed := cmp.Or(p.failed[connecting], p.failed[configuring])
	if commits {
		failed = p.why()
	}
	return len(p.idle) == 0 && failed != nil && (!p.away.Over(now) || p.opening > 0 && p.failed[connecting] != nil)
}

// why returns why a database does not serve. The caller holds mu.
func (p *pool) why() error {
	return cmp.Or(p.failed[correctURL], p.failed[connecting], p.failed[configuring], p.failed[runsTable])
}

// use counts n more connections of a pool that are in use or being opened. The caller holds mu.
func (d *Databases) use(p *pool, n int) {
	p.used += n
	d.inUse += n
	if d.used[p.key.tenant] += n; d.used[p.key.tenant] == 0 {
		delete(d.used, p.key.tenant)
	}
}

// evict closes the idle connection that was used least recently. There is one. The caller holds mu.
func (d *Databases) evict() {
	var least *pool
	for _, p := range d.pools {
		if len(p.idle) > 0 && (least == nil || p.idle[0].since.Before(least.idle[0].since)) {
			least = p
		}
	}
	c := least.idle[0]
	least.idle = least.idle[1:]
	d.open--
	d.resets.Go(c.Close)
}

// opening is a connection, or why there is none.
type opening struct {
	connection *connection
	err        error
}

// connect opens a connection for a task, for which take has made room. If the task has ended meanwhile, that says
// nothing about the database, and the connection is for the next task.
func (d *Databases) connect(w *waiter) {
	c, err := d.dial(w.pool)
	d.mu.Lock()
	abandoned := w.abandoned
	if !abandoned {
		w.got <- opening{c, err}
	}
	d.mu.Unlock()
	if abandoned && err == nil {
		d.put(c)
	}
}

func (d *Databases) dial(p *pool) (*connection, error) {
	ctx, stop := context.WithTimeout(context.Background(), connectPatience)
	conn, err := p.address.Connect(ctx, d.config.Application)
	stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	p.opening--
	if err == nil {
		d.serves(p, connecting)
		d.serve()
		now := time.Now()
		return &connection{
			Conn: conn, pool: p, since: now, until: now.Add(lifetime - rand.N(lifetime/10)), //nolint:gosec // no secret
		}, nil
	}
	d.use(p, -1)
	err = d.isAway(p, connecting, err)
	d.gone(1)
	return nil, err
}

// serves records that a need of the host was served. The caller holds mu.
func (d *Databases) serves(p *pool, what need) {
	if p.failed[what] == nil {
		return
	}
	delete(p.failed, what)
	if len(p.failed) == 0 {
		p.away.Succeeded()
		d.config.Logger.Info("database serves again", "tenant", p.key.tenant, "database", p.key.source, "address", p.address.Host())
	}
}

// isAway records why a database does not serve, and logs it once. The caller holds mu.
func (d *Databases) isAway(p *pool, what need, err error) error {
	p.away.Failed(time.Now())
	text := err.Error()
	err = fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	if told := p.failed[what]; told == nil || postgres.State(told) != postgres.State(err) { // texts have local ports
		d.config.Logger.Warn("database does not serve: tasks that use it are put off", "tenant", p.key.tenant,
			"database", p.key.source, "error", text, "remedy", remedy(p.key.source, what, err))
	}
	p.failed[what] = err
	return err
}

// refuses records that a database refuses what the host needs, such as its table. It returns the error for tasks.
func (d *Databases) refuses(p *pool, what need, why error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.isAway(p, what, why)
	d.serve()
	return err
}

// accepts records that a database gives the host what it needs.
func (d *Databases) accepts(p *pool, what need) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.failed[what] != nil {
		d.serves(p, what)
		d.serve()
	}
}

// remedy says what an operator can do about a database that does not serve.
func remedy(source string, what need, err error) string {
	switch state := postgres.State(err); {
	case what == correctURL:
		return "correct the secret " + source
	case what == configuring:
		return "correct the settings of this database in the grants"
	case what == runsTable && state == "42501":
		return "run `quern database init --grant-handler ROLE` on it, with the role of the secret " + source
	case what == runsTable:
		return "run `quern database init --grant-handler ROLE` on it"
	case state == "28P01" || state == "28000":
		return "correct user and password in the secret " + source
	case state == "3D000":
		return "correct the database in the secret " + source + ", or make it with CREATE DATABASE"
	case state == "53300":
		return "raise max_connections of the server, or lower pool in the grants"
	}
	return "start the database, or correct the secret " + source
}

// release gives a connection back. Unless pristine is true, its session is reset first, in the background.
func (d *Databases) release(c *connection, pristine bool) {
	if pristine || c.Raw().IsClosed() {
		d.put(c)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resets.Go(func() {
		ctx, stop := context.WithTimeout(context.Background(), connectPatience)
		defer stop()
		if err := reset(ctx, c.Raw()); err != nil {
			c.Close()
		}
		d.put(c)
	})
}

// put makes a pristine connection idle, or forgets a closed one.
func (d *Databases) put(c *connection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := c.pool
	d.use(p, -1)
	if keep := !c.Raw().IsClosed() && c.Raw().TxStatus() == 'I' && !d.closed && d.pools[p.key] == p; keep {
		c.since = time.Now()
		p.idle = append(p.idle, c)
		d.gone(0)
		return
	}
	d.gone(1)
	if !c.Raw().IsClosed() {
		d.resets.Go(c.Close)
	}
}

// dropIdle closes the idle connections of a pool, after one of them was found closed by the server.
func (d *Databases) dropIdle(p *pool) {
	d.mu.Lock()
	idle := p.idle
	p.idle = nil
	d.gone(len(idle))
	d.mu.Unlock()
	for _, c := range idle {
		c.Close()
	}
}
