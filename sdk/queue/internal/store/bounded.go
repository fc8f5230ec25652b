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

// The bounds of replies on a bounded connection. They are far above the replies to Quern's own commands. Only payloads
// can be larger: see Store.PayloadReader.
const (
	MaxValue   = 2 << 20  // maximum bytes of one value
	MaxReply   = 8 << 20  // maximum bytes of one reply
	maxFields  = 1 << 17  // maximum number of values in one reply
	maxReplies = 64 << 20 // maximum bytes of all replies of a pipeline
	maxValues  = 1 << 20  // maximum number of values in all replies of a pipeline
	MaxPush    = 64 << 10 // maximum bytes of a Pub/Sub message (Quern's are empty), or of a line
	maxNested  = 64       // maximum depth of lists in lists
)

// ErrTooLarge matches every ReplyError, and the errors of NoRoom.
var ErrTooLarge = errors.New("larger than anything that Quern writes")

// ReplyError reports a reply that is too large. The bounded connection has not read the rest of the reply.
type ReplyError struct {
	Command, Key string // Key is the command's first key; a script may have read the value from another key
	Is           string // describes what is too large
	at           int    // index of the command in its pipeline
}

// Error names the key and the remedy.
func (e *ReplyError) Error() string {
	return fmt.Sprintf("the reply to %s of key %s has %s, which is %v: delete the value that was written by hand to this key, or to one that it names", e.Command, e.Key, e.Is, ErrTooLarge)
}

// Unwrap makes errors.Is find ErrTooLarge.
func (e *ReplyError) Unwrap() error { return ErrTooLarge }

// Bounded is a connection pool that bounds the size of replies.
type Bounded struct{ *redis.Client }

// ConnectBounded is Connect for a program that reads data written by others, such as a host of several tenants. If a
// reply of Redis is larger than anything that Quern writes, the call fails with a ReplyError before the reply takes
// memory.
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
	if single, is := rdb.(*redis.Client); is {
		return Bounded{single}, nil
	}
	return rdb, nil // a cluster, which knows that it is bounded
}

// dialer dials a server.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// Single returns rdb as a *redis.Client if it connects to a single server, and nil otherwise.
func Single(rdb redis.UniversalClient) *redis.Client {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return rdb
	case Bounded:
		return rdb.Client
	}
	return nil
}

// alone returns the options for another client of the same server with a single connection.
func alone(client *redis.Client) *redis.Options {
	options := *client.Options()
	options.PoolSize, options.MinIdleConns, options.MaxRetries, options.DialerRetries = 1, 0, -1, 1
	options.PushNotificationProcessor = nil // each client needs its own
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &options
}

// payloadBytes is a context key. Its value is the number of bytes by which the bounds of the dialed connection are
// raised.
type payloadBytes struct{}

// boundedConn closes itself when a reply is too large. One goroutine can write while another reads.
type boundedConn struct {
	net.Conn
	payload int64        // bytes by which the bounds are raised
	sent    Scanner      // used by Write only
	asked   atomic.Int64 // number of requests without a reply

	// The following fields are used by Read only.
	got     Scanner
	one     extent // size of the current reply so far
	many    extent // size of all replies since the last time when all requests had their reply
	replies int    // number of complete replies in many
	wrong   error  // the reason why the connection has closed itself; nil if it has not
}

// extent is the size of replies.
type extent struct{ bytes, values int64 }

func (e *extent) add(bytes, values int64) { e.bytes, e.values = e.bytes+bytes, e.values+values }

// boundedSystemConn is a boundedConn with access to its socket, which go-redis checks before it reuses the connection.
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

// Write sends requests and counts them.
func (c *boundedConn) Write(p []byte) (int, error) {
	if err := c.sent.Scan(p, nil, func() { c.asked.Add(1) }); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Read reads replies, and fails when one is too large.
func (c *boundedConn) Read(p []byte) (int, error) {
	if c.wrong != nil { // go-redis reads again after an error
		return 0, c.wrong
	}
	n, err := c.Conn.Read(p)
	if c.wrong = c.got.Scan(p[:n], c.check, c.replied); c.wrong != nil {
		_ = c.Close()
		return 0, c.wrong
	}
	return n, err
}

// replied is called at the end of a reply, or of a Pub/Sub message.
func (c *boundedConn) replied() {
	if c.asked.Load() > 0 {
		c.asked.Add(-1)
	}
	c.one = extent{}
	if c.replies++; c.asked.Load() == 0 {
		c.replies, c.many = 0, extent{}
	}
}

// check counts a value with its size in bytes, or a list with its number of values. It returns an error if a bound is
// exceeded.
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

// Scanner parses a stream in Redis's protocol (RESP), without keeping its values.
type Scanner struct {
	left int64   // bytes of the current value that are still to come
	line []byte  // the first bytes of the current line
	rest int64   // number of bytes of the current line that follow those in line
	open []int64 // for each list that has not ended, the number of values still to come
}

// errProtocol means that the stream is not RESP.
var errProtocol = errors.New("no answer of Redis")

// Scan parses p, the next bytes of the stream. It calls check at the head of each value and list, and end after each
// request or reply. check can be nil.
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

// head parses s.line, which is now complete: the head of a value or list.
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
		s.left = size + 2 // with \r\n
	default:
		s.done(end)
	}
	return nil
}

// done ends a value, and each list of which it is the last value.
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
