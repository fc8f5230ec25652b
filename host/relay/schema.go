package relay

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

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
	err := db.Script(ctx, Schema)
	if postgres.State(err) == "42703" {
		return fmt.Errorf("%w: a table of the schema quern has lost this column: `quern database check` names the table; "+
			"drop it, or restore it from a backup", err)
	}
	return err
}
