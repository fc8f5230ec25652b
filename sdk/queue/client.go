package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// protocolVersion is written to Redis by the first host; a host refuses a newer one.
const protocolVersion = 1

// Config of a Client; the zero value works.
type Config struct {
	Tenant string // the prefix of every key (default "blueque"): see ValidTenant
	// Name begins the IDs of the client's listeners, so that people recognize them after each start (default: the hostname).
	Name  string
	Lease time.Duration // how long a listener counts as alive after its last renewal (default 10 s)
	// Replicas is how many replicas of Redis must have a task before Enqueue succeeds (default 0), and ReplicaTimeout how
	// long to wait for them (default and at most 1 s).
	Replicas       int
	ReplicaTimeout time.Duration
	// Headers are those of the tasks of an Enqueue, from its context; those of their Options come first (default: none). A
	// Publish takes traceparent and tracestate alone. It passes on the trace of the context's span, if it has one:
	//
	//	Headers: func(ctx context.Context) map[string]string {
	//		headers := propagation.MapCarrier{} // of go.opentelemetry.io/otel/propagation
	//		propagation.TraceContext{}.Inject(ctx, headers)
	//		return headers
	//	}
	Headers func(ctx context.Context) map[string]string
}

// DefaultLease is the Lease of the zero Config, and maxLease the longest one.
const (
	DefaultLease = 10 * time.Second
	maxLease     = time.Hour
)

func (c Config) withDefaults() Config {
	c.Tenant = cmp.Or(c.Tenant, DefaultTenant)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.ReplicaTimeout = cmp.Or(c.ReplicaTimeout, time.Second)
	return c
}

func (c Config) validate() error {
	if c.Lease < time.Second || c.Lease > maxLease {
		return fmt.Errorf("%w: lease %s: use 1s to 1h; a dead host is noticed only after its lease", ErrInvalid, c.Lease)
	}
	if c.Replicas < 0 || c.ReplicaTimeout < time.Millisecond || c.ReplicaTimeout > time.Second {
		return fmt.Errorf("%w: %d replicas within %s: use 0 or more, within 1ms to 1s", ErrInvalid, c.Replicas, c.ReplicaTimeout)
	}
	return ValidTenant(c.Tenant)
}

// Client is one tenant's view of Redis; it is safe for concurrent use.
type Client struct {
	store
	beats       redis.UniversalClient // renews leases: see beatConnection
	owned       bool
	config      Config
	waits       waiters
	commits     committer
	subscribers subscribers
}

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

// NewFromRedis uses a connection that the caller owns, and closes after the client; several clients may share it. It should
// obey deadlines (ContextTimeoutEnabled), or a call to a Redis that hangs lasts for the connection's read time-out, and not
// repeat commands (MaxRetries: -1): a repeated reserve leaves tasks that nobody works on until the lists are next compared.
func NewFromRedis(rdb redis.UniversalClient, config Config) (*Client, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	c := &Client{
		store: store{rdb: rdb, keys: keys{config.Tenant}, poll: pollInterval},
		beats: beatConnection(rdb, config.Lease), config: config,
	}
	c.waits.store, c.commits.client = &c.store, c
	return c, nil
}

// In is a client of another tenant on the same connection. The caller closes it.
func (c *Client) In(tenant string) (*Client, error) {
	config := c.config
	config.Tenant = tenant
	return NewFromRedis(c.rdb, config)
}

// beatConnection makes a connection for lease renewals alone, if rdb can be copied; it waits for a sixth of the lease at most.
// On a shared one a renewal would queue behind payloads, and after a failover try one stale connection after the other.
func beatConnection(rdb redis.UniversalClient, lease time.Duration) redis.UniversalClient {
	client := single(rdb)
	if client == nil {
		return rdb
	}
	options := alone(client)
	within := max(lease/6, minBeatTimeout)
	// A connection may still lead to a former primary: after half a lease a renewal dials again, and so reaches the new one.
	options.ConnMaxLifetime = lease / 2
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = within, within, within, within
	dial := options.Dialer // may be Sentinel's, or the caller's
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return dial(ctx, network, addr)
	}
	return keyNaming(redis.NewClient(options))
}

// minBeatTimeout is the shortest wait for a renewal, on a machine that may be busy.
const minBeatTimeout = 250 * time.Millisecond

// Close closes the connections that the client made, not the one passed to NewFromRedis.
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

// Address is where the client looks for Redis: HOST:PORT, or the path of a socket; "" if its connection does not tell.
func (c *Client) Address() string {
	if rdb := single(c.rdb); rdb != nil {
		return rdb.Options().Addr
	}
	return ""
}

// tenantKeys is how many keys Tenants looks at.
const tenantKeys = 100_000

