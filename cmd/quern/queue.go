package main

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

func newQueue(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "queue", Short: "Look at queues, pause, bound and purge them", Args: onlyCommands, RunE: needsCommand}
	clientFlags(cmd)
	cmd.AddCommand(
		newQueueLs(env), newQueueShow(env), newQueuePause(env), newQueueResume(env), newQueueLimit(env), newQueuePurge(env),
	)
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
	Limit            int64   `json:"limit,omitempty"` // of what waits
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

func (v queueView) row() []string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	paused, oldest := "no", ""
	if v.Paused {
		paused = "yes"
	}
	if v.OldestPendingAge > 0 {
		oldest = time.Duration(v.OldestPendingAge * float64(time.Second)).Truncate(time.Millisecond).String()
	}
	return []string{
		v.Tenant, v.Queue, number(v.Scheduled), number(v.Pending), number(v.Reserved), number(v.Started),
		number(v.Complete), number(v.Failed), number(v.Listeners), paused, limitWord(v.Limit), oldest,
	}
}

func newQueueLs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the tenant's queues with what they hold", Args: arguments(0, 0)}
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, _ []string, json bool) error {
		known, err := client.Queues(cmd.Context())
		if err != nil {
			return err
		}
		names := make([]string, 0, len(known))
		for name := range known {
			names = append(names, name)
		}
		slices.Sort(names)
		stats, err := client.Stats(cmd.Context(), names...)
		if err != nil {
			return err
		}
		views, rows := []queueView{}, [][]string{}
		var damaged error // the first one; the others are listed all the same
		for i, s := range stats {
			if s.Err != nil {
				damaged = cmp.Or(damaged, s.Err)
				continue
			}
			views = append(views, newQueueView(client.Tenant(), names[i], s))
			rows = append(rows, views[len(views)-1].row())
		}
		if json {
			err = writeJSON(cmd.OutOrStdout(), views)
		} else {
			err = writeTable(cmd.OutOrStdout(), queueHeading, rows)
		}
		return cmp.Or(err, damaged)
	})
	return cmd
}

func newQueueShow(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "show QUEUE", Short: "Show what one queue holds", Args: arguments(1, 1)}
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
		return writeTable(cmd.OutOrStdout(), queueHeading, [][]string{view.row()})
	})
	return cmd
}
