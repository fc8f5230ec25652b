package tenant

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func newTenantUsage(env cli.Environment) *cobra.Command {
	from, to, output := "", "", "text"
	cmd := &cobra.Command{
		Use: "usage TENANT", Short: "Show by day what the tasks of a tenant have used",
		Long: "Shows by day what the tasks that hosts ran have used: runs, tasks by end, fuel, processor time, bytes of\n" +
			"parameters, results and logs. Days are those of UTC, and are kept for 400 days. Tasks of workers and of\n" +
			"Python listeners are not counted.",
		Example: "  quern tenant usage acme\n" +
			"  quern tenant usage acme --from 2026-11-01 --to 2026-11-30 -o csv",
		Args: cli.Arguments(1, 1),
	}
	f := cmd.Flags()
	option.Text(f, &from, "DAY", "from", "the first `DAY`, as 2026-11-30; default: the first of the month of --to")
	option.Text(f, &to, "DAY", "to", "the last `DAY`; default: today")
	option.Choice(f, &output, "output/o", "text, json or csv", "text", "json", "csv")
	cli.NotSettings(f, "from", "to")
	return ofTenant(connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, _ bool) error {
		days, err := client.Usage(cmd.Context(), from, to)
		if err != nil {
			return err
		}
		if output == "csv" {
			w := cmd.OutOrStdout()
			fmt.Fprintln(w, "tenant,day,runs,complete,failed,retried,fuel,cpu_seconds,run_seconds,bytes_in,bytes_out,log_bytes")
			for _, d := range days {
				if _, err := fmt.Fprintf(w, "%s,%s,%d,%d,%d,%d,%d,%.6f,%.6f,%d,%d,%d\n", client.Tenant(), d.Day, d.Runs, d.Complete,
					d.Failed, d.Retried, d.Fuel, d.CPUSeconds, d.RunSeconds, d.BytesIn, d.BytesOut, d.LogBytes); err != nil {
					return err
				}
			}
			return nil
		}
		return list(cmd, client, output == "json", days, "DAY RUNS COMPLETE FAILED RETRIED FUEL CPU RUN BYTES-IN BYTES-OUT LOG-BYTES",
			show.Rows(days, func(d *manage.Usage) show.View {
				return show.Row(d.Day, d.Runs, d.Complete, d.Failed, d.Retried, d.Fuel, show.Span(admin.Period(d.CPUSeconds)),
					show.Span(admin.Period(d.RunSeconds)), d.BytesIn, d.BytesOut, d.LogBytes)
			}))
	}))
}
