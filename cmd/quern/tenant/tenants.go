package tenant

import (
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
)

// newTenant returns the commands about tenants as a whole.
func newTenant(env cli.Environment) *cobra.Command {
	return cli.Group("tenant", "Print Redis users of a tenant", newTenantACL(env))
}
