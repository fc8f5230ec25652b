// Package guest is what packages sdk and fetch share of speaking to quern_v1.
package guest

import "time"

// Milliseconds rounds away from zero: a short time is not none, and the host refuses a negative one.
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
