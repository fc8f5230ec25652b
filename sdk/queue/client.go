package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// protocolVersion is written to Redis by the first host; a host refuses a newer one.
const protocolVersion = 1

// Config tells a Client whose keys it uses. The zero value works.
type Config struct {
	// Tenant is the prefix of every key (default "blueque"): see ValidTenant.
	Tenant string
	// Lease is how long a listener counts as alive after its last renewal (default 10 s).
	Lease time.Duration
	// Replicas is on how many of Redis's replicas a task must be before enqueueing it succeeds
	// (default 0: none), and ReplicaTimeout how long to wait for them (default and at most 1 s).
	Replicas       int
	ReplicaTimeout time.Duration
}

// DefaultLease is the Lease of the zero Config, and maxLease the longest one.
const (
	DefaultLease = 10 * time.Second
	maxLease     = time.Hour
)

func (c Config) withDefaults() Config {
	if c.Tenant == "" {
		c.Tenant = DefaultTenant
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.ReplicaTimeout == 0 {
		c.ReplicaTimeout = time.Second
	}
	return c
}

func (c Config) validate() error {
	if c.Lease < time.Second || c.Lease > maxLease {
		return fmt.Errorf("%w: lease %s: use 1s to 1h; so long nobody notices that a host has died", ErrInvalid, c.Lease)
	}
	if c.Replicas < 0 || c.ReplicaTimeout < time.Millisecond || c.ReplicaTimeout > time.Second {
		return fmt.Errorf("%w: %d replicas within %s: use 0 or more, within 1ms to 1s", ErrInvalid, c.Replicas, c.ReplicaTimeout)
	}
	return ValidTenant(c.Tenant)
}

// Client is one tenant's view of Redis; it is safe for concurrent use.
type Client struct {
	rdb    redis.UniversalClient
	beats  redis.UniversalClient // what leases are renewed on: see beatConnection
	owned  bool
	keys   keys
	config Config
	waits  waiters
	// clock replaces Redis's clock in scripts; only tests set it.
	clock string
	// poll is pollInterval; only tests set another.
	poll time.Duration
}

// pollInterval is how often an idle listener and a waiter look by themselves: Python clients announce
// neither what they enqueue nor what they settle.
const pollInterval = 5 * time.Second

// New connects lazily to the Redis that the URL names (see Connect). Close it after use.
func New(rawURL string, config Config) (*Client, error) {
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

// NewFromRedis uses a connection that the caller owns and closes, after it has closed the client;
// several clients may share it. It should heed deadlines (ContextTimeoutEnabled), or a Redis that hangs keeps a call for the
// connection's read time-out. It should not repeat commands by itself (MaxRetries: -1): every call here is safe to repeat but
// reserving, and a repeated reserve holds tasks that nobody works on until the next comparison
// with the reserved list.
func NewFromRedis(rdb redis.UniversalClient, config Config) (*Client, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	c := &Client{rdb: rdb, beats: beatConnection(rdb, config.Lease), keys: keys{config.Tenant}, config: config, poll: pollInterval}
	c.waits.client = c
	return c, nil
}

// beatConnection makes the connection on which leases are renewed, where rdb can be copied: one of its
// own, which gives up on an answer in a sixth of the lease. On a shared one a renewal waits as long as
// payloads may take, and after a failover tries one stale connection of the pool after the other, until
// hosts that were luckier take this one for dead.
func beatConnection(rdb redis.UniversalClient, lease time.Duration) redis.UniversalClient {
	client, ok := rdb.(*redis.Client)
	if !ok {
		return rdb
	}
	options := *client.Options()
	within := max(lease/6, minBeatTimeout)
	// A connection may stand to a primary that is none any more. Then the first renewal after half a lease goes to the new
	// one, before the lease that this knows is over.
	options.ConnMaxLifetime = lease / 2
	options.PoolSize, options.MinIdleConns, options.MaxRetries, options.DialerRetries = 1, 0, -1, 1
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = within, within, within, within
	options.PushNotificationProcessor = nil // each client has its own
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	dial := options.Dialer // may be Sentinel's, or the caller's
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return dial(ctx, network, addr)
	}
	return redis.NewClient(&options)
}

// minBeatTimeout is the least time that a renewal is waited for, on a machine that may be busy.
const minBeatTimeout = 250 * time.Millisecond

// Close closes the connections that the client made: not the one that NewFromRedis was given.
func (c *Client) Close() error {
	var err error
	if c.beats != c.rdb {
		err = c.beats.Close()
	}
	if c.owned {
		err = errors.Join(err, c.rdb.Close())
	}
	return err
}

// Tenant is the prefix of the client's keys.
func (c *Client) Tenant() string { return c.config.Tenant }

// Prepare loads the scripts and compares protocol versions: ErrVersion if Redis holds a newer one, or what is none.
// A host calls it whenever it has connected; other programs need not.
func (c *Client) Prepare(ctx context.Context) error {
	// Something small comes first: a Redis that wants a password first drops, without a word, whoever
	// sends it as much as the scripts are.
	if err := c.rdb.Get(ctx, c.keys.version()).Err(); err != nil && !isNil(err) {
		return fmt.Errorf("read protocol version: %w", err)
	}
	if err := c.loadScripts(ctx); err != nil {
		return err
	}
	if err := c.rdb.SetNX(ctx, c.keys.version(), protocolVersion, 0).Err(); err != nil && !IsUnavailable(err) {
		return fmt.Errorf("write protocol version: %w", err)
	}
	text, err := c.rdb.Get(ctx, c.keys.version()).Result()
	if err != nil && !isNil(err) {
		return fmt.Errorf("read protocol version: %w", err)
	}
	version, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil {
		return fmt.Errorf("%w: key %s is %.20q: a number belongs there: delete the key, and hosts write theirs",
			ErrVersion, c.keys.version(), text)
	}
	if version > protocolVersion {
		return fmt.Errorf("%w: key %s is %d, and this program speaks %d: upgrade it",
			ErrVersion, c.keys.version(), version, protocolVersion)
	}
	return nil
}

// Queue names a queue. A name that cannot be one is told by its methods.
func (c *Client) Queue(name string) *Queue { return &Queue{client: c, name: name} }

// Queues lists the tenant's queues with the number of listeners of each, by name.
func (c *Client) Queues(ctx context.Context) (map[string]int64, error) {
	scored, err := c.rdb.ZRangeWithScores(ctx, c.keys.queues(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list queues in %s: %w", c.keys.queues(), err)
	}
	queues := make(map[string]int64, len(scored))
	for _, z := range scored {
		if name, ok := z.Member.(string); ok && ValidQueue(name) == nil {
			queues[name] = int64(z.Score)
		}
	}
	return queues, nil
}

// Lease is how long a listener counts as alive after its last renewal.
func (c *Client) Lease() time.Duration { return c.config.Lease }
