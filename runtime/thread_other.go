//go:build !linux

package runtime

import "time"

// threadClock returns 0, which means unknown: the meter uses the wall clock instead.
func threadClock() time.Duration { return 0 }

// yieldThread does nothing: the scheduler decides alone.
func yieldThread() {}
