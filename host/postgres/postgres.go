// Package postgres connects to PostgreSQL by an operator's URL: neither the environment nor files in the home directory
// change what a URL means. Values are in PostgreSQL's own text format, so nothing is lost in a conversion.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	connectTimeout = 10 * time.Second
	// A connection whose peer is gone ends after keepIdle + keepCount · keepInterval.
	keepIdle     = 10 * time.Second
	keepInterval = 5 * time.Second
	keepCount    = 3
)

// urlRule is the remedy for a URL that cannot be used.
const urlRule = "write postgres://USER:PASSWORD@HOST:PORT/DATABASE, and ?sslmode=verify-full&sslrootcert=FILE for a server with a certificate"

// urlParameters are the parameters that a URL may have.
var urlParameters = map[string]bool{
	"sslmode": true, "sslrootcert": true, "sslcert": true, "sslkey": true, "sslsni": true, "channel_binding": true,
	"target_session_attrs": true, "connect_timeout": true, "application_name": true, "host": true, "port": true,
}

// Address is where a database is, and who connects to it.
type Address struct {
	config *pgconn.Config
	text   string // without the password
}

// Parse reads a URL. The error does not contain the password.
func Parse(text string) (*Address, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, errors.New("not a URL of PostgreSQL: " + urlRule)
	}
	query := u.Query()
	without := *u
	without.RawQuery = "" // it may have a password
	shown := without.Redacted()
	for name := range query {
		if !urlParameters[name] {
			return nil, fmt.Errorf("%s: unknown parameter %q: %s", shown, name, urlRule)
		}
	}
	if u.Host == "" && query.Get("host") == "" || u.User.Username() == "" || strings.Trim(u.Path, "/") == "" {
		return nil, fmt.Errorf("%s: host, user or database is missing: %s", shown, urlRule)
	}
	if os.Getenv("PGSERVICE") != "" {
		return nil, errors.New("PGSERVICE is set, which would change where the URL leads: unset PGSERVICE")
	}
	for name, value := range map[string]string{ // what libpq would take from the environment or from files
		"sslmode": "prefer", "sslrootcert": "", "sslcert": "", "sslkey": "", "sslsni": "1", "sslpassword": "",
		"sslnegotiation": "postgres", "channel_binding": "prefer", "target_session_attrs": "any", "passfile": "",
		"connect_timeout": fmt.Sprintf("%.0f", connectTimeout.Seconds()), "options": "", "timezone": "",
		"application_name": "",
	} {
		if !query.Has(name) {
			query.Set(name, value)
		}
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("%s: port %s: use 1 to 65535", shown, port)
		}
	}
	if u.Port() == "" && !query.Has("port") && !strings.Contains(u.Host, ",") {
		query.Set("port", "5432")
	}
	if _, has := u.User.Password(); !has {
		u.User = url.UserPassword(u.User.Username(), "")
	}
	u.RawQuery = query.Encode()
	config, err := pgconn.ParseConfig(u.String())
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %s", shown, reason(err), urlRule)
	}
	config.RuntimeParams = map[string]string{"client_encoding": "UTF8"}
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: keepIdle, Interval: keepInterval, Count: keepCount,
	}}
	config.DialFunc = dialer.DialContext
	return &Address{config, shown}, nil
}

// ReadFile reads the URL that a file contains.
func ReadFile(name string) (*Address, error) {
	text, err := os.ReadFile(name) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("read the URL of a database: %w", err)
	}
	address, err := Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return address, nil
}

// reason returns what is wrong with a URL, without the URL, which has the password.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// String returns the URL, with xxxxx instead of the password.
func (a *Address) String() string { return a.text }

// Host returns the host and the port.
func (a *Address) Host() string { return fmt.Sprintf("%s:%d", a.config.Host, a.config.Port) }

// Database returns the name of the database.
func (a *Address) Database() string { return a.config.Database }

// connectError is an error of connecting, on one line. pgconn tries each address with and without TLS, and repeats the
// cause with the address before it.
type connectError struct {
	to  string
	err error
}

func (e *connectError) Unwrap() error { return e.err }

func (e *connectError) Error() string {
	failed, ok := errors.AsType[*pgconn.ConnectError](e.err)
	if !ok {
		return "connect to " + e.to + ": " + oneLine(e.err.Error())
	}
	var causes []string
	for cause := range strings.Lines(failed.Unwrap().Error()) {
		if at := strings.Index(cause, "): "); at >= 0 {
			cause = cause[at+len("): "):]
		}
		cause = oneLine(strings.TrimPrefix(cause, "dial error: "))
		if !slices.Contains(causes, cause) {
			causes = append(causes, cause)
		}
	}
	return "connect to " + e.to + ": " + strings.Join(causes, "; ")
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Connect opens a connection. application names it in pg_stat_activity.
func (a *Address) Connect(ctx context.Context, application string) (*Conn, error) {
	config := a.config.Copy()
	config.RuntimeParams["application_name"] = application
	c := &Conn{address: a}
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { c.notified = true }
	var err error
	if c.conn, err = pgconn.ConnectConfig(ctx, config); err != nil {
		return nil, &connectError{a.text, Readable(err)}
	}
	return c, nil
}
