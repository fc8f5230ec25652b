package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Connect makes a connection pool for a URL: redis://[USER:PASSWORD@]HOST:PORT/DB, rediss:// for TLS, unix://PATH, and
// for Sentinel redis://SENTINEL:PORT?master_name=NAME[&addr=SENTINEL:PORT], and for a Redis Cluster
// redis://HOST:PORT[,HOST:PORT]?cluster=true. The parameters ca, cert and key name PEM files of a private CA and a
// client certificate. The parameters of go-redis work too. A call dials and sends only once, and observes its context's
// deadline. The first call disables the log of go-redis, which repeats errors on stderr: to have it, call
// redis.SetLogger after that.
func Connect(rawURL string) (redis.UniversalClient, error) { return connect(rawURL, nil) }

// silence keeps go-redis from writing to the program's stderr what it also returns as errors. A program that wants its
// log calls redis.SetLogger after its first Connect.
var silence = sync.OnceFunc(logging.Disable)

// connect is Connect. If within is not nil, connect uses it to wrap the function that dials the server.
func connect(rawURL string, within func(dialer) dialer) (redis.UniversalClient, error) {
	silence()
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
	ofCluster, err := clustered(u, query)
	if err != nil {
		return nil, err
	}
	u.RawQuery = query.Encode()

	if ofCluster {
		options, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, fmt.Errorf("%w: Redis URL %s: %w", ErrInvalid, place(u), hidePassword(query, err))
		}
		options.DialerRetries, options.ContextTimeoutEnabled = 1, true
		options.MaxRetries = -1
		options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		if err := secure(options.TLSConfig, ca, cert, key); err != nil {
			return nil, err
		}
		if within != nil {
			options.DialTimeout = cmp.Or(options.DialTimeout, dialTimeout)
			options.Dialer = within(redis.NewDialer(&redis.Options{
				DialTimeout: options.DialTimeout,
				TLSConfig:   options.TLSConfig,
			}))
		}
		c := newCluster(redis.NewClusterClient(options))
		c.bounded = within != nil
		return c, nil
	}
	if query.Has("master_name") {
		options, err := redis.ParseFailoverURL(u.String())
		if err != nil {
			return nil, fmt.Errorf("%w: Redis URL %s: %w", ErrInvalid, place(u), hidePassword(query, err))
		}
		if !query.Has("conn_max_lifetime") {
			options.ConnMaxLifetime = sentinelConnLife
		}
		options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = -1, 1, true
		if err := secure(options.TLSConfig, ca, cert, key); err != nil {
			return nil, err
		}
		if within != nil {
			options.DialTimeout = cmp.Or(options.DialTimeout, dialTimeout)
			options.Dialer = within(redis.NewDialer(&redis.Options{
				DialTimeout: options.DialTimeout,
				TLSConfig:   options.TLSConfig,
			}))
		}
		return refusingCluster(redis.NewFailoverClient(options)), nil
	}
	options, err := redis.ParseURL(u.String())
	if err != nil && query.Has("password") { // the error may contain a part of the password
		err = errors.New("the password is no parameter: write redis://USER:PASSWORD@HOST:PORT/DB")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: Redis URL %s: %w", ErrInvalid, place(u), err)
	}
	options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = -1, 1, true
	if err := secure(options.TLSConfig, ca, cert, key); err != nil {
		return nil, err
	}
	if within != nil {
		options.DialTimeout = cmp.Or(options.DialTimeout, dialTimeout)
		options.Dialer = within(redis.NewDialer(options))
		// A push notification between replies would be counted as a reply.
		options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	return refusingCluster(redis.NewClient(options)), nil
}

