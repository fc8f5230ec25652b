package tenant

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// queueRow returns the row of a queue in `queue ls` and `queue show`.
func queueRow(q *admin.Queue) show.View {
	oldest := q.OldestPendingAge().Truncate(time.Millisecond)
	return show.Row(q.Tenant, q.Queue, q.Scheduled, q.Pending, q.Reserved, q.Started, q.Complete, q.Failed, q.Listeners,
		pausedWord(q), limitWord(q), show.Given(oldest))
}

const queueHeading = "TENANT QUEUE SCHEDULED PENDING RESERVED STARTED COMPLETE FAILED LISTENERS PAUSED LIMIT OLDEST-PENDING"

func newQueueLs(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"},
		Short: "List the tenant's queues with the number of their tasks", Args: cli.Arguments(0, 0),
	}
	return watchable(env, cmd, func(cmd *cobra.Command, client admin.Tenant, _ []string, json bool) error {
		known, err := client.Queues(cmd.Context())
		if err != nil {
			return err
		}
		names := slices.Sorted(maps.Keys(known))
		counts, err := client.QueueCounts(cmd.Context(), names)
		if err != nil {
			return err
		}
		whole, rows := []admin.Queue{}, []show.View{}
		var damaged error // error of the first damaged queue; the others are listed
		for _, q := range counts {
			if q.Err != nil {
				damaged = cmp.Or(damaged, q.Err)
				continue
			}
			whole, rows = append(whole, q), append(rows, queueRow(&q))
		}
		return cmp.Or(list(cmd, client, json, whole, queueHeading, rows), damaged)
	})
}

func newQueueShow(env cli.Environment) *cobra.Command {
	return watchable(env, &cobra.Command{
		Use: "show QUEUE", Short: "Show the number of a queue's tasks", Args: cli.Arguments(1, 1),
		Long: "Shows the number of a queue's tasks, by status. Dead letters are those of its waiting tasks that stand for\n" +
			"tasks of other queues; failed with letter are its own failed tasks whose dead letter nobody has handled\n" +
			"yet. Of each status it looks at 10000 tasks at most.",
	}, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		if err := needKnown(cmd.Context(), client, args[0]); err != nil {
			return err
		}
		q, err := admin.CountQueue(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		letters, buried, err := client.Queue(args[0]).DeadLetters(cmd.Context())
		if err != nil {
			return err
		}
		q.DeadLetters, q.FailedWithDeadLetter = &letters, &buried
		if err := show.Table(cmd, json, q, queueHeading+" DEAD-LETTERS FAILED-WITH-LETTER",
			[]show.View{append(queueRow(&q), show.Row(letters, buried)...)}); err != nil || json {
			return err
		}
		for _, p := range q.Pauses {
			cli.Note(cmd, "%s", pauseSentence(p))
		}
		return nil
	})
}

