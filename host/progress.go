package host

import (
	"context"
	"errors"
	"sync"

	"github.com/quern-project/quern/sdk/queue"
)

// taskProgress is how far a task said that it is. A guest may say it any number of times: only the
// last word is sent.
type taskProgress struct {
	mu       sync.Mutex
	fraction float64
	message  string
	changed  bool
}

func (p *taskProgress) set(fraction float64, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fraction, p.message, p.changed = fraction, message, true
}

// take returns what was not sent yet.
func (p *taskProgress) take() (fraction float64, message string, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed, p.changed = p.changed, false
	return p.fraction, p.message, changed
}

// putBack has what could not be sent sent the next time, unless there is something newer.
func (p *taskProgress) putBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = true
}

// sendProgress sends what the tasks said since the last time; what Redis does not take now is sent the
// next time.
func (s *session) sendProgress(ctx context.Context, tasks []*task) {
	var reports []queue.ProgressReport
	var senders []*task
	for _, t := range tasks {
		if fraction, message, changed := t.progress.take(); changed {
			reports = append(reports, queue.ProgressReport{
				Claim: t.hold(), Queue: t.served.queue, Fraction: fraction, Message: message,
			})
			senders = append(senders, t)
		}
	}
	if len(reports) == 0 {
		return
	}
	var failure error
	for i, err := range s.node.Progress(ctx, reports) {
		if err == nil || errors.Is(err, queue.ErrLost) || errors.Is(err, queue.ErrNoTask) {
			continue
		}
		failure = err
		senders[i].progress.putBack()
	}
	if failure != nil && ctx.Err() == nil {
		s.passed(opLog, failure)
	}
}
