package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/postgres"
)

// Row is a row of the outbox, as operators see it.
type Row struct {
	Seq        int64   `json:"seq"`
	ID         string  `json:"id"`
	Tenant     string  `json:"tenant,omitempty"`
	Queue      string  `json:"queue,omitempty"`
	Topic      string  `json:"topic,omitempty"`
	Options    string  `json:"options,omitempty"`
	Bytes      int64   `json:"bytes"`
	CreatedAt  float64 `json:"created_at"`
	RefusedAt  float64 `json:"refused_at,omitempty"`
	RelayedAt  float64 `json:"relayed_at,omitempty"`
	Error      string  `json:"error,omitempty"`
	Parameters string  `json:"parameters,omitempty"` // only of a single row
}

// The tables whose rows operators see.
const (
	Waiting = "outbox"
	Refused = "outbox_refused"
	Held    = "outbox_held"
)

// Rows lists the oldest rows of a table.
func Rows(ctx context.Context, db *postgres.Conn, table string, limit int) ([]Row, error) {
	return rowsOf(ctx, db, table, "TRUE ORDER BY seq LIMIT $1", limit)
}

// Find reads a row, wherever it is. The error names the tables if there is none.
func Find(ctx context.Context, db *postgres.Conn, seq int64) (Row, error) {
	for _, table := range []string{Waiting, Refused, Held} {
		rows, err := rowsOf(ctx, db, table, "seq = $1", seq)
		if err != nil {
			return Row{}, err
		}
		if len(rows) > 0 {
			err := db.Query(ctx, func(v postgres.Row) {
				if rows[0].Parameters = v.Text(0); v[0] == nil {
					rows[0].Parameters = string(v.Hex(1))
				}
			}, "SELECT json, encode(parameters, 'hex') FROM quern."+table+" WHERE seq = $1", seq)
			return rows[0], err
		}
	}
	return Row{}, fmt.Errorf("the outbox has no row %d: it was relayed or deleted; see `quern outbox ls`", seq)
}

func rowsOf(ctx context.Context, db *postgres.Conn, table, where string, arg any) (rows []Row, err error) {
	columns := map[string]string{Waiting: "NULL, NULL", Refused: "extract(epoch FROM refused), error", Held: "extract(epoch FROM relayed), NULL"}[table]
	if err := checkVersion(ctx, db); err != nil {
		return nil, err
	}
	err = db.Query(ctx, func(v postgres.Row) {
		r := Row{
			Seq: v.Int(0), ID: v.Text(1), Tenant: v.Text(2), Queue: v.Text(3), Topic: v.Text(4), Options: v.Text(5),
			Bytes: v.Int(6), CreatedAt: v.Seconds(7).Seconds(), Error: v.Text(9),
		}
		switch at := v.Seconds(8).Seconds(); table {
		case Refused:
			r.RefusedAt = at
		case Held:
			r.RelayedAt = at
		}
		rows = append(rows, r)
	}, `SELECT seq, id, tenant, queue, topic, nullif(options::text, '{}'),
		coalesce(octet_length(parameters), octet_length(json::text), 0), extract(epoch FROM created), `+columns+
		" FROM quern."+table+" WHERE "+where, arg)
	return rows, err
}

// Retry puts refused rows into the outbox again: those with these numbers, or all if there are none. It returns how
// many they were.
func Retry(ctx context.Context, db *postgres.Conn, seqs []int64) (int64, error) {
	return change(ctx, db, `WITH again AS (
			DELETE FROM quern.outbox_refused WHERE seq = ANY ($1::bigint[]) OR $1::bigint[] = '{}' RETURNING *)
		INSERT INTO quern.outbox (id, queue, topic, parameters, json, options, tenant, created)
		SELECT id, queue, topic, parameters, json, options, tenant, created FROM again ORDER BY seq`, seqs)
}

// Delete deletes refused rows.
func Delete(ctx context.Context, db *postgres.Conn, seqs []int64) (int64, error) {
	return change(ctx, db, "DELETE FROM quern.outbox_refused WHERE seq = ANY ($1::bigint[])", seqs)
}

// Again sends held rows that were relayed since a time once more, in their order. A task that is there already is not
// made twice.
func Again(ctx context.Context, db *postgres.Conn, since time.Time) (int64, error) {
	return change(ctx, db, `WITH again AS (
			DELETE FROM quern.outbox_held WHERE relayed >= to_timestamp($1::float8) RETURNING *)
		INSERT INTO quern.outbox (id, queue, topic, parameters, json, options, tenant, created)
		SELECT id, queue, topic, parameters, json, options, tenant, created FROM again ORDER BY seq`,
		fmt.Sprintf("%.6f", admin.Seconds(since)))
}

// change changes rows by the hand of an operator.
func change(ctx context.Context, db *postgres.Conn, statement string, args ...any) (int64, error) {
	if err := checkVersion(ctx, db); err != nil {
		return 0, err
	}
	n, err := db.Exec(ctx, statement, args...)
	switch {
	case postgres.State(err) == "42501":
		return 0, fmt.Errorf("%w: connect as the owner of the tables", err)
	case err == nil && n == 0:
		return 0, errors.New("there is no such row: see `quern outbox ls`")
	}
	return n, err
}

// State is what a database tells about its outbox.
type State struct {
	Holder    string  `json:"holder,omitempty"` // the relay that leads; "" for none
	SinceAt   float64 `json:"since_at,omitempty"`
	Notified  bool    `json:"notified"` // whether notifications reach it
	Error     string  `json:"error,omitempty"`
	Waiting   int64   `json:"waiting"` // at most maxCounted
	Refused   int64   `json:"refused"` // at most maxCounted
	OldestAge float64 `json:"oldest_age_seconds"`
}

// maxCounted bounds the counts of waiting and of refused rows.
const maxCounted = 10_000

// Look reads the state of the outbox.
func Look(ctx context.Context, db *postgres.Conn) (state State, err error) {
	if err := checkVersion(ctx, db); err != nil {
		return state, err
	}
	err = db.Query(ctx, func(v postgres.Row) {
		state = State{
			v.Text(0), v.Seconds(1).Seconds(), v.Bool(2), v.Text(3), v.Int(4), v.Int(5), v.Seconds(6).Seconds(),
		}
	}, `SELECT r.holder, extract(epoch FROM r.since), r.notified, r.error,
		(SELECT count(*) FROM (SELECT FROM quern.outbox LIMIT $1) w),
		(SELECT count(*) FROM (SELECT FROM quern.outbox_refused LIMIT $1) f),
		(SELECT extract(epoch FROM clock_timestamp() - created) FROM quern.outbox ORDER BY seq LIMIT 1)
		FROM (SELECT) one LEFT JOIN quern.relays r ON r.source = $2 AND r.until > clock_timestamp()`, maxCounted, outboxTable{}.name())
	return state, err
}
