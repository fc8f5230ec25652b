package webhook

import (
	"time"
)

const (
	// After failuresOff failed deliveries in a row, a destination is switched off for Config.Off. Then one delivery tests
	// the destination. Each time that this test fails, the destination is switched off for twice as long, up to maxOff.
	failuresOff = 10
	maxOff      = 10 * time.Minute
	// reserving stands for the ID of the delivery that will test a destination, until that delivery is reserved.
	reserving = "?"
)

// Off is a destination that is switched off, as a listener publishes it.
type Off struct {
	Destination string  `json:"destination"`
	Failures    int     `json:"failures"` // number of failed deliveries in a row
	Since       float64 `json:"since"`    // when it was switched off, in seconds since the epoch
	Until       float64 `json:"until"`    // when a delivery may test it, in seconds since the epoch
	Error       string  `json:"error"`
}

// destination is the state of a scheme, host and port to which deliveries go. The runner's mutex guards it.
//
//	on ── 10 failures in a row ──▶ off ── time ──▶ probing, one delivery ── it succeeds ──▶ on
//	                                ▲                     │
//	                                └──── it fails, twice as long ┘
type destination struct {
	label    string
	least    time.Duration // how long the destination is switched off at first
	open     int           // places taken for deliveries to the destination
	failures int           // number of failed deliveries in a row
	off      time.Duration // how long the destination is switched off now
	since    time.Time     // when the destination was switched off; zero if it is on
	until    time.Time     // when a delivery may test the destination
	probe    string        // the ID of the delivery that tests it; reserving until the ID is known; "" if none does
	why      string        // the error of the last failed delivery
}

// room returns how many more deliveries may begin. While the destination is on, it may have limit deliveries.
func (d *destination) room(limit int, now time.Time) int {
	switch {
	case d.since.IsZero():
		return limit - d.open
	case d.probe != "" || now.Before(d.until):
		return 0
	}
	return min(1, limit-d.open)
}

// begin counts n deliveries that begin.
func (d *destination) begin(n int) {
	d.open += n
	if n > 0 && !d.since.IsZero() {
		d.probe = reserving
	}
}

// name records the ID of a delivery if this delivery tests the destination and its ID was not known yet.
func (d *destination) name(id string) {
	if d.probe == reserving {
		d.probe = id
	}
}

// end records the end of a delivery, and reports whether that switched the destination off or on. If well is true, the
// delivery shows that the destination works; if sick is true, that it does not work. A delivery that was stopped shows
// neither.
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
		d.off = min(2*d.off, maxOff)
		d.until = now.Add(d.off)
	case d.since.IsZero() && d.failures >= failuresOff:
		d.off, d.since, d.until = d.least, now, now.Add(d.least)
		return true, false
	}
	return false, false
}
