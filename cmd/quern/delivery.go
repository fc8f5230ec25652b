package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host/webhook"
	"github.com/quern-project/quern/sdk/queue"
)

// mostReplayed bounds the publications of one replay.
const mostReplayed = 10_000

func newSubscriptionDeliveries(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "deliveries SUBSCRIPTION", Short: "List what was delivered to a webhook, newest first",
		Long: "Lists the deliveries of a webhook with their attempts and what the server answered. They are the tasks of its\n" +
			"queue: `quern task show ID` has all of one, and `quern task retry ID` delivers a failed one again.",
		Args: arguments(1, 1),
	}
	var status queue.Status
	limit := 0
	newChoice(cmd.Flags(), &status, "status", "only those of this status", "scheduled", "pending", "started", "complete", "failed")
	newNumber(cmd.Flags(), &limit, "limit", "most deliveries to list; 0, the default, for 100", 0, 1000, "use 1 to 1000")
	notSettings(cmd.Flags(), "status", "limit")
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, onRedis(func(cmd *cobra.Command, client *direct, args []string, asJSON bool) error {
		s, err := client.Subscription(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if limit == 0 {
			limit = 100
		}
		tasks, err := client.Client.Queue(s.Queue).List(cmd.Context(), queue.ListOptions{Status: status, Limit: limit})
		if err != nil {
			return err
		}
		views, rows := make([]view, len(tasks)), make([]view, len(tasks))
		for i, listed := range tasks {
			task, err := client.Task(cmd.Context(), listed.ID) // with its result
			if errors.Is(err, queue.ErrNoTask) {
				task, err = listed, nil
			}
			if err != nil {
				return err
			}
			var answer webhook.Answer
			_ = json.Unmarshal(task.Result, &answer) // it may have none
			problem := any(nil)
			if failure := task.Failure(); task.Status == queue.Failed {
				problem = failure.Headline()
			} else if task.LastError != "" {
				last := (&queue.Task{Error: task.LastError}).Failure()
				problem = last.Headline()
			}
			views[i] = view{
				{"id", "", task.ID},
				{"status", "", string(task.Status)},
				{"attempts", "", task.Attempts},
				{"answer", "", given(answer.Status)},
				{"created", "", moment(task.Created)},
				{"eta", "", moment(task.ETA)},
				{"error", "", problem},
			}
			rows[i] = row(task.ID, task.Status, task.Attempts, given(answer.Status), moment(task.Created), problem)
		}
		return list(cmd, client, asJSON, views, "ID STATUS ATTEMPTS ANSWER CREATED ERROR", rows)
	}))
	return cmd
}

func newSubscriptionReplay(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay SUBSCRIPTION --since TIME", Short: "Deliver again what was published since a time, and print the IDs of the tasks",
		Long: "Delivers to one subscription, again or for the first time, what matches it of all publications since a time, the\n" +
			"oldest first. --since takes a time, or a duration before now.",
		Args: arguments(1, 1),
	}
	since := ""
	cmd.Flags().StringVar(&since, "since", "", "`TIME` such as 2026-01-31T12:00:00Z, or how long ago, such as 2h")
	notSettings(cmd.Flags(), "since")
	cmd.RunE = withClient(env, nil, onRedis(func(cmd *cobra.Command, client *direct, args []string, _ bool) error {
		now, err := client.Clock(cmd.Context())
		if err != nil {
			return err
		}
		from, err := time.Parse(time.RFC3339, since)
		if ago, failed := parseDuration(since); failed == nil && ago > 0 {
			from, err = now.Add(-ago), nil
		}
		if err != nil {
			return usagef("--since %q: use a time like 2026-01-31T12:00:00Z, or how long ago, such as 2h", since)
		}
		s, err := client.Subscription(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		ids, err := client.PublicationsSince(cmd.Context(), s.Topic, from, mostReplayed)
		if err != nil {
			return err
		}
		for _, id := range ids {
			p, err := client.Publication(cmd.Context(), id)
			if errors.Is(err, queue.ErrNoPublication) { // purged meanwhile
				continue
			}
			if err != nil {
				return err
			}
			if !s.Matches(p.Topic, p.Attributes, p.Payload) {
				continue
			}
			task, err := client.Redeliver(cmd.Context(), id, s.ID)
			if err != nil {
				return fmt.Errorf("deliver publication %s again: %w", id, err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), task)
		}
		return nil
	}))
	return cmd
}
