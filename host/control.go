package host

import (
	"context"
	"time"
)

// controlPause is the least time between two looks for marks, however many messages come.
const controlPause = 20 * time.Millisecond

// control looks for marks, on its tasks and on the listener, whenever the control channel says so, and every third of a
// lease, in case that did not come through.
func (s *session) control(ctx context.Context) {
	if err := s.watch.Control(ctx, func() { poke(s.marked) }); err != nil && ctx.Err() == nil {
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
		s.heed(ctx)
		if !sleep(ctx, controlPause) {
			return
		}
	}
}

// heed stops those of the session's tasks that are to be cancelled, and drains the tenant if the listener is to be drained.
func (s *session) heed(ctx context.Context) {
	s.mu.Lock()
	ids := make([]string, 0, len(s.tasks))
	for id := range s.tasks {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	marked, drain, err := s.node.Marks(ctx, ids)
	if err != nil {
		if ctx.Err() == nil {
			s.failed(opControl, "", err)
		}
		return
	}
	s.succeeded(opControl, "")
	if drain {
		s.owner().drain()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range marked {
		if t := s.tasks[id]; t != nil && t.stop != nil {
			t.stop(errCancelled)
		}
	}
}
