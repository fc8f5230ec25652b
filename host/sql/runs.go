package sql

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/runtime/service"
)

var (
	// ErrRaced means that a transaction lost against another one: the task can run again at once.
	ErrRaced = errors.New("the transaction lost against another one")
	// ErrConnectionLost means that a connection ended during a statement. The error also wraps service.ErrUnavailable.
	ErrConnectionLost = errors.New("the connection to the database was lost during a statement")
	// ErrOutOfMemory means that the server had no memory for a statement, or no room for its locks. The error also wraps
	// service.ErrUnavailable.
	ErrOutOfMemory = errors.New("the database server is out of memory or of room for locks")
)

// UnknownError means that it is not known whether a transaction was committed. Resolve finds out.
type UnknownError struct {
	// Why is the error of the task if the transaction was not committed.
	Why error
}

// Error returns the text for the host's log.
func (u *UnknownError) Error() string {
	return "it is not known whether the transaction was committed: " + u.Why.Error()
}

// Unwrap returns Why.
func (u *UnknownError) Unwrap() error { return u.Why }

// finishPatience bounds what the host itself does on a database: rows of quern.runs, and commits on databases whose
// statements have a shorter time.
const finishPatience = 15 * time.Second

// MaxSettlement is the most bytes of a settlement in quern.runs, as in schema.sql of package relay.
const MaxSettlement = 256 << 20

// maxStep bounds the answer with the value of a step. The value itself has at most 1 MiB.
const maxStep = 1<<20 + 1<<10

// The statements on quern.runs. Names are qualified, because a guest may have changed the search path.
const (
	// insertInside fails, because settlement is NULL, if the transaction is not the one that the host began.
	insertInside = `INSERT INTO quern.runs (tenant, task, created, step, settlement) VALUES ($1, $2, $3, $4, CASE WHEN ` +
		`pg_catalog.now() OPERATOR(pg_catalog.=) $5::pg_catalog.timestamptz AND ` + durable + ` THEN $6::pg_catalog.bytea END)`
	insertAlone = `INSERT INTO quern.runs (tenant, task, created, step, settlement) ` +
		`SELECT $1, $2, $3, '', $4::pg_catalog.bytea WHERE ` + durable + ` ON CONFLICT DO NOTHING`
	// durable is true. It makes the commit wait until the server has written it to its disk, whatever the role or the
	// guest has set: Redis is told that the task is complete.
	durable = `pg_catalog.set_config('synchronous_commit', CASE WHEN pg_catalog.current_setting('synchronous_commit') ` +
		`OPERATOR(pg_catalog.=) 'off' THEN 'on' ELSE pg_catalog.current_setting('synchronous_commit') END, true) ` +
		`OPERATOR(pg_catalog.<>) ''`
	selectStep = `SELECT settlement` + ofStep
	// selectSettlement reads no row over the bound $5. Hexadecimal does not depend on the session's settings.
	selectSettlement = `SELECT CASE WHEN pg_catalog.octet_length(settlement) OPERATOR(pg_catalog.<=) $5 ` +
		`THEN pg_catalog.encode(settlement, 'hex') END, pg_catalog.octet_length(settlement)` + ofStep
	ofStep = ` FROM quern.runs WHERE role OPERATOR(pg_catalog.=) session_user AND tenant OPERATOR(pg_catalog.=) $1 ` +
		`AND task OPERATOR(pg_catalog.=) $2 AND created OPERATOR(pg_catalog.=) $3 AND step OPERATOR(pg_catalog.=) $4`
)

