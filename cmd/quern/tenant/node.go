package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
)

// nodeRow is a listener as `node ls` prints it, at a time by Redis's clock.
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
	return show.Row(n.Listener, n.Tenant, n.Kind, n.Version, lease, n.Draining, shown, n.Queues, holds, n.Name, uptime, n.Address)
}

func newNodeLs(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the tenant's listeners with their tasks", Args: cli.Arguments(0, 0)}
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
	return &cobra.Command{
		Use: "drain LISTENER", Short: "Tell a host or worker to take no more tasks, finish the running ones, and end",
		Long: "Tells a host or worker to take no more tasks of this tenant, finish the running ones, and end, as SIGTERM\n" +
			"does. A host of several tenants goes on for the others, and serves this one again after a restart; it\n" +
			"ends when all of its tenants are drained. `quern node ls` shows when it is gone.",
		Args: cli.Arguments(1, 1),
		RunE: withClient(env, nil, func(cmd *cobra.Command, client admin.Tenant, args []string, _ bool) error {
			listener, err := findListener(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			err = client.Drain(cmd.Context(), listener)
			if errors.Is(err, queue.ErrNoNode) {
				return notDrained(cmd.Context(), client, listener)
			}
			return err
		}),
	}
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
	option.Number(cmd.Flags(), &maxCrashes, "max-crashes", "a task fails once this many hosts died while they ran it, or fewer if its manifest says so", 1, math.MaxInt,
		"use 1 or more")
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		listener, err := findListener(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		got, err := client.ReclaimNode(cmd.Context(), listener, maxCrashes)
		switch {
		case errors.Is(err, queue.ErrNoNode):
			return noListener(client, listener)
		case errors.Is(err, queue.ErrStatus):
			return cli.Refusedf("listener %s is alive, its lease runs: drain it with `quern node drain %s`, or wait until its lease is over", listener, cli.ShellWord(listener))
		case err != nil:
			return err
		}
		v := show.Lines(
			"returned", got.Returned, "scheduled", got.Scheduled, "failed", got.Failed,
			"dropped", got.Dropped,
		)
		return show.Line(cmd, json, got, v.Line())
	})
}
