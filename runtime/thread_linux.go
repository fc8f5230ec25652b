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
