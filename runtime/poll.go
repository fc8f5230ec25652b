package runtime

import (
	"context"
	"encoding/binary"
	"math"
	goruntime "runtime"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"
)

// The layout of poll_oneoff in memory, its event types, clocks and flags, and the errors of WASI,
// from the description of snapshot 01.
const (
	subscriptionSize = 48
	eventSize        = 32

	eventClock   = 0
	eventFdRead  = 1
	eventFdWrite = 2

	clockRealtime  = 0
	clockMonotonic = 1
	clockAbsolute  = 1

	errnoSuccess = 0
	errnoBadf    = 8
	errnoFault   = 21
	errnoInval   = 28
	errnoNotsup  = 58
)

// subscription is one thing that a guest waits for.
type subscription struct {
	event    byte
	userdata uint64
	fd       uint32
	wait     time.Duration // until a clock rings, 0 if it has
	errno    uint16
}

// pollOneoff is the only way for a command to sleep. It stands in for wazero's, which sleeps without
// looking at the context, knows no absolute time, and panics on a count of subscriptions whose size
// in bytes overflows: a guest could have passed its own error off as the host's.
//
// Standard input is in memory and standard output is a buffer, so both are always ready: a poll
// waits only if it asks for nothing but clocks.
func (c clock) pollOneoff(ctx context.Context, mod api.Module, stack []uint64) {
	in, out, count, result := uint32(stack[0]), uint32(stack[1]), uint32(stack[2]), uint32(stack[3])
	stack[0] = c.poll(ctx, mod.Memory(), in, out, count, result)
}

func (c clock) poll(ctx context.Context, mem api.Memory, in, out, count, result uint32) uint64 {
	if count == 0 {
		return errnoInval
	}
	if uint64(count)*subscriptionSize > math.MaxUint32 {
		return errnoFault
	}
	input, ok := mem.Read(in, count*subscriptionSize)
	if !ok {
		return errnoFault
	}
	if _, ok := mem.Read(out, count*eventSize); !ok {
		return errnoFault
	}
	if _, ok := mem.ReadUint32Le(result); !ok {
		return errnoFault
	}
	// The guest may let input and output overlap: everything is read before anything is written.
	subscriptions := make([]subscription, count)
	wait := time.Duration(math.MaxInt64)
	for i := range subscriptions {
		subscriptions[i], ok = c.readSubscription(input[i*subscriptionSize:])
		if !ok {
			return errnoInval
		}
		wait = min(wait, subscriptions[i].wait)
	}
	sleep(ctx, wait)
	written := uint32(0)
	for _, s := range subscriptions {
		if s.wait <= wait {
			writeEvent(mem, out+written*eventSize, s)
			written++
		}
	}
	mem.WriteUint32Le(result, written)
	return errnoSuccess
}

func (c clock) readSubscription(b []byte) (subscription, bool) {
	s := subscription{userdata: binary.LittleEndian.Uint64(b), event: b[8]}
	switch s.event {
	case eventClock:
		id := binary.LittleEndian.Uint32(b[16:])
		timeout := binary.LittleEndian.Uint64(b[24:])
		flags := binary.LittleEndian.Uint16(b[40:])
		if id > clockMonotonic || flags > clockAbsolute {
			return s, false
		}
		s.wait = time.Duration(min(timeout, math.MaxInt64))
		if flags == clockAbsolute {
			s.wait = max(0, s.wait-c.read(id))
		}
	case eventFdRead, eventFdWrite:
		if s.fd = binary.LittleEndian.Uint32(b[16:]); s.fd > 2 {
			s.errno = errnoBadf
		}
	default:
		return s, false
	}
	return s, true
}

func writeEvent(mem api.Memory, at uint32, s subscription) {
	var event [eventSize]byte
	binary.LittleEndian.PutUint64(event[0:], s.userdata)
	binary.LittleEndian.PutUint16(event[8:], s.errno)
	event[10] = s.event
	if s.event != eventClock && s.errno == errnoSuccess {
		binary.LittleEndian.PutUint64(event[16:], 1) // at least one byte can be read or written
	}
	mem.Write(at, event[:])
}

// sleep waits on the context of the call. When that ends it does not return to the guest, which
// might have much to do before its next loop, but unwinds it; the cause is in the context.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		goruntime.Gosched()
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		unwind()
	}
}

// unwind ends the guest from within a host function: wazero recovers an ExitError and returns it
// from the call. Nobody looks at its code, since the context of the call holds the cause.
func unwind() {
	panic(sys.NewExitError(sys.ExitCodeContextCanceled))
}
