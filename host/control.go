package host

import (
	"context"
	"time"
)

// control stops the tasks that somebody cancels: whenever the control channel says so, and every third
// of a lease, in case it did not come through.
func (s *session) control(ctx context.Context) {
	if err := s.watch.Control(ctx, func() { poke(s.marked); s.tell() }); err != nil && ctx.Err() == nil {
		s.passed(opSubscribe, err) // the subscription comes back by itself
	}
	ticker := time.NewTicker(s.lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.marked:
		case <-ticker.C:
		}
		s.stopMarked(ctx)
	}
}

// stopMarked stops those of the session's tasks that are to be cancelled.
func (s *session) stopMarked(ctx context.Context) {
	s.mu.Lock()
	ids := make([]string, 0, len(s.tasks))
	for id := range s.tasks {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	marked, err := s.client.Cancelled(ctx, ids)
	if err != nil {
		if ctx.Err() == nil {
			s.failed(opControl, "", err)
		}
		return
	}
	s.succeeded(opControl, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range marked {
		if t := s.tasks[id]; t != nil && t.stop != nil {
			t.stop(errCancelled)
		}
	}
}
