package upkeep

import (
	"sync"
	"time"
)

// Steadiness records a session's renewals of its lease. A session is steady once it has renewed its lease for long
// enough that every live listener must have renewed its own lease, too. Only then does an expired lease mean a dead
// listener, because after an outage of Redis all leases have expired.
type Steadiness struct {
	lease time.Duration

	mu    sync.Mutex
	since time.Time // when the unbroken row of renewals began; zero if there is none
	last  time.Time // when the last renewal ended
}

// NewSteadiness makes the record of a session whose lease has this length and has not been renewed yet.
func NewSteadiness(lease time.Duration) *Steadiness { return &Steadiness{lease: lease} }

// Renewed records a renewal that began at begun and ended at now, with the error err. A failed renewal ends the row. A
// new row begins with a renewal that took more than a third of a lease, or that came more than two thirds of a lease
// after the one before: the host may have been stopped. late reports the second case.
func (s *Steadiness) Renewed(begun, now time.Time, err error) (late bool) {
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

// reset makes the next renewal begin a new row.
func (s *Steadiness) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

// from returns when the session is allowed to reclaim, if its renewals go on: one lease length after the row began.
// known is false if there is no row, because the last renewal failed or none has come yet.
func (s *Steadiness) from() (at time.Time, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since.Add(s.lease), !s.since.IsZero()
}

// steady reports whether the session is allowed to reclaim now.
func (s *Steadiness) steady(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.since.IsZero() && now.Sub(s.since) >= s.lease && now.Sub(s.last) <= s.lease*2/3
}
