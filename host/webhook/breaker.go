package webhook

import (
	"time"
)

const (
	// failuresOff is how many deliveries in a row fail before a destination is switched off, for Config.Off, and twice as long
	// each time that the delivery fails which then tries it, up to mostOff.
	failuresOff = 10
	mostOff     = 10 * time.Minute
	// reserving stands for the ID of a delivery that is to try a destination.
	reserving = "?"
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
	label    string
	least    time.Duration // for which it is switched off first
	open     int           // requests
	failures int           // in a row
	off      time.Duration
	since    time.Time // when it was switched off; zero: it is on
	until    time.Time
	probe    string // the ID of the delivery that tries it, reserving before that is known; "" while none does
	why      string
}

// room is how many deliveries may begin.
func (d *destination) room(most int, now time.Time) int {
	switch {
	case d.since.IsZero():
		return most - d.open
	case d.probe != "" || now.Before(d.until):
		return 0
	}
	return min(1, most-d.open)
}

// begin notes deliveries that begin.
func (d *destination) begin(n int) {
	d.open += n
	if n > 0 && !d.since.IsZero() {
		d.probe = reserving
	}
}

// name names the delivery that tries the destination, if none is known yet.
func (d *destination) name(id string) {
	if d.probe == reserving {
		d.probe = id
	}
}

// end notes the end of a delivery, and tells whether the destination was switched off or on by it. One that is neither well nor
// sick, because it was stopped, says nothing.
func (d *destination) end(id string, well, sick bool, why string, now time.Time) (off, on bool) {
	d.open--
	probed := d.probe == id
	if probed {
		d.probe = ""
	}
	switch {
	case well:
		on = !d.since.IsZero()
		d.failures, d.off, d.since, d.why, d.probe = 0, 0, time.Time{}, "", ""
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
		d.off, d.since, d.until = d.least, now, now.Add(d.least)
		return true, false
	}
	return false, false
}
