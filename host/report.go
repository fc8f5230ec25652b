package host

import "sync"

// logLines and logBytes bound the part of a task's log that waits to be sent: as much as Redis keeps.
const (
	logLines = 1000
	logBytes = 64 << 10
)

// taskLog is the lines that a task wrote since they were last sent to Redis. When there are too many the oldest ones go.
type taskLog struct {
	// sending is held from taking lines until Redis has them, so that they get there in order.
	sending sync.Mutex

	mu    sync.Mutex
	lines []string
	bytes int
}

// add appends a line and tells how many older ones were dropped for it.
func (l *taskLog) add(line string) (dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	l.bytes += len(line)
	return l.trim()
}

// putBack puts lines that could not be sent before those written meanwhile.
func (l *taskLog) putBack(lines []string) (dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(lines, l.lines...)
	for _, line := range lines {
		l.bytes += len(line)
	}
	return l.trim()
}

func (l *taskLog) trim() (dropped int) {
	for len(l.lines) > logLines || l.bytes > logBytes && len(l.lines) > 1 {
		l.bytes -= len(l.lines[0])
		l.lines = l.lines[1:]
		dropped++
	}
	return dropped
}

// take removes the lines and returns them.
func (l *taskLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines, l.bytes = nil, 0
	return lines
}

// taskProgress is the progress that a task reported last; earlier reports are not sent.
type taskProgress struct {
	mu       sync.Mutex
	fraction float64
	message  string
	changed  bool // since it was last sent
}

func (p *taskProgress) set(fraction float64, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fraction, p.message, p.changed = fraction, message, true
}

// take returns the progress, and whether it is to be sent.
func (p *taskProgress) take() (fraction float64, message string, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed, p.changed = p.changed, false
	return p.fraction, p.message, changed
}

// putBack has the progress sent again.
func (p *taskProgress) putBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = true
}
