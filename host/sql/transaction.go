package sql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/runtime/service"
)

// grace is how much longer the host waits for a statement than the server may work on it.
const grace = time.Second

// transaction is a transaction of a task. The calls of its guest use it one after the other; only its clock ends it at
// any time.
type transaction struct {
	run   *Run
	grant Grant
	pool  *pool
	clock *time.Timer // closes the connection at the end
	until time.Time   // when the clock ends it
	most  int64       // bytes of the answer to the statement under way

	mu   sync.Mutex
	conn *connection // nil after the end
	// begun is when the transaction began: no other one of its session has the same time.
	begun string
	// before is what ids returned at the last commit of Config.Undo; otherwise "".
	before string
	// lost is why the transaction is gone; nil while it is there.
	lost error
	// refused is the error after which PostgreSQL refuses all statements; nil if there is none.
	refused *pgconn.PgError
	started time.Time // when the statement under way was sent
}

// settings are the session settings in a transaction: name and value in turn.
func (g *Grant) settings(left time.Duration) []string {
	ms := func(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }
	all := []string{
		"TimeZone", "UTC", "DateStyle", "ISO, MDY", "IntervalStyle", "postgres", "bytea_output", "hex",
		"extra_float_digits", "1", "statement_timeout", ms(g.Timeout), "lock_timeout", ms(g.Timeout),
		"idle_in_transaction_session_timeout", ms(left + grace), "tcp_keepalives_idle", "30",
	}
	for name, value := range g.Settings {
		all = append(all, name, value)
	}
	return all
}

// begin begins a transaction and runs its first statement in the same round trip.
func (t *transaction) begin(ctx context.Context, statement string, values [][]byte, formats []int16) ([]byte, error) {
	d := t.run.databases
	for {
		c, err := d.acquire(ctx, t.pool, t.grant.Write && t.run.task.Complete == t.grant.Database)
		if err != nil {
			return nil, err
		}
		t.conn, t.until = c, time.Now().Add(t.grant.Transaction)
		data, err := t.open(ctx, statement, values, formats)
		if errors.Is(err, errStale) {
			t.conn = nil
			d.put(c)
			d.dropIdle(t.pool)
			continue
		}
		if t.conn != nil {
			t.clock = time.AfterFunc(time.Until(t.until), t.expire)
		}
		return data, err
	}
}

// errStale means that the server has closed a connection while it was idle, so that nothing has begun.
var errStale = errors.New("the connection was closed while it was idle")

// open sends BEGIN, the settings and the first statement.
func (t *transaction) open(ctx context.Context, statement string, values [][]byte,
	formats []int16,
) (data []byte, err error) {
	ctx, stop := t.deadline(ctx)
	defer stop()
	conn := t.conn.Raw()
	conn.Frontend().SetMaxBodyLen(int(2*max(t.grant.Bytes, maxStep)) + maxOverhead)
	begin := "BEGIN READ ONLY"
	if t.grant.Write {
		begin = "BEGIN"
	}
	set := "SELECT pg_catalog.now()"
	var settings [][]byte
	for i, text := range t.grant.settings(time.Until(t.until)) {
		if settings = append(settings, []byte(text)); i%2 == 1 {
			set += fmt.Sprintf(", pg_catalog.set_config($%d, $%d, true)", i, i+1)
		}
	}
	p := conn.StartPipeline(ctx)
	defer func() {
		if t.conn != nil { // else the connection is being closed, with what it would still answer
			if closed := p.Close(); conn.IsClosed() && !errors.Is(err, errStale) {
				data, err = nil, t.gone(ctx, closed)
			}
		}
	}()
	p.SendQueryParams(begin, nil, nil, nil, nil)
	p.SendQueryParams(set, settings, nil, nil, nil)
	p.SendQueryParams(statement, values, nil, formats, nil)
	if err = p.Sync(); err != nil {
		return nil, t.notBegun(ctx, err)
	}
	for i := range 2 {
		r, err := next(p)
		if err == nil {
			for r.NextRow() {
				t.begun = string(r.Values()[0])
			}
			_, err = r.Close()
		}
		if err != nil {
			refused, ok := errors.AsType[*pgconn.PgError](err)
			if lack := shortage(refused); lack != nil {
				t.lose(lack)
				return nil, lack
			}
			if ok && i > 0 {
				// The operator's settings are wrong, or the server is too old.
				err = t.run.databases.refuses(t.pool, configuring,
					fmt.Errorf("begin a transaction: %w: correct settings of this database in the grants", postgres.Readable(refused)))
				t.lose(err)
				return nil, err
			}
			return nil, t.notBegun(ctx, err)
		}
	}
	t.run.databases.accepts(t.pool, configuring)
	r, err := next(p)
	return t.read(ctx, r, err)
}

