package main

import (
	"github.com/spf13/cobra"
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
	return printing(env, cmd, func(cmd *cobra.Command, client backend, _ []string, json bool) error {
		entries, err := client.AuditLog(cmd.Context(), limit)
		if err != nil {
			return err
		}
		views := make([]view, len(entries))
		for i, e := range entries {
			views[i] = view{
				{"id", "", e.ID},
				{"time", "time", moment(e.Time)},
				{"who", "who", e.Who},
				{"action", "action", e.Action},
				{"on", "on", given(e.On)},
				{"from", "from", e.From},
				{"status", "status", e.Status},
				{"detail", "detail", given(e.Detail)},
			}
		}
		return showTable(cmd, json, views, "TIME WHO ACTION ON FROM STATUS DETAIL", views)
	})
}
