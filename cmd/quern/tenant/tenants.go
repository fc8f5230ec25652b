package tenant

import (
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/sdk/queue"
)

// newTenant returns the commands about tenants as a whole.
func newTenant(env cli.Environment) *cobra.Command {
	return cli.Group("tenant", "Pause, export, import and delete tenants, show what they use, print their Redis users",
		newTenantPause(env), newTenantResume(env), newTenantPauses(env), newTenantUsage(env), newTenantExport(env),
		newTenantImport(env), newTenantDelete(env), newTenantACL(env))
}

// ofTenant completes a command whose first argument names the tenant, in the place of --tenant.
func ofTenant(env cli.Environment, cmd *cobra.Command, run clientRun) *cobra.Command {
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if flag := cmd.Flag("tenant"); flag.Changed && flag.Value.String() != args[0] {
			return cli.Usagef("both the tenant %q and --tenant %s are given: leave --tenant out", args[0], flag.Value)
		}
		if queue.ValidTenant(args[0]) != nil {
			return cli.Usagef("tenant %q: %s", args[0], cli.TenantRule)
		}
		if err := cmd.Flags().Set("tenant", args[0]); err != nil || check == nil {
			return err
		}
		return check(cmd, args)
	}
	return connecting(env, cmd, run)
}
