package abi

import (
	"time"

	"github.com/tetratelabs/wazero/api"
)

const (
	clockWall      = 0
	clockMonotonic = 1
)

// clock implements clock(id, result nanoseconds).
func (s *System) clock(mem api.Memory, a []uint64) errno {
	switch uint32(a[0]) {
	case clockWall:
		return put64(mem, a[1], s.Tape.Clock(clockWall, time.Now().UnixNano()))
	case clockMonotonic:
		return put64(mem, a[1], s.Tape.Clock(clockMonotonic, int64(time.Since(s.Started))))
	}
	return s.invalid("clock %d: use 0 or 1", int32(uint32(a[0])))
}

// maxDelay is the maximum of the delays and timeouts that a guest sets: no task lasts longer.
const maxDelay = 365 * 24 * time.Hour

// sleep implements sleep(ms).
func (s *System) sleep(_ api.Memory, a []uint64) errno {
	ms := int64(a[0])
	if ms < 0 {
		return s.invalid("%d ms: use 0 or more", ms)
	}
	s.Host.Wait(time.Duration(min(ms, maxDelay.Milliseconds())) * time.Millisecond)
	return errnoSuccess
}

// maxRandom is the maximum number of bytes that a guest gets from one call of random.
const maxRandom = 64 << 10

// random implements random(ptr, len).
func (s *System) random(mem api.Memory, a []uint64) errno {
	if uint32(a[1]) > maxRandom {
		return errnoTooBig
	}
	buffer, ok := view(mem, a[0], a[1])
	if !ok {
		return errnoFault
	}
	s.spend(len(buffer))
	s.Tape.Random(buffer)
	return errnoSuccess
}
