package abi

import (
	"crypto/rand"
	"time"

	"github.com/tetratelabs/wazero/api"
)

// The clocks.
const (
	clockWall      = 0
	clockMonotonic = 1
)

// clock is clock(id, result nanoseconds).
func (s *System) clock(mem api.Memory, a []uint64) errno {
	switch uint32(a[0]) {
	case clockWall:
		return put64(mem, a[1], time.Now().UnixNano())
	case clockMonotonic:
		return put64(mem, a[1], int64(time.Since(s.started)))
	}
	return errnoInval
}

// maxRandom is how many bytes one call of random makes at most.
const maxRandom = 64 << 10

// random is random(ptr, len).
func (s *System) random(mem api.Memory, a []uint64) errno {
	if uint32(a[1]) > maxRandom {
		return errnoTooBig
	}
	buffer, ok := view(mem, a[0], a[1])
	if !ok {
		return errnoFault
	}
	s.host.Spend(len(buffer))
	_, _ = rand.Read(buffer) // it has no errors: it ends the process rather than return one
	return errnoSuccess
}
