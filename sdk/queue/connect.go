package queue

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Connect makes a connection pool for a URL: redis://[USER:PASSWORD@]HOST:PORT/DB, rediss:// for
// TLS, unix://PATH, and for Sentinel redis://SENTINEL:PORT?master_name=NAME[&addr=SENTINEL:PORT].
// The parameters ca, cert and key name PEM files of a private CA and a client certificate.
// go-redis's own parameters (pool_size, read_timeout, ...) hold as well. It does not dial; later each
// call dials and sends once, and ends with its context's deadline: who calls decides whether to try again.
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
		options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = -1, 1, true
		return redis.NewFailoverClient(options), nil
	}
	options, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("%w: Redis URL %s: %w", ErrInvalid, place(u), err)
	}
	if err := secure(options.TLSConfig, ca, cert, key); err != nil {
		return nil, err
	}
	options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = -1, 1, true
	return redis.NewClient(options), nil
}

// sentinelConnLife is how long a connection may stand to a primary of which Sentinel perhaps could not say that it is
// none any more: as long as the lease is by default.
const sentinelConnLife = 10 * time.Second

// parseURL reads a URL of Redis. What it says of one that is damaged shows nothing of it: a password may stand
// anywhere in it.
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

// parse is url.Parse, with an error also for parameters that Query would leave out, a part of a password perhaps.
func parse(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err == nil {
		_, err = url.ParseQuery(u.RawQuery)
	}
	return u, err
}

// bareAddress is HOST:PORT or HOST:PORT/DB.
var bareAddress = regexp.MustCompile(`^([A-Za-z0-9.-]+:[0-9]+)(/[0-9]+)?$`)

// damage says why a URL cannot be read, without a piece of it.
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

// checkAddress refuses what go-redis would try to reach, or would not say rightly what is wrong with.
func checkAddress(u *url.URL) error {
	wrong := func(text string) error { return fmt.Errorf("%w: Redis URL %s: %s", ErrInvalid, place(u), text) }
	if strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(u.Host, "[") {
		return wrong("it has too many colons in its host: write redis://HOST:PORT/DB, and an IPv6 address in brackets")
	}
	if _, err := strconv.ParseUint(cmp.Or(u.Port(), "0"), 10, 16); err != nil {
		return wrong("it has a port above 65535: write redis://HOST:PORT/DB")
	}
	if _, err := strconv.ParseUint(cmp.Or(strings.Trim(u.Path, "/"), "0"), 10, 31); err != nil {
		return wrong("its database is no number from 0 on: write " + place(&url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host, Path: "/0"}))
	}
	return nil
}

// isSplit tells whether a password may stand elsewhere than in its place, as one with a "/" or a "#" does that is not
// written as %2F or %23.
func isSplit(u *url.URL, rawURL string) bool {
	return u.User == nil && strings.Contains(rawURL, "@") || strings.Contains(rawURL, "#") ||
		strings.Contains(u.RawQuery, "@") || u.Scheme != "unix" && strings.Contains(u.Opaque+u.EscapedPath(), "@")
}

// Redact is a URL as people may see it, of Redis or of a proxy: every password in it is xxxxx, and so is all of one that
// cannot be read.
func Redact(rawURL string) string {
	u, err := parse(rawURL)
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
