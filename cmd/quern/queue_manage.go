package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

func newQueuePause(env environment) *cobra.Command {
	return &cobra.Command{
		Use: "pause QUEUE", Short: "Keep hosts from taking tasks of a queue; what runs goes on",
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
					fmt.Fprintf(cmd.ErrOrStderr(), "quern: the Python listener %s knows no pause and goes on\n", escape(node.ID))
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

// warnUnknown says that nobody has used a queue yet: its name may be a slip of the pen.
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
	if err != nil {
		return err
	}
	if _, ok := known[name]; !ok {
		return refusedf("tenant %s has no queue %q: nothing was ever enqueued in it and nobody listens; see `quern queue ls`", client.Tenant(), name)
	}
	return nil
}

// noLimit is the word for a queue that may be as long as Redis has memory.
const noLimit = "none"

func newQueueLimit(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "limit QUEUE [N|none]", Short: "Print how many tasks may wait in a queue, or bound it",
		Long: "Prints how many tasks may wait in a queue, pending or scheduled; with N bounds it, with none lifts the\n" +
			"bound. Who enqueues more is refused. What waits already stays, and retries are not counted against it.",
		Args: arguments(1, 2),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		limit := int64(0)
		if len(args) == 2 && args[1] != noLimit {
			var err error
			if limit, err = strconv.ParseInt(args[1], 10, 64); err != nil || limit < 1 {
				return usagef("limit %q: use a whole number from 1 on, or %s", args[1], noLimit)
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
			if json {
				return writeJSON(cmd.OutOrStdout(), struct {
					Tenant string `json:"tenant"`
					Queue  string `json:"queue"`
					Limit  int64  `json:"limit,omitempty"`
				}{client.Tenant(), args[0], limit})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), limitWord(limit))
			return err
		})(cmd, args)
	}
	return cmd
}

func limitWord(limit int64) string {
	if limit == 0 {
		return noLimit
	}
	return strconv.FormatInt(limit, 10)
}

func newQueuePurge(env environment) *cobra.Command {
	var o queue.PurgeOptions
	cmd := &cobra.Command{
		Use: "purge QUEUE", Short: "Forget finished tasks of a queue, and print how many",
		Long: "Forgets finished tasks of a queue with their results, logs and histories, and prints how many: those\n" +
			"that are older than --older-than, the oldest beyond the newest --keep, or --all. Tasks that clients other\n" +
			"than Quern's enqueued stay without --foreign: they may want to read them.",
		Example: "  quern queue purge mail --older-than 7d\n" +
			"  quern queue purge mail --status complete --keep 1000",
		Args: arguments(1, 1),
	}
	status := &choice{words: []string{string(queue.Complete), string(queue.Failed)}}
	keep := 0
	f := cmd.Flags()
	f.Var(status, "status", "only complete or failed tasks")
	newLasting(f, &o.OlderThan, "older-than", "those that finished longer ago than this")
	f.Var((*amount)(&keep), "keep", "those beyond so many, the oldest first; of both kinds, complete ones before failed ones")
	f.BoolVar(&o.Everything, "all", false, "all of them")
	f.BoolVar(&o.Foreign, "foreign", false, "also those that clients other than Quern's enqueued")
	notSettings(f, "status", "older-than", "keep", "all", "foreign")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.Status, o.Keep = queue.Status(status.word), int64(keep)
		chosen := o.OlderThan > 0 || o.Keep > 0
		switch {
		case !chosen && !o.Everything:
			return usagef("purge of %q: say what to forget: --older-than DURATION, --keep N, or --all", args[0])
		case chosen && o.Everything:
			return usagef("--all beside --older-than or --keep: leave one of them out")
		}
		return withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
			if err := needKnown(cmd.Context(), client, args[0]); err != nil {
				return err
			}
			purged, err := client.Queue(args[0]).Purge(cmd.Context(), o)
			if err != nil && purged > 0 {
				err = fmt.Errorf("%d tasks are forgotten, then: %w", purged, err)
			}
			if err != nil {
				return err
			}
			if json {
				return writeJSON(cmd.OutOrStdout(), struct {
					Tenant string `json:"tenant"`
					Queue  string `json:"queue"`
					Purged int    `json:"purged"`
				}{client.Tenant(), args[0], purged})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), purged)
			return err
		})(cmd, args)
	}
	return cmd
}
