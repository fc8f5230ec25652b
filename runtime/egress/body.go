package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"

	"github.com/quern-project/quern/runtime/service"
)

// framing is how many bytes may come around a body, beside half as many as it has: chunks or frames of one byte are more
// work than all else, and nobody's account has it. It is enough for a stream of some ten thousand words that come alone.
// Requests that share a connection share what they may have, for nobody sees whose overhead it is.
const framing = 256 << 10

// body is the body of an answer.
type body struct {
	bytes  []byte
	conn   *conn
	before int64 // the connection's overhead when it was given to the request
	spare  int64 // what it may have besides
}

// from notes on which connection the answer comes.
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

// abandon gives the connection what may still come of an answer that nobody reads.
func (b *body) abandon() {
	if b.conn != nil {
		b.conn.overhead.Add(-streamBuffer)
	}
}

// read reads to the end, and at most one byte more than there may be. Its memory grows with what has come, whatever the
// answer says of its length.
func (b *body) read(r io.Reader, most int) error {
	b.bytes = make([]byte, 0, min(4<<10, most+1))
	for {
		if len(b.bytes) == cap(b.bytes) {
			b.bytes = append(make([]byte, 0, min(2*cap(b.bytes), most+1)), b.bytes...)
		}
		n, err := r.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		switch {
		case len(b.bytes) > most:
			return fmt.Errorf("%w: the answer has more than %d bytes", service.ErrTooBig, most)
		case b.wasteful(n):
			return errors.New("the answer comes in too many pieces that are too small")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the answer: %w", err)
		}
	}
}

// wasteful tells, after n more bytes of the body, whether there is too much around it.
func (b *body) wasteful(n int) bool {
	return b.conn != nil && b.conn.overhead.Add(-int64(n)-int64(n/2))-b.before > b.spare
}
