package relay

import (
	"context"

	"github.com/quern-project/quern/host/postgres"
)

// horizon tells from which seq to read. Reading from the beginning would pass over the entries of deleted rows, which
// PostgreSQL keeps while any transaction may see them. But a row with a low seq may become visible after one with a
// higher seq: its transaction took the seq first and committed later.
//
//	0 ─── all rows are sent ─── low ─── rows may still appear ─── high ─── not read yet ───▶ seq
//
// What matters never depends on low: the leader reads from the beginning each sweepInterval.
type horizon struct {
	low, high int64

	// When all transactions below xmax have ended, no row up to seq can appear any more.
	seq, xmax int64
	decided   int64 // all rows up to here that exist are visible
}

// look finds out up to which seq all transactions have ended. It reads the last seq before it takes the snapshot: a
// transaction that took this seq or a lower one has mostly begun by then. If it had no ID yet, because it took the seq at
// its start, the next sweep finds its row.
func (h *horizon) look(ctx context.Context, db *postgres.Conn) error {
	var last int64
	err := db.Query(ctx, func(v postgres.Row) { last = v.Int(0) },
		"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM quern.outbox_seq_seq")
	if err != nil {
		return err
	}
	return db.Query(ctx, func(v postgres.Row) {
		xmin, xmax := v.Int(0), v.Int(1)
		if h.xmax > 0 && xmin < h.xmax {
			return
		}
		h.decided = h.seq
		h.seq, h.xmax = last, xmax
	}, "SELECT pg_snapshot_xmin(s)::text, pg_snapshot_xmax(s)::text FROM pg_current_snapshot() s")
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
