package sdk

import (
	"errors"
	"time"
)

// FatalError marks an error that another attempt would not fix; see [Fatal].
type FatalError struct {
	Err error // never nil when made by Fatal
}

// RetryError marks an error after which the task runs again without counting an attempt; see [Retry] and [RetryAfter].
type RetryError struct {
	Err   error         // never nil when made by Retry or RetryAfter
	After time.Duration // delay of the next run; 0 means the retry policy's delay
	Key   bool          // After is for all tasks with the task's key; see RetryKeyAfter
}

// FailError marks an error that names the delay before the next attempt; see [FailAfter].
type FailError struct {
	Err   error         // never nil when made by FailAfter
	After time.Duration // delay of the next attempt; 0 means the retry policy's delay
}

// Fatal wraps err so that the task fails for good, because its input is wrong. Fatal(nil) returns nil.
//
// If a chain of errors contains both Fatal and Retry, the outer one counts.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &FatalError{Err: err}
}

// Retry wraps err so that the task is tried again later, because something that the handler needs is unavailable. This
// counts no attempt: max_reschedules of the task or the manifest bounds it, 1,000 by default. An error that is not
// wrapped counts an attempt. Retry(nil) returns nil.
func Retry(err error) error {
	return RetryAfter(err, 0)
}

// RetryAfter does what [Retry] does, and also sets the delay of the next attempt, for instance from a Retry-After
// header. A delay of more than a year counts as a year. With a delay of 0 or less, RetryAfter is Retry. If err is nil,
// it returns nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &RetryError{Err: err, After: min(max(d, 0), maxRetryAfter)}
}

// RetryKeyAfter does what [RetryAfter] does, and also puts off all other waiting tasks of the queue with the key of
// this one, such as those of a customer whom a service answers with 429. They wait as long, and count no reschedule. If
// the task has no key, RetryKeyAfter is RetryAfter.
func RetryKeyAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &RetryError{Err: err, After: min(max(d, 0), maxRetryAfter), Key: true}
}

// FailAfter sets the delay before the next attempt, if the retry policy allows one: the policy's min and max bound it.
// The attempt counts, as for an error that is not wrapped. With a delay of 0 or less, the retry policy decides. If err
// is nil, it returns nil.
func FailAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &FailError{Err: err, After: min(max(d, 0), maxRetryAfter)}
}

// maxRetryAfter is the maximum delay that a host accepts.
const maxRetryAfter = 365 * 24 * time.Hour

// Error returns the text of Err.
func (e *FatalError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *FatalError) Unwrap() error { return e.Err }

// Error returns the text of Err.
func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }

// Error returns the text of Err.
func (e *FailError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *FailError) Unwrap() error { return e.Err }

// outcome is an error that has an exit status and the delay of the next attempt; 0 means the retry policy's delay. key
// is true if the delay is for all tasks with the task's key.
type outcome interface {
	error
	outcome() (status int, delay time.Duration, key bool)
}

func (e *FatalError) outcome() (int, time.Duration, bool) { return exitDataErr, 0, false }
func (e *RetryError) outcome() (int, time.Duration, bool) {
	return exitTempFail, min(max(e.After, 0), maxRetryAfter), e.Key
}

func (e *FailError) outcome() (int, time.Duration, bool) {
	return exitFailed, min(max(e.After, 0), maxRetryAfter), false
}

// judge returns the exit status for a handler's error, and what outcome returns.
func judge(err error) (status int, delay time.Duration, key bool) {
	if o, ok := errors.AsType[outcome](err); ok {
		return o.outcome()
	}
	return exitFailed, 0, false
}
