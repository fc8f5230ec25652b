package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

func newNodes(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "node", Short: "Look at listeners: hosts, workers and Python ones; drain them, take tasks from dead ones",
		Args: onlyCommands, RunE: needsCommand,
	}
	clientFlags(cmd)
	cmd.AddCommand(newNodeLs(env), newNodeDrain(env), newNodeReclaim(env))
	return cmd
}

// nodeView is a listener as `node ls` prints it.
type nodeView struct {
	Listener   string              `json:"listener"`
	Tenant     string              `json:"tenant"`
	Kind       string              `json:"kind"`
	Version    string              `json:"version,omitempty"`
	LeaseEnds  *seconds            `json:"lease_ends,omitempty"`
	Draining   bool                `json:"draining"`
	Slots      *int                `json:"slots,omitempty"`
	SlotsInUse *int                `json:"slots_in_use,omitempty"`
	Queues     []string            `json:"queues"`
	Holds      map[string][]string `json:"holds"` // by queue
}

func newNodeView(tenant string, n queue.NodeInfo) nodeView {
	v := nodeView{
		Listener: n.ID, Tenant: tenant, Kind: n.Kind, Version: n.About["version"], LeaseEnds: moment(n.LeaseEnd), Draining: n.Draining,
		Queues: n.Queues, Holds: n.Holds,
	}
	number := func(name string) *int {
		if n, err := strconv.Atoi(n.About[name]); err == nil {
			return &n
		}
		return nil
	}
	v.Slots, v.SlotsInUse = number("slots"), number("slots_in_use")
	if v.Queues == nil {
		v.Queues = []string{}
	}
	return v
}

// row is the listener for people, at a time by Redis's clock.
func (v nodeView) row(now time.Time) []string {
	lease, draining, slots := "", "no", ""
	switch {
	case v.LeaseEnds != nil && time.Time(*v.LeaseEnds).After(now):
		lease = "alive"
	case v.LeaseEnds != nil:
		lease = fmt.Sprintf("over for %.1fs", now.Sub(time.Time(*v.LeaseEnds)).Seconds())
	case v.Kind != queue.KindPython:
		lease = "over"
	}
	if v.Draining {
		draining = "yes"
	}
	if v.Slots != nil && v.SlotsInUse != nil {
		slots = fmt.Sprintf("%d/%d", *v.SlotsInUse, *v.Slots)
	}
	var holds []string
	for _, name := range slices.Sorted(maps.Keys(v.Holds)) {
		holds = append(holds, fmt.Sprintf("%s:%d", name, len(v.Holds[name])))
	}
	return []string{
		escape(v.Listener), v.Tenant, escape(v.Kind), escape(v.Version), lease, draining, slots, strings.Join(v.Queues, ","), strings.Join(holds, ","),
	}
}

func newNodeLs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the tenant's listeners with what they hold", Args: arguments(0, 0)}
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, _ []string, json bool) error {
		nodes, err := client.Fleet().Nodes(cmd.Context())
		if err != nil {
			return err
		}
		now, err := client.Clock(cmd.Context())
		if err != nil {
			return err
		}
		views, rows := make([]nodeView, len(nodes)), make([][]string, len(nodes))
		for i, node := range nodes {
			views[i] = newNodeView(client.Tenant(), node)
			rows[i] = views[i].row(now)
		}
		if json {
			return writeJSON(cmd.OutOrStdout(), views)
		}
		return writeTable(cmd.OutOrStdout(), "LISTENER TENANT KIND VERSION LEASE DRAINING SLOTS QUEUES HOLDS", rows)
	})
	return cmd
}

func newNodeDrain(env environment) *cobra.Command {
	return &cobra.Command{
		Use: "drain LISTENER", Short: "Tell a host or worker to take nothing more, finish what it runs, and end",
		Long: "Tells a host or worker to take nothing more of this tenant, finish what it runs, and end, as SIGTERM\n" +
			"does. A host that serves several tenants goes on for the others, and serves this one again when it is\n" +
			"started anew; it ends when all of its tenants are drained. `quern node ls` shows when it is gone.",
		Args: arguments(1, 1),
		RunE: withClient(env, nil, func(cmd *cobra.Command, client *queue.Client, args []string, _ bool) error {
			err := client.Fleet().Drain(cmd.Context(), args[0])
			if errors.Is(err, queue.ErrNoNode) {
				return notDrained(cmd.Context(), client, args[0])
			}
			return err
		}),
	}
}

// notDrained says why a listener could not be drained: there is none, it is dead, or it is a Python one.
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
		return refusedf("listener %s is a Python one, which cannot be told to drain: end its process there", listener)
	}
	return refusedf("listener %s is dead, its lease is over: other hosts take its tasks, or use `quern node reclaim %s`", listener, listener)
}

func noListener(client *queue.Client, listener string) error {
	return refusedf("tenant %s has no listener %q: see `quern node ls`, and mind --tenant", client.Tenant(), listener)
}

func newNodeReclaim(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reclaim LISTENER", Short: "Take all tasks from a listener that is dead, and print what became of them",
		Long: "Takes all tasks from a listener that is dead and prints what became of them: returned to the front of\n" +
			"their queues, scheduled for later because they have lost several hosts, failed because they have lost too\n" +
			"many or must not run twice, or dropped because they were not its any more. Hosts do this by themselves\n" +
			"when a lease is over. A Python listener has no lease: make sure that its process has ended, or its\n" +
			"tasks run twice.",
		Args: arguments(1, 1),
	}
	output := outputFlag(cmd)
	maxCrashes := cmd.Flags().Int("max-crashes", queue.DefaultMaxCrashes, "hosts that a task may lose before it fails, unless its manifest says fewer")
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		if *maxCrashes < 1 {
			return usagef("--max-crashes %d: use 1 or more", *maxCrashes)
		}
		got, err := client.Fleet().ReclaimNode(cmd.Context(), args[0], *maxCrashes)
		switch {
		case errors.Is(err, queue.ErrNoNode):
			return noListener(client, args[0])
		case errors.Is(err, queue.ErrStatus):
			return refusedf("listener %s is alive, its lease runs: end it with `quern node drain %s`, or wait until its lease is over", args[0], args[0])
		case err != nil:
			return err
		case json:
			return writeJSON(cmd.OutOrStdout(), struct {
				Listener  string `json:"listener"`
				Returned  int    `json:"returned"`
				Scheduled int    `json:"scheduled"`
				Failed    int    `json:"failed"`
				Dropped   int    `json:"dropped"`
			}{args[0], got.Returned, got.Scheduled, got.Failed, got.Dropped})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "returned %d, scheduled %d, failed %d, dropped %d\n", got.Returned, got.Scheduled, got.Failed, got.Dropped)
		return err
	})
	return cmd
}