// Complete commits the transaction that ends with the task, together with the settlement of the task. If another run
// of the task has committed, Complete undoes the transaction and returns what that run stored. An error that wraps
// service.ErrUnavailable is no fault of the task. UnknownError and ErrRaced are described above; any other error is
// one of the task.
func (r *Run) Complete(ctx context.Context, settlement []byte) (stored []byte, err error) {
	if r == nil {
		return nil, nil
	}
	for name, t := range r.transactions {
		if err := t.unfinished(ctx, name); err != nil {
			return nil, err
		}
	}
	t := r.transactions[r.task.Complete]
	if t == nil {
		return nil, nil
	}
	if size := int64(len(settlement)); size > r.task.MaxSettlement {
		return nil, fmt.Errorf("result, children and publications need %d bytes in quern.runs, where the task may have %d: return less, or raise limits.output",
			size, r.task.MaxSettlement)
	}
	ctx = context.WithoutCancel(ctx)
	refused, err := t.end(ctx, "", settlement, true)
	row, ofRow := errors.AsType[*rowError](err)
	switch {
	case ofRow && raced(row.PgError), raced(refused):
		return nil, ErrRaced
	case ofRow && row.Code == uniqueViolation:
		stored, err := r.Stored(ctx)
		if err == nil && stored == nil {
			err = fmt.Errorf("the transaction on %s has a row of this task in quern.runs already", r.task.Complete)
		}
		return stored, err
	case ofRow && row.Code == "23502":
		return nil, fmt.Errorf("%w: the task has ended the transaction on %s itself", service.ErrDenied, r.task.Complete)
	case ofRow:
		return nil, r.rowRefused(ctx, t, row.PgError)
	case refused != nil:
		return nil, fmt.Errorf("commit on %s: %w", r.task.Complete, postgres.Readable(refused))
	}
	return nil, err
}

// Completes returns the database whose transaction ends with the task; "" if the task has begun none.
func (r *Run) Completes() string {
	if r == nil || r.transactions[r.task.Complete] == nil {
		return ""
	}
	return r.task.Complete
}

const uniqueViolation = "23505"

// rowError is the database's error for the row of the host in quern.runs, in the transaction of a task.
type rowError struct{ *pgconn.PgError }

// rowRefused returns the error of a task whose transaction refuses the row of the host. If the table or a right is
// missing, the task may have caused it by a setting such as row_security: the database is unusable only if it refuses a
// session without settings, too. The connection of the transaction has been given back.
func (r *Run) rowRefused(ctx context.Context, t *transaction, refused *pgconn.PgError) error {
	err := fmt.Errorf("quern.runs on %s: %w", t.grant.Database, postgres.Readable(refused))
	if !needed(refused) {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, finishPatience)
	defer stop()
	if unusable := r.on(ctx, t.pool, func(ctx context.Context, c *postgres.Conn) error {
		_, err := r.hasRow(ctx, c)
		return err
	}); unusable != nil {
		return unusable
	}
	return fmt.Errorf("%w: %w: settings of the task's session cause this: remove set_config from its statements",
		service.ErrDenied, err)
}

// raced reports whether a transaction lost against another one.
func raced(err *pgconn.PgError) bool {
	return err != nil && (err.Code == "40001" || err.Code == "40P01")
}

// shortage returns the error of a statement for which the server lacked resources, which other tasks may have used up;
// nil if it lacked none.
func shortage(refused *pgconn.PgError) error {
	if refused == nil || !strings.HasPrefix(refused.Code, "53") || refused.Code == "53400" { // a limit of the role
		return nil
	}
	told := fmt.Errorf("%w: %w", service.ErrUnavailable, postgres.Readable(refused))
	if refused.Code == "53200" {
		told = fmt.Errorf("%w: %w: %w", service.ErrUnavailable, ErrOutOfMemory, postgres.Readable(refused))
	}
	return &service.Confidential{Err: told, Told: told.Error()}
}

// needed reports whether the table quern.runs, or the right to use it, is missing.
func needed(err error) bool {
	switch postgres.State(err) {
	case "42501", "42P01", "3F000":
		return true
	}
	return false
}

// unusable records that a database lacks what the host needs.
func (r *Run) unusable(p *pool, err error) error {
	return r.databases.refuses(p, runsTable, fmt.Errorf("quern.runs: %w", postgres.Readable(err)))
}

// Raced reports whether the failure of the task is due to a transaction that lost against another one.
func (r *Run) Raced() bool {
	if r == nil {
		return false
	}
	t := r.transactions[r.task.Complete]
	return t != nil && raced(t.refused)
}

