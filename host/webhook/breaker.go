package webhook

import (
	"time"
)

const (
	// failuresOff is how many deliveries in a row fail before a destination is switched off, for leastOff, and twice as long
	// each time that the delivery fails which then tries it, up to mostOff.
	failuresOff = 10
	leastOff    = 30 * time.Second
	mostOff     = 10 * time.Minute
	// mostHeld is how long one response that asks for a pause holds up the other deliveries to its destination.
	mostHeld = time.Minute
)

// Off is a destination that is switched off, as a listener publishes it.
type Off struct {
	Destination string  `json:"destination"`
	Failures    int     `json:"failures"` // in a row
	Since       float64 `json:"since"`
	Until       float64 `json:"until"` // when a delivery tries it
	Error       string  `json:"error"`
}

// destination is a scheme, host and port to which deliveries go. The runner's mutex guards it.
//
//	on ── 10 failures in a row ──▶ off ── time ──▶ probing, one delivery ── it succeeds ──▶ on
//	                                ▲                     │
//	                                └──── it fails, twice as long ┘
type destination struct {
	name     string
	open     int // requests
	failures int // in a row
	off      time.Duration
	since    time.Time // when it was switched off; zero: it is on
	until    time.Time
	held     time.Time // until then it has asked for a pause
	probing  bool
	why      string
}

// room is how many deliveries may begin.
func (d *destination) room(most int, now time.Time) int {
	switch {
	case now.Before(d.held):
		return 0
	case d.since.IsZero():
		return most - d.open
	case d.probing || now.Before(d.until):
		return 0
	}
	return min(1, most-d.open)
}

// begin notes deliveries that begin.
func (d *destination) begin(n int) {
	d.open += n
	if n > 0 && !d.since.IsZero() {
		d.probing = true
	}
}

// end notes the end of a delivery, and tells whether the destination was switched off or on by it. One that is neither well nor
// sick, because it was stopped, says nothing.
func (d *destination) end(well, sick bool, why string, now time.Time) (off, on bool) {
	d.open--
	probed := d.probing
	d.probing = false
	switch {
	case well:
		on = !d.since.IsZero()
		d.failures, d.off, d.since, d.why = 0, 0, time.Time{}, ""
		return false, on
	case !sick:
		return false, false
	}
	d.failures, d.why = d.failures+1, why
	switch {
	case !d.since.IsZero() && probed:
		d.off = min(2*d.off, mostOff)
		d.until = now.Add(d.off)
	case d.since.IsZero() && d.failures >= failuresOff:
		d.off, d.since, d.until = leastOff, now, now.Add(leastOff)
		return true, false
	}
	return false, false
}