// clustered reports whether the URL is that of a Redis Cluster, and removes the parameter that says so from query.
func clustered(u *url.URL, query url.Values) (bool, error) {
	wrong := func(text string) (bool, error) {
		return false, fmt.Errorf("%w: Redis URL %s: %s", ErrInvalid, place(u), text)
	}
	text := query.Get("cluster")
	query.Del("cluster")
	is, err := strconv.ParseBool(cmp.Or(text, "false"))
	switch {
	case err != nil:
		return wrong("cluster is true for a Redis Cluster, and false otherwise")
	case is && u.Scheme == "unix":
		return wrong("a Redis Cluster has no socket: write redis://HOST:PORT?cluster=true")
	case is && query.Has("master_name"):
		return wrong("both cluster and master_name are set, a Cluster needs no Sentinel: leave one of them out")
	case is && strings.Trim(u.Path, "/0") != "":
		return wrong("a Redis Cluster has only the database 0: leave it out")
	case !is && query.Has("addr") && !query.Has("master_name"):
		return wrong("it has several hosts: add ?cluster=true for a Redis Cluster, or master_name=NAME for Sentinel")
	}
	return is, nil
}

// hidePassword returns the error of a URL with these parameters, without the part of a password after an "&", which
// would be parsed as a parameter.
func hidePassword(query url.Values, err error) error {
	if query.Has("password") {
		return errors.New("a parameter is not known or not right: the password has to be written with %26 for \"&\"")
	}
	return err
}

// dialTimeout is the default dial timeout of go-redis.
const dialTimeout = 5 * time.Second

// sentinelConnLife is the maximum lifetime of a connection to a server that Sentinel named. If Sentinel's message about
// a failover is lost, a connection to the former primary ends after this time. It equals the default lease.
const sentinelConnLife = 10 * time.Second

// parseURL parses a URL of Redis. Its errors show no part of a URL that cannot be parsed: any part may be the password.
func parseURL(rawURL string) (*url.URL, error) {
	u, err := parse(rawURL)
	known := err == nil && (u.Scheme == "redis" || u.Scheme == "rediss" || u.Scheme == "unix") && u.Opaque == ""
	switch {
	case err != nil && strings.Contains(rawURL, "://"), err == nil && isSplit(u, rawURL):
		return nil, fmt.Errorf("%w: Redis URL: it %s: write redis://USER:PASSWORD@HOST:PORT/DB, "+
			"and as %%XX what is neither letter nor digit in user and password", ErrInvalid, damage(rawURL, err))
	case !known:
		right := "redis://HOST:PORT/DB"
		if address := bareAddress.FindStringSubmatch(rawURL); address != nil {
			right = "redis://" + address[1] + cmp.Or(address[2], "/0")
		} else if err == nil && u.Host != "" {
			right = place(&url.URL{Scheme: "redis", Host: u.Host, Path: "/0"})
		}
		return nil, fmt.Errorf("%w: Redis URL: it has no scheme that is known: write %s, or the same with rediss:// for TLS, or unix://PATH", ErrInvalid, right)
	case u.Scheme == "unix":
		return u, nil
	}
	return u, checkAddress(u)
}

// parse is url.Parse, but refuses invalid parameters. URL.Query would leave them out, and they may be a part of a
// password. Of several hosts, those after the first become parameters addr, as go-redis writes them.
func parse(rawURL string) (*url.URL, error) {
	hosts := severalHosts.FindStringSubmatch(rawURL)
	if hosts != nil {
		rawURL = hosts[1] + hosts[3]
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return u, err
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err == nil && hosts != nil {
		for host := range strings.SplitSeq(hosts[2][1:], ",") {
			if _, _, err := net.SplitHostPort(host); err != nil {
				host += ":6379"
			}
			query.Add("addr", host)
		}
		u.RawQuery = query.Encode()
	}
	return u, err
}

// severalHosts matches a URL with several hosts: up to the first, the others, and the rest.
var severalHosts = regexp.MustCompile(`^(rediss?://(?:[^/?#@]*@)?[^/?#@,]+)((?:,[^/?#@,]+)+)([/?#].*)?$`)

// bareAddress matches HOST:PORT and HOST:PORT/DB.
var bareAddress = regexp.MustCompile(`^([A-Za-z0-9.-]+:[0-9]+)(/[0-9]+)?$`)

// damage explains why a URL cannot be parsed, without quoting any part of it.
func damage(rawURL string, err error) string {
	_, rest, _ := strings.Cut(rawURL, "://")
	end := strings.IndexAny(rest, "/?#")
	var escape url.EscapeError
	switch {
	case end >= 0 && strings.ContainsAny(rest[end:], "@#"):
		return "has a /, ? or # in its password or user"
	case strings.Contains(rawURL, " "):
		return "has a space in it"
	case errors.As(err, &escape):
		return "has a % that begins no %XX"
	case err != nil && strings.Contains(err.Error(), "invalid port"):
		return "has a port that is no number"
	case err != nil && strings.Contains(err.Error(), "missing ']'"):
		return "has a [ without its ]"
	}
	return "cannot be read"
}

// checkAddress refuses addresses that go-redis could never dial, or for which its error would be wrong.
func checkAddress(u *url.URL) error {
	wrong := func(text string) error { return fmt.Errorf("%w: Redis URL %s: %s", ErrInvalid, place(u), text) }
	if strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(u.Host, "[") {
		return wrong("it has too many colons in its host: write redis://HOST:PORT/DB, and an IPv6 address in brackets")
	}
	if _, err := strconv.ParseUint(cmp.Or(u.Port(), "0"), 10, 16); err != nil {
		return wrong("it has a port above 65535: write redis://HOST:PORT/DB")
	}
	if _, err := strconv.ParseUint(cmp.Or(strings.Trim(u.Path, "/"), "0"), 10, 31); err != nil {
		return wrong("its database is no number from 0 on: write " +
			place(&url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host, Path: "/0"}))
	}
	return nil
}

