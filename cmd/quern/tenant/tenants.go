package tenant

import (
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/sdk/queue"
)

// newTenant returns the commands about tenants as a whole.
func newTenant(env cli.Environment) *cobra.Command {
	return cli.Group("tenant", "Show tenants' quotas and use, change them; pause, export, import and delete tenants; print their Redis users",
		newTenantShow(env), newTenantSet(env), newTenantUsage(env), newTenantPause(env), newTenantResume(env),
		newTenantPauses(env), newTenantExport(env), newTenantImport(env), newTenantDelete(env), newTenantACL(env))
}

// ofTenant makes the command's first argument, if there is one, the tenant, as --tenant is.
func ofTenant(cmd *cobra.Command) *cobra.Command {
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if flag := cmd.Flag("tenant"); flag.Changed && flag.Value.String() != args[0] {
				return cli.Usagef("both the tenant %q and --tenant %s are given: leave --tenant out", args[0], flag.Value)
			}
			if queue.ValidTenant(args[0]) != nil {
				return cli.Usagef("tenant %q: %s", args[0], cli.TenantRule)
			}
			if err := cmd.Flags().Set("tenant", args[0]); err != nil {
				return err
			}
		}
		if check == nil {
			return nil
		}
		return check(cmd, args)
	}
	return cmd
}
