package relay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quern-project/quern/host/postgres"
)

// lockWait is how long a statement waits for a row that others have locked.
const lockWait = 100 * time.Millisecond

// lockNotAvailable is the SQLSTATE of a statement that has waited for lockWait.
const lockNotAvailable = "55P03"

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

// statements run statements on another library's table.
type statements struct {
	table string // in SQL
	check func(context.Context, *postgres.Conn) error
	spare *postgres.Conn // for check, outside of transactions
	good  bool           // each has checked the table for its block
}

// run runs a statement. Any error can come from a trigger, so if the table itself is as it should be, it is the error
// of a row. A lock of the whole table is waited for, because it is no fault of a row. A statement runs once: those on
// the session that keeps advisory locks would take them twice.
func (s *statements) run(
	ctx context.Context, db *postgres.Conn, each func(postgres.Row), statement string, args ...any,
) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	lockTable := "EXPLAIN UPDATE " + s.table + " SET status = status"
	err := db.QueryLocks(ctx, lockTable, lockWait, each, statement, args...)
	switch state := postgres.State(err); {
	case err == nil:
		return nil
	case len(state) != 5 || isOfServer(state):
		return databaseError{error: err}
	}
	if !s.good {
		if wrong := s.check(ctx, s.spare); wrong != nil {
			return databaseError{error: wrong}
		}
	}
	return databaseError{err, true}
}

// locked returns which of some rows others have locked.
func (s *statements) locked(ctx context.Context, ids []string) (map[string]bool, error) {
	locked := make(map[string]bool)
	err := s.run(ctx, s.spare, func(v postgres.Row) { locked[v.Text(0)] = true }, `
		WITH free AS MATERIALIZED (SELECT id FROM `+s.table+` WHERE id = ANY ($1) FOR UPDATE SKIP LOCKED)
		SELECT id FROM `+s.table+` WHERE id = ANY ($1) AND id NOT IN (SELECT id FROM free)`, ids)
	return locked, err
}

// identified is a row, or what is to be written into one.
type identified interface{ rowID() string }

func idsOf[T identified](rows []T) []string {
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = row.rowID()
	}
	return ids
}

// each runs a statement on a block of rows. It calls wrong for each row that makes the statement fail, and runs the
// statement on the others. It asks at once for all rows that others have locked, because the statement waits for each.
func each[T identified](
	ctx context.Context, s *statements, rows []T, run func([]T) error, wrong func(T, error) error,
) error {
	if len(rows) == 0 {
		return nil
	}
	err := run(rows)
	if !ofRow(err) {
		return err
	}
	good := s.good
	s.good = true
	defer func() { s.good = good }()
	if len(rows) == 1 {
		return wrong(rows[0], err)
	}
	half := len(rows) / 2
	blocks := [][]T{rows[:half], rows[half:]}
	if postgres.State(err) == lockNotAvailable {
		locked, failed := s.locked(ctx, idsOf(rows))
		if failed != nil {
			return failed
		}
		var free []T
		for _, row := range rows {
			if !locked[row.rowID()] {
				free = append(free, row)
			} else if err := wrong(row, err); err != nil {
				return err
			}
		}
		if len(locked) > 0 {
			blocks = [][]T{free}
		}
	}
	for _, block := range blocks {
		if err := each(ctx, s, block, run, wrong); err != nil {
			return err
		}
	}
	return nil
}

// orPlain returns what each calls for a row: it tries the row once more in a plain form, unless somebody has locked it,
// and calls wrong if that fails too.
func orPlain[T any](plain func(T) error, wrong func(T, error) error) func(T, error) error {
	return func(row T, why error) error {
		if postgres.State(why) == lockNotAvailable {
			return wrong(row, why)
		}
		err := plain(row)
		if ofRow(err) {
			return wrong(row, err)
		}
		return err
	}
}
