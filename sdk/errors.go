package sdk

// FatalError marks an error that another attempt would not mend; see [Fatal].
type FatalError struct {
	Err error // the reason; never nil when made by Fatal
}

// RetryError marks an error that may be gone after a while; see [Retry].
type RetryError struct {
	Err error // the reason; never nil when made by Retry
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
// away for now. Hosts do not do so yet: the task fails, and says so. Retry(nil) is nil.
func Retry(err error) error {
	if err == nil {
		return nil
	}
	return &RetryError{Err: err}
}

// Error is the text of the reason; the mark itself adds no words.
func (e *FatalError) Error() string { return e.Err.Error() }

// Unwrap gives the reason to errors.Is and errors.As.
func (e *FatalError) Unwrap() error { return e.Err }

// Error is the text of the reason; the mark itself adds no words.
func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap gives the reason to errors.Is and errors.As.
func (e *RetryError) Unwrap() error { return e.Err }

// outcome is an error that says which exit status it wants.
type outcome interface {
	error
	exitStatus() int
}

func (e *FatalError) exitStatus() int { return exitDataErr }
func (e *RetryError) exitStatus() int { return exitTempFail }