func newQueueLimit(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "limit QUEUE [N|none]", Short: "Print how many tasks may wait in a queue, or change that",
		Long: "Prints how many tasks may wait in a queue, pending or scheduled; N sets the limit, none removes it. Above\n" +
			"it, enqueueing is refused. Tasks that wait already stay, and retries are not limited. With --drop-oldest a\n" +
			"new task is not refused: the pending task that has waited longest fails with the reason dropped, of the\n" +
			"lowest priority first. Scheduled tasks, and those with a fairness or concurrency key, are not dropped.",
		Args: cli.Arguments(1, 2),
	}
	limit := int64(0)
	drop := cmd.Flags().Bool("drop-oldest", false, "let a new task drop the oldest one of a full queue, instead of refusing it")
	cli.NotSettings(cmd.Flags(), "drop-oldest")
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if len(args) == 2 && args[1] != noLimit {
			if limit, err = option.ParseNumber[int64](1, math.MaxInt64, option.CountRule+", or "+noLimit)(args[1]); err != nil {
				return cli.Usagef("limit %q: %w", args[1], err)
			}
		}
		if *drop && limit == 0 {
			return cli.Usagef("--drop-oldest without a limit: use `quern queue limit %s N --drop-oldest`", cli.ShellWord(args[0]))
		}
		return nil
	}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		if len(args) == 2 {
			before, err := admin.CountQueue(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			set := client.Queue(args[0]).SetLimit
			if *drop {
				set = client.Queue(args[0]).SetRollingLimit
			}
			if err := set(cmd.Context(), limit); err != nil {
				return err
			}
			if before.DropOldest && !*drop && limit > 0 {
				cli.Note(cmd, "a full queue refuses new tasks now, and drops none: to drop them again, add --drop-oldest")
			}
			return warnUnknown(cmd, client, args[0], "the limit is set, but ")
		}
		if err := needKnown(cmd.Context(), client, args[0]); err != nil {
			return err
		}
		q, err := admin.CountQueue(cmd.Context(), client, args[0])
		if err != nil {
			return err
		}
		v := show.Object("tenant", client.Tenant(), "queue", args[0], "limit", show.Given(q.Limit),
			"drop_oldest", show.Given(q.DropOldest))
		return show.Line(cmd, json, v, limitWord(&q))
	})
}

func newQueuePurge(env cli.Environment) *cobra.Command {
	var o listen.PurgeOptions
	cmd := &cobra.Command{
		Use: "purge QUEUE", Short: "Delete finished tasks of a queue, and print how many",
		Long: "Deletes finished tasks of a queue with their results, logs and histories, and prints how many: those\n" +
			"older than --older-than, the oldest ones beyond --keep, or --all. Tasks that other clients than Quern's\n" +
			"enqueued stay, unless --foreign is given: the clients may still want to read them.",
		Example: "  quern queue purge mail --older-than 7d\n" +
			"  quern queue purge mail --status complete --keep 1000",
		Args: cli.Arguments(1, 1),
	}
	f := cmd.Flags()
	option.Choice(f, &o.Status, "status", "only complete or failed tasks", "complete", "failed")
	option.Lasting(f, &o.OlderThan, "older-than", "tasks that finished longer ago than this")
	option.Count(f, &o.Keep, "keep", "all but this many, the oldest first; complete tasks before failed ones")
	f.BoolVar(&o.Everything, "all", false, "all finished tasks")
	f.BoolVar(&o.Foreign, "foreign", false, "also tasks that other clients than Quern's enqueued")
	cli.NotSettings(f, "keep")
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		chosen := o.OlderThan > 0 || o.Keep > 0
		switch {
		case !chosen && !o.Everything:
			return cli.Usagef("purge of %q: say what to delete: --older-than DURATION, --keep N, or --all", args[0])
		case chosen && o.Everything:
			return cli.Usagef("--all beside --older-than or --keep: leave one of them out")
		}
		return nil
	}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
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
		v := show.Object("tenant", client.Tenant(), "queue", args[0], "purged", purged)
		return show.Line(cmd, json, v, strconv.Itoa(purged))
	})
}

// needKnown refuses a queue that nobody has used.
func needKnown(ctx context.Context, client admin.Tenant, name string) error {
	if err := queue.ValidQueue(name); err != nil {
		return err
	}
	known, err := client.Queues(ctx)
	if _, ok := known[name]; err == nil && !ok {
		remedy := cmp.Or(strings.TrimPrefix(alike(ctx, client, name, known), ": "), "see `quern queue ls`")
		return cli.Refusedf("tenant %s has no queue %q: nothing was ever enqueued in it, and it has no listener; %s",
			client.Tenant(), name, remedy)
	}
	return err
}

// noLimit is the word for a queue without a limit.
const noLimit = "none"

func limitWord(q *admin.Queue) string {
	if q.Limit == 0 {
		return noLimit
	}
	text := strconv.FormatInt(q.Limit, 10)
	if q.DropOldest {
		text += ",drop-oldest"
	}
	return text
}
