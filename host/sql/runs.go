package sql

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/quern-project/quern/runtime/service"
)

// Commit implements service.SQL.
func (r *Run) Commit(ctx context.Context, database, step string, value []byte) ([]byte, error) {
	return nil, fmt.Errorf("%w: not yet", service.ErrDenied)
}

// Step implements service.SQL.
func (r *Run) Step(ctx context.Context, database, step string) ([]byte, error) {
	return nil, fmt.Errorf("%w: not yet", service.ErrDenied)
}

var _ = errors.Is
var _ *pgconn.PgConn
