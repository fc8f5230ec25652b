package abi

import (
	"context"
	"errors"

	"github.com/quern-project/quern/runtime/service"
)

// errno is the result of a function. A negative result is an error; the meaning of any other result depends on the
// function.
type errno int32

// The errors of quern_v1.
const (
	errnoSuccess     errno = 0
	errnoInval       errno = -1  // invalid argument
	errnoFault       errno = -2  // range outside memory
	errnoDenied      errno = -3  // not granted
	errnoNotFound    errno = -4  // no such name
	errnoTooBig      errno = -5  // larger than its limit
	errnoQuota       errno = -6  // quota exhausted
	errnoConflict    errno = -7  // not the value that the guest expects
	errnoCancelled   errno = -8  // another host has the task
	errnoUnavailable errno = -9  // the service is unavailable
	errnoState       errno = -10 // no task in this stage
	errnoLimit       errno = -11 // too many, or too deep
)

// names are the names of errors in sdk/ABI.md and in metrics.
var names = map[errno]string{
	errnoSuccess: "ok", errnoInval: "EINVAL", errnoFault: "EFAULT", errnoDenied: "EDENIED", errnoNotFound: "ENOTFOUND",
	errnoTooBig: "ETOOBIG", errnoQuota: "EQUOTA", errnoConflict: "ECONFLICT", errnoCancelled: "ECANCELED",
	errnoUnavailable: "EAGAIN", errnoState: "ESTATE", errnoLimit: "ELIMIT",
}

// meanings map errors of services to errnos. A context error means that the service's own time limit has passed: if the
// task's time is over, the guest is ended and gets no result.
var meanings = []struct {
	err    error
	answer errno
}{
	{service.ErrInvalid, errnoInval},
	{service.ErrDenied, errnoDenied},
	{service.ErrNotFound, errnoNotFound},
	{service.ErrTooBig, errnoTooBig},
	{service.ErrQuota, errnoQuota},
	{service.ErrConflict, errnoConflict},
	{service.ErrLost, errnoCancelled},
	{service.ErrUnavailable, errnoUnavailable},
	{service.ErrLimit, errnoLimit},
	{context.DeadlineExceeded, errnoUnavailable},
	{context.Canceled, errnoUnavailable},
}

// meaning returns the errno for an error of a service, or false if no guest can cause that error.
func meaning(err error) (errno, bool) {
	for _, m := range meanings {
		if errors.Is(err, m.err) {
			return m.answer, true
		}
	}
	return errnoSuccess, false
}
