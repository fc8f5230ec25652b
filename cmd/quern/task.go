package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

func newTask(env environment) *cobra.Command {
	cmd := group("task", "Show tasks, wait for them, cancel, retry and delete them",
		newTaskShow(env), newTaskLs(env), newTaskWait(env), newTaskLogs(env), newTaskCancel(env), newTaskRetry(env), newTaskDelete(env))
	clientFlags(cmd)
	return cmd
}

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
		view := newTaskView(client.Tenant(), task)
		view.History = newAttemptViews(attempts)
		return show(cmd, json, view, view.print)
	})
	return cmd
}

func newTaskLs(env environment) *cobra.Command {
	var o queue.ListOptions
	cmd := &cobra.Command{Use: "ls QUEUE", Short: "List the tasks of a queue, newest first", Args: arguments(1, 1)}
	f := cmd.Flags()
	status := &choice{words: []string{"scheduled", "pending", "reserved", "started", "complete", "failed"}}
	f.Var(status, "status", "only scheduled, pending, reserved, started, complete or failed tasks")
	f.StringVar(&o.Key, "key", "", "only tasks with this key")
	labelFlag(f, &o.Labels, "only tasks with this label, `NAME=VALUE`; may be given several times")
	f.IntVar(&o.Limit, "limit", 100, "most tasks to list, up to 1000")
	f.IntVar(&o.Offset, "offset", 0, "skip this many tasks")
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		o.Status = queue.Status(status.word)
		tasks, err := client.Queue(args[0]).List(cmd.Context(), o)
		if err != nil {
			return err
		}
		views := make([]taskView, len(tasks))
		for i, task := range tasks {
			views[i] = newTaskView(client.Tenant(), task)
		}
		return showList(cmd, json, views, "ID STATUS REASON CREATED UPDATED ATTEMPTS KEY", func(v taskView) []any {
			return []any{v.ID, v.status(), string(v.Reason), age(v.Created), age(v.Updated), v.Attempts, escape(v.Key)}
		})
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