// unfinished returns why a task with this transaction cannot complete.
func (t *transaction) unfinished(ctx context.Context, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.lost != nil:
		return fmt.Errorf("the transaction on %s is lost: %w", name, t.lost)
	case t.refused != nil && raced(t.refused) && !t.grant.AtCall:
		return ErrRaced
	case t.refused != nil:
		return fmt.Errorf("the transaction on %s is aborted: %w: use ON CONFLICT or a savepoint, or roll the transaction back", name,
			postgres.Readable(t.refused))
	case t.conn == nil || !t.grant.AtCall || !t.grant.Write:
		return nil
	}
	ids, err := t.ids(ctx)
	if err == nil && ids != t.before {
		err = fmt.Errorf("the changes or locks on %s are not committed: commit them, roll them back, or write commit: complete in the manifest", name)
	}
	return err
}

// end commits the transaction, or with Config.Undo what there is of it.
func (t *transaction) end(ctx context.Context, step string, value []byte, row bool) (*pgconn.PgError, error) {
	if t.run.databases.config.Undo {
		return t.try(ctx)
	}
	delete(t.run.transactions, t.grant.Database)
	return t.finish(ctx, step, value, row)
}

// finish commits the transaction, with a row in quern.runs if row is true, and gives its connection back. refused is an
// error of the database at the commit; its error for the row is a rowError.
func (t *transaction) finish(ctx context.Context, step string, value []byte,
	row bool,
) (refused *pgconn.PgError, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.conn
	if c == nil {
		return nil, t.lost
	}
	t.stopClock()
	t.conn = nil
	patience := max(finishPatience, t.grant.Timeout)
	patient, stop := context.WithTimeout(ctx, patience)
	defer stop()
	conn, task := c.Raw(), &t.run.task
	p := conn.StartPipeline(patient)
	statements := 1
	if row {
		statements++
		p.SendQueryParams(insertInside, [][]byte{
			[]byte(task.Tenant), []byte(task.ID), []byte(task.Created), []byte(step), []byte(t.begun),
			append([]byte{}, value...), // not nil, which would be NULL
		}, nil, []int16{0, 0, 0, 0, 0, 1}, nil)
	}
	p.SendQueryParams("COMMIT", nil, nil, nil, nil)
	p.SendPipelineSync()
	p.SendQueryParams("DISCARD ALL", nil, nil, nil, nil)
	sent := p.Sync()
	committed := false
	var ofRow *rowError
	defer t.run.databases.noteRows(t.pool, row)
	for i := 0; i < statements && sent == nil && refused == nil; i++ {
		r, err := next(p)
		var tag pgconn.CommandTag
		if err == nil {
			tag, err = r.Close()
		}
		var ok bool
		if refused, ok = errors.AsType[*pgconn.PgError](err); err != nil && (!ok || conn.IsClosed()) {
			refused, sent = nil, err
		}
		if refused = bounded(refused); refused != nil && i < statements-1 {
			ofRow = &rowError{refused}
		}
		committed = err == nil && tag.String() == "COMMIT"
	}
	discarded := p.Close()
	t.run.databases.release(c, committed && discarded == nil)
	count := &t.run.databases.counts
	switch {
	case committed:
		count.committed.Add(1)
		if row {
			t.run.databases.accepts(t.pool, runsTable)
		}
		return nil, nil
	case sent == nil:
		count.commitRefused.Add(1)
	default:
		count.commitLost.Add(1)
	}
	switch lack := shortage(refused); {
	case lack != nil:
		return nil, lack
	case ofRow != nil:
		return nil, ofRow
	case refused != nil:
		return refused, nil
	case sent == nil: // COMMIT has answered ROLLBACK
		return &pgconn.PgError{Code: "25P02", Message: "the transaction was aborted before its commit"}, nil
	}
	if patient.Err() != nil && ctx.Err() == nil { // closing the connection has cancelled the commit
		return nil, &UnknownError{fmt.Errorf("%w: the commit on %s takes longer than %s: %s", service.ErrLimit,
			t.grant.Database, patience, t.grant.Raise("timeout"))}
	}
	return nil, &UnknownError{connectionLost(sent)}
}

// connectionLost is the error of a statement whose connection ended.
func connectionLost(err error) error {
	return &service.Confidential{
		Err:  fmt.Errorf("%w: %w: %w", service.ErrUnavailable, ErrConnectionLost, postgres.Readable(err)),
		Told: fmt.Sprintf("%v: %v", service.ErrUnavailable, ErrConnectionLost),
	}
}

