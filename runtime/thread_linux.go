package runtime

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadClock returns the processor time of the calling thread, or 0 if it is unknown.
func threadClock() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// yieldThread lets other ready threads, of this process and of others, run first. Without it, Linux lets a computing
// thread go on for some milliseconds after another thread has become ready.
func yieldThread() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
