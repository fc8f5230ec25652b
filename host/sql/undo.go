package sql

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/runtime/service"
)

// With Config.Undo a task has one transaction on each database, which is undone at its end. What would be a commit
// keeps the changes since the savepoint, and a rollback goes back to it.
const savepoint, checkpoint = "quern", "quern_check"

// schemaSetting has the script that prepare runs.
const schemaSetting = "quern.schema"

// prepare runs the script of the grant in a transaction that has just begun. EXECUTE of PL/pgSQL runs no statement that
// would end the transaction, wherever the script has it.
func (t *transaction) prepare(ctx context.Context) error {
	conn := t.conn.Raw()
	_, err := conn.ExecParams(ctx, "SELECT pg_catalog.set_config('"+schemaSetting+"', $1, true)",
		[][]byte{[]byte(t.grant.Prepare)}, nil, nil, nil).Close()
	if err == nil {
		_, err = conn.Exec(ctx, "DO $$ BEGIN EXECUTE pg_catalog.current_setting('"+schemaSetting+"'); END $$; SAVEPOINT "+
			savepoint).ReadAll()
	}
	if err != nil {
		why := postgres.Readable(err)
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "0A000" &&
			refused.Routine == "exec_stmt_dynexecute" { // the message speaks of EXECUTE
			why = errors.New("it runs in a transaction that is undone: " +
				"remove BEGIN, COMMIT, SAVEPOINT, COPY and SELECT INTO from it")
		}
		err = fmt.Errorf("%w: the schema of database %s: %w", service.ErrInvalid, t.grant.Database, why)
		t.lose(err)
		return err
	}
	t.before, err = t.ids(ctx)
	return err
}

// try checks what a commit would check, and keeps the changes until the end of the task.
func (t *transaction) try(ctx context.Context) (refused *pgconn.PgError, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		return nil, t.lost
	}
	for _, statement := range []string{
		"SAVEPOINT " + checkpoint, "SET CONSTRAINTS ALL IMMEDIATE",
		"ROLLBACK TO " + checkpoint, // which constraints are deferred is as before
		"RELEASE " + savepoint, "SAVEPOINT " + savepoint,
	} {
		_, err := t.conn.Raw().ExecParams(ctx, statement, nil, nil, nil, nil).Close()
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code != noSavepoint {
			return refused, t.back(ctx)
		} else if err != nil {
			return nil, t.broken(ctx, err)
		}
	}
	t.before, err = t.ids(ctx)
	return nil, err
}

// noSavepoint is the SQLSTATE of a savepoint that does not exist.
const noSavepoint = "3B001"

// broken loses the transaction, and returns why: its connection failed, or the handler has released our savepoint.
func (t *transaction) broken(ctx context.Context, err error) error {
	if postgres.State(err) != noSavepoint {
		return t.gone(ctx, err)
	}
	err = fmt.Errorf("%w: the handler has released the savepoint %s of database %s, with which changes are undone: "+
		"give the handler's savepoints other names", service.ErrDenied, savepoint, t.grant.Database)
	t.lose(err)
	return err
}

// back goes back to the savepoint. The caller holds mu.
func (t *transaction) back(ctx context.Context) error {
	if t.conn == nil {
		return nil
	}
	if _, err := t.conn.Raw().ExecParams(ctx, "ROLLBACK TO "+savepoint, nil, nil, nil, nil).Close(); err != nil {
		return t.broken(ctx, err)
	}
	t.refused = nil
	var err error
	t.before, err = t.ids(ctx) // the transaction keeps the ID that a savepoint's change gave it
	return err
}
