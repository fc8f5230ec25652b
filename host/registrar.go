package host

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// follow makes the session listen to the queues that are desired now.
func (s *session) follow() { poke(s.changed) }

// register follows what is desired: it registers and leaves queues, again and again while that fails. Once in six leases it
// sees that Redis still knows of it.
func (s *session) register(ctx context.Context) {
	ticker := time.NewTicker(6 * s.lease)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.registerAnew(ctx)
			continue
		case <-s.changed:
		}
		var pause backoff
		for s.registerOnce(ctx) != nil {
			if !sleep(ctx, pause.failed(time.Now())) {
				return
			}
		}
		s.tell()
	}
}

// registerOnce registers and leaves what is not as desired. A queue that Redis refuses does not keep
// it from the others.
func (s *session) registerOnce(ctx context.Context) error {
	var refusals []error
	for name, listen := range s.toRegister() {
		change := s.leaveQueue
		if listen {
			change = s.serveQueue
		}
		err := change(ctx, name)
		if err == nil {
			s.succeeded(opRegister, name)
			continue
		}
		if ctx.Err() != nil {
			return err
		}
		s.failed(opRegister, name, err)
		if queue.IsUnavailable(err) {
			return err
		}
		s.refuse(name)
		refusals = append(refusals, err)
	}
	return errors.Join(refusals...)
}

// refuse notes that Redis does not let the session listen to a queue: nothing to wait for.
func (s *session) refuse(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[name] = true
}

// settledIn tells whether the session listens to all queues that are desired, but for those that
// Redis refuses.
func (s *session) settledIn() bool {
	changes := s.toRegister()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, listen := range changes {
		if listen && !s.refused[name] {
			return false
		}
	}
	return true
}

// toRegister lists the queues that are not as desired: true is to be listened to, false to be left.
func (s *session) toRegister() map[string]bool {
	changes := s.host.desired(s.tenant)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, listens := range s.registered {
		switch {
		case listens && changes[name]:
			delete(changes, name)
		case listens:
			changes[name] = false
		}
	}
	return changes
}

func (s *session) serveQueue(ctx context.Context, name string) error {
	if err := s.node.Register(ctx, name); err != nil {
		return err
	}
	s.mark(name, true)
	s.scheduler.serve(place{s.tenant, name}, s)
	if err := s.watch.Add(ctx, name); err != nil && ctx.Err() == nil {
		// The poll finds what is not announced; the subscription comes back by itself.
		s.passed(opSubscribe, err)
	}
	s.logger.Info("serving queue", "queue", name)
	return nil
}

// leaveQueue stops serving a queue. While Redis does not know of it the queue stays as it is: without
// a plugin nothing is taken from it, and it may have one again before Redis is back.
func (s *session) leaveQueue(ctx context.Context, name string) error {
	if err := s.node.Unregister(ctx, name); err != nil {
		return err
	}
	s.mark(name, false)
	s.scheduler.leave(place{s.tenant, name})
	s.succeeded(opReserve, name)  // if that failed: it may not be tried again
	_ = s.watch.Remove(ctx, name) // without it, messages of a queue that is not served are passed over
	s.logger.Info("left queue", "queue", name)
	return nil
}

// registerAnew registers for the queues that do not know the session any more, though it serves them.
func (s *session) registerAnew(ctx context.Context) {
	unlisted, err := s.node.Unregistered(ctx, slices.Collect(maps.Keys(s.listening())))
	for _, name := range unlisted {
		if err = s.node.Register(ctx, name); err != nil {
			break
		}
		s.logger.Warn("queue did not know this listener any more: registered anew", "queue", name)
	}
	if err != nil && ctx.Err() == nil {
		s.passed(opRegister, err) // the next time
	}
}

func (s *session) mark(queue string, listens bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registered[queue] = listens
	if listens {
		s.known[queue] = true
	}
}

// listening are the queues that the session listens to now.
func (s *session) listening() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	queues := maps.Clone(s.registered)
	maps.DeleteFunc(queues, func(_ string, listens bool) bool { return !listens })
	return queues
}
