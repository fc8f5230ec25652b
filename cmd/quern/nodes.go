package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

// nodeView is a listener as `node ls` prints it, at a time by Redis's clock.
func nodeView(tenant string, n queue.NodeInfo, now time.Time) view {
	number := func(name string) any {
		if n, err := strconv.Atoi(n.About[name]); err == nil {
			return n
		}
		return nil
	}
	slots, used, shown := number("slots"), number("slots_in_use"), ""
	if slots != nil && used != nil {
		shown = fmt.Sprint(used, "/", slots)
	}
	lease := ""
	switch {
	case n.LeaseEnd.After(now):
		lease = "alive"
	case !n.LeaseEnd.IsZero():
		lease = fmt.Sprintf("over for %.1fs", now.Sub(n.LeaseEnd).Seconds())
	case n.Kind != queue.KindPython:
		lease = "over"
	}
	var holds []string
	for _, name := range slices.Sorted(maps.Keys(n.Holds)) {
		holds = append(holds, fmt.Sprintf("%s:%d", name, len(n.Holds[name])))
	}
	return view{
		{"listener", "listener", n.ID},
		{"tenant", "tenant", tenant},
		{"kind", "kind", n.Kind},
		{"version", "version", given(n.About["version"])},
		{"lease_ends", "", moment(n.LeaseEnd)},
		{"", "lease", lease},
		{"draining", "draining", n.Draining},
		{"slots", "", slots},
		{"slots_in_use", "", used},
		{"", "slots", shown},
		{"queues", "queues", append([]string{}, n.Queues...)},
		{"holds", "", n.Holds}, // by queue
		{"", "holds", holds},
		{"name", "name", given(n.About["name"])},
		{"uptime_seconds", "uptime", uptime(n)},
		{"address", "address", given(n.About["address"])},
	}
}

// uptime is for how long a host runs, by its own clock; nil if that is not known.
func uptime(n queue.NodeInfo) any {
	started, err := strconv.ParseFloat(n.About["started"], 64)
	clock, missing := strconv.ParseFloat(n.About["clock"], 64)
	if err != nil || missing != nil {
		return nil
	}
	return span(time.Duration((clock - started) * float64(time.Second)).Round(time.Second))
}

func newNodeLs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the tenant's listeners with their tasks", Args: arguments(0, 0)}
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, watchable(cmd, func(cmd *cobra.Command, client *queue.Client, _ []string, json bool) error {
		nodes, err := client.Fleet().Nodes(cmd.Context())
		if err != nil {
			return err
		}
		now, err := client.Clock(cmd.Context())
		if err != nil {
			return err
		}
		views := make([]view, len(nodes))
		for i, node := range nodes {
			views[i] = nodeView(client.Tenant(), node, now)
		}
		return list(cmd, client, json, views, "LISTENER TENANT KIND VERSION LEASE DRAINING SLOTS QUEUES HOLDS NAME UPTIME ADDRESS", views)
	}))
	return cmd
}

func newNodeDrain(env environment) *cobra.Command {
	return &cobra.Command{
		Use: "drain LISTENER", Short: "Tell a host or worker to take no more tasks, finish the running ones, and end",
		Long: "Tells a host or worker to take no more tasks of this tenant, finish the running ones, and end, as SIGTERM\n" +
			"does. A host of several tenants goes on for the others, and serves this one again after a restart; it\n" +
			"ends when all of its tenants are drained. `quern node ls` shows when it is gone.",
		Args: arguments(1, 1),
		RunE: withClient(env, nil, func(cmd *cobra.Command, client *queue.Client, args []string, _ bool) error {
			listener, err := findListener(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			err = client.Fleet().Drain(cmd.Context(), listener)
			if errors.Is(err, queue.ErrNoNode) {
				return notDrained(cmd.Context(), client, listener)
			}
			return err
		}),
	}
}

// notDrained explains why a listener could not be drained: it does not exist, is dead, or is a Python one.
func notDrained(ctx context.Context, client *queue.Client, listener string) error {
	nodes, err := client.Fleet().Nodes(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(nodes, func(n queue.NodeInfo) bool { return n.ID == listener })
	switch {
	case i < 0:
		return noListener(client, listener)
	case nodes[i].Kind == queue.KindPython:
		return refusedf("listener %s is a Python one, which cannot drain: end its process there", listener)
	}
	return refusedf("listener %s is dead, its lease is over: other hosts requeue its tasks, or use `quern node reclaim %s`", listener, shellWord(listener))
}

func noListener(client *queue.Client, listener string) error {
	return refusedf("tenant %s has no listener %q: see `quern node ls`, and mind --tenant", client.Tenant(), listener)
}

func newNodeReclaim(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reclaim LISTENER", Short: "Requeue all tasks of a dead listener, and print how many",
		Long: "Takes all tasks from a dead listener and prints how many it returned to the front of their queues,\n" +
			"scheduled for later because several hosts died while they ran, failed because too many hosts died or\n" +
			"because they must not run twice, or dropped because the listener had lost them already. Hosts do this\n" +
			"by themselves when a lease is over. A Python listener has no lease: make sure that its process has\n" +
			"ended, or its tasks run twice.",
		Args: arguments(1, 1),
	}
	output := outputFlag(cmd)
	maxCrashes := queue.DefaultMaxCrashes
	newNumber(cmd.Flags(), &maxCrashes, "max-crashes", "a task fails once this many hosts died while they ran it, or fewer if its manifest says so", 1, math.MaxInt,
		"use 1 or more")
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		listener, err := findListener(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		got, err := client.Fleet().ReclaimNode(cmd.Context(), listener, maxCrashes)
		switch {
		case errors.Is(err, queue.ErrNoNode):
			return noListener(client, listener)
		case errors.Is(err, queue.ErrStatus):
			return refusedf("listener %s is alive, its lease runs: drain it with `quern node drain %s`, or wait until its lease is over", listener, shellWord(listener))
		case err != nil:
			return err
		}
		v := view{
			{"listener", "", listener},
			{"returned", "returned", got.Returned},
			{"scheduled", "scheduled", got.Scheduled},
			{"failed", "failed", got.Failed},
			{"dropped", "dropped", got.Dropped},
		}
		return showLine(cmd, json, v, v.line())
	})
	return cmd
}
