package runtime

import "time"

// clock is the time that guests see: the real one. (wazero's default is a deterministic fake.)
type clock struct {
	// started is the zero of the monotonic clock, the same for all guests of an engine.
	started time.Time
}

// walltime implements sys.Walltime.
func (clock) walltime() (sec int64, nsec int32) {
	now := time.Now()
	return now.Unix(), int32(now.Nanosecond())
}

// nanotime implements sys.Nanotime.
func (c clock) nanotime() int64 {
	return int64(time.Since(c.started))
}

// read returns a clock of WASI by its number.
func (c clock) read(id uint32) time.Duration {
	if id == clockRealtime {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(c.nanotime())
}
