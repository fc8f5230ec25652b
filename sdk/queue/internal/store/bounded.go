package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// What a bounded connection reads at most: far more than Quern itself makes Redis answer. Payloads may be larger: see Store.PayloadReader.
const (
	MaxValue   = 2 << 20  // bytes of one value
	MaxReply   = 8 << 20  // bytes of one reply
	maxFields  = 1 << 17  // how many values it has
	maxReplies = 64 << 20 // bytes of the replies to what was sent together
	maxValues  = 1 << 20  // how many values these have
	MaxPush    = 64 << 10 // bytes of a message of Pub/Sub, which are empty
	maxNested  = 64       // how deep lists are in lists
)

// ErrTooLarge is what a ReplyError is.
var ErrTooLarge = errors.New("larger than anything that Quern writes")

// ReplyError is a reply of which a bounded connection has not read the rest.
type ReplyError struct {
	Command, Key string // Key is the command's first one: of a script, the value may be in another key that it names
	Is           string // what is too large
	at           int    // the number of the command in its pipeline, from 0
}

// Error names the key and the remedy.
func (e *ReplyError) Error() string {
	return fmt.Sprintf("%s in the answer to %s of key %s, which is %v: delete what was written there, or to a key that it names, by hand", e.Is, e.Command, e.Key, ErrTooLarge)
}

// Unwrap makes errors.Is find ErrTooLarge.
func (e *ReplyError) Unwrap() error { return ErrTooLarge }

// Bounded is a connection pool whose replies are bounded.
type Bounded struct{ *redis.Client }

// ConnectBounded is Connect for a program that others make read what they wrote, such as a host of several tenants: what Redis answers is
// refused with a ReplyError before it takes memory if it is larger than anything that Quern writes.
func ConnectBounded(rawURL string) (redis.UniversalClient, error) {
	rdb, err := connect(rawURL, func(dial dialer) dialer {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			payload, _ := ctx.Value(payloadBytes{}).(int64)
			return bound(conn, payload), nil
		}
	})
	if err != nil {
		return nil, err
	}
	return Bounded{rdb}, nil
}

// dialer dials a server.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// Single returns the connections of one server behind a client; nil if it has others.
func Single(rdb redis.UniversalClient) *redis.Client {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return rdb
	case Bounded:
		return rdb.Client
	}
	return nil
}

// alone are the options of another client of the same server, with one connection.
func alone(client *redis.Client) *redis.Options {
	options := *client.Options()
	options.PoolSize, options.MinIdleConns, options.MaxRetries, options.DialerRetries = 1, 0, -1, 1
	options.PushNotificationProcessor = nil // each client has its own
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &options
}

// payloadBytes is the key of a context: how many more bytes than others a connection that is dialed reads.
type payloadBytes struct{}

// boundedConn ends when a reply is too large. One goroutine may write while another reads.
type boundedConn struct {
	net.Conn
	payload   int64        // how many bytes more
	sent      Scanner      // used by Write
	asked     atomic.Int64 // requests without a reply
	got       Scanner      // used by Read, as is the rest
	one, many extent       // of the reply that comes, and of it and all since all requests had theirs
	replies   int          // how many these are
	wrong     error        // why it has ended
}

// extent is how large replies are.
type extent struct{ bytes, values int64 }

func (e *extent) add(bytes, values int64) { e.bytes, e.values = e.bytes+bytes, e.values+values }

// boundedSystemConn is one whose socket go-redis looks at before it uses it.
type boundedSystemConn struct {
	*boundedConn
	syscall.Conn
}

func bound(conn net.Conn, payload int64) net.Conn {
	c := &boundedConn{Conn: conn, payload: payload}
	if system, ok := conn.(syscall.Conn); ok {
		return boundedSystemConn{c, system}
	}
	return c
}

