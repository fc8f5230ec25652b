package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

// followInterval is how often `task logs -f` looks for new lines.
const followInterval = 300 * time.Millisecond

func newTask() *cobra.Command {
	cmd := &cobra.Command{Use: "task", Short: "Look at tasks, wait for them, delete them", Args: cobra.NoArgs, RunE: needsSubcommand}
	clientFlags(cmd)
	cmd.AddCommand(newTaskShow(), newTaskLs(), newTaskWait(), newTaskLogs(), newTaskDelete())
	return cmd
}

// needsSubcommand refuses a group that was called without one of its commands.
func needsSubcommand(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return usagef("%s needs a command: use one of %s", cmd.CommandPath(), strings.Join(names, ", "))
}

func newTaskShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show all that is known of a task", Args: cobra.ExactArgs(1)}
	output := outputFlag(cmd)
	cmd.RunE = withClient(output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		task, err := client.Task(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		view := newTaskView(client.Tenant(), task)
		if json {
			return writeJSON(cmd.OutOrStdout(), view)
		}
		return view.print(cmd.OutOrStdout())
	})
	return cmd
}

// withClient wraps a command that needs a client and knows two outputs.
func withClient(output *string, run func(*cobra.Command, *queue.Client, []string, bool) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		json, err := asJSON(*output)
		if err != nil {
			return err
		}
		client, err := connect(cmd)
		if err != nil {
			return err
		}
		defer client.Close()
		return run(cmd, client, args, json)
	}
}

func newTaskLs() *cobra.Command {
	var o queue.ListOptions
	cmd := &cobra.Command{Use: "ls QUEUE", Short: "List the tasks of a queue, newest first", Args: cobra.ExactArgs(1)}
	state := cmd.Flags().String("state", "", "only scheduled, pending, reserved, started, complete or failed tasks")
	cmd.Flags().IntVar(&o.Limit, "limit", 100, "at most so many, up to 1000")
	cmd.Flags().IntVar(&o.Offset, "offset", 0, "pass over so many")
	output := outputFlag(cmd)
	cmd.RunE = withClient(output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		o.Status = queue.Status(*state)
		tasks, err := client.Queue(args[0]).List(cmd.Context(), o)
		if err != nil {
			return err
		}
		views := make([]taskView, len(tasks))
		rows := make([][]string, len(tasks))
		for i, task := range tasks {
			views[i] = newTaskView(client.Tenant(), task)
			rows[i] = []string{
				task.ID, string(task.Status), string(task.Reason), age(task.Created), age(task.Updated), strconv.Itoa(task.Attempts), escape(task.Key),
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

func newTaskWait() *cobra.Command {
	cmd := &cobra.Command{Use: "wait ID", Short: "Wait for a task and print its result, and nothing else, to stdout", Args: cobra.ExactArgs(1)}
	timeout := cmd.Flags().Duration("wait-timeout", 0, "how long to wait at most (default without end)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := connect(cmd)
		if err != nil {
			return err
		}
		defer client.Close()
		return waitFor(cmd, client, args[0], *timeout)
	}
	return cmd
}

func newTaskLogs() *cobra.Command {
	cmd := &cobra.Command{Use: "logs ID", Short: "Print what a task wrote to stderr; -f follows it until it is finished", Args: cobra.ExactArgs(1)}
	follow := cmd.Flags().BoolP("follow", "f", false, "go on until the task is finished")
	output := outputFlag(cmd)
	cmd.RunE = withClient(output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		return printLogs(cmd.Context(), cmd.OutOrStdout(), client, args[0], *follow, json)
	})
	return cmd
}

// printLogs prints the lines that are kept; when it follows, also those that come, until the task is
// finished. It looks at the task before the log: what is written before the end is then in it.
func printLogs(ctx context.Context, w io.Writer, client *queue.Client, id string, follow, json bool) error {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for last := int64(0); ; {
		task, err := client.Task(ctx, id)
		if err != nil {
			if follow && last > 0 && errors.Is(err, queue.ErrNoTask) {
				return nil // deleted while it was followed
			}
			return err
		}
		lines, err := client.Log(ctx, id, last)
		if err != nil {
			return err
		}
		for _, line := range lines {
			last = line.Number
			if err := printLogLine(w, line, json); err != nil {
				return err
			}
		}
		if !follow || task.Status.Finished() {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func printLogLine(w io.Writer, line queue.LogLine, json bool) error {
	if json {
		return writeJSON(w, struct {
			Number int64    `json:"number"`
			Time   *seconds `json:"time"`
			Line   string   `json:"line"`
		}{line.Number, moment(line.Time), line.Text})
	}
	_, err := fmt.Fprintln(w, escape(line.Text))
	return err
}

func newTaskDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete ID...", Short: "Delete finished tasks", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := connect(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			for _, id := range args {
				if err := deleteTask(cmd.Context(), client, id); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func deleteTask(ctx context.Context, client *queue.Client, id string) error {
	task, err := client.Task(ctx, id)
	if err != nil {
		return err
	}
	err = client.Queue(task.Queue).Delete(ctx, id)
	if errors.Is(err, queue.ErrStatus) {
		return refusedf("task %s is %s: only complete and failed tasks can be deleted", id, task.Status)
	}
	return err
}
