package main

import (
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host/admin"
)

func newAudit(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who did what through the API, newest first",
		Long: "Shows what people and programs did through the API: STATUS is that of the answer, 2xx for what was done.\n" +
			"Redis keeps about the last 10,000 actions of a tenant; the log of the process that serves the API has all of\n" +
			"them, and those that were refused because the caller may not do them.",
		Args: arguments(0, 0),
	}
	clientFlags(cmd)
	serverFlags(cmd)
	limit := int64(100)
	newNumber(cmd.Flags(), &limit, "limit", "most actions to show", 1, 10_000, "use 1 to 10000")
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		entries, err := client.AuditEntries(cmd.Context(), limit)
		if err != nil {
			return err
		}
		rows := make([]view, len(entries))
		for i, e := range entries {
			rows[i] = row(moment(admin.Moment(e.Time)), e.Who, e.Action, given(e.On), e.From, e.Status, given(e.Detail))
		}
		return showTable(cmd, json, entries, "TIME WHO ACTION ON FROM STATUS DETAIL", rows)
	})
}
