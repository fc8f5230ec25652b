package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"

	"github.com/quern-project/quern/runtime/service"
)

// framing is the overhead allowed for a body in addition to half the body's size, in bytes. Overhead is what a
// connection receives around the body. It is limited because chunks or frames of one byte cost the host more work than
// the plugin is charged for. The limit allows a stream of some ten thousand separate words. Requests on one connection
// share the limit, because the overhead cannot be attributed to one of them.
const framing = 256 << 10

// body is the body of an answer.
type body struct {
	bytes  []byte
	conn   *conn
	before int64 // the connection's overhead when the request got the connection
	spare  int64 // additional overhead allowed, in bytes
}

// from records the connection on which the answer comes, and adds the allowed overhead of one more body to it.
func (b *body) from(got httptrace.GotConnInfo) {
	inner := got.Conn
	if secure, ok := inner.(interface{ NetConn() net.Conn }); ok {
		inner = secure.NetConn()
	}
	if c, ok := inner.(*conn); ok {
		b.conn, b.before = c, c.overhead.Load()
		c.overhead.Add(-framing)
	}
}

// read reads the body to its end, but at most limit+1 bytes. Memory grows with the bytes received, whatever length the
// answer declares.
func (b *body) read(r io.Reader, limit int) error {
	b.bytes = make([]byte, 0, min(4<<10, limit+1))
	for {
		if len(b.bytes) == cap(b.bytes) {
			b.bytes = append(make([]byte, 0, min(2*cap(b.bytes), limit+1)), b.bytes...)
		}
		n, err := r.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		switch {
		case len(b.bytes) > limit:
			return fmt.Errorf("%w: the answer has more than %d bytes", service.ErrTooBig, limit)
		case b.wasteful(n):
			return errors.New("the answer comes in too many small pieces")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the answer: %w", err)
		}
	}
}

// wasteful counts n more bytes of the body, and reports whether the body's overhead is too large.
func (b *body) wasteful(n int) bool {
	return b.conn != nil && b.conn.overhead.Add(-int64(n)-int64(n/2))-b.before > b.spare
}
