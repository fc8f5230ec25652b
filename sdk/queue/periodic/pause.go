package periodic

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

// The defaults of Pause.Shortest and Pause.Longest.
const (
	shortest = 50 * time.Millisecond
	longest  = 2 * time.Second
)

// Pause is the wait before a failed call is tried again. Its maximum doubles with each failure in a row. It lasts a
// random time of at least half of that, so that hosts that lose Redis together do not come back together. The zero
// value is a pause that is over.
type Pause struct {
	// Shortest is the first maximum, and Longest the last (default 50 ms and 2 s).
	Shortest, Longest time.Duration

	most time.Duration // maximum of the last pause; 0 after a success
	end  time.Time     // when the last pause ends; zero after a success
}

// Failed begins a pause and returns how long it lasts from now. A failure during a pause counts as the same failure and
// does not lengthen the pause.
func (p *Pause) Failed(now time.Time) (left time.Duration) {
	if p.Over(now) {
		p.most = min(max(2*p.most, cmp.Or(p.Shortest, shortest)), cmp.Or(p.Longest, longest))
		p.end = now.Add(p.most/2 + rand.N(p.most/2+1))
	}
	return p.Left(now)
}

// Sleep begins a pause after a failure and waits until it is over. It returns false at once if ctx ends first.
func (p *Pause) Sleep(ctx context.Context) bool { return Sleep(ctx, p.Failed(time.Now())) }

// Succeeded ends the pause.
func (p *Pause) Succeeded() { p.most, p.end = 0, time.Time{} }

// Over reports whether the pause is over, so that the call can be tried again.
func (p *Pause) Over(now time.Time) bool { return !now.Before(p.end) }

// Left returns how long the pause still lasts; 0 or less if it is over.
func (p *Pause) Left(now time.Time) time.Duration { return p.end.Sub(now) }

// Doubled returns shortest doubled n times, and at most longest.
func Doubled(shortest, longest time.Duration, n int) time.Duration {
	return min(shortest<<min(n, 16), longest)
}

// Sleep waits for d and returns true. It returns false at once if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Notify puts a token into a channel with a capacity of 1, unless the channel already holds one.
func Notify(tokens chan<- struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}
