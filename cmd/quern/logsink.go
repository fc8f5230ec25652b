package main

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// maxUnwritten is how much may wait to be written, in bytes.
	maxUnwritten = 1 << 20
	// flushTimeout is how long the end of a program waits for it.
	flushTimeout = time.Second
)

// logSink writes a log in the background, in order and as soon as it can, so that nobody who logs waits for who reads.
// When there is no room, because nobody does, whole lines are dropped and counted. What alone is larger than the room is
// written nevertheless, once nothing else waits.
//
// If the process crashes, what was not written is lost: as a rule nothing, or lines of its last milliseconds.
type logSink struct {
	out     io.Writer
	dropped func(lines int)
	logger  hclog.Logger  // to out, used by run alone
	ended   chan struct{} // closed when run has ended

	mu      sync.Mutex
	more    *sync.Cond
	waiting []byte // guarded by mu
	missing int    // lines that belong behind those that wait; guarded by mu
	closed  bool   // guarded by mu
}

// startLogSink starts to write to out, until close. dropped is told of lines as they are dropped; the logger, which
// writes to out as well, tells how many are missing where they are.
func startLogSink(out io.Writer, dropped func(lines int), logger hclog.Logger) *logSink {
	s := &logSink{out: out, dropped: dropped, logger: logger, ended: make(chan struct{})}
	s.more = sync.NewCond(&s.mu)
	go s.run()
	return s
}

// Write implements io.Writer: it takes lines, or drops them, and never waits.
func (s *logSink) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing > 0 || len(s.waiting) > 0 && len(s.waiting)+len(lines) > maxUnwritten { // what is missing is so in one place
		s.missing += s.drop(lines)
	} else {
		s.waiting = append(s.waiting, lines...)
	}
	s.more.Signal()
	return len(lines), nil
}

// drop counts lines that will not be written. The last one may have no end.
func (s *logSink) drop(lines []byte) int {
	end := []byte("\n")
	n := bytes.Count(lines, end)
	if len(lines) > 0 && !bytes.HasSuffix(lines, end) {
		n++
	}
	s.dropped(n)
	return n
}

// run writes what waits until close was called and nothing does.
func (s *logSink) run() {
	defer close(s.ended)
	untold := 0
	for lines, missing, ok := s.take(nil); ok; lines, missing, ok = s.take(lines) {
		n, err := s.out.Write(lines)
		if untold += missing; err != nil { // a full disk, a reader that has gone
			untold += s.drop(lines[n:])
		} else if untold > 0 {
			s.logger.Error("log lines were dropped here, since stderr took none: look at what reads it", "lines", untold)
			untold = 0
		}
	}
}

// take waits for lines, and returns them with the number of those that are missing behind them. It keeps the room of
// those that were written before.
func (s *logSink) take(written []byte) (lines []byte, missing int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) == 0 && s.missing == 0 && !s.closed {
		s.more.Wait()
	}
	lines, missing, ok = s.waiting, s.missing, len(s.waiting) > 0 || s.missing > 0
	s.waiting, s.missing = written[:0], 0
	return lines, missing, ok
}

// close ends the writing when nothing waits any more, after flushTimeout at the latest.
func (s *logSink) close() {
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
