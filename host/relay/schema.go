package relay

import (
	"cmp"
	"context"
	_ "embed"
	"errors"

	"github.com/quern-project/quern/host/postgres"
)

// schemaVersion is the version of the tables that this program works with.
const schemaVersion = 1

// Schema is the SQL that makes Quern's tables. It can be repeated.
//
//go:embed schema.sql
var Schema string

// Init makes the tables that are missing. It refuses to touch tables of another version. The error names columns that
// existing tables lack: those are not made.
func Init(ctx context.Context, db *postgres.Conn) error {
	if err := checkVersion(ctx, db); err != nil && !errors.Is(err, errNoTables) {
		return err
	}
	err := db.Script(ctx, Schema)
	if err != nil {
		_, _ = db.Exec(ctx, "ROLLBACK")
	}
	if err != nil && postgres.State(err) != "42703" { // a column that is missing
		return err
	}
	return cmp.Or(checkTables(ctx, db, columnRemedy), err)
}
