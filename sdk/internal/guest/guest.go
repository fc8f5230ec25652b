// Package guest has what packages sdk and fetch both need to call quern_v1.
package guest

import "time"

// refused is an error of the host with the host's reason as its text, such as the line to add to the manifest.
type refused struct {
	err error
	why string
}

func (e *refused) Error() string { return e.why }
func (e *refused) Unwrap() error { return e.err }

// Because returns err with the text why. If why is "", it returns err.
func Because(err error, why string) error {
	if why == "" {
		return err
	}
	return &refused{err, why}
}

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
