package tenant

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

func newSubscriptionDeliveries(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "deliveries SUBSCRIPTION", Short: "List what was delivered to a webhook, newest first",
		Long: "Lists the deliveries of a webhook with their attempts and what the server answered. They are the tasks of its\n" +
			"queue: `quern task show ID` has all of one, and `quern task retry ID` delivers a failed one again.",
		Args: cli.Arguments(1, 1),
	}
	var status queue.Status
	limit := 100
	option.Choice(cmd.Flags(), &status, "status", "only those of this status", "scheduled", "pending", "started", "complete", "failed")
	option.Number(cmd.Flags(), &limit, "limit", "most deliveries to list", 1, 1000, "use 1 to 1000")
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		deliveries, err := client.Deliveries(cmd.Context(), args[0], status, limit)
		if err != nil {
			return err
		}
		return list(cmd, client, json, deliveries, "ID STATUS ATTEMPTS ANSWER CREATED ERROR", show.Rows(deliveries, func(d *admin.Delivery) show.View {
			return show.Row(d.ID, d.Status, d.Attempts, show.Given(d.Answer), moment(d.Created), d.Error)
		}))
	})
}

func newSubscriptionReplay(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay SUBSCRIPTION --since TIME", Short: "Deliver again what was published since a time, and print the IDs of the tasks",
		Long: "Delivers to one subscription, again or for the first time, what matches it of all publications since a time, the\n" +
			"oldest first. --since takes a time, or a duration before now.",
		Args: cli.Arguments(1, 1),
	}
	since := ""
	cmd.Flags().StringVar(&since, "since", "", "`TIME` such as 2026-01-31T12:00:00Z, or how long ago, such as 2h")
	cmd.RunE = withClient(env, nil, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		now, err := client.Clock(cmd.Context())
		if err != nil {
			return err
		}
		from, err := time.Parse(time.RFC3339, since)
		if ago, failed := units.ParseDuration(since); failed == nil && ago > 0 {
			from, err = now.Add(-ago), nil
		}
		if err != nil {
			return cli.Usagef("--since %q: use a time like 2026-01-31T12:00:00Z, or how long ago, such as 2h", since)
		}
		done, err := client.Replay(cmd.Context(), args[0], from, false)
		for _, task := range done.Tasks {
			fmt.Fprintln(cmd.OutOrStdout(), task)
		}
		if !done.Until.IsZero() {
			cli.Note(cmd, "there are more: go on with `quern subscription replay %s --since %s`", cli.ShellWord(args[0]), done.Until.UTC().Format(time.RFC3339Nano))
		}
		return err
	})
	return cmd
}
