package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

// followInterval is the poll interval of `task logs -f`.
const followInterval = 300 * time.Millisecond

func newTaskLogs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "logs ID", Short: "Print what a task wrote to stderr; -f follows until it is finished", Args: arguments(1, 1)}
	follow := cmd.Flags().BoolP("follow", "f", false, "print new lines until the task is finished")
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		return printLogs(cmd.Context(), cmd.OutOrStdout(), client, args[0], *follow, json)
	})
	return cmd
}

// printLogs prints the stored lines; with follow also new ones, until the task is finished or gone.
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
	last   int64 // number of the last printed line
}

// follow prints new lines until ended reports that the task is finished, and then the rest.
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
				return nil // the task was deleted with its log
			case err != nil:
				return err
			}
			return l.print(ctx)
		case <-ticker.C:
		}
	}
}

// print prints the new lines.
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
