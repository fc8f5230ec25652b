// Package backoff measures the pause before something that failed is tried again.
package backoff

import "time"

// A pause lasts from shortest to longest.
const (
	shortest = 50 * time.Millisecond
	longest  = 2 * time.Second
)

// Pause is the pause after a failure, twice as long after each failure in a row. The zero value is over.
type Pause struct {
	length time.Duration // of the last pause; 0 after a success
	end    time.Time
}

// Failed begins a pause and returns how long it lasts from now. A failure during a pause belongs to the same trouble
// and does not lengthen the pause.
func (p *Pause) Failed(now time.Time) (left time.Duration) {
	if p.Over(now) {
		p.length = min(max(2*p.length, shortest), longest)
		p.end = now.Add(p.length)
	}
	return p.Left(now)
}

// Succeeded ends the pause.
func (p *Pause) Succeeded() { *p = Pause{} }

// Over reports whether the next try may begin.
func (p *Pause) Over(now time.Time) bool { return !now.Before(p.end) }

// Left is how long the pause still lasts; 0 or less if it is over.
func (p *Pause) Left(now time.Time) time.Duration { return p.end.Sub(now) }
