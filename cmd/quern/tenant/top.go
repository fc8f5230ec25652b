package tenant

import (
	"math"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/cmd/quern/top"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api/client"
)

func newTop(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "top", Short: "Watch queues, running tasks, failures and hosts in the whole terminal; cancel and retry",
		Long: "Shows the tenant's queues, running tasks, failures and hosts in the whole terminal, and looks again every\n" +
			"2 seconds. Enter shows the tasks of a queue and all of a task, c cancels and r retries one; ? lists the\n" +
			"keys, q leaves. Each look reads at most 500 queues, those with the most pending tasks of priority 50 or the\n" +
			"most listeners, and 200 tasks of 20 queues, or 200 hosts. Listeners of Python have no lease, and are in\n" +
			"`quern node ls` alone.",
		Args: cli.Arguments(0, 0),
	}
	every := 2 * time.Second
	option.DurationWithin(cmd.Flags(), &every, "every", every, 100*time.Millisecond, math.MaxInt64, "use at least 100ms", "how long after a look the next one is")
	return connecting(env, cmd, func(cmd *cobra.Command, tenant admin.Tenant, _ []string, _ bool) error {
		if !show.IsTerminal(cmd.InOrStdin()) || !show.IsTerminal(cmd.OutOrStdout()) {
			return cli.Usagef("top needs a terminal: use `quern queue ls --watch`, or `quern task ls --watch`")
		}
		if env.Get("TERM") == "dumb" {
			return cli.Usagef("top draws on the whole terminal, and TERM says that this one is dumb: set another TERM, or use `quern queue ls --watch`")
		}
		if _, err := tenant.Clock(cmd.Context()); err != nil {
			return err
		}
		if remote, ok := tenant.(*client.Client); ok {
			remote.Withheld = nil // it would write into the screen
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP, syscall.SIGQUIT) // which would leave the terminal as it is
		defer stop()
		return top.Run(ctx, tenant, top.Config{
			Every: every, Plain: cmd.Root().Annotations[show.NoColor] != "",
			Input: cmd.InOrStdin(), Out: cmd.OutOrStdout(),
		})
	})
}