// notBegun handles a failure before the first statement.
func (t *transaction) notBegun(ctx context.Context, err error) error {
	if t.conn.reused && t.conn.Raw().IsClosed() && ctx.Err() == nil {
		return errStale
	}
	return t.gone(ctx, err)
}

// maxOverhead is how much larger than the bytes of an answer a message may be.
const maxOverhead = 1 << 20

// next returns the reader of the next statement's answer.
func next(p *pgconn.Pipeline) (*pgconn.ResultReader, error) {
	results, err := p.GetResults()
	if err != nil {
		return nil, err
	}
	r, ok := results.(*pgconn.ResultReader)
	if !ok {
		return nil, errors.New("the database has answered something else")
	}
	return r, nil
}

// deadline returns a context that ends with the statement's or the transaction's time.
func (t *transaction) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	t.started = time.Now()
	end := t.started.Add(t.grant.Timeout + grace)
	if t.until.Before(end) {
		end = t.until
	}
	return context.WithDeadline(ctx, end)
}

// query runs a statement.
func (t *transaction) query(ctx context.Context, statement string, values [][]byte, formats []int16) ([]byte, error) {
	return t.ask(ctx, t.grant.Bytes, statement, values, formats)
}

// ask runs a statement whose answer has at most most bytes.
func (t *transaction) ask(ctx context.Context, most int64, statement string, values [][]byte,
	formats []int16,
) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.most = most
	if t.lost != nil {
		return nil, t.lost
	}
	if undo := t.run.databases.config.Undo; t.conn == nil && !undo {
		return t.first(ctx, statement, values, formats)
	} else if t.conn == nil {
		if _, err := t.first(ctx, "SELECT", nil, nil); err != nil {
			return nil, err
		}
		if err := t.prepare(ctx); err != nil {
			return nil, err
		}
	}
	ctx, stop := t.deadline(ctx)
	defer stop()
	r := t.conn.Raw().ExecParams(ctx, statement, values, nil, formats, nil)
	return t.check(t.read(ctx, r, nil))
}

// first begins the transaction with its first statement.
func (t *transaction) first(ctx context.Context, statement string, values [][]byte, formats []int16) ([]byte, error) {
	data, err := t.begin(ctx, statement, values, formats)
	if err != nil && t.lost == nil {
		t.lose(err)
	}
	return t.check(data, err)
}

// check looks at the state of the transaction after a statement.
func (t *transaction) check(data []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	switch t.conn.Raw().TxStatus() {
	case 'T':
		t.refused = nil // perhaps after ROLLBACK TO
	case 'I':
		err := fmt.Errorf("%w: the statement has ended the transaction", service.ErrDenied)
		t.lose(err)
		return nil, err
	}
	return data, nil
}

// read reads an answer row by row. If it exceeds its bounds, the connection is closed at once.
func (t *transaction) read(ctx context.Context, r *pgconn.ResultReader, err error) ([]byte, error) {
	if err != nil {
		return t.answered(ctx, err)
	}
	var a answer
	columns := r.FieldDescriptions()
	a.begin(columns)
	for r.NextRow() {
		row := r.Values()
		need := len(a.data) + size(columns, row)
		switch {
		case a.rows == t.grant.Rows:
			return nil, t.exceeded("rows", fmt.Sprintf("%d rows", t.grant.Rows))
		case int64(need) > t.most:
			return nil, t.exceeded("bytes", fmt.Sprintf("%d bytes", t.most))
		}
		if err := t.run.borrow(ctx, need, t.most); err != nil {
			t.lose(err)
			return nil, err
		}
		a.add(columns, row)
	}
	tag, err := r.Close()
	if err != nil {
		return t.answered(ctx, err)
	}
	return a.finish(tag.RowsAffected()), nil
}

// answered returns the answer for an error of the database. Other errors lose the transaction.
func (t *transaction) answered(ctx context.Context, err error) ([]byte, error) {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || t.conn.Raw().IsClosed() {
		return nil, t.gone(ctx, err)
	}
	if refused.Code == "57014" && time.Since(t.started) >= t.grant.Timeout { // statement_timeout
		return nil, t.gone(ctx, context.DeadlineExceeded)
	}
	refused = bounded(refused)
	if lack := shortage(refused); lack != nil {
		t.lose(lack)
		return nil, lack
	}
	if t.refused == nil || refused.Code != "25P02" {
		t.refused = refused
	}
	return refusal(refused), nil
}

