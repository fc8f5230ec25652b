package queue

import (
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
		if !query.Has("conn_max_lifetime") {
			options.ConnMaxLifetime = sentinelConnLife
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

// sentinelConnLife is how long a connection may stand to a primary of which Sentinel perhaps could not say that it is
// none any more: as long as the lease is by default.
const sentinelConnLife = 10 * time.Second

// parseURL reads a URL of Redis. What it says of one that is damaged shows nothing of it: a password may stand
// anywhere in it.
func parseURL(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	switch {
	case err != nil, isSplit(u, rawURL):
		return nil, fmt.Errorf("%w: Redis URL: it cannot be read: write redis://USER:PASSWORD@HOST:PORT/DB, "+
			"and as %%XX what is neither letter nor digit in user and password", ErrInvalid)
	case u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix":
		return nil, fmt.Errorf("%w: Redis URL: it has no scheme that is known: begin it with redis://, rediss:// or unix://", ErrInvalid)
	}
	return u, nil
}

// isSplit tells whether a password may stand elsewhere than in its place, as one with a "/" or a "#" does that is not
// written as %2F or %23.
func isSplit(u *url.URL, rawURL string) bool {
	return u.User == nil && strings.Contains(rawURL, "@") || strings.Contains(rawURL, "#") ||
		u.Scheme != "unix" && strings.Contains(u.Opaque+u.EscapedPath()+u.RawQuery, "@")
}

// Redact is a URL as people may see it, of Redis or of a proxy: every password in it is xxxxx, and so is all of one that
// cannot be read.
func Redact(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || isSplit(u, rawURL) || u.Opaque != "" || u.Scheme == "" {
		return "xxxxx"
	}
	query := u.Query()
	hidden := false
	for name := range query { // Sentinel's is one of the primary
		if lower := strings.ToLower(name); strings.Contains(lower, "pass") || strings.Contains(lower, "secret") || strings.Contains(lower, "token") {
			query.Set(name, "xxxxx")
			hidden = true
		}
	}
	if hidden {
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
