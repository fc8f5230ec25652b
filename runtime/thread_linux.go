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

// yieldThread lets other processes go first that are ready to run, and other threads of this one. Linux lets a thread
// that computes go on for some milliseconds after another one has become ready.
func yieldThread() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
