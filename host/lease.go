package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"
)

// leaseKeeper renews a session's lease every third of it, and sooner after a failure: after an outage, a host that comes back
// later than others would be taken for dead by them. While Redis is away renewing fails, but then nobody else can take the
// lease either.
type leaseKeeper struct {
	steadiness
	node   *listen.Node
	health *health
	about  func() map[string]string // what the host publishes with each renewal
	drain  func()                   // called when somebody drains the listener
	late   func()                   // called after a renewal that came late
	// news has a token when there is something new to publish, and missing when a call found that Redis does not know the
	// listener any more; never closed.
	news, missing chan struct{}
	asked         chan chan struct{} // each is closed when what the host was then is published
}

// lost ends the lease: a call found that Redis does not know the listener any more.
func (k *leaseKeeper) lost() { poke(k.missing) }

// publish publishes what is new before the next renewal is due.
func (k *leaseKeeper) publish() { poke(k.news) }

// published publishes what the host is now, and returns when Redis has it; the error is that of ctx.
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
	var pause backoff
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
		if k.renewed(begun, time.Now(), err) || errors.Is(err, listen.ErrLeaseLost) { // which ends this keeper: it counts once
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
			k.health.failed(opRenew, "", err)
			timer.Reset(min(pause.failed(time.Now()), k.lease/6))
		default:
			k.health.succeeded(opRenew, "")
			pause.succeeded()
			for _, done := range waiting {
				close(done)
			}
			waiting = nil
			timer.Reset(time.Until(begun.Add(k.lease / 3)))
		}
	}
}

// steadiness tells whether the session has been able to renew its lease for so long that every live listener must have
// renewed its own. Only then does an expired lease mean a dead listener: after an outage of Redis all leases have expired.
type steadiness struct {
	lease time.Duration

	mu    sync.Mutex
	since time.Time // of an unbroken row of renewals; zero: none
	last  time.Time // the last one
}

// renewed notes a renewal. One that failed, or took long, or came long after the one before it (this host was stopped,
// perhaps), begins a new row. late tells that it came later than two thirds of a lease.
func (s *steadiness) renewed(begun, now time.Time, err error) (late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.since = time.Time{}
		return false
	}
	late = !s.last.IsZero() && now.Sub(s.last) > s.lease*2/3
	if late || s.since.IsZero() || now.Sub(begun) > s.lease/3 {
		s.since = now
	}
	s.last = now
	return late
}

// broken begins a new row with the next renewal.
func (s *steadiness) broken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

// from is when the session may reclaim, if its renewals go on: one lease after the row began. It is not known while renewals
// fail.
func (s *steadiness) from() (at time.Time, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since.Add(s.lease), !s.since.IsZero()
}

// steady tells whether the session may reclaim now.
func (s *steadiness) steady(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.since.IsZero() && now.Sub(s.since) >= s.lease && now.Sub(s.last) <= s.lease*2/3
}
