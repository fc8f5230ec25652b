//go:build !linux

package runtime

import "time"

// threadClock is not known here: the wall clock stands for it.
func threadClock() time.Duration { return 0 }

// stepAside is not known here.
func stepAside() (undo func()) { return func() {} }
