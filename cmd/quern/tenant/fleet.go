package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/cmd/quern/top"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api/client"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// nodeRow returns the row of a listener in `node ls`. now is the time by Redis's clock.
func nodeRow(n admin.Node, now time.Time) show.View {
	shown := ""
	if n.Slots != nil && n.SlotsInUse != nil {
		shown = fmt.Sprint(*n.SlotsInUse, "/", *n.Slots)
	}
	lease := ""
	switch ends := admin.Moment(n.LeaseEnds); {
	case ends.After(now):
		lease = "alive"
	case !ends.IsZero():
		lease = fmt.Sprintf("over for %.1fs", now.Sub(ends).Seconds())
	case n.Kind != listen.KindPython:
		lease = "over"
	}
	var holds []string
	for _, name := range slices.Sorted(maps.Keys(n.Holds)) {
		holds = append(holds, fmt.Sprintf("%s:%d", name, len(n.Holds[name])))
	}
	uptime := show.Given(show.Span(time.Duration(n.Uptime) * time.Second))
	return show.Row(n.Listener, n.Tenant, n.Kind, n.Version, lease, n.Draining, shown, n.Queues, holds, n.Name, uptime,
		n.Address)
}

func newNodeLs(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the tenant's listeners with their tasks",
		Args: cli.Arguments(0, 0),
	}
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		nodes, err := client.Nodes(cmd.Context())
		if err != nil {
			return err
		}
		now, err := client.Clock(cmd.Context())
		if err != nil {
			return err
		}
		return list(cmd, client, json, nodes, "LISTENER TENANT KIND VERSION LEASE DRAINING SLOTS QUEUES HOLDS NAME UPTIME ADDRESS",
			show.Rows(nodes, func(n *admin.Node) show.View { return nodeRow(*n, now) }))
	})
}

func newNodeDrain(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain LISTENER", Short: "Tell a host or worker to take no more tasks, finish the running ones, and end",
		Long: "Tells a host or worker to take no more tasks of this tenant, finish the running ones, and end, as SIGTERM\n" +
			"does. A host of several tenants goes on for the others, and serves this one again after a restart; it\n" +
			"ends when all of its tenants are drained. `quern node ls` shows when it is gone.",
		Args: cli.Arguments(1, 1),
	}
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		listener, err := findListener(cmd.Context(), client, args[0])
		if err == nil {
			err = client.Drain(cmd.Context(), listener)
		}
		if errors.Is(err, listen.ErrNoNode) {
			return notDrained(cmd.Context(), client, listener)
		}
		return err
	})
}

// notDrained explains why a listener could not be drained: it does not exist, is dead, or is a Python one.
func notDrained(ctx context.Context, client admin.Tenant, listener string) error {
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(nodes, func(n admin.Node) bool { return n.Listener == listener })
	switch {
	case i < 0:
		return noListener(client, listener)
	case nodes[i].Kind == listen.KindPython:
		return cli.Refusedf("listener %s is a Python one, which cannot drain: end its process there", listener)
	}
	return cli.Refusedf("listener %s is dead, its lease is over: other hosts requeue its tasks, or use `quern node reclaim %s`", listener, cli.ShellWord(listener))
}

func noListener(client admin.Tenant, listener string) error {
	return cli.Refusedf("tenant %s has no listener %q: see `quern node ls`, and mind --tenant", client.Tenant(), listener)
}

func newNodeReclaim(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reclaim LISTENER", Short: "Requeue all tasks of a dead listener, and print how many",
		Long: "Takes all tasks from a dead listener and prints how many it returned to the front of their queues,\n" +
			"scheduled for later because several hosts died while they ran, failed because too many hosts died or\n" +
			"because they must not run twice, or dropped because the listener had lost them already. Hosts do this\n" +
			"by themselves when a lease is over. A Python listener has no lease: make sure that its process has\n" +
			"ended, or its tasks run twice.",
		Args: cli.Arguments(1, 1),
	}
	maxCrashes := listen.DefaultMaxCrashes
	option.Number(cmd.Flags(), &maxCrashes, "max-crashes",
		"a task fails once this many hosts died while they ran it, or fewer if its manifest says so", 1, math.MaxInt,
		"use 1 or more")
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		listener, err := findListener(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		got, err := client.ReclaimNode(cmd.Context(), listener, maxCrashes)
		switch {
		case errors.Is(err, listen.ErrNoNode):
			return noListener(client, listener)
		case errors.Is(err, queue.ErrStatus):
			return cli.Refusedf("listener %s is alive, its lease runs: drain it with `quern node drain %s`, or wait until its lease is over", listener, cli.ShellWord(listener))
		case err != nil:
			return err
		}
		line := fmt.Sprintf("returned %d, scheduled %d, failed %d, dropped %d", got.Returned, got.Scheduled, got.Failed,
			got.Dropped)
		return show.Line(cmd, json, got, line)
	})
}

