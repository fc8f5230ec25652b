// Package hostlog is the log of a host: one form for all fields, written so that a slow reader delays nobody.
package hostlog

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// maxUnwritten bounds the bytes that wait to be written.
	maxUnwritten = 1 << 20
	// flushTimeout is how long Close waits for them.
	flushTimeout = time.Second
)

// Sink writes a log in the background and in order, so that a slow reader delays nobody who logs. When too much waits,
// it drops whole lines and counts them. A single write above maxUnwritten is kept if nothing else waits.
//
// A crash of the process loses what was not written: usually nothing, or the lines of the last milliseconds.
type Sink struct {
	out     io.Writer
	dropped func(lines int)
	logger  hclog.Logger  // to out, used by run alone
	ended   chan struct{} // closed when run has ended

	mu      sync.Mutex
	more    *sync.Cond
	waiting []byte // guarded by mu
	missing int    // dropped lines after those that wait; guarded by mu
	closed  bool   // guarded by mu
}

// StartSink writes to out until Close. It reports dropped lines to dropped, and logs their number to logger, which
// writes to out as well, in their place.
func StartSink(out io.Writer, dropped func(lines int), logger hclog.Logger) *Sink {
	s := &Sink{out: out, dropped: dropped, logger: logger, ended: make(chan struct{})}
	s.more = sync.NewCond(&s.mu)
	go s.run()
	return s
}

// Write implements io.Writer: it takes or drops lines, and never waits.
func (s *Sink) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing > 0 || len(s.waiting) > 0 && len(s.waiting)+len(lines) > maxUnwritten { // dropped lines are one gap
		s.missing += s.drop(lines)
	} else {
		s.waiting = append(s.waiting, lines...)
	}
	s.more.Signal()
	return len(lines), nil
}

// drop counts lines that will not be written. The last one may have no newline.
func (s *Sink) drop(lines []byte) int {
	end := []byte("\n")
	n := bytes.Count(lines, end)
	if len(lines) > 0 && !bytes.HasSuffix(lines, end) {
		n++
	}
	s.dropped(n)
	return n
}

// run writes the waiting lines, until Close is called and none waits.
func (s *Sink) run() {
	defer close(s.ended)
	untold := 0
	for lines, missing, ok := s.take(nil); ok; lines, missing, ok = s.take(lines) {
		n, err := s.out.Write(lines)
		if untold += missing; err != nil { // a full disk, a reader that has gone
			untold += s.drop(lines[n:])
		} else if untold > 0 {
			s.logger.Error("dropped log lines here: the reader of stderr is too slow", "lines", untold)
			untold = 0
		}
	}
}

// take waits for lines, and returns them and how many were dropped after them. It reuses the buffer of written ones.
func (s *Sink) take(written []byte) (lines []byte, missing int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) == 0 && s.missing == 0 && !s.closed {
		s.more.Wait()
	}
	lines, missing, ok = s.waiting, s.missing, len(s.waiting) > 0 || s.missing > 0
	s.waiting, s.missing = written[:0], 0
	return lines, missing, ok
}

// Close waits until everything is written, at most flushTimeout.
func (s *Sink) Close() {
	s.mu.Lock()
	s.closed = true
	s.more.Signal()
	s.mu.Unlock()
	timeout := time.NewTimer(flushTimeout)
	defer timeout.Stop()
	select {
	case <-s.ended:
	case <-timeout.C:
	}
}