// exceeded loses the transaction because an answer is too large.
func (t *transaction) exceeded(key, bound string) error {
	err := fmt.Errorf("%w: the answer has more than %s: add a LIMIT, read it in pieces with DECLARE and FETCH, or %s",
		service.ErrLimit, bound, t.grant.Raise(key))
	t.lose(err)
	return err
}

// gone loses the transaction because its connection failed, and returns why.
func (t *transaction) gone(ctx context.Context, err error) error {
	var large *pgproto3.ExceededMaxBodyLenErr
	now := time.Now()
	switch {
	case errors.As(err, &large):
		return t.exceeded("bytes", fmt.Sprintf("%d bytes", t.most))
	case !now.Before(t.until):
		err = t.overTime()
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: the statement takes longer than %s: %s", service.ErrLimit, t.grant.Timeout, t.grant.Raise("timeout"))
	case ctx.Err() != nil:
		err = ctx.Err()
	default:
		err = connectionLost(err)
	}
	t.lose(err)
	return err
}

// The IDs of a transaction. It gets one when it changes something, also in a WITH or a function; a savepoint gets one
// of its own.
const (
	ownID       = `SELECT pg_catalog.pg_current_xact_id_if_assigned()`
	numberOfIDs = `SELECT count(*) FROM pg_catalog.pg_locks WHERE locktype = 'transactionid' ` +
		`AND pid = pg_catalog.pg_backend_pid() AND mode = 'ExclusiveLock'`
)

// ids returns a text that changes when the transaction changes something; "" before the first change, unless
// Config.Undo is set. The caller holds mu.
func (t *transaction) ids(ctx context.Context) (ids string, err error) {
	statement := ownID
	if t.run.databases.config.Undo {
		statement = numberOfIDs
	}
	ctx, stop := t.deadline(ctx)
	defer stop()
	r := t.conn.Raw().ExecParams(ctx, statement, nil, nil, nil, nil)
	for r.NextRow() {
		ids = string(r.Values()[0])
	}
	if _, err = r.Close(); err != nil {
		return "", t.gone(ctx, err)
	}
	return ids, nil
}

// state returns whether the transaction has begun, and why it is lost. The clock can change both at any time.
func (t *transaction) state() (begun bool, lost error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conn != nil, t.lost
}

func (t *transaction) overTime() error {
	return fmt.Errorf("%w: the transaction takes longer than %s: %s", service.ErrLimit, t.grant.Transaction, t.grant.Raise("transaction"))
}

// expire ends the transaction at the end of its time, whatever the guest does.
func (t *transaction) expire() {
	t.mu.Lock() // a statement under way ends by itself at this time
	defer t.mu.Unlock()
	if t.conn != nil {
		t.lose(t.overTime())
	}
}

// lose gives the connection up, which undoes the transaction. The caller holds mu.
func (t *transaction) lose(why error) {
	t.lost = why
	if errors.Is(why, service.ErrUnavailable) {
		t.run.away = why
	}
	t.drop()
}

// drop closes the connection. The caller holds mu.
func (t *transaction) drop() {
	c := t.conn
	if t.conn = nil; c == nil {
		return
	}
	t.stopClock()
	d := t.run.databases
	d.mu.Lock()
	d.resets.Go(func() {
		if c.Raw().IsBusy() {
			ctx, stop := context.WithTimeout(context.Background(), connectPatience)
			defer stop()
			_ = c.Raw().CancelRequest(ctx) // the server would notice a closed connection only when it writes
		}
		c.Close()
		d.put(c)
	})
	d.mu.Unlock()
}

func (t *transaction) stopClock() {
	if t.clock != nil {
		t.clock.Stop()
	}
}

// rollback undoes the transaction and gives its connection back.
func (t *transaction) rollback() {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.conn
	if t.conn = nil; c == nil {
		return
	}
	t.stopClock()
	t.run.databases.release(c, false)
}

// reset makes a connection pristine: no transaction, and nothing in its session that a guest has left, such as locks,
// cursors, settings and temporary tables.
func reset(ctx context.Context, conn *pgconn.PgConn) error {
	p := conn.StartPipeline(ctx)
	if conn.TxStatus() != 'I' {
		p.SendQueryParams("ROLLBACK", nil, nil, nil, nil)
		p.SendPipelineSync()
	}
	p.SendQueryParams("DISCARD ALL", nil, nil, nil, nil)
	if err := p.Sync(); err != nil {
		return err
	}
	return p.Close()
}
