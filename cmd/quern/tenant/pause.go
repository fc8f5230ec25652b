package tenant

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// pausedWord says in a table whether a queue is paused: true, false, or accepting if only new tasks are refused.
func pausedWord(q *admin.Queue) any {
	accepting := slices.ContainsFunc(q.Pauses, func(p manage.Pause) bool { return p.Accepting })
	switch {
	case q.Paused && accepting:
		return "true,accepting"
	case accepting:
		return "accepting"
	}
	return q.Paused
}

// pauseSentence describes a pause for people.
func pauseSentence(p manage.Pause) string {
	if p.Accepting {
		return p.What() + " accepts no new tasks" + p.Why()
	}
	return p.What() + " is paused" + p.Why()
}

// pauseFlags adds the flags of commands that pause.
func pauseFlags(cmd *cobra.Command, p *manage.Pause, accepting bool) {
	option.Text(cmd.Flags(), &p.Reason, "TEXT", "reason", "`TEXT` about why, for others, at most 1024 bytes")
	if accepting {
		cmd.Flags().BoolVar(&p.Accepting, "accepting", false, "refuse new tasks; hosts still take those that wait")
	}
}

// resumeFlags adds the flags of commands that end a pause.
func resumeFlags(cmd *cobra.Command, p *manage.Pause) {
	cmd.Flags().BoolVar(&p.Accepting, "accepting", false, "accept new tasks again")
}

func newQueuePause(env cli.Environment) *cobra.Command {
	var p manage.Pause
	cmd := &cobra.Command{
		Use: "pause QUEUE", Short: "Stop hosts from taking tasks of a queue; running ones go on",
		Long: "Stops hosts from taking tasks of a queue; running ones go on. With --accepting it refuses new tasks instead,\n" +
			"of producers and publishers; schedules wait. Two pauses of both kinds may last at the same time.",
		Args: cli.Arguments(1, 1),
	}
	pauseFlags(cmd, &p, true)
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		p.Queue, p.Who = args[0], whoami()
		if err := client.Pauses().Pause(cmd.Context(), p); err != nil {
			return err
		}
		if err := warnUnknown(cmd, client, args[0], "paused, but "); err != nil {
			return err
		}
		nodes, err := client.Nodes(cmd.Context())
		for _, node := range nodes {
			if node.Kind == listen.KindPython && slices.Contains(node.Queues, args[0]) && !p.Accepting {
				cli.Note(cmd, "the Python listener %s does not know pauses and goes on", node.Listener)
			}
		}
		return err
	})
}

func newQueueResume(env cli.Environment) *cobra.Command {
	var p manage.Pause
	cmd := &cobra.Command{Use: "resume QUEUE", Short: "End a pause", Args: cli.Arguments(1, 1)}
	resumeFlags(cmd, &p)
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		p.Queue = args[0]
		if err := client.Pauses().Resume(cmd.Context(), p); err != nil {
			return err
		}
		if err := warnUnknown(cmd, client, args[0], ""); err != nil {
			return err
		}
		q, err := admin.CountQueue(cmd.Context(), client, args[0])
		for _, left := range q.Pauses {
			cli.Note(cmd, "%s", pauseSentence(left))
		}
		return err
	})
}

func newPluginPause(env cli.Environment) *cobra.Command {
	var p manage.Pause
	cmd := &cobra.Command{
		Use: "pause NAME", Short: "Stop hosts from taking tasks that a plugin would run; running ones go on",
		Args: cli.Arguments(1, 1),
	}
	pauseFlags(cmd, &p, false)
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		p.Plugin, p.Who = args[0], whoami()
		if err := client.Pauses().Pause(cmd.Context(), p); err != nil {
			return err
		}
		all, err := client.Plugins(cmd.Context())
		if err == nil && !slices.ContainsFunc(all, func(one admin.Plugin) bool { return one.Plugin == args[0] }) {
			cli.Note(cmd, "paused, but no live host of tenant %s has a plugin %q: see `quern plugin ls`", client.Tenant(), args[0])
		}
		return err
	})
}

func newPluginResume(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{Use: "resume NAME", Short: "End the pause of a plugin", Args: cli.Arguments(1, 1)}
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		return client.Pauses().Resume(cmd.Context(), manage.Pause{Plugin: args[0]})
	})
}

func newTenantPause(env cli.Environment) *cobra.Command {
	var p manage.Pause
	cmd := &cobra.Command{
		Use: "pause TENANT", Short: "Stop hosts from taking any tasks of a tenant; running ones go on",
		Long: "Stops hosts from taking any tasks of a tenant; running ones go on. With --accepting the tenant refuses new\n" +
			"tasks instead. Python clients do not know pauses.",
		Args: cli.Arguments(1, 1),
	}
	pauseFlags(cmd, &p, true)
	return ofTenant(connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, _ bool) error {
		p.Who = whoami()
		return client.Pauses().Pause(cmd.Context(), p)
	}))
}

func newTenantResume(env cli.Environment) *cobra.Command {
	var p manage.Pause
	cmd := &cobra.Command{Use: "resume TENANT", Short: "End a pause of a tenant", Args: cli.Arguments(1, 1)}
	resumeFlags(cmd, &p)
	return ofTenant(connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, _ bool) error {
		return client.Pauses().Resume(cmd.Context(), p)
	}))
}

func newTenantPauses(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "pauses TENANT", Short: "List what is paused: the tenant, queues and plugins; by whom, why and since when",
		Args: cli.Arguments(1, 1),
	}
	output := option.Output(cmd)
	return ofTenant(connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, _ bool) error {
		pauses, err := client.Pauses().List(cmd.Context())
		if err != nil {
			return err
		}
		return list(cmd, client, output.JSON(), pauses, "PAUSED OF SINCE BY REASON",
			show.Rows(pauses, func(p *manage.Pause) show.View {
				of := "taking"
				if p.Accepting {
					of = "accepting"
				}
				return show.Row(p.What(), of, moment(p.Since), p.Who, p.Reason)
			}))
	}))
}

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
