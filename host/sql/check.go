package sql

import (
	"context"

	"github.com/quern-project/quern/host/postgres"
)

// Check connects to a database, and warns the operator of what is wrong with it: a URL, a right, a role that no handler
// should have.
func (d *Databases) Check(ctx context.Context, tenant string, source Source) {
	logger := d.config.Logger.With("tenant", tenant, "database", source.Name)
	p, err := d.pool(tenant, source) // which warns
	if err != nil {
		return
	}
	c, err := d.acquire(ctx, p, false) // which warns
	if err != nil {
		return
	}
	defer func() { d.release(c, true) }()
	err = c.Query(ctx, func(r postgres.Row) {
		if r.Bool(0) {
			logger.Warn("handlers connect as a superuser, or as a role that no policy binds: give the tenant a role of its own", "role", r.Text(1))
		}
		if r.Text(2) != "t" {
			logger.Warn("handlers cannot commit with their tasks", "remedy",
				"run `quern database init --grant-handler "+r.Text(1)+"` on the database")
		}
	}, `SELECT rolsuper OR rolbypassrls, rolname, (SELECT has_schema_privilege(n.oid, 'USAGE')
			AND has_any_column_privilege(t.oid, 'INSERT') AND has_table_privilege(t.oid, 'SELECT')
			FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace WHERE nspname = 'quern' AND relname = 'runs')
		FROM pg_roles WHERE rolname = current_user`)
	if err != nil {
		logger.Debug("check a database", "error", err)
	}
}
