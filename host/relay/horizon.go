package relay

import (
	"context"
	"slices"

	"github.com/quern-project/quern/host/postgres"
)

// horizon tells from which seq to read. Reading from the beginning would pass over the entries of deleted rows, which
// PostgreSQL keeps while any transaction may see them. But a row with a low seq may become visible after one with a
// higher seq: its transaction took the seq first and committed later.
//
//	0 ─── all rows are sent ─── low ─── rows may still appear ─── high ─── not read yet ───▶ seq
//
// No row depends on it for ever: the leader reads from the beginning each sweepInterval.
type horizon struct {
	low, high int64

	// When the transactions in writers have ended, no row up to seq can appear any more.
	seq     int64
	writers []string
	decided int64 // all rows up to here that exist are visible
}

// look finds out up to which seq all transactions have ended. A transaction locks the table before it takes a seq, and
// until it ends. So whatever took a seq up to the last one, and is not committed, holds that lock now. (Transaction IDs
// do not tell: a transaction may take a seq before it has one, and the snapshots of others know only ended ones.)
func (h *horizon) look(ctx context.Context, db *postgres.Conn) error {
	var last int64
	err := db.Query(ctx, func(v postgres.Row) { last = v.Int(0) },
		"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM quern.outbox_seq_seq")
	if err != nil {
		return err
	}
	var writers []string
	err = db.Query(ctx, func(v postgres.Row) { writers = append(writers, v.Text(0)) }, `
		SELECT virtualtransaction FROM pg_locks WHERE relation = 'quern.outbox'::regclass AND mode = 'RowExclusiveLock'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(h.writers, func(writer string) bool { return slices.Contains(writers, writer) }) {
		return nil
	}
	h.decided, h.seq, h.writers = h.seq, last, writers
	return nil
}

// read notes the rows that were read from low. partial reports whether rows were left out, so that low must stay.
func (h *horizon) read(rows []row, partial bool) {
	switch {
	case partial:
	case len(rows) > 0:
		h.low = max(h.low, min(h.decided, rows[0].seq-1))
	default:
		h.low = max(h.low, h.decided)
	}
	h.high = max(h.low, 1)
	if partial && len(rows) == 0 {
		h.high = max(h.high, h.decided)
	}
	h.passed(rows)
}

// passed notes rows that were read.
func (h *horizon) passed(rows []row) {
	if len(rows) > 0 {
		h.high = rows[len(rows)-1].seq
	}
}
