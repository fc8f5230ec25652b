package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// lease is how long a leader counts as alive. It renews after renewInterval, and others try after tryInterval.
	lease         = 6 * time.Second
	renewInterval = 2 * time.Second
	tryInterval   = 2 * time.Second
	// Awake, the relay looks each busyInterval; after awakeFor without a row it sleeps. Asleep, it looks after each
	// notification, and each idleInterval for rows whose notification was lost.
	busyInterval = 20 * time.Millisecond
	awakeFor     = 2 * time.Second
	idleInterval = time.Second
	// lookAgain is how often the relay looks for rows of transactions that committed after later ones. sweepInterval is
	// how often it looks at the whole table.
	lookAgain     = time.Second
	sweepInterval = time.Minute
	// purgeInterval is how often rows are deleted that are older than Config.Hold and Config.KeepEnded.
	purgeInterval = time.Minute
	// answerTimeout bounds each statement.
	answerTimeout = 30 * time.Second
	// awakeLock is the lock that an awake relay holds: see schema.sql.
	awakeLock = 8171052443187213643
	channel   = "quern_outbox"
)

// Config has what a Relay needs.
type Config struct {
	// Name names the source in metrics and logs (default: the host and the name of the database).
	Name string
	// Database has the outbox. Direct leads to the same database without a pooler; it is needed for notifications if
	// Database leads through a pooler (default: Database).
	Database, Direct *postgres.Address
	// Tenants are the clients of the tenants that rows may name. Tenant is the tenant of rows that name none.
	Tenants map[string]*queue.Client
	Tenant  string
	// Hold is how long relayed rows are kept in quern.outbox_held (default: not at all).
	Hold time.Duration
	// KeepEnded is how long rows of quern.ended are kept (default: a week).
	KeepEnded time.Duration
	// NotBefore leaves out rows that were inserted earlier, such as those of a restored dump (default: none).
	NotBefore time.Time
	Logger    hclog.Logger // default: none
	Metrics   Metrics      // default: none
}

// Metrics counts what a relay does. source is Config.Name.
type Metrics interface {
	// Relay begins the series of a source.
	Relay(source string)
	// RelayLeads sets whether this process leads the source, and whether it receives notifications.
	RelayLeads(source string, leads, notified bool)
	// RelayRows counts rows. result is relayed, refused or ended.
	RelayRows(source, result string, n int)
	// RelayLag sets the age of the oldest row that waits; 0 if none waits.
	RelayLag(source string, age time.Duration)
	// RelayFailed counts a failure of the database or of Redis, or a full queue.
	RelayFailed(source string)
}

// Relay relays the outbox of one database.
type Relay struct {
	config Config
	holder string
	log    hclog.Logger

	mu    sync.Mutex
	state string // guarded by mu: what the relay does, if err is nil
	err   error  // guarded by mu: why it does not
}

// Ready returns what the relay does: it leads, or another relay leads. The error says why it does neither.
func (r *Relay) Ready() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state, r.err
}

// become records what the relay does.
func (r *Relay) become(state string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.err = state, err
}

// New checks the Config.
func New(config Config) (*Relay, error) {
	if config.Database == nil || config.Tenants[config.Tenant] == nil {
		return nil, fmt.Errorf("%w: a relay needs a database, and a client for the tenant %q", queue.ErrInvalid, config.Tenant)
	}
	if config.Hold < 0 || config.KeepEnded < 0 {
		return nil, fmt.Errorf("%w: hold %s, keep ended %s: use 0s or more; 0s keeps ended rows for a week", queue.ErrInvalid, config.Hold, config.KeepEnded)
	}
	config.Direct = cmp.Or(config.Direct, config.Database)
	config.KeepEnded = cmp.Or(config.KeepEnded, 7*24*time.Hour)
	config.Name = cmp.Or(config.Name, config.Database.Host()+"/"+config.Database.Database())
	if config.Logger == nil {
		config.Logger = hclog.NewNullLogger()
	}
	config.Logger = config.Logger.With("source", config.Name)
	if config.Metrics == nil {
		config.Metrics = noMetrics{}
	}
	config.Metrics.Relay(config.Name)
	name, _ := os.Hostname()
	return &Relay{
		config: config, holder: fmt.Sprintf("%s %d %s", name, os.Getpid(), uuid.NewString()[:8]), log: config.Logger,
		err: errors.New("has not reached the database yet"),
	}, nil
}

