//go:build !linux

package runtime

import "time"

// threadClock returns 0, for unknown: the meter uses the wall clock instead.
func threadClock() time.Duration { return 0 }

// yieldThread does nothing: it is left to the scheduler here.
func yieldThread() {}
