// Package guest has what packages sdk and fetch both need to call quern_v1.
package guest

import "time"

// Milliseconds returns a duration in milliseconds, rounded away from zero: a short time must not become none, and a
// negative time must stay negative, so that the host refuses it.
func Milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	switch rest := d % time.Millisecond; {
	case rest > 0:
		ms++
	case rest < 0:
		ms--
	}
	return ms
}
