package wasi

import (
	"time"

	"github.com/tetratelabs/wazero/api"
)

// The supported clocks. Clocks of processor time are not supported; WASI specifies the error inval for that.
const (
	clockRealtime  = 0
	clockMonotonic = 1
)

// clockResGet implements clock_res_get(id, result resolution), in nanoseconds. The resolution of the wall clock is a
// microsecond, as operating systems keep it.
func (s *System) clockResGet(mem api.Memory, a []uint64) errno {
	switch uint32(a[0]) {
	case clockRealtime:
		return put64(mem, uint32(a[1]), uint64(time.Microsecond))
	case clockMonotonic:
		return put64(mem, uint32(a[1]), 1)
	}
	return errnoInval
}

// clockTimeGet implements clock_time_get(id, precision, result time), in nanoseconds.
func (s *System) clockTimeGet(mem api.Memory, a []uint64) errno {
	id := uint32(a[0])
	if id > clockMonotonic {
		return errnoInval
	}
	return put64(mem, uint32(a[2]), uint64(s.now(id)))
}

func (s *System) now(id uint32) time.Duration {
	if id == clockRealtime {
		return time.Duration(s.tape.Clock(clockRealtime, time.Now().UnixNano()))
	}
	return time.Duration(s.tape.Clock(clockMonotonic, int64(time.Since(s.started))))
}
