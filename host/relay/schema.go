package relay

import (
	"context"
	_ "embed"

	"github.com/quern-project/quern/host/postgres"
)

// schemaVersion is the version of the tables that this program works with.
const schemaVersion = 1

// Schema is the SQL that makes Quern's tables. It can be repeated.
//
//go:embed schema.sql
var Schema string

// Init makes the tables that are missing.
func Init(ctx context.Context, db *postgres.Conn) error { return db.Script(ctx, Schema) }
