package tenant

import (
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
)

// newTenant returns the commands about tenants as a whole.
func newTenant(env cli.Environment) *cobra.Command {
	return cli.Group("tenant", "Show tenants' quotas and use, change them; pause, export, import and delete tenants; print their Redis users",
		newTenantShow(env), newTenantSet(env), newTenantUsage(env),
		ofTenant(newPause(env, pausableTenant, false)), ofTenant(newPause(env, pausableTenant, true)),
		newTenantPauses(env), newTenantExport(env), newTenantImport(env), newTenantDelete(env), newTenantACL(env))
}
