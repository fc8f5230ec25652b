package sdk

import (
	"errors"
	"time"
)

// FatalError marks an error that another attempt would not mend; see [Fatal].
type FatalError struct {
	Err error // the reason; never nil when made by Fatal
}

// RetryError marks an error that may be gone after a while; see [Retry] and [RetryAfter].
type RetryError struct {
	Err   error         // the reason; never nil when made by Retry or RetryAfter
	After time.Duration // until the next attempt; 0 leaves that to the host
}

// Fatal wraps err so that the task fails for good: the input itself is wrong. Fatal(nil) is nil.
//
// Where Fatal and Retry are both in one chain of errors, the outer one counts: it was said last.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &FatalError{Err: err}
}

// Retry wraps err so that the task asks to be tried again later: something that the handler needs is
// away for now. When that is, and how often, is decided by the retry policy of the task and of the
// plugin's manifest. Retry(nil) is nil.
func Retry(err error) error {
	return RetryAfter(err, 0)
}

// RetryAfter is [Retry] for who knows when to come again, from a Retry-After header for instance: it
// names the delay until the next attempt. More than a year counts as a year, and no time at all or less
// as Retry. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &RetryError{Err: err, After: min(max(d, 0), maxRetryAfter)}
}

// maxRetryAfter is the longest delay that a host takes.
const maxRetryAfter = 365 * 24 * time.Hour

// Error is the text of the reason; the mark itself adds no words.
func (e *FatalError) Error() string { return e.Err.Error() }

// Unwrap gives the reason to errors.Is and errors.As.
func (e *FatalError) Unwrap() error { return e.Err }

// Error is the text of the reason; the mark itself adds no words.
func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap gives the reason to errors.Is and errors.As.
func (e *RetryError) Unwrap() error { return e.Err }

// outcome is an error that says which exit status it wants, and how long the host is to wait.
type outcome interface {
	error
	exitStatus() int
	delay() time.Duration // 0 leaves that to the host
}

func (e *FatalError) exitStatus() int { return exitDataErr }
func (e *RetryError) exitStatus() int { return exitTempFail }

func (e *FatalError) delay() time.Duration { return 0 }
func (e *RetryError) delay() time.Duration { return min(max(e.After, 0), maxRetryAfter) }

// judge is what a handler's error asks for.
func judge(err error) (status int, delay time.Duration) {
	if o, ok := errors.AsType[outcome](err); ok {
		return o.exitStatus(), o.delay()
	}
	return exitFailed, 0
}
