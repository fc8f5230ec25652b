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

// prepare runs the script of the grant in a transaction that has just begun.
func (t *transaction) prepare(ctx context.Context) error {
	conn := t.conn.Raw()
	_, err := conn.Exec(ctx, t.grant.Prepare).ReadAll()
	if err == nil && conn.TxStatus() == 'T' {
		_, err = conn.Exec(ctx, "SAVEPOINT "+savepoint).ReadAll()
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%w: the schema of database %s: %w", service.ErrInvalid, t.grant.Database, postgres.Readable(err))
	case conn.TxStatus() != 'T':
		err = fmt.Errorf("%w: the schema of database %s ends the transaction: remove COMMIT from it", service.ErrInvalid, t.grant.Database)
	}
	if err != nil {
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
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
			return refused, t.back(ctx)
		} else if err != nil {
			return nil, t.gone(ctx, err)
		}
	}
	t.before, err = t.ids(ctx)
	return nil, err
}

// back goes back to the savepoint. The caller holds mu.
func (t *transaction) back(ctx context.Context) error {
	if t.conn == nil {
		return nil
	}
	if _, err := t.conn.Raw().ExecParams(ctx, "ROLLBACK TO "+savepoint, nil, nil, nil, nil).Close(); err != nil {
		return t.gone(ctx, err)
	}
	t.refused = nil
	var err error
	t.before, err = t.ids(ctx) // the transaction keeps the ID that a savepoint's change gave it
	return err
}
