package manifest

import (
	"cmp"
	"fmt"
	"time"
)

const (
	maxFailures     = 10_000
	defaultPause    = 30 * time.Second
	defaultMaxPause = time.Hour
	shortestPause   = 100 * time.Millisecond
	longestPause    = 24 * time.Hour // as the quarantine of a version that ended hosts
)

// value describes the section breaker.
func (b *Breaker) value() value {
	remedy := fmt.Sprintf("write a whole number from 1 to %d", maxFailures)
	return section(
		key{
			"failures", "After how many failures of one kind in a row, on all hosts, the tasks wait.",
			integerValue(&b.Failures, 1, maxFailures, remedy).
				require("write after how many failures in a row the tasks wait, such as failures: 10"),
		},
		key{"pause", "How long they wait before one runs as a probe: 100ms at least. Default 30s.", durationValue(&b.Pause, "30s", "30s")},
		key{
			"max_pause", "Each probe that fails doubles the pause, up to this one: 24h at most. Default 1h.",
			durationValue(&b.MaxPause, "1h", "1h"),
		},
	)
}

// pauses checks the pauses of the circuit breaker against each other, and sets their defaults.
func (d *decoder) pauses(m *Manifest) {
	b := &m.Breaker
	if b.Failures == 0 || d.troubled("breaker") {
		return
	}
	b.Pause, b.MaxPause = cmp.Or(b.Pause, defaultPause), cmp.Or(b.MaxPause, defaultMaxPause)
	pause, hasPause := d.values["breaker.pause"]
	most, hasMost := d.values["breaker.max_pause"]
	switch {
	case b.Pause < shortestPause:
		d.bad(pause, "is less than 100ms", "write a duration of at least 100ms")
	case b.MaxPause > longestPause:
		d.bad(most, "is more than 24h", "write a duration of at most 24h")
	case b.Pause <= b.MaxPause:
	case hasPause && hasMost:
		d.bad(pause, "is more than breaker.max_pause, which is "+Shorten(most.Value), "write a pause that is at most max_pause")
	case hasPause:
		d.bad(pause, "is more than breaker.max_pause, which is 1h if it is left out", "write a smaller pause, or a max_pause")
	default:
		d.bad(most, "is less than breaker.pause, which is 30s if it is left out", "write a larger max_pause, or a pause")
	}
}