// isSplit reports whether a part of the password may be in another component of the URL, because a "/" or "#" in the
// password was not written as %2F or %23.
func isSplit(u *url.URL, rawURL string) bool {
	return u.User == nil && strings.Contains(rawURL, "@") || strings.Contains(rawURL, "#") ||
		strings.Contains(u.RawQuery, "@") || u.Scheme != "unix" && strings.Contains(u.Opaque+u.EscapedPath(), "@")
}

// Redact returns a URL of Redis or of a proxy with xxxxx instead of every password. If the URL cannot be parsed, Redact
// returns only xxxxx.
func Redact(rawURL string) string {
	u, err := parse(rawURL)
	if err != nil || isSplit(u, rawURL) || u.Opaque != "" || u.Scheme == "" {
		return "xxxxx"
	}
	query := u.Query()
	for name := range query {
		if secretName.MatchString(name) {
			query.Set(name, "xxxxx")
			u.RawQuery = query.Encode()
		}
	}
	return hideUser(u).Redacted()
}

// secretName matches the names of parameters whose values Redact hides.
var secretName = regexp.MustCompile(`(?i)pass|secret|token`)

// place formats the URL for messages, without password and parameters, because a misspelled parameter may be a
// password.
func place(u *url.URL) string {
	shown := *u
	shown.RawQuery = ""
	return hideUser(&shown).Redacted()
}

// hideUser replaces a user name without a password, because the name may be the password.
func hideUser(u *url.URL) *url.URL {
	if _, has := u.User.Password(); u.User != nil && !has {
		u.User = url.User("xxxxx")
	}
	return u
}

// secure adds a private CA and a client certificate to a TLS configuration.
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
	if (cert == "") != (key == "") {
		return fmt.Errorf("%w: Redis client certificate %q and key %q: set both, or neither", ErrInvalid, cert, key)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("read Redis client certificate %q and key %q: %w", cert, key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// BeatConnection makes a separate connection for lease renewals if rdb is a client of a single server; otherwise it
// returns rdb. The timeout of a renewal is a sixth of the lease, but at least minBeatTimeout. On a shared connection
// pool, a renewal would wait behind payloads, and after a failover it would try one stale connection after the other.
func BeatConnection(rdb redis.UniversalClient, lease time.Duration) redis.UniversalClient {
	client := Single(rdb)
	if client == nil {
		return rdb
	}
	options := alone(client)
	within := max(lease/6, minBeatTimeout)
	// After a failover, a connection may still lead to the former primary. After half a lease, a renewal dials anew,
	// and so reaches the new primary.
	options.ConnMaxLifetime = lease / 2
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = within, within, within, within
	dial := options.Dialer // Sentinel's or the caller's, if there is one
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return dial(ctx, network, addr)
	}
	return keyNaming(redis.NewClient(options))
}

// minBeatTimeout is the minimum timeout of a lease renewal, because the machine may be busy.
const minBeatTimeout = 250 * time.Millisecond
