package host

import (
	"context"
	"errors"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/quern-project/quern/host/backoff"
	"github.com/quern-project/quern/host/upkeep"
)

// leaseKeeper renews a session's lease every third of it, and sooner after a failure: after an outage, a host that
// comes back later than others would be taken for dead by them. While Redis is away renewing fails, but then nobody
// else can take the lease either.
type leaseKeeper struct {
	lease      time.Duration
	steadiness *upkeep.Steadiness // records the renewals
	node       *listen.Node
	health     *health
	about      func() map[string]string // returns what the host publishes with each renewal
	drain      func()                   // called when somebody drains the listener
	late       func()                   // called after a renewal that came late
	// news has a token when there is something new to publish, and missing when a call found that Redis has forgotten
	// the listener; never closed.
	news, missing chan struct{}
	asked         chan chan struct{} // each is closed when what the host was then is published
}

// lost ends the lease: a call found that Redis has forgotten the listener.
func (k *leaseKeeper) lost() { poke(k.missing) }

// publish publishes changes before the next renewal is due.
func (k *leaseKeeper) publish() { poke(k.news) }

// published publishes what the host is now, and returns when Redis has it. The error is the one of ctx.
func (k *leaseKeeper) published(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case k.asked <- done:
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	}
}

// Run renews until ctx ends; then it returns nil. It returns listen.ErrLeaseLost when the lease is lost.
func (k *leaseKeeper) Run(ctx context.Context) error {
	var pause backoff.Pause
	var waiting []chan struct{} // of published
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.missing:
			return listen.ErrLeaseLost
		case <-k.news:
		case done := <-k.asked:
			waiting = append(waiting, done)
		case <-timer.C:
		}
		begun := time.Now()
		drain, err := k.node.Renew(ctx, k.about())
		if k.steadiness.Renewed(begun, time.Now(), err) || errors.Is(err, listen.ErrLeaseLost) { // which ends this keeper: it counts once
			k.late()
		}
		if drain {
			k.drain()
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, listen.ErrLeaseLost):
			return err
		case err != nil:
			k.health.Failed(opRenew, "", err)
			timer.Reset(min(pause.Failed(time.Now()), k.lease/6))
		default:
			k.health.Succeeded(opRenew, "")
			pause.Succeeded()
			for _, done := range waiting {
				close(done)
			}
			waiting = nil
			timer.Reset(time.Until(begun.Add(k.lease / 3)))
		}
	}
}
