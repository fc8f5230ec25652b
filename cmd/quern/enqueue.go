package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

// enqueueOptions are the flags of `quern enqueue`.
type enqueueOptions struct {
	id, key, at string
	delay       time.Duration
	labels      []string
	wait        bool
	waitTimeout time.Duration
}

func newEnqueue(env environment) *cobra.Command {
	var o enqueueOptions
	cmd := &cobra.Command{
		Use:   "enqueue QUEUE [PARAMETERS|-]",
		Short: "Enqueue a task and print its ID; with --wait, its result",
		Long: "Enqueues a task and prints its ID. PARAMETERS are its input; - reads them from stdin. With --wait it\n" +
			"prints the result's bytes instead, and nothing else; where nobody serves the queue it enqueues nothing.\n" +
			"Exit status: 0 done, 1 the task failed, 2 wrong usage, 3 refused, not reachable, deleted, or the time is over.",
		Example: "  quern enqueue mail '{\"to\": \"ada@example.com\"}'\n" +
			"  quern enqueue thumbnails - --wait < photo.jpg > thumb.jpg",
		Args: arguments(1, 2),
	}
	clientFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.id, "id", "", "ID of the task (default a new UUID); if it exists nothing is enqueued")
	f.StringVar(&o.key, "key", "", "your own name for what the task is about")
	f.StringArrayVar(&o.labels, "label", nil, "a label of your own, `NAME=VALUE`; may be given several times")
	newPeriod(f, &o.delay, "delay", 0, "run it after this time (default at once)")
	f.StringVar(&o.at, "at", "", "run it at this `TIME`: 2026-01-31T12:00:00Z, or seconds since the epoch")
	f.BoolVar(&o.wait, "wait", false, "wait for the result and print it, and nothing else, to stdout")
	newPeriod(f, &o.waitTimeout, "wait-timeout", 0, "how long to wait at most (default without end)")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options, err := o.task(cmd)
		if err != nil {
			return err
		}
		if output.json() && o.wait {
			return usagef("both --wait and -o json: --wait prints the result's bytes and nothing else; use `quern task show ID -o json` for the rest")
		}
		client, err := connect(cmd, env)
		if err != nil {
			return err
		}
		defer client.Close()
		return o.run(cmd, client, args, options, output.json())
	}
	return cmd
}

// task makes the options of the task from the flags.
func (o *enqueueOptions) task(cmd *cobra.Command) (queue.Options, error) {
	options := queue.Options{ID: o.id, Key: o.key, Delay: o.delay, Labels: make(map[string]string, len(o.labels))}
	for _, label := range o.labels {
		name, value, ok := strings.Cut(label, "=")
		if !ok || name == "" {
			return options, wrongValue(cmd.Flag("label"), label, errors.New("use NAME=VALUE"))
		}
		options.Labels[name] = value
	}
	for _, name := range []string{"id", "at"} { // as from a shell's variable that is not set
		if flag := cmd.Flag(name); flag.Changed && flag.Value.String() == "" {
			return options, usagef("--%s is empty: give it a value, or leave it out", name)
		}
	}
	switch {
	case o.delay != 0 && o.at != "":
		return options, usagef("both --delay and --at: give one of them")
	case cmd.Flags().Changed("wait-timeout") && !o.wait:
		return options, usagef("--wait-timeout without --wait: add --wait, or leave it out")
	case o.at == "":
		return options, nil
	}
	var err error
	if options.At, err = parseTime(o.at); err != nil {
		return options, wrongValue(cmd.Flag("at"), o.at, err)
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
	return time.Time{}, errors.New("use a time like 2026-01-31T12:00:00Z, or seconds since the epoch")
}

func (o *enqueueOptions) run(cmd *cobra.Command, client *queue.Client, args []string, options queue.Options, json bool) error {
	ctx, q := cmd.Context(), client.Queue(args[0])
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
	parameters, err := readParameters(args[1:], cmd, maxParameters)
	if err != nil {
		return err
	}
	if len(parameters) > maxParameters {
		return usagef("the parameters have more than %s, which Redis does not take: pass a reference to them instead", units.FormatSize(maxParameters))
	}
	receipts, err := q.EnqueueMany(ctx, []queue.Spec{{Parameters: parameters, Options: options}})
	if err != nil {
		return err
	}
	id := receipts[0].ID
	if receipts[0].Existed {
		fmt.Fprintf(cmd.ErrOrStderr(), "quern: a task of the ID %s exists already, so nothing was enqueued\n", escape(id))
	}
	switch {
	case o.wait:
		return waitInterruptibly(cmd, client, id, o.waitTimeout)
	case json:
		return writeJSON(cmd.OutOrStdout(), struct {
			ID      string `json:"id"`
			Tenant  string `json:"tenant"`
			Queue   string `json:"queue"`
			Existed bool   `json:"existed"`
		}{id, client.Tenant(), args[0], receipts[0].Existed})
	}
	if _, err = fmt.Fprintln(cmd.OutOrStdout(), id); err != nil {
		return fmt.Errorf("task %s is enqueued, but its ID could not be written: %w", id, err)
	}
	return nil
}

// maxParameters is the longest value that Redis takes.
const maxParameters = 512 << 20

// readParameters takes the argument, stdin for "-", and nothing when it is missing. Of a stdin that
// is longer than most it reads one byte more and no further.
func readParameters(args []string, cmd *cobra.Command, most int64) ([]byte, error) {
	switch {
	case len(args) == 0:
		return nil, nil
	case args[0] != "-":
		return []byte(args[0]), nil
	}
	if isTerminal(cmd.InOrStdin()) {
		fmt.Fprintln(cmd.ErrOrStderr(), "quern: reading parameters from the terminal; Ctrl-D ends them")
	}
	parameters, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), most+1))
	if err != nil {
		return nil, fmt.Errorf("read stdin: %w", err)
	}
	return parameters, nil
}
