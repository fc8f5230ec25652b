package runtime

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadClock is the processor time of the calling thread.
func threadClock() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// longSlice is what that a thread asks for while it runs a long guest.
const longSlice = 100 * time.Millisecond

// stepAside lets every thread that wakes run before the calling one, which goes on to have its fair share:
// it asks for a long slice, and whoever asks for a shorter one comes first. So the host's own threads, and
// Redis, do not wait for guests. Linux knows that from 6.12 on; before, and where threads are scheduled in
// another way than usual, nothing changes. It returns what undoes it.
//
// Source: sched_setattr(2), sched_runtime; "Earliest eligible virtual deadline first" in the kernel's
// documentation of its scheduler.
func stepAside() (undo func()) {
	attributes, err := unix.SchedGetAttr(0, 0)
	if err != nil || attributes.Policy != unix.SCHED_NORMAL {
		return func() {}
	}
	before := attributes.Runtime
	attributes.Runtime = uint64(longSlice)
	if unix.SchedSetAttr(0, attributes, 0) != nil {
		return func() {}
	}
	return func() {
		attributes.Runtime = before
		_ = unix.SchedSetAttr(0, attributes, 0) // what it sets was so before
	}
}