// with runs f on a connection to the database whose changes are committed with the completion. f does not leave a
// trace in the session.
func (r *Run) with(ctx context.Context, f func(ctx context.Context, c *postgres.Conn) error) error {
	grant, err := r.task.Grant(ctx, r.task.Complete)
	if err != nil {
		return err
	}
	p, err := r.databases.pool(r.task.Tenant, grant.Source)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, finishPatience)
	defer stop()
	return r.on(ctx, p, f)
}

// on runs f on a connection of a pool, as with does.
func (r *Run) on(ctx context.Context, p *pool, f func(ctx context.Context, c *postgres.Conn) error) error {
	for {
		c, err := r.databases.acquire(ctx, p, true)
		if err != nil {
			return fmt.Errorf("%w: %w", service.ErrUnavailable, err) // the end of ctx as well
		}
		err = f(ctx, c.Conn)
		closed := c.Raw().IsClosed()
		r.databases.release(c, c.Raw().TxStatus() == 'I')
		switch {
		case err == nil:
			r.databases.accepts(p, runsTable)
			return nil
		case closed && c.reused && ctx.Err() == nil:
			r.databases.dropIdle(p)
			continue
		case needed(err):
			return r.unusable(p, err)
		}
		return fmt.Errorf("%w: quern.runs: %w", service.ErrUnavailable, err)
	}
}

// Stored returns what an earlier run of the task has stored by Complete or Fail; nil if there is nothing. An error that
// does not wrap service.ErrUnavailable is one of the task: its row is larger than MaxSettlement, and is not read.
func (r *Run) Stored(ctx context.Context) (settlement []byte, err error) {
	if r == nil || r.task.Complete == "" || r.databases.config.Undo {
		return nil, nil
	}
	size := int64(0)
	read := func(most int64) error {
		return r.with(ctx, func(ctx context.Context, c *postgres.Conn) error {
			return c.Query(ctx, func(row postgres.Row) { settlement, size = row.Hex(0), row.Int(1) }, selectSettlement,
				r.task.Tenant, r.task.ID, r.task.Created, "", most)
		})
	}
	err = read(min(smallAnswer, r.task.MaxSettlement))
	if err == nil && settlement == nil && size > 0 && size <= r.task.MaxSettlement {
		r.borrowed = 0
		if err := r.borrow(ctx, int(size), 2*size); err != nil { // twice as an answer: its text is hexadecimal
			return nil, err
		}
		err = read(size)
	}
	switch {
	case errors.Is(err, service.ErrUnavailable):
		return nil, err
	case err != nil:
		return nil, nil // a task that cannot use the database has stored nothing
	case size > r.task.MaxSettlement:
		return nil, fmt.Errorf("the task's row in quern.runs has %d bytes, and may have %d: raise limits.output, unless the row is forged",
			size, r.task.MaxSettlement)
	}
	return settlement, nil
}

// Fail stores the settlement of a task that has failed for good, so that an earlier run, on a host that has lost the
// task, cannot commit any more. If such a run has committed, Fail returns what it stored.
func (r *Run) Fail(ctx context.Context, settlement []byte) (stored []byte, err error) {
	if r == nil || r.task.Complete == "" || r.databases.config.Undo {
		return nil, nil
	}
	inserted := int64(0)
	err = r.with(ctx, func(ctx context.Context, c *postgres.Conn) error {
		inserted, err = c.Exec(ctx, insertAlone, r.task.Tenant, r.task.ID, r.task.Created, settlement)
		return err
	})
	switch {
	case err != nil && !errors.Is(err, service.ErrUnavailable):
		return nil, nil
	case err != nil || inserted == 1:
		return nil, err
	}
	return r.Stored(ctx)
}

// Resolve finds out whether the transaction of Complete was committed, after UnknownError. It waits for a commit that
// is still under way. It returns what this run, or another one, has stored; nil if none has. The error is as that of
// Stored.
func (r *Run) Resolve(ctx context.Context) (stored []byte, err error) {
	committed := false
	err = r.with(ctx, func(ctx context.Context, c *postgres.Conn) error {
		committed, err = r.hasRow(ctx, c)
		return err
	})
	if err != nil || !committed {
		return nil, err
	}
	return r.Stored(ctx)
}

