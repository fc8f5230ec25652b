package relay

import (
	"context"
	"fmt"

	"github.com/quern-project/quern/host/postgres"
)

// CheckHandler looks at what separates the role of a connection, with which handlers run statements, from other
// tenants, and at what the role needs to commit with its tasks.
func CheckHandler(ctx context.Context, db *postgres.Conn) ([]Finding, error) {
	var all []Finding
	note := func(ok bool, check, good, bad string) {
		if !ok {
			good = bad
		}
		all = append(all, Finding{ok, check, good})
	}
	err := db.Query(ctx, func(v postgres.Row) {
		role, owned, bound := v.Text(1), v.Int(4), v.Int(5)
		version := fmt.Sprintf("PostgreSQL %s; 14 or newer is needed", db.ServerVersion())
		note(v.Int(0) >= minVersion, "version", version, version)
		if v.Bool(2) {
			note(false, "role", "", "the role "+role+" is a superuser, or no policy binds it: give the tenant a role of its own")
			return // it has all rights
		}
		note(true, "role", "the role "+role+" is no superuser", "")
		note(v.Text(3) == "", "members", "it is no member of a role that begins with pg_",
			"it is a member of "+v.Text(3)+", with which handlers can leave their database: REVOKE that role")
		note(owned == 0, "owner", "it owns no table",
			fmt.Sprintf("it owns tables (%d), whose policies do not bind it: ALTER TABLE … OWNER TO another role", owned))
		note(v.Text(6) == "t", "commit", "it can commit with its tasks",
			"it cannot commit with its tasks: run `quern database init --grant-handler "+role+"` as the database's owner")
		limit := fmt.Sprintf("it has at most %d connections", bound)
		if bound < 0 {
			limit = "it has no bound: ALTER ROLE … CONNECTION LIMIT leaves connections for others"
		}
		note(true, "connections", limit, "")
		locks := "it may not take advisory locks"
		if v.Bool(7) {
			locks = "it may take advisory locks, which can use up the server's room for locks: if tenants share the server, see Tenants in `quern help sql`"
		}
		note(true, "locks", locks, "")
	}, `SELECT current_setting('server_version_num'), rolname, rolsuper OR rolbypassrls,
			(SELECT string_agg(rolname, ', ' ORDER BY rolname) FROM pg_roles
				WHERE starts_with(rolname, 'pg_') AND pg_has_role(r.oid, oid, 'MEMBER')),
			(SELECT count(*) FROM pg_class WHERE relowner = r.oid AND relkind IN ('r', 'p')), rolconnlimit,
			(SELECT has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(t.oid, 'INSERT')
				AND has_table_privilege(t.oid, 'SELECT')
				FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace WHERE nspname = 'quern' AND relname = 'runs'),
			(SELECT bool_or(has_function_privilege(r.oid, oid, 'EXECUTE')) FROM pg_proc
				WHERE pronamespace = 'pg_catalog'::regnamespace AND proname ~ '^pg_(try_)?advisory_(xact_)?lock')
		FROM pg_roles r WHERE rolname = current_user`)
	if err != nil || !exists(ctx, db, "quern.runs") {
		return all, err
	}
	err = checkSchema(ctx, db, func(ok bool, check, format string, args ...any) {
		all = append(all, Finding{ok, check, fmt.Sprintf(format, args...)})
	}, "runs")
	return all, err
}
