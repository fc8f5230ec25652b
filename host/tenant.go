package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/sdk/queue"
)

// anewPause to maxAnewPause is the pause between a session that ended by itself and the next one, longer each time in a row.
const (
	anewPause    = time.Second
	maxAnewPause = 30 * time.Second
)

// tenant leads one session after the other until it is drained. What the tenant's keys, or the Redis user that serves it,
// bring about ends a session, and not what the host does for others.
type tenant struct {
	host   *Host
	name   string
	client *queue.Client

	// ending is closed by drain: the tenant takes nothing more until the host has ended.
	ending chan struct{}
	drain  func()

	mu      sync.Mutex
	session *session // that is led now; guarded by mu
	refusal error    // why the last session could not join; nil if it did, or if Redis was away since; guarded by mu
}

func newTenant(client *queue.Client, h *Host) *tenant {
	t := &tenant{host: h, name: client.Tenant(), client: client, ending: make(chan struct{})}
	t.drain = sync.OnceFunc(func() { close(t.ending) })
	t.session = newSession(t.name, client, h)
	return t
}

func (t *tenant) current() *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session
}

func (t *tenant) draining() bool {
	select {
	case <-t.ending:
		return true
	default:
		return false
	}
}

// up tells whether Redis lets the host serve the tenant.
func (t *tenant) up() bool { return t.current().reachable() }

// problem says why no tasks of the tenant can be taken; "" if they can.
func (t *tenant) problem() string {
	switch {
	case t.draining():
		return "tenant " + t.name + " is drained"
	case !t.up():
		return "redis does not serve tenant " + t.name
	case !t.current().settledIn():
		return "queues of tenant " + t.name + " are being registered"
	}
	return ""
}

// serve leads sessions until the tenant is drained, or living ends. It returns an error if the host ends and the last session
// could not leave, or if no tenant lets the host join. Where the host goes on for other tenants, the log has the error.
func (t *tenant) serve(living, hurry context.Context) error {
	pause := anewPause
	for {
		begun := time.Now()
		over, err := t.lead(living, hurry)
		if over {
			if err != nil && !t.host.draining() {
				t.logger().Error("tenant was drained, but its listener did not leave: another host takes its tasks when the lease ends", "error", err)
				return nil
			}
			return err
		}
		if time.Since(begun) > maxAnewPause {
			pause = anewPause
		}
		if !errors.Is(err, queue.ErrLeaseLost) {
			news := t.refused(err)
			if err := t.host.refused(); err != nil {
				t.host.drain()
				return err
			}
			if news {
				t.logger().Error("tenant is not served: mend the key or the Redis user that the error names; trying again", "error", err)
			}
		}
		select {
		case <-living.Done():
			return nil
		case <-t.ending:
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, maxAnewPause)
		next := newSession(t.name, t.client, t.host)
		t.mu.Lock()
		t.session = next
		t.mu.Unlock()
	}
}

// lead leads one session to its end. over says that no other one is to follow it.
func (t *tenant) lead(living, hurry context.Context) (over bool, err error) {
	s := t.current()
	ctx, end := context.WithCancel(living)
	defer end()
	ended := make(chan struct{})
	go func() { defer close(ended); err = s.Run(ctx) }()
	select {
	case <-ended:
		if living.Err() == nil && !t.draining() {
			return false, err
		}
	case <-t.ending:
	}
	s.finish(living, hurry)
	end()
	<-ended
	if errors.Is(err, queue.ErrLeaseLost) {
		return true, nil // what it held is not its own any more
	}
	return true, s.leaveWithin(hurry)
}

func (t *tenant) logger() hclog.Logger { return t.current().logger }

// refused books why a session could not join, and tells whether that is another reason than before.
func (t *tenant) refused(err error) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.refusal
	t.refusal = fmt.Errorf("serve tenant %s: %w", t.name, err)
	return before == nil || before.Error() != t.refusal.Error()
}

// forgetRefusal is called when a session joins, or finds Redis away: then nobody knows whether it may join.
func (t *tenant) forgetRefusal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refusal = nil
}

// refused returns what all tenants that are not drained say if none lets the host join; nil while there is hope for one.
func (h *Host) refused() error {
	var refusals []error
	for _, t := range h.tenants {
		if t.draining() {
			continue
		}
		t.mu.Lock()
		refusal := t.refusal
		t.mu.Unlock()
		if refusal == nil {
			return nil
		}
		refusals = append(refusals, refusal)
	}
	return errors.Join(refusals...)
}

// draining tells whether the host takes nothing more of any tenant.
func (h *Host) draining() bool {
	for _, t := range h.tenants {
		if !t.draining() {
			return false
		}
	}
	return true
}

// drain makes the host take nothing more of any tenant.
func (h *Host) drain() {
	for _, t := range h.tenants {
		t.drain()
	}
}
