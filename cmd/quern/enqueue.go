package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

// enqueueOptions are the flags of `quern enqueue`.
type enqueueOptions struct {
	id, key, at string
	delay       time.Duration
	labels      map[string]string
	wait        bool
	waitTimeout time.Duration
}

func newEnqueue() *cobra.Command {
	var o enqueueOptions
	cmd := &cobra.Command{
		Use:   "enqueue QUEUE [PARAMETERS|-]",
		Short: "Enqueue a task and print its ID; with --wait, its result",
		Example: "  quern enqueue mail '{\"to\": \"ada@example.com\"}'\n" +
			"  quern enqueue thumbnails - --wait < photo.jpg > thumb.jpg",
		Args: cobra.RangeArgs(1, 2),
	}
	clientFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.id, "id", "", "ID of the task (default a new UUID); if it exists nothing is enqueued")
	f.StringVar(&o.key, "key", "", "your own name for what the task is about")
	f.StringToStringVar(&o.labels, "label", nil, "your own labels, NAME=VALUE")
	f.DurationVar(&o.delay, "delay", 0, "run it after this time")
	f.StringVar(&o.at, "at", "", "run it at this time: 2026-01-31T12:00:00Z, or seconds since the epoch")
	f.BoolVar(&o.wait, "wait", false, "wait for the result and print it, and nothing else, to stdout")
	f.DurationVar(&o.waitTimeout, "wait-timeout", 0, "how long to wait at most (default without end)")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := asJSON(*output)
		if err != nil {
			return err
		}
		if asJSON && o.wait {
			return usagef("both --wait and -o json: --wait prints the result's bytes and nothing else; use `quern task show ID -o json` for the rest")
		}
		options, err := o.task()
		if err != nil {
			return err
		}
		client, err := connect(cmd)
		if err != nil {
			return err
		}
		defer client.Close()
		return o.run(cmd, client, args, options, asJSON)
	}
	return cmd
}

// task makes the options of the task from the flags.
func (o *enqueueOptions) task() (queue.Options, error) {
	options := queue.Options{ID: o.id, Key: o.key, Labels: o.labels, Delay: o.delay}
	if o.at == "" {
		return options, nil
	}
	if o.delay != 0 {
		return options, usagef("both --delay and --at: give one of them")
	}
	var err error
	if options.At, err = parseTime(o.at); err != nil {
		return options, err
	}
	return options, nil
}

func parseTime(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && f > 0 && f < 1e11 {
		return time.UnixMicro(int64(f * 1e6)), nil
	}
	return time.Time{}, usagef("at %q: use a time like 2026-01-31T12:00:00Z, or seconds since the epoch", text)
}

func (o *enqueueOptions) run(cmd *cobra.Command, client *queue.Client, args []string, options queue.Options, asJSON bool) error {
	ctx, q := cmd.Context(), client.Queue(args[0])
	parameters, err := readParameters(args[1:], cmd.InOrStdin())
	if err != nil {
		return err
	}
	if o.wait {
		served, err := q.HasListener(ctx)
		if err != nil {
			return err
		}
		if !served {
			return refusedf("nobody serves the queue %q of tenant %s, so nothing was enqueued: put %s.wasm into a host's plugin directory, or leave --wait out",
				args[0], client.Tenant(), args[0])
		}
	}
	receipts, err := q.EnqueueMany(ctx, []queue.Spec{{Parameters: parameters, Options: options}})
	if err != nil {
		return err
	}
	id := receipts[0].ID
	switch {
	case o.wait:
		return waitFor(cmd, client, id, o.waitTimeout)
	case asJSON:
		return writeJSON(cmd.OutOrStdout(), struct {
			ID      string `json:"id"`
			Tenant  string `json:"tenant"`
			Queue   string `json:"queue"`
			Existed bool   `json:"existed"`
		}{id, client.Tenant(), args[0], receipts[0].Existed})
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
	return err
}

// readParameters takes the argument, stdin for "-", and nothing when it is missing.
func readParameters(args []string, stdin io.Reader) ([]byte, error) {
	switch {
	case len(args) == 0:
		return nil, nil
	case args[0] != "-":
		return []byte(args[0]), nil
	}
	parameters, err := io.ReadAll(stdin)
	if err != nil {
		return nil, fmt.Errorf("read stdin: %w", err)
	}
	return parameters, nil
}

// waitFor waits for a task and writes its result to stdout, and nothing else.
func waitFor(cmd *cobra.Command, client *queue.Client, id string, timeout time.Duration) error {
	ctx := cmd.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	task, err := client.Wait(ctx, id)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		return refusedf("task %s is not finished after %s: wait on with `quern task wait %s`", id, timeout, id)
	case errors.Is(err, queue.ErrNoTask):
		return refusedf("task %s does not exist, or was deleted while it was waited for: see `quern task ls`", id)
	case err != nil:
		return err
	case task.Status == queue.Failed:
		failure := task.Failure()
		return taskFailed(id, &failure)
	}
	if _, err := cmd.OutOrStdout().Write(task.Result); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	if isTerminal(cmd.OutOrStdout()) && len(task.Result) > 0 && !strings.HasSuffix(string(task.Result), "\n") {
		fmt.Fprintln(cmd.ErrOrStderr())
	}
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
