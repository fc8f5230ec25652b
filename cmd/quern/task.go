package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

func newTaskShow(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show everything about a task",
		Long: "Shows everything about a task. -o json leaves missing values out; max_attempts is -1 for a task without\n" +
			"a bound, and missing where its manifest decides; handled is the ID of the dead letter that handled a\n" +
			"failed task.",
		Args: arguments(1, 1),
	}
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		task, err := client.Task(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		attempts, err := client.History(cmd.Context(), task)
		if err != nil {
			return err
		}
		return show(cmd, json, taskView(client.Tenant(), task, attempts))
	})
	return cmd
}

func newTaskLs(env environment) *cobra.Command {
	var o queue.ListOptions
	cmd := &cobra.Command{Use: "ls QUEUE", Short: "List the tasks of a queue, newest first", Args: arguments(1, 1)}
	f := cmd.Flags()
	newChoice(f, &o.Status, "status", "only scheduled, pending, reserved, started, complete or failed tasks",
		"scheduled", "pending", "reserved", "started", "complete", "failed")
	f.StringVar(&o.Key, "key", "", "only tasks with this key")
	labelFlag(f, &o.Labels, "only tasks with this label, `NAME=VALUE`; may be given several times")
	f.IntVar(&o.Limit, "limit", 100, "most tasks to list, up to 1000")
	f.IntVar(&o.Offset, "offset", 0, "skip this many tasks")
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		tasks, err := client.Queue(args[0]).List(cmd.Context(), o)
		if err != nil {
			return err
		}
		all, rows := make([]view, len(tasks)), make([]view, len(tasks))
		for i, t := range tasks {
			all[i] = taskView(client.Tenant(), t, nil)
			rows[i] = row(t.ID, statusText(t), t.Reason, age(t.Created), age(t.Updated), t.Attempts, t.Key)
		}
		return list(cmd, client, json, all, "ID STATUS REASON CREATED UPDATED ATTEMPTS KEY", rows)
	})
	return cmd
}

func newTaskWait(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "wait ID", Short: "Wait for a task and print its result, and nothing else, to stdout", Args: arguments(1, 1)}
	var timeout time.Duration
	newPeriod(cmd.Flags(), &timeout, "wait-timeout", 0, "how long to wait at most (default without end)")
	cmd.RunE = withClient(env, nil, func(cmd *cobra.Command, client *queue.Client, args []string, _ bool) error {
		return waitFor(cmd, client, args[0], timeout)
	})
	return cmd
}
