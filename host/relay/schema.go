package relay

import (
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

// Init makes the tables that are missing. It refuses to touch tables of another version.
func Init(ctx context.Context, db *postgres.Conn) error {
	if err := checkVersion(ctx, db); err != nil && !errors.Is(err, errNoTables) {
		return err
	}
	return db.Script(ctx, Schema)
}
