package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/seal"
)

// Config configures a Client. The zero value works.
type Config struct {
	Tenant string // the prefix of every key (default "blueque"): see ValidTenant
	// Name is the first part of the client's listener IDs (default: the hostname). The rest of an ID changes at each
	// restart, so people recognize a listener by this part.
	Name  string
	Lease time.Duration // how long a listener counts as alive after its last renewal (default 10 s)
	// Replicas is the number of Redis replicas that must have a task before Enqueue succeeds (default 0). ReplicaTimeout
	// is how long Enqueue waits for them (default and maximum: 1 s).
	Replicas       int
	ReplicaTimeout time.Duration
	// Headers returns headers for the tasks that a call enqueues, derived from the call's context (default: no headers).
	// Headers in a task's Options take precedence. Publish uses only the returned traceparent and tracestate. For
	// example, this function passes on the trace of the context's span:
	//
	//	Headers: func(ctx context.Context) map[string]string {
	//		headers := propagation.MapCarrier{} // of go.opentelemetry.io/otel/propagation
	//		propagation.TraceContext{}.Inject(ctx, headers)
	//		return headers
	//	}
	Headers func(ctx context.Context) map[string]string
	// Keys encrypt the tenant's payloads in Redis (default: they are not encrypted).
	Keys *seal.Ring
}

// DefaultLease is the default of Config.Lease.
const DefaultLease = 10 * time.Second

func (c Config) withDefaults() Config {
	c.Tenant = cmp.Or(c.Tenant, DefaultTenant)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.ReplicaTimeout = cmp.Or(c.ReplicaTimeout, time.Second)
	return c
}

func (c Config) validate() error {
	if c.Lease < time.Second || c.Lease > store.MaxLease {
		return fmt.Errorf("%w: lease %s: use 1s to 1h; a dead host is noticed only after its lease", ErrInvalid, c.Lease)
	}
	if c.Replicas < 0 || c.ReplicaTimeout < time.Millisecond || c.ReplicaTimeout > time.Second {
		return fmt.Errorf("%w: %d replicas within %s: use 0 or more, within 1ms to 1s", ErrInvalid, c.Replicas,
			c.ReplicaTimeout)
	}
	return ValidTenant(c.Tenant)
}

// Client is one tenant's view of Redis; it is safe for concurrent use.
type Client struct {
	store       *store.Store
	owned       bool
	config      Config
	waits       waiters
	commits     committer
	subscribers subscribers
}

// New returns a Client for the Redis at rawURL (see Connect). If rawURL is "", it is QUERN_REDIS_URL, or else that of
// the `quern dev` that this user runs. The Client connects at its first call. Close it after use.
func New(rawURL string, config Config) (*Client, error) {
	if rawURL == "" {
		found, err := foundURL()
		if err != nil {
			return nil, err
		}
		rawURL = found
	}
	rdb, err := Connect(rawURL)
	if err != nil {
		return nil, err
	}
	c, err := NewFromRedis(rdb, config)
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	c.owned = true
	return c, nil
}

// NewFromRedis returns a Client that uses rdb, which the caller closes after the client. Several clients can share one
// rdb. On a Cluster (redis.NewClusterClient), the tenant is a name in braces. rdb should obey deadlines
// (ContextTimeoutEnabled); otherwise a call to a Redis that hangs ends only at the read timeout. It should not repeat
// commands (MaxRetries: -1). If go-redis repeats a reserve whose reply was lost, the tasks of the first attempt stay
// reserved, and nobody works on them until the listener next compares its list with Redis.
func NewFromRedis(rdb redis.UniversalClient, config Config) (*Client, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	c := &Client{
		store: &store.Store{
			Keys: store.Keys{Tenant: config.Tenant}, Poll: store.PollInterval, Name: config.Name, Lease: config.Lease,
			Seal: config.Keys,
		},
		config: config,
	}
	if err := c.store.Connect(rdb); err != nil {
		return nil, err
	}
	c.waits.store, c.commits.client = c.store, c
	return c, nil
}

// In returns a client for another tenant on the same connection, without Keys. The caller closes it.
func (c *Client) In(tenant string) (*Client, error) {
	config := c.config
	config.Tenant, config.Keys = tenant, nil
	return NewFromRedis(c.store.Pool(), config)
}

// Close closes the connections that the client made, not the one passed to NewFromRedis.
func (c *Client) Close() error {
	var err error
	if c.store.Beats != c.store.RDB {
		err = c.store.Beats.Close()
	}
	if c.store.RDB != c.store.Pool() {
		err = errors.Join(err, c.store.RDB.Close())
	}
	if c.owned {
		err = errors.Join(err, c.store.Pool().Close())
	}
	return err
}

// Tenant returns the prefix of the client's keys.
func (c *Client) Tenant() string { return c.config.Tenant }

// Clock reads Redis's time, by which leases, delays and ages are measured.
func (c *Client) Clock(ctx context.Context) (time.Time, error) { return c.store.Time(ctx) }

// Store gives the other packages of this folder access to the tenant's keys and scripts.
func (c *Client) Store() *store.Store { return c.store }

// Queues returns the tenant's queues: a map from the queue's name to the number of its listeners.
func (c *Client) Queues(ctx context.Context) (map[string]int64, error) {
	queues, _, err := c.store.QueuePage(ctx, 0, math.MaxInt64, ValidQueue)
	return queues, err
}