func newPluginLs(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"},
		Short: "List the plugins of live hosts, and the refused ones", Args: cli.Arguments(0, 0),
	}
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		views, err := client.Plugins(cmd.Context())
		if err != nil {
			return err
		}
		return list(cmd, client, json, views, "TENANT PLUGIN VERSION DIGEST QUEUES STATE RESET NODES FROM ERROR",
			show.Rows(views, func(v *admin.Plugin) show.View {
				return show.Row(v.Tenant, v.Plugin, v.Version, show.Digest(v.Digest), v.Queues, stateOf(v), v.ResetMode,
					len(v.Nodes), sourceOf(v), cli.Pasteable(cmd, v.Error))
			}))
	})
}

// stateOf returns the state of a plugin, with since when a release is being fetched.
func stateOf(v *admin.Plugin) string {
	if v.Since == 0 {
		return v.State
	}
	return v.State + " since " + admin.Moment(v.Since).UTC().Format(time.TimeOnly+" UTC")
}

// sourceOf says from where a host has a plugin: a release, or its plugin directory.
func sourceOf(v *admin.Plugin) string {
	if v.Release > 0 {
		return fmt.Sprint("release ", v.Release)
	}
	return "directory"
}

func newPluginRelease(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "release NAME|DIGEST", Short: "End the quarantine of a plugin, also that of its circuit breaker",
		Long: "Ends the quarantine of every version of the plugin NAME, or of the version DIGEST (eight digits of\n" +
			"`quern plugin ls` are enough), and prints what it released. Hosts run it again within seconds. A version\n" +
			"whose tasks end three hosts within an hour is quarantined for a day. One whose runs fail in a row, as\n" +
			"often as breaker in its manifest says, is quarantined until a probe completes: see `quern help retries`.",
		Args: cli.Arguments(1, 1),
	}
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		quarantines, err := client.Quarantines(cmd.Context())
		if err != nil {
			return err
		}
		digest := strings.TrimPrefix(args[0], show.DigestPrefix)
		released := 0
		for _, q := range quarantines {
			if q.Plugin != args[0] && !(len(digest) >= minPrefix &&
				strings.HasPrefix(strings.TrimPrefix(q.Digest, show.DigestPrefix), digest)) {
				continue
			}
			if err := client.EndQuarantine(cmd.Context(), q.Plugin, q.Digest); err != nil {
				return err
			}
			released++
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), q.Plugin, q.Digest); err != nil {
				return err
			}
		}
		if released == 0 {
			return cli.Refusedf("tenant %s has no quarantined plugin or digest %q: see `quern plugin ls`, and mind --tenant",
				client.Tenant(), args[0])
		}
		return nil
	})
}

func newDoctor(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong with Redis, hosts, plugins and queues, and say how to mend it",
		Long: "Looks at Redis (version, settings, disk, memory, latency, role, access), hosts (leases, versions, clocks,\n" +
			"slots, memory, reset modes), plugins (refused, quarantined) and queues (tasks that nobody serves, pauses,\n" +
			"limits), of --tenant or of all tenants that it finds, and prints each finding with its remedy. It changes\n" +
			"nothing.\n\n" +
			"Exit status: 0 no errors, 1 some, 3 Redis is not reachable. Warnings do not count.",
		Args: cli.Arguments(0, 0),
	}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		names := []string{client.Tenant()}
		if !cli.IsGiven(cmd.Flag("tenant")) {
			others, err := client.Tenants(cmd.Context())
			if err != nil {
				cli.Note(cmd, "only the tenant %s is looked at: %v: name another with --tenant", names[0], err)
			}
			others = slices.DeleteFunc(others, func(name string) bool { return name == names[0] })
			names = append(names, slices.Sorted(slices.Values(others))...)
		}
		findings, err := client.Findings(cmd.Context(), names...)
		if err != nil {
			return err
		}
		return showFindings(cmd, json, names, findings)
	})
}

// remedyOf returns the remedy of a finding, with a command that can be pasted.
func remedyOf(cmd *cobra.Command, f doctor.Finding) string {
	text := show.OneLine(f.Remedy)
	if len(f.Command) > 0 {
		text += ": `quern"
		for _, word := range f.Command {
			text += " " + cli.ShellWord(word)
		}
		text += "`"
	}
	return cli.Pasteable(cmd, text)
}

