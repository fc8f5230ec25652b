package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

func newNodes(env environment) *cobra.Command {
	cmd := group("node", "List listeners: hosts, workers and Python ones; drain them, requeue the tasks of dead ones",
		newNodeLs(env), newNodeDrain(env), newNodeReclaim(env))
	clientFlags(cmd)
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
func (v nodeView) row(now time.Time) []any {
	lease, slots := "", ""
	switch {
	case v.LeaseEnds != nil && time.Time(*v.LeaseEnds).After(now):
		lease = "alive"
	case v.LeaseEnds != nil:
		lease = fmt.Sprintf("over for %.1fs", now.Sub(time.Time(*v.LeaseEnds)).Seconds())
	case v.Kind != queue.KindPython:
		lease = "over"
	}
	if v.Slots != nil && v.SlotsInUse != nil {
		slots = fmt.Sprintf("%d/%d", *v.SlotsInUse, *v.Slots)
	}
	var holds []string
	for _, name := range slices.Sorted(maps.Keys(v.Holds)) {
		holds = append(holds, fmt.Sprintf("%s:%d", name, len(v.Holds[name])))
	}
	return []any{
		escape(v.Listener), v.Tenant, escape(v.Kind), escape(v.Version), lease, yesNo(v.Draining), slots, strings.Join(v.Queues, ","), strings.Join(holds, ","),
	}
}

func newNodeLs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the tenant's listeners with their tasks", Args: arguments(0, 0)}
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
		views := make([]nodeView, len(nodes))
		for i, node := range nodes {
			views[i] = newNodeView(client.Tenant(), node)
		}
		return showList(cmd, json, views, "LISTENER TENANT KIND VERSION LEASE DRAINING SLOTS QUEUES HOLDS",
			func(v nodeView) []any { return v.row(now) })
	})
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
			err := client.Fleet().Drain(cmd.Context(), args[0])
			if errors.Is(err, queue.ErrNoNode) {
				return notDrained(cmd.Context(), client, args[0])
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
	return refusedf("listener %s is dead, its lease is over: other hosts requeue its tasks, or use `quern node reclaim %s`", listener, listener)
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
		got, err := client.Fleet().ReclaimNode(cmd.Context(), args[0], maxCrashes)
		switch {
		case errors.Is(err, queue.ErrNoNode):
			return noListener(client, args[0])
		case errors.Is(err, queue.ErrStatus):
			return refusedf("listener %s is alive, its lease runs: drain it with `quern node drain %s`, or wait until its lease is over", args[0], args[0])
		case err != nil:
			return err
		}
		return showLine(cmd, json, struct {
			Listener  string `json:"listener"`
			Returned  int    `json:"returned"`
			Scheduled int    `json:"scheduled"`
			Failed    int    `json:"failed"`
			Dropped   int    `json:"dropped"`
		}{args[0], got.Returned, got.Scheduled, got.Failed, got.Dropped},
			fmt.Sprintf("returned %d, scheduled %d, failed %d, dropped %d", got.Returned, got.Scheduled, got.Failed, got.Dropped))
	})
	return cmd
}
