package tenant

import (
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
)

func newAudit(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who did what through the API, newest first",
		Long: "Shows what people and programs did through the API: STATUS is that of the answer, 2xx for what was done.\n" +
			"Redis keeps about the last 10,000 actions of a tenant; the log of the process that serves the API has all of\n" +
			"them, and those that were refused because the caller may not do them.",
		Args: cli.Arguments(0, 0),
	}
	connect.Flags(cmd)
	serverFlags(cmd)
	limit := int64(100)
	option.Number(cmd.Flags(), &limit, "limit", "most actions to show", 1, 10_000, "use 1 to 10000")
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		entries, err := client.AuditEntries(cmd.Context(), limit)
		if err != nil {
			return err
		}
		rows := make([]show.View, len(entries))
		for i, e := range entries {
			rows[i] = show.Row(moment(e.Time), e.Who, e.Action, show.Given(e.On), e.From, e.Status, show.Given(e.Detail))
		}
		return show.Table(cmd, json, entries, "TIME WHO ACTION ON FROM STATUS DETAIL", rows)
	})
}
