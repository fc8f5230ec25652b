package wasi

import (
	"math"
	"time"

	"github.com/tetratelabs/wazero/api"
)

// Layout, event types and flags of poll_oneoff.
const (
	subscriptionSize = 48
	eventSize        = 32
	// maxSubscriptions is the maximum number of events in one poll. It allows more than two events for each descriptor.
	maxSubscriptions = 4096

	eventClock   = 0
	eventFdRead  = 1
	eventFdWrite = 2

	clockAbsolute = 1
)

// subscription is an event that a guest waits for.
type subscription struct {
	event [eventSize]byte // to write when the event has come: userdata, errno, type, number of bytes
	wait  time.Duration   // time until the event comes, 0 if it has come
}

// pollOneoff implements poll_oneoff(in, out, nsubscriptions, result nevents), by which commands sleep. Standard input
// and files are in memory and standard output is a buffer, so all of them are always ready: a poll waits only if all
// its events are clocks.
func (s *System) pollOneoff(mem api.Memory, a []uint64) errno {
	in, out, count, result := uint32(a[0]), uint32(a[1]), uint32(a[2]), uint32(a[3])
	if count == 0 {
		return errnoInval
	}
	input, ok := view(mem, in, uint64(count)*subscriptionSize)
	output, fits := view(mem, out, uint64(count)*eventSize)
	if _, counted := view(mem, result, 4); !ok || !fits || !counted {
		return errnoFault
	}
	if count > maxSubscriptions {
		return errnoInval
	}
	s.host.Spend(len(input) + len(output))
	// Input and output can overlap, so everything is read before anything is written.
	subscriptions := make([]subscription, count)
	wait := time.Duration(math.MaxInt64)
	for i := range subscriptions {
		subscriptions[i], ok = s.readSubscription(input[i*subscriptionSize:])
		if !ok {
			return errnoInval
		}
		wait = min(wait, subscriptions[i].wait)
	}
	s.host.Wait(wait)
	events := uint32(0)
	for _, subscription := range subscriptions {
		if subscription.wait <= wait {
			copy(output[events*eventSize:], subscription.event[:])
			events++
		}
	}
	return put32(mem, result, events)
}

func (s *System) readSubscription(b []byte) (sub subscription, ok bool) {
	copy(sub.event[0:8], b)
	sub.event[10] = b[8]
	switch b[8] {
	case eventClock:
		id, timeout, flags := le.Uint32(b[16:]), le.Uint64(b[24:]), le.Uint16(b[40:])
		if id > clockMonotonic || flags > clockAbsolute {
			return sub, false
		}
		sub.wait = time.Duration(min(timeout, math.MaxInt64))
		if flags == clockAbsolute {
			sub.wait = max(0, sub.wait-s.now(id))
		}
	case eventFdRead, eventFdWrite:
		ready, e := s.ready(uint64(le.Uint32(b[16:])))
		le.PutUint16(sub.event[8:], uint16(e))
		le.PutUint64(sub.event[16:], ready)
	default:
		return sub, false
	}
	return sub, true
}

// ready returns the number of bytes that can be read, or 1 for a stream that can be written.
func (s *System) ready(fd uint64) (uint64, errno) {
	d := s.descriptor(fd)
	switch {
	case d == nil:
		return 0, errnoBadf
	case d.kind == stdin:
		return uint64(len(s.stdin)), errnoSuccess
	case d.kind == file:
		return uint64(len(d.node.from(d.offset))), errnoSuccess
	}
	return 1, errnoSuccess
}
