package tenant

import (
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
)

// tenantGroup returns the commands about a tenant as a whole.
func tenantGroup(commands ...*cobra.Command) *cobra.Command {
	return cli.Group("tenant", "Show a tenant's quotas and their use, and change them", commands...)
}

// ofTenant makes the command's first argument, if there is one, the tenant, as --tenant is.
func ofTenant(cmd *cobra.Command) *cobra.Command {
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if flag := cmd.Flag("tenant"); flag.Changed && flag.Value.String() != args[0] {
				return cli.Usagef("both the tenant %q and --tenant %s are given: leave one of them out", args[0], flag.Value)
			}
			if err := cmd.Flags().Set("tenant", args[0]); err != nil {
				return err
			}
		}
		if before == nil {
			return nil
		}
		return before(cmd, args)
	}
	return cmd
}
