package periodic

import (
	"testing"
	"time"
)

// A task that falls due brings the next poll forward; it does not put off the regular one, nor make polls follow each
// other without a pause.
func TestNextRun(t *testing.T) {
	t.Parallel()
	var d Duty
	now := time.Now()
	about := func(what string, got, want time.Duration) {
		t.Helper()
		if got > want || got < want-time.Minute {
			t.Errorf("%s: after %s, want %s", what, got, want)
		}
	}
	next := func(regular, earliest time.Time) time.Duration {
		d.earliest = earliest
		d.plan(regular)
		return time.Until(d.begins())
	}
	about("nothing known", next(now.Add(time.Hour), now), time.Hour)
	d.AskIn(2 * time.Hour)
	about("due after the regular run", next(now.Add(time.Hour), now), time.Hour)
	d.AskIn(10 * time.Minute)
	d.AskIn(20 * time.Minute)
	about("due before it", next(now.Add(time.Hour), now), 10*time.Minute)
	d.AskIn(-time.Minute)
	about("overdue", next(now.Add(time.Hour), now.Add(5*time.Minute)), 5*time.Minute)
}
