package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

func newQueue(env environment) *cobra.Command {
	cmd := group("queue", "Show queues, pause, limit and purge them",
		newQueueLs(env), newQueueShow(env), newQueuePause(env), newQueueResume(env), newQueueLimit(env), newQueuePurge(env))
	clientFlags(cmd)
	return cmd
}

// queueView is a queue as `queue ls` and `queue show` print it.
type queueView struct {
	Tenant           string  `json:"tenant"`
	Queue            string  `json:"queue"`
	Scheduled        int64   `json:"scheduled"`
	Pending          int64   `json:"pending"`
	Reserved         int64   `json:"reserved"`
	Started          int64   `json:"started"`
	Complete         int64   `json:"complete"`
	Failed           int64   `json:"failed"`
	Listeners        int64   `json:"listeners"`
	Paused           bool    `json:"paused"`
	Limit            int64   `json:"limit,omitempty"` // of waiting tasks
	OldestPendingAge float64 `json:"oldest_pending_age_seconds"`
}

func newQueueView(tenant, name string, s queue.Stats) queueView {
	return queueView{
		Tenant: tenant, Queue: name, Scheduled: s.Depth[queue.Scheduled], Pending: s.Depth[queue.Pending],
		Reserved: s.Depth[queue.Reserved], Started: s.Depth[queue.Started], Complete: s.Depth[queue.Complete],
		Failed: s.Depth[queue.Failed], Listeners: s.Listeners, Paused: s.Paused, Limit: s.Limit,
		OldestPendingAge: s.OldestPendingAge.Seconds(),
	}
}

const queueHeading = "TENANT QUEUE SCHEDULED PENDING RESERVED STARTED COMPLETE FAILED LISTENERS PAUSED LIMIT OLDEST-PENDING"

func (v queueView) row() []any {
	oldest := ""
	if v.OldestPendingAge > 0 {
		oldest = time.Duration(v.OldestPendingAge * float64(time.Second)).Truncate(time.Millisecond).String()
	}
	return []any{
		v.Tenant, v.Queue, v.Scheduled, v.Pending, v.Reserved, v.Started, v.Complete, v.Failed, v.Listeners, yesNo(v.Paused), limitWord(v.Limit), oldest,
	}
}

func newQueueLs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the tenant's queues with the number of their tasks", Args: arguments(0, 0)}
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, _ []string, json bool) error {
		known, err := client.Queues(cmd.Context())
		if err != nil {
			return err
		}
		names := slices.Sorted(maps.Keys(known))
		stats, err := client.Stats(cmd.Context(), names...)
		if err != nil {
			return err
		}
		var views []queueView
		var damaged error // the first one; it does not hide the other queues
		for i, s := range stats {
			if s.Err != nil {
				damaged = cmp.Or(damaged, s.Err)
				continue
			}
			views = append(views, newQueueView(client.Tenant(), names[i], s))
		}
		return cmp.Or(showList(cmd, json, views, queueHeading, queueView.row), damaged)
	})
	return cmd
}

func newQueueShow(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "show QUEUE", Short: "Show the number of a queue's tasks", Args: arguments(1, 1)}
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		if err := needKnown(cmd.Context(), client, args[0]); err != nil {
			return err
		}
		stats, err := client.Queue(args[0]).Stats(cmd.Context())
		if err != nil {
			return err
		}
		view := newQueueView(client.Tenant(), args[0], stats)
		if json {
			return writeJSON(cmd.OutOrStdout(), view)
		}
		return showList(cmd, false, []queueView{view}, queueHeading, queueView.row)
	})
	return cmd
}

func newQueuePause(env environment) *cobra.Command {
	return &cobra.Command{
		Use: "pause QUEUE", Short: "Stop hosts from taking tasks of a queue; running ones go on",
		Args: arguments(1, 1),
		RunE: withClient(env, nil, func(cmd *cobra.Command, client *queue.Client, args []string, _ bool) error {
			if err := client.Queue(args[0]).Pause(cmd.Context()); err != nil {
				return err
			}
			if err := warnUnknown(cmd, client, args[0]); err != nil {
				return err
			}
			nodes, err := client.Fleet().Nodes(cmd.Context())
			for _, node := range nodes {
				if node.Kind == queue.KindPython && slices.Contains(node.Queues, args[0]) {
					fmt.Fprintf(cmd.ErrOrStderr(), "quern: the Python listener %s does not know pauses and goes on\n", escape(node.ID))
				}
			}
			return err
		}),
	}
}

func newQueueResume(env environment) *cobra.Command {
	return &cobra.Command{
		Use: "resume QUEUE", Short: "End a pause", Args: arguments(1, 1),
		RunE: withClient(env, nil, func(cmd *cobra.Command, client *queue.Client, args []string, _ bool) error {
			if err := client.Queue(args[0]).Resume(cmd.Context()); err != nil {
				return err
			}
			return warnUnknown(cmd, client, args[0])
		}),
	}
}

