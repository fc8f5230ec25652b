package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	// logInterval is how often running tasks' log lines are sent; they are at most a second behind.
	logInterval = 500 * time.Millisecond
	// heldLines and heldBytes bound what is held of a task's log until it is sent: what Redis keeps.
	heldLines = 1000
	heldBytes = 64 << 10
)

// taskLog holds the lines that a task wrote since they were last sent to Redis. More than Redis keeps
// is not held: the oldest lines go.
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

// putBack puts lines that could not be sent before what was written meanwhile.
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
	for len(l.lines) > heldLines || l.bytes > heldBytes && len(l.lines) > 1 {
		l.bytes -= len(l.lines[0])
		l.lines = l.lines[1:]
		dropped++
	}
	return dropped
}

// take hands the lines over.
func (l *taskLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines, l.bytes = nil, 0
	return lines
}

// shipLogs sends what running tasks write, and how far they are, in batches, until ctx ends.
func (s *session) shipLogs(ctx context.Context) {
	ticker := time.NewTicker(logInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var tasks []*task
		s.mu.Lock()
		for _, t := range s.tasks {
			if t.log.sending.TryLock() { // else the settler is at it
				tasks = append(tasks, t)
			}
		}
		s.mu.Unlock()
		s.sendLogs(ctx, tasks)
		s.sendProgress(ctx, tasks)
		for _, t := range tasks {
			t.log.sending.Unlock()
		}
	}
}

// lastLogs sends what tasks that have ended still hold, before their end is announced: who follows a
// log has all of it then.
func (s *session) lastLogs(ctx context.Context, part []ending) {
	tasks := make([]*task, len(part))
	for i, e := range part {
		tasks[i] = e.task
		e.task.log.sending.Lock()
		defer e.task.log.sending.Unlock()
	}
	s.sendLogs(ctx, tasks)
	s.sendProgress(ctx, tasks)
}

// sendLogs sends what the tasks hold; what Redis does not take now is held for the next time.
func (s *session) sendLogs(ctx context.Context, tasks []*task) {
	var batches []queue.LogBatch
	var senders []*task
	for _, t := range tasks {
		if lines := t.log.take(); len(lines) > 0 {
			batches = append(batches, queue.LogBatch{Claim: t.hold(), Lines: lines})
			senders = append(senders, t)
		}
	}
	if len(batches) == 0 {
		return
	}
	var failure error
	for i, err := range s.node.AppendLogs(ctx, batches) {
		if err == nil || errors.Is(err, queue.ErrLost) || errors.Is(err, queue.ErrNoTask) {
			continue
		}
		failure = err
		s.metrics.logLinesDropped(senders[i].served.place, senders[i].log.putBack(batches[i].Lines))
	}
	if failure != nil && ctx.Err() == nil {
		s.passed(opLog, failure)
	}
}