// Write counts the requests that begin.
func (c *boundedConn) Write(p []byte) (int, error) {
	if err := c.sent.Scan(p, nil, func() { c.asked.Add(1) }); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Read reads what is not too large.
func (c *boundedConn) Read(p []byte) (int, error) {
	if c.wrong != nil { // go-redis passes over an error, and reads again
		return 0, c.wrong
	}
	n, err := c.Conn.Read(p)
	if c.wrong = c.got.Scan(p[:n], c.check, c.replied); c.wrong != nil {
		_ = c.Close()
		return 0, c.wrong
	}
	return n, err
}

// replied ends a reply, or a message.
func (c *boundedConn) replied() {
	if c.asked.Load() > 0 {
		c.asked.Add(-1)
	}
	c.one = extent{}
	if c.replies++; c.asked.Load() == 0 {
		c.replies, c.many = 0, extent{}
	}
}

// check counts a value of so many bytes, or a list of so many values.
func (c *boundedConn) check(size, values int64) error {
	most, whole := int64(MaxValue), int64(MaxReply)
	if c.asked.Load() == 0 {
		most, whole = MaxPush, MaxPush
	}
	c.one.add(size, values)
	c.many.add(size, values)
	var is string
	switch {
	case size > most+c.payload:
		is = fmt.Sprintf("a value of %d bytes", size)
	case c.one.bytes > whole+c.payload:
		is = fmt.Sprintf("%d bytes", c.one.bytes)
	case c.one.values > maxFields:
		is = fmt.Sprintf("%d values", c.one.values)
	case c.many.bytes > maxReplies+c.payload:
		is = fmt.Sprintf("%d bytes", c.many.bytes)
	case c.many.values > maxValues:
		is = fmt.Sprintf("%d values", c.many.values)
	default:
		return nil
	}
	return &ReplyError{Is: is, at: c.replies}
}

// Scanner follows what Redis's protocol (RESP) carries, without keeping it.
type Scanner struct {
	left int64   // bytes of a value that are still to come
	line []byte  // the beginning of a line that has not ended
	rest int64   // how many bytes more this line has
	open []int64 // how many values of the lists that are open are still to come
}

// errProtocol says that something else than RESP came.
var errProtocol = errors.New("no answer of Redis")

// Scan reads on. check is called at the head of each value and list; end when a request or reply is complete.
func (s *Scanner) Scan(p []byte, check func(size, values int64) error, end func()) error {
	for len(p) > 0 {
		if s.left > 0 {
			n := min(s.left, int64(len(p)))
			if p, s.left = p[n:], s.left-n; s.left == 0 {
				s.done(end)
			}
			continue
		}
		at := bytes.IndexByte(p, '\n')
		piece := p[:max(at, 0)]
		if at < 0 {
			piece = p
		}
		keep := min(len(piece), 32-len(s.line))
		s.line, s.rest = append(s.line, piece[:keep]...), s.rest+int64(len(piece)-keep)
		if check != nil && s.rest > MaxPush {
			return &ReplyError{Is: fmt.Sprintf("a line of more than %d bytes", s.rest)}
		}
		if at < 0 {
			return nil
		}
		p = p[at+1:]
		if err := s.head(check, end); err != nil {
			return err
		}
		s.line, s.rest = s.line[:0], 0
	}
	return nil
}

// head reads the line that is complete.
func (s *Scanner) head(check func(size, values int64) error, end func()) error {
	line := bytes.TrimSuffix(s.line, []byte("\r"))
	if len(line) == 0 {
		return errProtocol
	}
	kind, size, values := line[0], int64(0), int64(0)
	var n int64
	switch kind {
	case '$', '=', '!', '*', '~', '>', '%', '|':
		var err error
		if n, err = strconv.ParseInt(string(line[1:]), 10, 64); err != nil {
			return errProtocol
		}
	}
	switch kind {
	case '$', '=', '!':
		size = max(n, 0)
	case '%', '|':
		values = max(2*n, 0)
	default:
		values = max(n, 0)
	}
	if check != nil {
		if err := check(size, values); err != nil {
			return err
		}
	}
	switch {
	case values > 0 && len(s.open) == maxNested:
		return errProtocol
	case values > 0:
		s.open = append(s.open, values)
	case n >= 0 && (kind == '$' || kind == '=' || kind == '!'):
		s.left = size + 2 // with the end of the line
	default:
		s.done(end)
	}
	return nil
}

// done ends a value, and the lists whose last one it is.
func (s *Scanner) done(end func()) {
	for len(s.open) > 0 {
		last := len(s.open) - 1
		if s.open[last]--; s.open[last] > 0 {
			return
		}
		s.open = s.open[:last]
	}
	end()
}
