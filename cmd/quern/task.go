package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

// followInterval is how often `task logs -f` looks for new lines.
const followInterval = 300 * time.Millisecond

func newTask(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "task", Short: "Look at tasks, wait for them, delete them", Args: onlyCommands, RunE: needsCommand}
	clientFlags(cmd)
	cmd.AddCommand(newTaskShow(env), newTaskLs(env), newTaskWait(env), newTaskLogs(env), newTaskDelete(env))
	return cmd
}

func newTaskShow(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show all that is known of a task", Args: arguments(1, 1)}
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
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
func withClient(env environment, output *choice, run func(*cobra.Command, *queue.Client, []string, bool) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, err := connect(cmd, env)
		if err != nil {
			return err
		}
		defer client.Close()
		return run(cmd, client, args, output.json())
	}
}

func newTaskLs(env environment) *cobra.Command {
	var o queue.ListOptions
	cmd := &cobra.Command{Use: "ls QUEUE", Short: "List the tasks of a queue, newest first", Args: arguments(1, 1)}
	status := &choice{words: []string{"scheduled", "pending", "reserved", "started", "complete", "failed"}}
	cmd.Flags().Var(status, "status", "only scheduled, pending, reserved, started, complete or failed tasks")
	cmd.Flags().IntVar(&o.Limit, "limit", 100, "at most so many, up to 1000")
	cmd.Flags().IntVar(&o.Offset, "offset", 0, "pass over so many")
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
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

func newTaskWait(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "wait ID", Short: "Wait for a task and print its result, and nothing else, to stdout", Args: arguments(1, 1)}
	var timeout time.Duration
	newPeriod(cmd.Flags(), &timeout, "wait-timeout", 0, "how long to wait at most (default without end)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := connect(cmd, env)
		if err != nil {
			return err
		}
		defer client.Close()
		return waitFor(cmd, client, args[0], timeout)
	}
	return cmd
}

func newTaskLogs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "logs ID", Short: "Print what a task wrote to stderr; -f follows it until it is finished", Args: arguments(1, 1)}
	follow := cmd.Flags().BoolP("follow", "f", false, "go on until the task is finished")
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		return printLogs(cmd.Context(), cmd.OutOrStdout(), client, args[0], *follow, json)
	})
	return cmd
}

// printLogs prints the lines that are kept; when it follows, also those that come, until the task is
// finished or gone.
func printLogs(ctx context.Context, w io.Writer, client *queue.Client, id string, follow, json bool) error {
	task, err := client.Task(ctx, id)
	if err != nil {
		return err
	}
	log := taskLog{client: client, id: id, json: json, w: w}
	if !follow || task.Status.Finished() {
		return log.print(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, err := client.Wait(ctx, id)
		ended <- err
	})
	defer waiting.Wait()
	defer stop()
	return log.follow(ctx, ended)
}

// taskLog prints each line of a task's log once.
type taskLog struct {
	client *queue.Client
	id     string
	json   bool
	w      io.Writer
	last   int64 // number of the last line that was printed
}

// follow prints the lines that come until ended says that the task is finished, and then the rest.
func (l *taskLog) follow(ctx context.Context, ended <-chan error) error {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		if err := l.print(ctx); err != nil {
			return err
		}
		select {
		case err := <-ended:
			switch {
			case errors.Is(err, queue.ErrNoTask):
				return nil // deleted, and its log with it
			case err != nil:
				return err
			}
			return l.print(ctx)
		case <-ticker.C:
		}
	}
}

// print prints the lines that are new.
func (l *taskLog) print(ctx context.Context) error {
	lines, err := l.client.Log(ctx, l.id, l.last)
	if err != nil {
		return err
	}
	for _, line := range lines {
		l.last = line.Number
		if err := printLogLine(l.w, line, l.json); err != nil {
			return err
		}
	}
	return nil
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

func newTaskDelete(env environment) *cobra.Command {
	return &cobra.Command{
		Use: "delete ID...", Short: "Delete finished tasks", Args: arguments(1, 1000),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := connect(cmd, env)
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
