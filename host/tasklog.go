package host

import "sync"

// logLines and logBytes bound the part of a task's log that waits to be sent: as much as Redis keeps.
const (
	logLines = 1000
	logBytes = 64 << 10
)

// taskLog holds the lines that a task wrote since lines were last sent to Redis. When there are too many, the oldest
// lines are dropped.
type taskLog struct {
	// sending is held from the cut of the lines until Redis has them, so that lines arrive in order.
	sending sync.Mutex

	mu    sync.Mutex
	lines []string
	bytes int
	all   int64 // the bytes of all lines that were added
}

// add appends a line and returns how many older lines were dropped for it.
func (l *taskLog) add(line string) (dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	l.bytes, l.all = l.bytes+len(line), l.all+int64(len(line))
	return l.trim()
}

// putBack takes back lines that could not be sent, and puts them in front of the lines that were written meanwhile. It
// returns how many lines were dropped.
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

// written returns how many bytes the task has logged.
func (l *taskLog) written() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// cut removes the lines and returns them.
func (l *taskLog) cut() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines, l.bytes = nil, 0
	return lines
}