func newQueueLimit(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "limit QUEUE [N|none]", Short: "Print how many tasks may wait in a queue, or change that",
		Long: "Prints how many tasks may wait in a queue, pending or scheduled; N sets the limit, none removes it. Above\n" +
			"it, enqueueing is refused. Tasks that wait already stay, and retries are not limited.",
		Args: arguments(1, 2),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		limit := int64(0)
		if len(args) == 2 && args[1] != noLimit {
			var err error
			if limit, err = strconv.ParseInt(args[1], 10, 64); err != nil || limit < 1 {
				return usagef("limit %q: %s, or %s", args[1], countRule, noLimit)
			}
		}
		return withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
			if len(args) == 2 {
				if err := client.Queue(args[0]).SetLimit(cmd.Context(), limit); err != nil {
					return err
				}
				return warnUnknown(cmd, client, args[0])
			}
			if err := needKnown(cmd.Context(), client, args[0]); err != nil {
				return err
			}
			limit, err := client.Queue(args[0]).Limit(cmd.Context())
			if err != nil {
				return err
			}
			return showLine(cmd, json, struct {
				Tenant string `json:"tenant"`
				Queue  string `json:"queue"`
				Limit  int64  `json:"limit,omitempty"`
			}{client.Tenant(), args[0], limit}, limitWord(limit))
		})(cmd, args)
	}
	return cmd
}

func newQueuePurge(env environment) *cobra.Command {
	var o queue.PurgeOptions
	cmd := &cobra.Command{
		Use: "purge QUEUE", Short: "Delete finished tasks of a queue, and print how many",
		Long: "Deletes finished tasks of a queue with their results, logs and histories, and prints how many: those\n" +
			"older than --older-than, the oldest ones beyond --keep, or --all. Tasks that other clients than Quern's\n" +
			"enqueued stay, unless --foreign is given: the clients may still want to read them.",
		Example: "  quern queue purge mail --older-than 7d\n" +
			"  quern queue purge mail --status complete --keep 1000",
		Args: arguments(1, 1),
	}
	status := &choice{words: []string{string(queue.Complete), string(queue.Failed)}}
	keep := 0
	f := cmd.Flags()
	f.Var(status, "status", "only complete or failed tasks")
	newLasting(f, &o.OlderThan, "older-than", "tasks that finished longer ago than this")
	newCount(f, &keep, "keep", "all but this many, the oldest first; complete tasks before failed ones")
	f.BoolVar(&o.Everything, "all", false, "all finished tasks")
	f.BoolVar(&o.Foreign, "foreign", false, "also tasks that other clients than Quern's enqueued")
	notSettings(f, "status", "older-than", "keep", "all", "foreign")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.Status, o.Keep = queue.Status(status.word), int64(keep)
		chosen := o.OlderThan > 0 || o.Keep > 0
		switch {
		case !chosen && !o.Everything:
			return usagef("purge of %q: say what to delete: --older-than DURATION, --keep N, or --all", args[0])
		case chosen && o.Everything:
			return usagef("--all beside --older-than or --keep: leave one of them out")
		}
		return withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
			if err := needKnown(cmd.Context(), client, args[0]); err != nil {
				return err
			}
			purged, err := client.Queue(args[0]).Purge(cmd.Context(), o)
			if err != nil && purged > 0 {
				err = fmt.Errorf("%d tasks are deleted, then: %w", purged, err)
			}
			if err != nil {
				return err
			}
			return showLine(cmd, json, struct {
				Tenant string `json:"tenant"`
				Queue  string `json:"queue"`
				Purged int    `json:"purged"`
			}{client.Tenant(), args[0], purged}, strconv.Itoa(purged))
		})(cmd, args)
	}
	return cmd
}

// warnUnknown warns of a queue that nobody has used yet: its name may be misspelled.
func warnUnknown(cmd *cobra.Command, client *queue.Client, name string) error {
	known, err := client.Queues(cmd.Context())
	if _, ok := known[name]; err == nil && !ok {
		fmt.Fprintf(cmd.ErrOrStderr(), "quern: tenant %s has no queue %q yet\n", client.Tenant(), name)
	}
	return err
}

// needKnown refuses a queue that nobody has used.
func needKnown(ctx context.Context, client *queue.Client, name string) error {
	if err := queue.ValidQueue(name); err != nil {
		return err
	}
	known, err := client.Queues(ctx)
	if _, ok := known[name]; err == nil && !ok {
		return refusedf("tenant %s has no queue %q: nothing was ever enqueued in it, and it has no listener; see `quern queue ls`", client.Tenant(), name)
	}
	return err
}

// noLimit is the word for a queue without a limit.
const noLimit = "none"

func limitWord(limit int64) string {
	if limit == 0 {
		return noLimit
	}
	return strconv.FormatInt(limit, 10)
}
