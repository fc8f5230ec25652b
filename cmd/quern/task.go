package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

func newTask(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "task", Short: "Look at tasks, wait for them, cancel, retry and delete them", Args: onlyCommands, RunE: needsCommand}
	clientFlags(cmd)
	cmd.AddCommand(
		newTaskShow(env), newTaskLs(env), newTaskWait(env), newTaskLogs(env), newTaskCancel(env), newTaskRetry(env), newTaskDelete(env),
	)
	return cmd
}

func newTaskShow(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show all that is known of a task",
		Long: "Shows all that is known of a task. With -o json a value that is missing is left out; max_attempts is -1\n" +
			"for a task without a bound, and left out where its manifest decides; handled is the ID of the dead\n" +
			"letter by which somebody has handled a failed task.",
		Args: arguments(1, 1),
	}
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		task, err := client.Task(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		view := newTaskView(client.Tenant(), task)
		attempts, err := client.History(cmd.Context(), task)
		if err != nil {
			return err
		}
		view.History = newAttemptViews(attempts)
		if json {
			return writeJSON(cmd.OutOrStdout(), view)
		}
		return view.print(cmd.OutOrStdout())
	})
	return cmd
}

// withClient wraps a command that needs a client and knows two outputs; output is nil if it prints nothing.
func withClient(env environment, output *choice, run func(*cobra.Command, *queue.Client, []string, bool) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, err := connect(cmd, env, queue.Config{})
		if err != nil {
			return err
		}
		defer client.Close()
		return run(cmd, client, args, output != nil && output.json())
	}
}

func newTaskLs(env environment) *cobra.Command {
	var o queue.ListOptions
	cmd := &cobra.Command{Use: "ls QUEUE", Short: "List the tasks of a queue, newest first", Args: arguments(1, 1)}
	status := &choice{words: []string{"scheduled", "pending", "reserved", "started", "complete", "failed"}}
	cmd.Flags().Var(status, "status", "only scheduled, pending, reserved, started, complete or failed tasks")
	cmd.Flags().StringVar(&o.Key, "key", "", "only tasks of this key")
	labels := cmd.Flags().StringArray("label", nil, "only tasks with this label, `NAME=VALUE`; may be given several times")
	cmd.Flags().IntVar(&o.Limit, "limit", 100, "at most so many, up to 1000")
	cmd.Flags().IntVar(&o.Offset, "offset", 0, "pass over so many")
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		var err error
		if o.Labels, err = parseLabels(cmd, *labels); err != nil {
			return err
		}
		o.Status = queue.Status(status.word)
		tasks, err := client.Queue(args[0]).List(cmd.Context(), o)
		if err != nil {
			return err
		}
		views := make([]taskView, len(tasks))
		rows := make([][]string, len(tasks))
		for i, task := range tasks {
			views[i] = newTaskView(client.Tenant(), task)
			rows[i] = []string{
				task.ID, views[i].status(), string(task.Reason), age(task.Created), age(task.Updated), strconv.Itoa(task.Attempts), escape(task.Key),
			}
		}
		if json {
			return writeJSON(cmd.OutOrStdout(), views)
		}
		return writeTable(cmd.OutOrStdout(), "ID STATUS REASON CREATED UPDATED ATTEMPTS KEY", rows)
	})
	return cmd
}

// age is how long ago a time was, in two units at most.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := time.Since(t)
	switch {
	case d < 0:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func newTaskWait(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "wait ID", Short: "Wait for a task and print its result, and nothing else, to stdout", Args: arguments(1, 1)}
	var timeout time.Duration
	newPeriod(cmd.Flags(), &timeout, "wait-timeout", 0, "how long to wait at most (default without end)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := connect(cmd, env, queue.Config{})
		if err != nil {
			return err
		}
		defer client.Close()
		return waitFor(cmd, client, args[0], timeout)
	}
	return cmd
}
