package abi

import (
	"context"
	"errors"

	"github.com/quern-project/quern/runtime/service"
)

// errno is what a function answers: an error if it is negative, else a number that means what the function
// says.
type errno int32

// The errors of quern_v1.
const (
	errnoInval       errno = -1  // an argument that means nothing
	errnoFault       errno = -2  // a range that does not lie in memory
	errnoDenied      errno = -3  // not granted
	errnoNotFound    errno = -4  // there is none of that name
	errnoTooBig      errno = -5  // more than is taken
	errnoQuota       errno = -6  // no room for more
	errnoConflict    errno = -7  // not as the guest believes
	errnoCancelled   errno = -8  // the task is another host's
	errnoUnavailable errno = -9  // what is behind it is away
	errnoState       errno = -10 // there is no task
	errnoLimit       errno = -11 // too many, or too deep
)

const errnoSuccess errno = 0

// names are those by which sdk/ABI.md and the metrics call the errors.
var names = map[errno]string{
	errnoSuccess: "ok", errnoInval: "EINVAL", errnoFault: "EFAULT", errnoDenied: "EDENIED", errnoNotFound: "ENOTFOUND",
	errnoTooBig: "ETOOBIG", errnoQuota: "EQUOTA", errnoConflict: "ECONFLICT", errnoCancelled: "ECANCELED",
	errnoUnavailable: "EAGAIN", errnoState: "ESTATE", errnoLimit: "ELIMIT",
}

// meanings are what guests are told of the errors of services. The end of a service's own time is one of what is
// away: that of the task's ends the guest.
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

// meaning is what a guest is told of an error of a service; false if that is none that a guest can cause.
func meaning(err error) (errno, bool) {
	for _, m := range meanings {
		if errors.Is(err, m.err) {
			return m.answer, true
		}
	}
	return errnoSuccess, false
}
