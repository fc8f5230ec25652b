package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// rejoinPause to maxRejoinPause is the pause between a session that ended by itself and the next one, longer each time in a
// row.
const (
	rejoinPause    = time.Second
	maxRejoinPause = 30 * time.Second
)

// tenant leads one session after the other until it is drained. Trouble with the tenant's keys, or with the Redis user that
// serves it, ends a session, and not what the host does for others.
type tenant struct {
	name string
	open func() *session

	// draining is closed by drain: the tenant takes nothing more until the host has ended.
	draining chan struct{}
	drain    func()

	mu      sync.Mutex // guards what follows; no other lock is taken while it is held
	session *session   // that is led now
	refusal error      // why the last session could not join; nil if it did, or if Redis was away since
}

// newTenant makes a tenant whose sessions newSession makes.
func newTenant(name string, newSession func(*tenant) *session) *tenant {
	t := &tenant{name: name, draining: make(chan struct{})}
	t.drain = sync.OnceFunc(func() { close(t.draining) })
	t.open = func() *session { return newSession(t) }
	t.session = t.open()
	return t
}

func (t *tenant) current() *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session
}

func (t *tenant) isDraining() bool {
	select {
	case <-t.draining:
		return true
	default:
		return false
	}
}

// problem tells why no tasks of the tenant can be taken; "" if they can.
func (t *tenant) problem() string {
	switch {
	case t.isDraining():
		return "tenant " + t.name + " is drained"
	case !t.current().reachable():
		return "redis does not serve tenant " + t.name
	case !t.current().registrar.complete():
		return "queues of tenant " + t.name + " are being registered"
	}
	return ""
}

// serve leads sessions until the tenant is drained, or living ends. allRefused is what all tenants say if none lets the host
// join; then serve returns that. Else it returns an error if the last session could not leave.
func (t *tenant) serve(living, hurry context.Context, allRefused func() error) error {
	pause := rejoinPause
	for {
		begun := time.Now()
		over, err := t.lead(living, hurry)
		if over {
			return err
		}
		if time.Since(begun) > maxRejoinPause {
			pause = rejoinPause
		}
		if !errors.Is(err, queue.ErrLeaseLost) {
			news := t.refused(err)
			if err := allRefused(); err != nil {
				return err
			}
			if news {
				t.current().access.logger.Error("tenant is not served: repair the key or the Redis user that the error names; retrying", "error", err)
			}
		}
		select {
		case <-living.Done():
			return nil
		case <-t.draining:
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, maxRejoinPause)
		next := t.open()
		t.mu.Lock()
		t.session = next
		t.mu.Unlock()
	}
}

// lead leads one session to its end. over means that no other one is to follow it.
func (t *tenant) lead(living, hurry context.Context) (over bool, err error) {
	s := t.current()
	ctx, end := context.WithCancel(living)
	defer end()
	ended := make(chan struct{})
	go func() { defer close(ended); err = s.Run(ctx, t.reached) }()
	select {
	case <-ended:
		if living.Err() == nil && !t.isDraining() {
			return false, err
		}
	case <-t.draining:
	}
	s.finish(living, hurry)
	end()
	<-ended
	if errors.Is(err, queue.ErrLeaseLost) {
		return true, nil // other hosts have its tasks
	}
	return true, s.leave(hurry)
}

// refused notes why a session could not join, and tells whether that is another reason than before.
func (t *tenant) refused(err error) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.refusal
	t.refusal = fmt.Errorf("serve tenant %s: %w", t.name, err)
	return before == nil || before.Error() != t.refusal.Error()
}

// reached forgets the refusal: a session joined, or found Redis away, and then nobody knows whether it may join.
func (t *tenant) reached() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refusal = nil
}

// refusedBy is why the tenant does not let the host join; nil if it may.
func (t *tenant) refusedBy() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refusal
}