// client returns the client of a tenant; "" is the tenant of rows that name none.
func (r *Relay) client(tenant string) *queue.Client {
	return r.config.Tenants[cmp.Or(tenant, r.config.Tenant)]
}

// Run relays until ctx ends. While the database or Redis is away, it tries again.
func (r *Relay) Run(ctx context.Context) {
	var pause periodic.Pause
	for {
		began := time.Now()
		err := r.session(ctx)
		if ctx.Err() != nil {
			return
		}
		r.become("", err)
		r.config.Metrics.RelayLeads(r.config.Name, false, false)
		r.config.Metrics.RelayLag(r.config.Name, 0)
		if !errors.Is(err, errNotLeader) {
			r.config.Metrics.RelayFailed(r.config.Name)
			r.log.Warn("relay stopped; trying again", "error", err)
		}
		if time.Since(began) > lease {
			pause.Succeeded()
		}
		if !pause.Sleep(ctx) {
			return
		}
	}
}

// errNotLeader ends a session whose lease went to another relay.
var errNotLeader = errors.New("another relay leads")

// session waits for the lease, and relays for as long as it has the lease.
func (r *Relay) session(ctx context.Context) error {
	db, err := r.config.Database.Connect(ctx, "quern relay")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := checkVersion(ctx, db); err != nil {
		return err
	}
	l := &leader{relay: r, db: db, full: make(map[string]time.Time)}
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.giveBack()
	work, ctx := errgroup.WithContext(ctx)
	wake := make(chan struct{}, 1)
	work.Go(func() error { return r.listen(ctx, l, wake) })
	work.Go(func() error { return l.relayAll(ctx, wake) })
	for _, client := range r.config.Tenants {
		work.Go(func() error { return l.report(ctx, client) })
	}
	return work.Wait()
}

// listen passes on the notifications of new rows until ctx ends. While the database cannot be reached by the direct
// URL, the leader looks for rows by itself.
func (r *Relay) listen(ctx context.Context, l *leader, wake chan<- struct{}) error {
	for {
		err := r.listenOnce(ctx, l, wake)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		l.notified.Store(false)
		r.config.Metrics.RelayLeads(r.config.Name, true, false)
		if err != nil {
			r.config.Metrics.RelayFailed(r.config.Name)
			r.log.Warn("cannot listen for new rows, so they wait for up to a second; trying again", "error", err)
		}
		if !periodic.Sleep(ctx, tryInterval) {
			return ctx.Err()
		}
	}
}

// listenOnce passes on notifications until its connection fails, or ctx ends.
func (r *Relay) listenOnce(ctx context.Context, l *leader, wake chan<- struct{}) error {
	conn, err := r.config.Direct.Connect(ctx, "quern relay, listening")
	if err != nil {
		return err
	}
	defer conn.Close()
	notified, err := hears(ctx, conn)
	if err != nil {
		return err
	}
	if !notified {
		r.log.Warn("notifications do not arrive, so new rows wait for up to a second: a pooler swallows them; "+
			"give the URL without the pooler as direct", "database", r.config.Direct.String())
		<-ctx.Done()
		return nil
	}
	l.notified.Store(true)
	r.config.Metrics.RelayLeads(r.config.Name, true, true)
	for ctx.Err() == nil {
		if err := beat(ctx, conn); err != nil {
			return err
		}
		waiting, cancel := context.WithTimeout(ctx, renewInterval)
		came, err := conn.Wait(waiting)
		cancel()
		if err != nil && ctx.Err() == nil {
			return err
		}
		if came {
			select {
			case wake <- struct{}{}:
			default: // the leader has not looked since the last one
			}
		}
	}
	return nil
}

// beat finds out whether the connection still leads to the database: one that a failover has cut may stay open.
func beat(ctx context.Context, conn *postgres.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, lease/2)
	defer cancel()
	_, err := conn.Exec(ctx, "SELECT 1")
	return err
}

// hears listens, and reports whether a notification arrives.
func hears(ctx context.Context, conn *postgres.Conn) (bool, error) {
	if err := conn.Script(ctx, "LISTEN "+channel+"; NOTIFY "+channel); err != nil {
		return false, err
	}
	waiting, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return conn.Wait(waiting)
}

type noMetrics struct{}

func (noMetrics) Relay(string)                   {}
func (noMetrics) RelayLeads(string, bool, bool)  {}
func (noMetrics) RelayRows(string, string, int)  {}
func (noMetrics) RelayLag(string, time.Duration) {}
func (noMetrics) RelayFailed(string)             {}
