package host

import "time"

// minBackoff to maxBackoff is the pause before something that failed is tried again.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// backoff is the pause after a failure, longer each time in a row.
type backoff struct {
	pause   time.Duration // the last one; 0 after a success
	resumes time.Time
}

// failed begins a pause and returns what is left of it. What fails while a pause is under way is part
// of the same trouble, and makes it no longer.
func (b *backoff) failed(now time.Time) (left time.Duration) {
	if b.over(now) {
		b.pause = min(max(2*b.pause, minBackoff), maxBackoff)
		b.resumes = now.Add(b.pause)
	}
	return b.resumes.Sub(now)
}

func (b *backoff) succeeded() { *b = backoff{} }

// over tells whether it may be tried.
func (b *backoff) over(now time.Time) bool { return !now.Before(b.resumes) }
