package admin

import (
	"math"
	"time"
)

// Seconds converts a time to seconds since the epoch. It converts the zero time to 0.
func Seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}

// Moment converts seconds since the epoch to a time. It converts 0 and negative numbers to the zero time.
func Moment(seconds float64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(math.Round(seconds * 1e6)))
}

// Period converts seconds to a duration.
func Period(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds * float64(time.Second)))
}
