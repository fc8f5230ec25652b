package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/quern-project/quern/host/postgres"
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

// lockWait is how long a statement waits for a row that others have locked.
const lockWait = 100 * time.Millisecond

// ofRow reports whether a statement failed because of one of its rows: data that the statement cannot use or the
// database cannot read, a constraint, a trigger, or a lock that another session has on the row.
func ofRow(err error) bool {
	failed, ok := errors.AsType[databaseError](err)
	return ok && failed.row
}

// isOfServer reports whether an SQLSTATE tells of the server or the connection, and not of a row or a table:
// connection, invalid transaction state, authorization, no such database, deadlock, resources, shutdown and input or
// output.
func isOfServer(state string) bool {
	return len(state) == 5 && slices.Contains([]string{"08", "25", "28", "3D", "40", "53", "57", "58"}, state[:2])
}

// onRows runs a statement on rows of another library's table. Any error can come from a trigger, so if the table itself
// is as it should be, it is the error of a row. check and table say what to check, and spare is a connection for that,
// outside of transactions.
func onRows(
	ctx context.Context, db *postgres.Conn, each func(postgres.Row), statement string, args []any,
	spare *postgres.Conn, table string, check func(context.Context, *postgres.Conn) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := db.QueryLocks(ctx, lockWait, each, statement, args...)
	if postgres.State(err) == "55P03" { // of a row, or of the table, for which this waits
		if _, wrong := spare.Exec(ctx, "EXPLAIN UPDATE "+table+" SET status = status"); wrong != nil {
			return databaseError{error: wrong}
		}
		if db.Idle() {
			err = db.QueryLocks(ctx, lockWait, each, statement, args...)
		}
	}
	switch state := postgres.State(err); {
	case err == nil:
		return nil
	case len(state) != 5 || isOfServer(state):
		return databaseError{error: err}
	}
	if wrong := check(ctx, spare); wrong != nil {
		return databaseError{error: wrong}
	}
	return databaseError{err, true}
}

// each runs a statement on a block of rows. It calls wrong for each row that makes the statement fail, and runs the
// statement on the others.
func each[T any](rows []T, run func([]T) error, wrong func(T, error) error) error {
	if len(rows) == 0 {
		return nil
	}
	err := run(rows)
	switch {
	case !ofRow(err):
		return err
	case len(rows) == 1:
		return wrong(rows[0], err)
	}
	half := len(rows) / 2
	if err := each(rows[:half], run, wrong); err != nil {
		return err
	}
	return each(rows[half:], run, wrong)
}

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

// Rows that have no queue are parked under these names. A queue cannot have them.
const (
	parkedByDuty      = ""
	parkedPublication = " "
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
