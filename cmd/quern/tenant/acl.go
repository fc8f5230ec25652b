package tenant

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func newTenantACL(cli.Environment) *cobra.Command {
	var names []string
	for _, role := range manage.Roles() {
		names = append(names, role.Name)
	}
	only := ""
	cmd := &cobra.Command{
		Use: "acl TENANT", Short: "Print the Redis users of a tenant's programs, each with the least it needs",
		Long: "Prints a line ACL SETUSER for each kind of program that uses a tenant, with the least that it needs.\n" +
			"Replace PASSWORD before you paste a line into redis-cli; without >PASSWORD an existing user keeps its\n" +
			"password. In an ACL file, leave out ACL and write user for SETUSER. The command needs no Redis.",
		Example: "  quern tenant acl acme\n" +
			"  quern tenant acl acme --for worker",
		Args: cli.Arguments(1, 1),
	}
	option.Choice(cmd.Flags(), &only, "for", "only the user of this kind of program", names...)
	output := option.Output(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tenant := args[0]
		if queue.ValidTenant(tenant) != nil {
			return cli.Usagef("tenant %q: %s", tenant, cli.TenantRule)
		}
		type user struct {
			Role string `json:"role"`
			For  string `json:"for"`
			User string `json:"user"`
			ACL  string `json:"acl"`
		}
		var users []user
		for _, role := range manage.Roles() {
			if only != "" && role.Name != only {
				continue
			}
			if role.In(tenant) {
				users = append(users, user{role.Name, role.Purpose, role.User(tenant), role.ACL(tenant)})
			} else if only != "" {
				return cli.Refusedf("tenant %s has no user for %s: Blueque's clients know only the tenant %s", tenant, role.Name,
					queue.DefaultTenant)
			}
		}
		if output.JSON() {
			return show.JSON(cmd.OutOrStdout(), users)
		}
		for _, u := range users {
			if only == "" {
				fmt.Fprintf(cmd.OutOrStdout(), "# %s: %s\n", u.Role, u.For)
			}
			fmt.Fprintln(cmd.OutOrStdout(), u.ACL)
		}
		return nil
	}
	return cmd
}