// Tenants lists the tenants of this Redis that have queues, by name. In a Redis of more than 100,000 keys it may miss some.
func (c *Client) Tenants(ctx context.Context) ([]string, error) {
	const block = 1000
	names := make(map[string]bool)
	for cursor, seen := uint64(0), 0; seen < tenantKeys; seen += block {
		found, next, err := c.rdb.ScanType(ctx, cursor, "*"+keys{}.queues(), block, "zset").Result()
		if err != nil {
			return nil, wrap("look for tenants", err)
		}
		for _, key := range found {
			// A tenant's name has no underscore, so what precedes this ending is one, or no key of the protocol.
			if name := strings.TrimSuffix(key, keys{}.queues()); ValidTenant(name) == nil {
				names[name] = true
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// Prepare loads the scripts and checks the protocol's version: ErrVersion if that in Redis is newer or not a number. A host
// calls it after each connect; other programs need not.
func (c *Client) Prepare(ctx context.Context) error {
	// The first command is small: a Redis that wants a password closes a connection that sends much, without an error.
	if err := c.rdb.Get(ctx, c.keys.version()).Err(); err != nil && !isNil(err) {
		return fmt.Errorf("read protocol version: %w", err)
	}
	_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, script := range allScripts {
			p.ScriptLoad(ctx, script.source)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("load scripts: %w", err)
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

// Queues lists the tenant's queues with the number of listeners of each, by name.
func (c *Client) Queues(ctx context.Context) (map[string]int64, error) {
	queues, _, err := c.QueuePage(ctx, 0, math.MaxInt64)
	return queues, err
}

// QueuePage is Queues for at most that many of them, from a place on: those with fewer listeners come first. next is where the page
// behind it begins, 0 if there is none.
func (c *Client) QueuePage(ctx context.Context, from, most int64) (queues map[string]int64, next int64, err error) {
	to := int64(-1)
	if most < math.MaxInt64-from {
		to = from + most - 1
	}
	scored, err := c.rdb.ZRangeWithScores(ctx, c.keys.queues(), from, to).Result()
	queues = make(map[string]int64, len(scored))
	for _, z := range scored {
		if name, ok := z.Member.(string); ok && ValidQueue(name) == nil {
			queues[name] = int64(z.Score)
		}
	}
	if int64(len(scored)) == most {
		next = from + most
	}
	return queues, next, wrap("list queues in "+c.keys.queues(), err)
}

// HasQueue tells whether the tenant has a queue of this name.
func (c *Client) HasQueue(ctx context.Context, name string) (bool, error) {
	if err := ValidQueue(name); err != nil {
		return false, err
	}
	err := c.rdb.ZScore(ctx, c.keys.queues(), name).Err()
	if isNil(err) {
		return false, nil
	}
	return err == nil, wrap("look for queue "+name, err)
}

// busiestOf is of how many queues, those with the most listeners, BusiestQueues looks for the busiest.
const busiestOf = 10_000

// BusiestQueues lists the names of at most that many queues, and how many the tenant has. Of more, half are those with the most
// pending tasks of priority 50, which most tasks have, and the others those with the most listeners.
func (c *Client) BusiestQueues(ctx context.Context, most int) (names []string, all int64, err error) {
	p := c.rdb.Pipeline()
	listed, count := p.ZRevRange(ctx, c.keys.queues(), 0, busiestOf-1), p.ZCard(ctx, c.keys.queues())
	_, err = p.Exec(ctx)
	names = slices.DeleteFunc(listed.Val(), func(name string) bool { return ValidQueue(name) != nil })
	if err == nil && len(names) > most {
		names, err = c.busiest(ctx, names, most)
	}
	return names, count.Val(), wrap("list queues in "+c.keys.queues(), err)
}

// busiest are that many of the queues, which come with the most listeners first.
func (c *Client) busiest(ctx context.Context, served []string, most int) ([]string, error) {
	cmds, err := pipelined(ctx, &c.store, served, func(p redis.Pipeliner, name string) *redis.IntCmd { return p.LLen(ctx, c.keys.pending(name)) })
	if err != nil {
		return nil, err
	}
	pending := make(map[string]int64, len(served))
	for i, cmd := range cmds {
		pending[served[i]] = cmd.Val()
	}
	loaded := slices.SortedStableFunc(slices.Values(served), func(a, b string) int { return cmp.Compare(pending[b], pending[a]) })
	chosen := make(map[string]bool, most)
	for _, name := range slices.Concat(loaded[:(most+1)/2], served) {
		if len(chosen) < most {
			chosen[name] = true
		}
	}
	return slices.DeleteFunc(served, func(name string) bool { return !chosen[name] }), nil
}

// Lease is how long a listener counts as alive after its last renewal.
func (c *Client) Lease() time.Duration { return c.config.Lease }

// Ping asks Redis for an answer.
func (c *Client) Ping(ctx context.Context) error { return wrap("ping", c.rdb.Ping(ctx).Err()) }

// Info is what Redis tells of itself, in the sections that are named; without any, in its usual ones.
func (c *Client) Info(ctx context.Context, sections ...string) (map[string]string, error) {
	text, err := c.rdb.Info(ctx, sections...).Result()
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, wrap("read INFO", err)
}

// Warnings names settings of Redis by which tasks would be lost. The error tells that the user may not read them all.
func (c *Client) Warnings(ctx context.Context) (warnings []string, err error) {
	setting := func(name string) (string, bool) {
		values, failed := c.rdb.ConfigGet(ctx, name).Result()
		err = cmp.Or(err, wrap("read setting "+name, failed))
		value, ok := values[name]
		return value, ok
	}
	if policy, ok := setting("maxmemory-policy"); ok && policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf("Redis evicts keys when its memory is full (maxmemory-policy %s), tasks too: run `redis-cli CONFIG SET maxmemory-policy noeviction`, and write it into redis.conf", policy))
	}
	save, saves := setting("save")
	aof, appends := setting("appendonly")
	if saves && appends && strings.TrimSpace(save) == "" && aof == "no" {
		warnings = append(warnings, "Redis keeps nothing on disk, a restart loses every task: run `redis-cli CONFIG SET appendonly yes`, and write it into redis.conf")
	}
	return warnings, err
}
