package host

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/host/rollout"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// After a session that ended by itself, the next one begins after rejoinPause. The pause doubles each time in a row, up
// to maxRejoinPause.
const (
	rejoinPause    = time.Second
	maxRejoinPause = 30 * time.Second
)

// tenant runs one session after the other until it is drained. Trouble with the tenant's keys, or with the rights of
// its Redis user, ends only this tenant's session; the host goes on to serve the other tenants.
type tenant struct {
	name string
	open func() *session
	// releases makes the host serve the tenant's releases, beyond the end of a session.
	releases *rollout.Tenant

	// draining is closed by drain. From then on the host reserves no tasks of the tenant, until the host ends.
	draining chan struct{}
	drain    func()

	session atomic.Pointer[session] // the present session
	refusal atomic.Pointer[error]   // why the last session could not join; nil if it did, or if Redis has been away since
}

func (t *tenant) isDraining() bool {
	select {
	case <-t.draining:
		return true
	default:
		return false
	}
}

// problem returns why no tasks of the tenant can be reserved; "" if they can.
func (t *tenant) problem() string {
	switch s := t.session.Load(); {
	case t.isDraining():
		return "tenant " + t.name + " is drained"
	case !s.reachable():
		return "redis does not serve tenant " + t.name
	case !s.listener.ListensToAll():
		return "queues of tenant " + t.name + " are being registered"
	}
	return ""
}

// serve runs sessions until the tenant is drained, or living ends. It returns the error of allRefused if no tenant lets
// the host join. It also returns an error if the last session could not leave.
func (t *tenant) serve(living, hurry context.Context, allRefused func() error) error {
	pause := periodic.Pause{Shortest: rejoinPause, Longest: maxRejoinPause}
	for {
		begun := time.Now()
		over, err := t.lead(living, hurry)
		if over {
			return err
		}
		if time.Since(begun) > maxRejoinPause {
			pause.Succeeded()
		}
		if !errors.Is(err, listen.ErrLeaseLost) {
			refusal := fmt.Errorf("serve tenant %s: %w", t.name, err)
			before := t.refusal.Swap(&refusal)
			if err := allRefused(); err != nil {
				return err
			}
			if before == nil || (*before).Error() != refusal.Error() {
				t.session.Load().access.logger.Error("tenant is not served: repair the key or the Redis user that the error names; retrying", "error", err)
			}
		}
		select {
		case <-living.Done():
			return nil
		case <-t.draining:
			return nil
		case <-time.After(pause.Failed(time.Now())):
		}
		t.session.Store(t.open())
	}
}

// lead runs one session to its end. over is true if no other session is to begin after it.
func (t *tenant) lead(living, hurry context.Context) (over bool, err error) {
	s := t.session.Load()
	ctx, end := context.WithCancel(living)
	defer end()
	ended := make(chan struct{})
	go func() { defer close(ended); err = s.Run(ctx, func() { t.refusal.Store(nil) }) }()
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
	if errors.Is(err, listen.ErrLeaseLost) {
		return true, nil // other hosts have its tasks
	}
	return true, s.leave(hurry)
}