// hasRow reports whether the task has a row. It inserts one, and undoes that.
func (r *Run) hasRow(ctx context.Context, c *postgres.Conn) (bool, error) {
	if _, err := c.Exec(ctx, "BEGIN"); err != nil {
		return false, err
	}
	inserted, err := c.Exec(ctx, insertAlone, r.task.Tenant, r.task.ID, r.task.Created, []byte{})
	if err != nil {
		return false, err
	}
	_, err = c.Exec(ctx, "ROLLBACK")
	return inserted == 0, err
}

// stepName matches the names of steps.
var stepName = regexp.MustCompile(`^[\x21-\x7e]{1,128}$`)

// Commit implements service.SQL.
func (r *Run) Commit(ctx context.Context, database, step string, value []byte) ([]byte, error) {
	if err := r.task.DenyCommit(database); err != nil {
		return nil, err
	}
	if step != "" && !stepName.MatchString(step) {
		return nil, fmt.Errorf("%w: step %q: use 1 to 128 bytes from 0x21 to 0x7e", service.ErrInvalid, step)
	}
	t, err := r.transaction(ctx, database)
	if err != nil {
		return nil, err
	}
	begun, lost := t.state()
	switch {
	case lost != nil:
		return nil, lost
	case !begun && step == "":
		return done(), nil
	case !begun:
		if _, err := t.query(ctx, "SELECT", nil, nil); err != nil {
			return nil, err
		}
	}
	if t.refused != nil { // COMMIT would undo it without an error
		defer func() { _ = r.Rollback(ctx, database) }()
		return refusal(&pgconn.PgError{Code: "25P02", Message: "the transaction was aborted: " + t.refused.Message}), nil
	}
	refused, err := t.end(ctx, step, value, step != "")
	if row, ok := errors.AsType[*rowError](err); ok {
		switch {
		case row.Code == uniqueViolation:
			return nil, fmt.Errorf("%w: another run of the task has done the step %s", service.ErrConflict, step)
		case needed(row.PgError):
			err = r.rowRefused(ctx, t, row.PgError)
		default:
			refused, err = row.PgError, nil
		}
	}
	switch {
	case errors.Is(err, service.ErrUnavailable):
		r.away = err
		return nil, err
	case err != nil:
		return nil, err
	case refused == nil:
		if r.databases.config.Undo && step != "" {
			r.steps[database+" "+step] = value
		}
		return done(), nil
	}
	return refusal(refused), nil
}

// Step implements service.SQL.
func (r *Run) Step(ctx context.Context, database, step string) ([]byte, error) {
	if err := r.task.DenyCommit(database); err != nil {
		return nil, err
	}
	if !stepName.MatchString(step) {
		return nil, fmt.Errorf("%w: step %q: use 1 to 128 bytes from 0x21 to 0x7e", service.ErrInvalid, step)
	}
	t, err := r.transaction(ctx, database)
	if err != nil {
		return nil, err
	}
	begun, _ := t.state()
	if r.databases.config.Undo {
		value, ok := r.steps[database+" "+step]
		if !ok {
			return nil, fmt.Errorf("%w: step %q", service.ErrNotFound, step)
		}
		return value, nil
	}
	r.borrowed = 0
	data, err := t.ask(ctx, maxStep, selectStep, [][]byte{
		[]byte(r.task.Tenant), []byte(r.task.ID), []byte(r.task.Created), []byte(step),
	}, nil)
	if err != nil {
		return nil, err
	}
	if t.refused != nil && needed(t.refused) {
		refused := t.refused
		t.rollback() // the test needs a connection
		err := r.rowRefused(ctx, t, refused)
		t.mu.Lock()
		t.lose(err)
		t.mu.Unlock()
		return nil, err
	}
	switch rows := int32(binary.LittleEndian.Uint32(data)); {
	case rows < 0:
		return nil, fmt.Errorf("%w: the transaction is aborted", service.ErrUnavailable)
	case rows == 0:
		return nil, fmt.Errorf("%w: step %q", service.ErrNotFound, step)
	}
	if !begun {
		if err := r.Rollback(ctx, database); err != nil {
			return nil, err
		}
	}
	return data[answerHead+4+4+len("settlement")+5:], nil
}
