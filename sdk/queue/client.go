package queue

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// protocolVersion is written to Redis by the first host; a host refuses a newer one.
const protocolVersion = 1

// Config tells a Client whose keys it uses. The zero value works.
type Config struct {
	// Tenant is the prefix of every key (default "blueque"): see ValidTenant.
	Tenant string
	// Lease is how long a listener counts as alive after its last renewal (default 10 s).
	Lease time.Duration
}

func (c Config) withDefaults() Config {
	if c.Tenant == "" {
		c.Tenant = DefaultTenant
	}
	if c.Lease == 0 {
		c.Lease = 10 * time.Second
	}
	return c
}

func (c Config) validate() error {
	if c.Lease < time.Second {
		return fmt.Errorf("%w: lease %s: use at least 1s", ErrInvalid, c.Lease)
	}
	return ValidTenant(c.Tenant)
}

// Client is one tenant's view of Redis; it is safe for concurrent use.
type Client struct {
	rdb    redis.UniversalClient
	owned  bool
	keys   keys
	config Config
	// clock replaces Redis's clock in scripts; only tests set it.
	clock string
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

// NewFromRedis uses a connection that the caller owns and closes; several clients may share it. It
// should not repeat commands by itself (MaxRetries: -1): every call here is safe to repeat but
// reserving, and a repeated reserve holds tasks that nobody works on until the next comparison
// with the reserved list.
func NewFromRedis(rdb redis.UniversalClient, config Config) (*Client, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Client{rdb: rdb, keys: keys{config.Tenant}, config: config}, nil
}

// Connect makes a connection pool for a URL: redis://[USER:PASSWORD@]HOST:PORT/DB, rediss:// for
// TLS, unix://PATH, and for Sentinel redis://SENTINEL:PORT?master_name=NAME[&addr=SENTINEL:PORT].
// The parameters ca, cert and key name PEM files of a private CA and a client certificate.
// go-redis's own parameters (pool_size, read_timeout, ...) hold as well. It does not dial; later each
// call dials and sends once: who calls decides whether to try again.
func Connect(rawURL string) (redis.UniversalClient, error) {
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	query := u.Query()
	ca, cert, key := query.Get("ca"), query.Get("cert"), query.Get("key")
	for _, name := range []string{"ca", "cert", "key"} {
		query.Del(name)
	}
	secured := ca != "" || cert != "" || key != ""
	if secured && u.Scheme != "rediss" {
		return nil, fmt.Errorf("%w: Redis URL %s: ca, cert and key need rediss://", ErrInvalid, place(u))
	}
	u.RawQuery = query.Encode()

	if query.Has("master_name") {
		options, err := redis.ParseFailoverURL(u.String())
		if err != nil && query.Has("password") { // with an "&" in it, what is told as a parameter is a part of it
			err = errors.New("a parameter is not known or not right: the password has to be written with %26 for \"&\"")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: Redis URL %s: %w", ErrInvalid, place(u), err)
		}
		if err := secure(options.TLSConfig, ca, cert, key); err != nil {
			return nil, err
		}
		options.MaxRetries, options.DialerRetries = -1, 1
		return redis.NewFailoverClient(options), nil
	}
	options, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("%w: Redis URL %s: %w", ErrInvalid, place(u), err)
	}
	if err := secure(options.TLSConfig, ca, cert, key); err != nil {
		return nil, err
	}
	options.MaxRetries, options.DialerRetries = -1, 1
	return redis.NewClient(options), nil
}

// parseURL reads a URL. What it says of one that is damaged shows nothing of it: a password may stand
// anywhere in it, as one with a "/" or a "#" does that is not written as %2F or %23.
func parseURL(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	switch {
	case err != nil, u.User == nil && strings.Contains(rawURL, "@"), strings.Contains(rawURL, "#"),
		u.Scheme != "unix" && strings.Contains(u.Opaque+u.EscapedPath()+u.RawQuery, "@"):
		return nil, fmt.Errorf("%w: Redis URL: it cannot be read: write redis://USER:PASSWORD@HOST:PORT/DB, "+
			"and as %%XX what is neither letter nor digit in user and password", ErrInvalid)
	case u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix":
		return nil, fmt.Errorf("%w: Redis URL: it has no scheme that is known: begin it with redis://, rediss:// or unix://", ErrInvalid)
	}
	return u, nil
}

// Redact is a Redis URL as people may see it: every password in it is xxxxx.
func Redact(rawURL string) string {
	u, err := parseURL(rawURL)
	if err != nil {
		return "xxxxx"
	}
	if query := u.Query(); query.Has("password") { // that of the primary, behind Sentinel
		query.Set("password", "xxxxx")
		u.RawQuery = query.Encode()
	}
	return hideUser(u).Redacted()
}

// place is the URL for messages: without passwords, and without parameters, of which one may be a
// password under a misspelled name.
func place(u *url.URL) string {
	shown := *u
	shown.RawQuery = ""
	return hideUser(&shown).Redacted()
}

// hideUser takes away a user without a password, who may be the password.
func hideUser(u *url.URL) *url.URL {
	if _, has := u.User.Password(); u.User != nil && !has {
		u.User = url.User("xxxxx")
	}
	return u
}

// secure puts a private CA and a client certificate into a TLS configuration.
func secure(config *tls.Config, ca, cert, key string) error {
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("read Redis CA %q: %w", ca, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%w: Redis CA %q holds no PEM certificate", ErrInvalid, ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("read Redis client certificate %q and key %q: %w", cert, key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// Close closes the connection if New made it.
func (c *Client) Close() error {
	if !c.owned {
		return nil
	}
	return c.rdb.Close()
}

// Tenant is the prefix of the client's keys.
func (c *Client) Tenant() string { return c.config.Tenant }

// Prepare loads the scripts and compares protocol versions: ErrVersion if Redis holds a newer one.
// A host calls it whenever it has connected; other programs need not.
func (c *Client) Prepare(ctx context.Context) error {
	if err := c.loadScripts(ctx); err != nil {
		return err
	}
	if err := c.rdb.SetNX(ctx, c.keys.version(), protocolVersion, 0).Err(); err != nil && !IsUnavailable(err) {
		return fmt.Errorf("write protocol version: %w", err)
	}
	version, err := c.rdb.Get(ctx, c.keys.version()).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("read protocol version: %w", err)
	}
	if version > protocolVersion {
		return fmt.Errorf("%w: Redis holds version %d of tenant %q, this program speaks %d: upgrade it",
			ErrVersion, version, c.Tenant(), protocolVersion)
	}
	return nil
}

// Queue names a queue. A name that cannot be one is told by its methods.
func (c *Client) Queue(name string) *Queue { return &Queue{client: c, name: name} }

// Queues lists the tenant's queues with the number of listeners of each, by name.
func (c *Client) Queues(ctx context.Context) (map[string]int64, error) {
	scored, err := c.rdb.ZRangeWithScores(ctx, c.keys.queues(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
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
