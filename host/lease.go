package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// heartbeat renews the lease every third of it, and sooner after a failure: a host that is slower to come
// back than others after an outage would be taken for dead by them. While Redis is away renewing fails,
// but nobody else can take the lease then either.
func (s *session) heartbeat(ctx context.Context) error {
	var next time.Time
	var pause backoff
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.lost:
			return queue.ErrLeaseLost
		case <-s.told:
		case <-timer.C:
		}
		begun := time.Now()
		drain, err := s.node.Renew(ctx, s.host.about(s.tenant))
		s.steady.renewed(begun, time.Now(), err)
		if drain {
			s.owner().drain()
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, queue.ErrLeaseLost):
			return err
		case err != nil:
			s.failed(opRenew, "", err)
			next = time.Now().Add(min(pause.failed(time.Now()), s.lease/6))
		default:
			s.succeeded(opRenew, "")
			pause.succeeded()
			next = begun.Add(s.lease / 3)
		}
		timer.Reset(time.Until(next))
	}
}

// audits compares the reserved lists with what runs, once a lease length. It is not the heartbeat's: a
// Redis that hangs would keep that from renewing.
func (s *session) audits(ctx context.Context) {
	for sleep(ctx, s.lease) {
		s.audit(ctx)
	}
}

// tell publishes what the host says of itself before the next renewal is due.
func (s *session) tell() { poke(s.told) }

// steadiness tells whether the session has been able to renew its lease for so long that every live
// listener must have renewed its own. Only then does a lease that is over mean a listener that is dead:
// after an outage of Redis all of them are over.
type steadiness struct {
	lease time.Duration

	mu    sync.Mutex
	since time.Time // of an unbroken row of renewals; zero: none
	last  time.Time // the last one
}

// renewed books a renewal. One that failed, or took long, or came long after the one before it (this
// host was stopped, perhaps), begins a new row.
func (s *steadiness) renewed(begun, now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.since = time.Time{}
		return
	}
	if s.since.IsZero() || now.Sub(begun) > s.lease/3 || now.Sub(s.last) > s.lease*2/3 {
		s.since = now
	}
	s.last = now
}

// broken begins a new row with the next renewal.
func (s *steadiness) broken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

// from is when the session may reclaim, if its renewals go on: one lease after the row began. It is
// not known while renewals fail.
func (s *steadiness) from() (at time.Time, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since.Add(s.lease), !s.since.IsZero()
}

// holds tells whether the session may reclaim now.
func (s *steadiness) holds(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.since.IsZero() && now.Sub(s.since) >= s.lease && now.Sub(s.last) <= s.lease*2/3
}
