package relay

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	// century bounds ages and delays of damaged rows.
	century = 100 * 365 * 24 * time.Hour
	// parkedFor is how long a row that no statement can change is left alone before it is tried again.
	parkedFor = time.Minute
	// maxParked is how many parked rows a queue may have: then no more of its rows are claimed.
	maxParked = 100
	// refusedFor is how long a row that could be no task counts as refused, in a table where it ends like others.
	refusedFor = time.Hour
)

// damaged are the rows of a table of another library with which something is wrong.
type damaged struct {
	refused  []time.Time          // when rows ended that could be no task
	parked   map[string]parkedRow // rows that no statement can change, by their ID
	parkedOf map[string]int       // how many of them each queue has
	last     string               // the ID of the row that why tells of
	wait     time.Duration        // parkedFor
}

type parkedRow struct {
	queue, why string
	claim      *claim // of a row in hand
	until      time.Time
}

// Rows that are parked by a duty, and publications, count apart from the rows in hand: by what they name, behind one of
// these texts. The name of a queue has no space.
const (
	parkedByDuty      = "duty for "
	parkedPublication = "publication of "
)

func newDamaged(wait time.Duration) damaged {
	return damaged{parked: make(map[string]parkedRow), parkedOf: make(map[string]int), wait: wait}
}

// park leaves a row alone for a while. It reports whether the error is new. c is the row if it is in hand.
func (d *damaged) park(queue, id string, c *claim, why error) (added bool) {
	before := d.parked[id].why
	d.forget(id)
	d.parked[id] = parkedRow{queue: queue, why: why.Error(), claim: c, until: time.Now().Add(d.wait)}
	d.parkedOf[queue]++
	d.last = id
	return before != why.Error()
}

// forget forgets a parked row: it was changed.
func (d *damaged) forget(id string) {
	row, ok := d.parked[id]
	if !ok {
		return
	}
	delete(d.parked, id)
	if d.parkedOf[row.queue]--; d.parkedOf[row.queue] == 0 {
		delete(d.parkedOf, row.queue)
	}
}

// isAlone reports whether to leave a row alone.
func (d *damaged) isAlone(id string) bool { return time.Now().Before(d.parked[id].until) }

// hasMost reports whether a queue has maxParked parked rows, so that no more of its rows are claimed. It does not count
// rows that are neither in hand nor to be left alone any longer.
func (d *damaged) hasMost(queue string) bool {
	if d.parkedOf[queue] < maxParked {
		return false
	}
	n, now := 0, time.Now()
	for _, row := range d.parked {
		if row.queue == queue && (row.claim != nil || now.Before(row.until)) {
			n++
		}
	}
	return n >= maxParked
}

// most returns what has maxParked parked rows, of the names behind a prefix.
func (d *damaged) most(prefix string) (names []string) {
	for queue := range d.parkedOf {
		if name, ok := strings.CutPrefix(queue, prefix); ok && d.hasMost(queue) {
			names = append(names, name)
		}
	}
	return names
}

// alone returns the IDs of rows to leave alone. It forgets those that were not parked again when they could be tried.
func (d *damaged) alone() []string {
	ids := make([]string, 0, len(d.parked))
	for id, row := range d.parked {
		switch left := time.Until(row.until); {
		case left > 0:
			ids = append(ids, id)
		case left < -d.wait && row.claim == nil: // it was not parked again: it was changed, or not tried
			d.forget(id)
		}
	}
	return ids
}

// due returns parked rows in hand that can be tried again: at most limit.
func (d *damaged) due(limit int) (due []*claim) {
	now := time.Now()
	for _, row := range d.parked {
		if row.claim != nil && now.After(row.until) {
			if due = append(due, row.claim); len(due) == limit {
				break
			}
		}
	}
	return due
}

// why describes the last of the rows that are parked; "" if none is.
func (d *damaged) why() string {
	if _, ok := d.parked[d.last]; !ok {
		d.last = ""
		for d.last = range d.parked {
			break
		}
	}
	if row, ok := d.parked[d.last]; ok {
		return fmt.Sprintf("row %s cannot be changed, and is tried again each minute: %s", d.last, row.why)
	}
	return ""
}

// refuse counts a row that could be no task.
func (d *damaged) refuse() { d.refused = append(d.refused, time.Now()) }

// count returns how many rows are refused or parked.
func (d *damaged) count() int64 {
	old := func(at time.Time) bool { return time.Since(at) > refusedFor }
	d.refused = slices.DeleteFunc(d.refused, old)
	if more := len(d.refused) - maxCounted; more > 0 {
		d.refused = slices.Delete(d.refused, 0, more)
	}
	return int64(len(d.refused) + len(d.parked))
}

// safeText is the SQL of a text in which every client can read every character. Values of a database with the encoding
// SQL_ASCII may be no UTF-8, and an answer with one of them is an error.
func safeText(column string) string {
	return "regexp_replace(" + column + `, '[^\x20-\x7e]', '?', 'g')`
}

// isName is the SQL of whether a text can be the name of a queue.
func isName(column string) string { return column + ` ~ '^[\x21-\x7e]{1,128}$'` }

// asciiText returns text that every encoding of PostgreSQL has.
func asciiText(text string) string {
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return '?'
		}
		return r
	}, text)
}
