package api

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// patience is how long a request waits for its share of a budget.
	patience = 2 * time.Second
	// A transfer of n bytes may take slowGrace and n/slowRate: a slower client loses its connection, and with it its share.
	slowGrace = 5 * time.Second
	slowRate  = 256 << 10
)

// budget bounds what requests use at a time, all together and those of each principal, so that one of them cannot keep the others
// out. Without tokens there is one principal, which may use everything.
type budget struct {
	what        string // in words
	whole, each int64
	all         *semaphore.Weighted

	mu     sync.Mutex
	byName map[string]*part // of the principals that use something or wait for it; guarded by mu
}

// part is what one principal uses.
type part struct {
	used  *semaphore.Weighted
	users int // requests; guarded by the budget's mu
}

func newBudget(what string, whole int64) *budget {
	return &budget{what: what, whole: whole, each: whole / parts, all: semaphore.NewWeighted(whole), byName: make(map[string]*part)}
}

// share is what one request uses. Its methods do nothing on nil.
type share struct {
	budget *budget
	who    *Principal
	part   *part
	size   int64
}

// take waits for a share, at most for patience: nil if there is none by then.
func (b *budget) take(ctx context.Context, who *Principal, size int64) *share {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b.mu.Lock()
	p := b.byName[who.Name]
	if p == nil {
		each := b.each
		if who == everyone {
			each = b.whole
		}
		p = &part{used: semaphore.NewWeighted(each)}
		b.byName[who.Name] = p
	}
	p.users++
	b.mu.Unlock()
	s := &share{budget: b, who: who, part: p}
	if p.used.Acquire(ctx, size) == nil {
		if b.all.Acquire(ctx, size) == nil {
			s.size = size
			return s
		}
		p.used.Release(size)
	}
	s.give()
	return nil
}

// enter takes the share of one of what a principal does, and refuses it if it does too many at a time, or all together do.
func (b *budget) enter(ctx context.Context) (*share, error) {
	who := principal(ctx)
	if s := b.take(ctx, who, 1); s != nil {
		return s, nil
	}
	return nil, later(http.StatusTooManyRequests, failed(http.StatusTooManyRequests, "too many %s at a time: %d of %s, or %d of all",
		b.what, b.each, who.Name, b.whole))
}

// shrink keeps only some of the share.
func (s *share) shrink(size int64) {
	if s != nil && size < s.size {
		s.budget.all.Release(s.size - size)
		s.part.used.Release(s.size - size)
		s.size = size
	}
}

// give ends the share.
func (s *share) give() {
	if s == nil {
		return
	}
	s.shrink(0)
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	if s.part.users--; s.part.users == 0 {
		delete(s.budget.byName, s.who.Name)
	}
}

// pace is how long a transfer of this many bytes may take.
func pace(size int64) time.Duration { return slowGrace + time.Duration(size)*time.Second/slowRate }

// pacedBody gives a client time for what it has sent already.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	began   time.Time
	read    int64
}

func (b *pacedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.read += int64(n)
	until := b.began.Add(pace(b.read))
	if err == io.EOF {
		until = time.Time{} // or the operation would end with it
	}
	_ = b.control.SetReadDeadline(until) // every connection has one
	return n, err
}
