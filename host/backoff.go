package host

import "time"

// minBackoff to maxBackoff is the pause before something that failed is tried again.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// backoff is the pause after a failure, twice as long after each failure in a row.
type backoff struct {
	pause   time.Duration // the last one; 0 after a success
	resumes time.Time
}

// failed begins a pause and returns what is left of it. A failure during a pause belongs to the same trouble and does
// not lengthen the pause.
func (b *backoff) failed(now time.Time) (left time.Duration) {
	if b.over(now) {
		b.pause = min(max(2*b.pause, minBackoff), maxBackoff)
		b.resumes = now.Add(b.pause)
	}
	return b.resumes.Sub(now)
}

func (b *backoff) succeeded() { *b = backoff{} }

// over tells whether the next try may begin.
func (b *backoff) over(now time.Time) bool { return !now.Before(b.resumes) }

// poke leaves a token in a channel of capacity one.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