// showFindings prints what the doctor found. The error counts the findings that are errors.
func showFindings(cmd *cobra.Command, json bool, tenants []string, findings []doctor.Finding) error {
	w, s, levels := cmd.OutOrStdout(), show.ScreenOf(cmd), make(map[doctor.Level]int)
	color := map[doctor.Level]string{doctor.Error: "31", doctor.Warning: "33", doctor.Note: "36"}
	for _, f := range findings {
		levels[f.Level]++
		if json {
			continue
		}
		if f.Tenant != "" && len(tenants) > 1 {
			_ = cmd.Flags().Set("tenant", f.Tenant) // so that the command to paste has --tenant
		}
		about := f.Check
		if f.Tenant != "" {
			about += ", tenant " + f.Tenant
		}
		if f.Since > 0 {
			about += ", since " + time.UnixMilli(int64(f.Since*1000)).UTC().Format("2006-01-02 15:04:05 UTC")
		}
		if _, err := fmt.Fprintf(w, "%s (%s): %s\n  %s\n", s.Code(color[f.Level], string(f.Level)), about,
			show.OneLine(f.Problem), remedyOf(cmd, f)); err != nil {
			return err
		}
	}
	failed, notes := levels[doctor.Error], ""
	if n := levels[doctor.Note]; n > 0 {
		notes = ", " + units.Count(n, "note", "notes")
	}
	if json {
		err := show.JSON(w, show.Object("ok", failed == 0, "tenants", tenants, "checks", doctor.Checks(), "findings",
			findings))
		if err != nil {
			return err
		}
	} else if _, err := fmt.Fprintf(w, "%s of %s: %s, %s%s\n", units.Count(len(doctor.Checks()), "check", "checks"),
		units.Count(len(tenants), "tenant", "tenants"), units.Count(failed, "error", "errors"), units.Count(levels[doctor.Warning], "warning", "warnings"),
		notes); err != nil {
		return err
	}
	if failed > 0 {
		return &cli.ExitError{Status: cli.ExitFailed, Err: fmt.Errorf("%s found", units.Count(failed, "error", "errors"))}
	}
	return nil
}

func newAudit(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who did what through the API, newest first",
		Long: "Shows what people and programs did through the API: STATUS is that of the answer, 2xx for what was done.\n" +
			"Redis keeps about the last 10,000 actions of a tenant; the log of the process that serves the API has all of\n" +
			"them, and those that were refused because the caller may not do them.",
		Args: cli.Arguments(0, 0),
	}
	limit := int64(100)
	option.Number(cmd.Flags(), &limit, "limit", "most actions to show", 1, 10_000, "use 1 to 10000")
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		entries, err := client.AuditEntries(cmd.Context(), limit)
		if err != nil {
			return err
		}
		return show.Table(cmd, json, entries, "TIME WHO ACTION ON FROM STATUS DETAIL",
			show.Rows(entries, func(e *admin.AuditEntry) show.View {
				return show.Row(moment(e.Time), e.Who, e.Action, show.Given(e.On), e.From, e.Status, show.Given(e.Detail))
			}))
	})
}

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
	option.DurationWithin(cmd.Flags(), &every, "every", every, 100*time.Millisecond, math.MaxInt64, "use at least 100ms",
		"how long after a look the next one is")
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
		// By default, these signals end the process without restoring the terminal.
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP, syscall.SIGQUIT)
		defer stop()
		return top.Run(ctx, tenant, top.Config{
			Every: every, Plain: cmd.Root().Annotations[show.NoColor] != "",
			Input: cmd.InOrStdin(), Out: cmd.OutOrStdout(),
		})
	})
}

func newDatabaseLs(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"},
		Short: "List the databases whose rows become tasks of the tenant, with the relays that lead them",
		Long: "Lists the sources of databases whose rows become tasks of the tenant, as the relays that lead them published\n" +
			"them last. A source that no relay leads is listed for a week, or until `quern database forget`.\n" +
			"`quern outbox ls` lists the rows of one.",
		Args: cli.Arguments(0, 0),
	}
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		relays, err := client.Relays(cmd.Context())
		if err != nil {
			return err
		}
		return list(cmd, client, json, relays, "NAME TABLE STATE LAG WAITING REFUSED LEADER ERROR",
			show.Rows(relays, func(r *listen.RelayState) show.View {
				state := "leads"
				switch {
				case !r.Alive:
					state = "silent"
				case !r.Notified:
					state = "unnotified"
				}
				lag := time.Duration(r.Lag * float64(time.Second)).Round(time.Millisecond)
				return show.Row(r.Name, r.Table, state, show.Age(lag), r.Waiting, r.Refused, r.Leader, cmp.Or(r.Error, r.Parked))
			}))
	})
}

func newDatabaseForget(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "forget NAME", Short: "Remove what Redis keeps of a database whose rows became tasks, and that is gone",
		Long: "Removes what Redis keeps of a source that no relay leads any more, so that `quern database ls` and\n" +
			"`quern doctor` leave it out: its state, and which of its tasks have ended. The database itself stays as it is.",
		Args: cli.Arguments(1, 1),
	}
	return connecting(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
		err := client.ForgetRelay(cmd.Context(), args[0])
		if errors.Is(err, queue.ErrStatus) {
			return cli.Refusedf("%w; `quern database ls` names it", err)
		}
		return err
	})
}
