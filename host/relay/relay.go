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
	// Raquel or Nsj is the table to relay (default: the outbox). Its rows are for Tenant.
	Raquel *Raquel
	Nsj    *Nsj
	// Hold is how long relayed rows are kept in quern.outbox_held (default: not at all).
	Hold time.Duration
	// KeepEnded is how long rows of quern.ended are kept (default: a week).
	KeepEnded time.Duration
	// NotBefore leaves out rows that were inserted earlier, such as those of a restored dump (default: none).
	NotBefore time.Time
	Logger    hclog.Logger // default: none
	Metrics   Metrics      // default: none

	parkedFor time.Duration // for tests: see parkedFor
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

// source is a kind of table whose rows become tasks.
type source interface {
	// name names the source within its database. For each name one relay leads.
	name() string
	// check returns an error if the database has no such table as the source needs.
	check(ctx context.Context, db *postgres.Conn) error
	// relay relays rows, and brings the ends of their tasks back, until ctx ends.
	relay(ctx context.Context, t *term) error
}

// Relay relays one source of one database.
type Relay struct {
	config Config
	source source
	holder string
	log    hclog.Logger
	// failing is set while each term ends soon after it has begun: then not each term is logged. The goroutine of a term
	// uses it, and between terms that of Run.
	failing bool

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
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.Direct = cmp.Or(config.Direct, config.Database)
	config.KeepEnded = cmp.Or(config.KeepEnded, 7*24*time.Hour)
	config.Name = config.name()
	if config.Logger == nil {
		config.Logger = hclog.NewNullLogger()
	}
	config.Logger = config.Logger.With("source", config.Name)
	if config.Metrics == nil {
		config.Metrics = noMetrics{}
	}
	config.Metrics.Relay(config.Name)
	name, _ := os.Hostname()
	table := source(outboxTable{})
	switch {
	case config.Raquel != nil:
		table = &raquelTable{Raquel: *config.Raquel}
	case config.Nsj != nil:
		table = newNsjTable(*config.Nsj)
	}
	return &Relay{
		config: config, source: table, log: config.Logger,
		holder: fmt.Sprintf("%s %d %s", name, os.Getpid(), uuid.NewString()[:8]),
		err:    errors.New("has not reached the database yet"),
	}, nil
}

// name returns the name of the source.
func (c *Config) name() string {
	name := c.Database.Host() + "/" + c.Database.Database()
	if table, _ := c.table(); table != "" {
		name += "/" + table
	}
	return cmp.Or(c.Name, name)
}

// table returns the table of another library that is relayed, and the name of the library; "" for the outbox.
func (c *Config) table() (table, library string) {
	switch {
	case c.Raquel != nil:
		return c.Raquel.Table, "Raquel"
	case c.Nsj != nil:
		return c.Nsj.Table, "nsj-queue-lib"
	}
	return "", ""
}

func (c *Config) validate() error {
	table, library := c.table()
	switch {
	case c.Hold < 0 || c.KeepEnded < 0:
		return fmt.Errorf("%w: hold %s, keep ended %s: use 0s or more; 0s keeps ended rows for a week", queue.ErrInvalid, c.Hold, c.KeepEnded)
	case library == "":
		return nil
	case c.Raquel != nil && c.Nsj != nil:
		return fmt.Errorf("%w: raquel and nsj in one source: write a source for each", queue.ErrInvalid)
	case table == "" && c.Raquel != nil:
		return fmt.Errorf("%w: raquel has no table: write raquel: {table: jobs}", queue.ErrInvalid)
	case table == "":
		return fmt.Errorf("%w: nsj has no table: write nsj: {table: fila}", queue.ErrInvalid)
	case len(c.Tenants) != 1:
		return fmt.Errorf("%w: %d tenants for the table %s of %s: its rows name no tenant, so give one", queue.ErrInvalid,
			len(c.Tenants), table, library)
	case c.Hold != 0 || !c.NotBefore.IsZero():
		return fmt.Errorf("%w: hold and not_before are for the outbox, and not for a table of %s: leave them out",
			queue.ErrInvalid, library)
	}
	if err := ValidTable(table); err != nil {
		return err
	}
	if c.Nsj != nil {
		return c.Nsj.validate()
	}
	for _, name := range c.Raquel.Queues {
		if err := queue.ValidTarget(name); err != nil {
			return err
		}
	}
	return nil
}

// client returns the client of a tenant; "" is the tenant of rows that name none.
func (r *Relay) client(tenant string) *queue.Client {
	return r.config.Tenants[cmp.Or(tenant, r.config.Tenant)]
}

// Preflight returns why the relay cannot work on the database as it is: a table or a right is missing. It returns nil
// if the database does not answer, because Run waits for it.
func (r *Relay) Preflight(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	db, err := r.connect(ctx, ", preflight")
	if err != nil {
		return nil //nolint:nilerr // Run logs it, and tries again
	}
	defer db.Close()
	if err = r.check(ctx, db); isOfServer(postgres.State(err)) {
		return nil
	}
	if _, lost := db.Exec(ctx, "SELECT 1"); lost != nil {
		return nil //nolint:nilerr // as above
	}
	return err
}

// Run relays until ctx ends. While the database or Redis is away, it tries again.
func (r *Relay) Run(ctx context.Context) {
	var pause periodic.Pause
	logged := ""
	for {
		began := time.Now()
		err := r.lead(ctx)
		if ctx.Err() != nil {
			return
		}
		r.become("", err)
		r.config.Metrics.RelayLeads(r.config.Name, false, false)
		r.config.Metrics.RelayLag(r.config.Name, 0)
		if !errors.Is(err, errNotLeader) {
			r.config.Metrics.RelayFailed(r.config.Name)
			r.failing = true
			if text := err.Error(); text != logged {
				logged = text
				r.log.Warn("relay stopped; trying again", "error", err)
			}
		}
		if time.Since(began) > lease {
			pause.Succeeded()
			logged = ""
		}
		if !pause.Sleep(ctx) {
			return
		}
	}
}

// connect opens a connection. use says for what, in pg_stat_activity.
func (r *Relay) connect(ctx context.Context, use string) (*postgres.Conn, error) {
	return r.config.Database.Connect(ctx, "quern relay"+use)
}

type noMetrics struct{}

func (noMetrics) Relay(string)                   {}
func (noMetrics) RelayLeads(string, bool, bool)  {}
func (noMetrics) RelayRows(string, string, int)  {}
func (noMetrics) RelayLag(string, time.Duration) {}
func (noMetrics) RelayFailed(string)             {}
