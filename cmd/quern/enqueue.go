package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

// enqueueOptions are the flags of `quern enqueue`.
type enqueueOptions struct {
	id, key, parent, traceparent string
	at, deadline                 string
	labels                       []string
	delay, timeout               time.Duration
	priority                     int
	unique                       uniqueness
	uniqueFor                    time.Duration
	retry                        queue.Retry
	backoff                      *choice
	noJitter                     bool
	replicas                     int
	wait                         bool
	waitTimeout                  time.Duration
}

func newEnqueue(env environment) *cobra.Command {
	o := &enqueueOptions{backoff: &choice{words: []string{string(queue.Exponential), string(queue.Linear)}}}
	cmd := &cobra.Command{
		Use:   "enqueue QUEUE [PARAMETERS|-]",
		Short: "Enqueue a task and print its ID; with --wait, its result",
		Long: "Enqueues a task and prints its ID. PARAMETERS are its input; - reads them from stdin. With --wait it\n" +
			"prints the result's bytes instead, and nothing else; where nobody serves the queue it enqueues nothing.\n\n" +
			"How a failed task is tried again is decided by the flags that are given here, then by the manifest of\n" +
			"its plugin, then by the host's settings; where none says anything there is one attempt.\n\n" +
			"Exit status: 0 done, 1 the task failed, 2 wrong usage, 3 refused, not reachable, deleted, or the time is over.",
		Example: "  quern enqueue mail '{\"to\": \"ada@example.com\"}' --max-attempts 5 --backoff-max 10m\n" +
			"  quern enqueue reports 2026-01 --unique --unique-for 1h\n" +
			"  quern enqueue thumbnails - --wait < photo.jpg > thumb.jpg",
		Args: arguments(1, 2),
	}
	clientFlags(cmd)
	o.flags(cmd.Flags())
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		options, err := o.task(cmd)
		if err != nil {
			return err
		}
		if output.json() && o.wait {
			return usagef("both --wait and -o json: --wait prints the result's bytes and nothing else; use `quern task show ID -o json` for the rest")
		}
		client, err := connect(cmd, env, queue.Config{Replicas: o.replicas})
		if err != nil {
			return err
		}
		defer client.Close()
		return o.run(cmd, client, args, options, output.json())
	}
	return cmd
}

func (o *enqueueOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.id, "id", "", "ID of the task (default a new UUID); if it exists nothing is enqueued")
	f.StringVar(&o.key, "key", "", "your own name for what the task is about")
	f.StringArrayVar(&o.labels, "label", nil, "a label of your own, `NAME=VALUE`; may be given up to 16 times")
	f.StringVar(&o.parent, "parent", "", "`ID` of the task that this one comes from")
	f.StringVar(&o.traceparent, "traceparent", "", "the trace that it belongs to, as the header of that name has it; so do the tasks that it enqueues")
	newPeriod(f, &o.delay, "delay", 0, "run it after this time (default at once)")
	f.StringVar(&o.at, "at", "", "run it at this `TIME`: 2026-01-31T12:00:00Z, or seconds since the epoch")
	f.IntVar(&o.priority, "priority", queue.DefaultPriority, "0 to 100; higher ones of the queue run first. Python listeners see only tasks of 50")
	f.Var((*attempts)(&o.retry.MaxAttempts), "max-attempts", "how many attempts it has, or unlimited (not set by QUERN_MAX_ATTEMPTS, which is a host's)")
	f.Var(o.backoff, "backoff", "how the delay before a retry grows: exponential or linear")
	newLasting(f, &o.retry.Base, "backoff-base", "the first delay, which grows")
	newLasting(f, &o.retry.Min, "backoff-min", "shortest delay before a retry")
	newLasting(f, &o.retry.Max, "backoff-max", "longest delay before a retry")
	f.BoolVar(&o.noJitter, "no-jitter", false, "take no random part away from the delay")
	newLasting(f, &o.retry.MaxAge, "max-age", "begin no attempt later than this after it was due: then it fails as expired")
	f.Var((*amount)(&o.retry.MaxReschedules), "max-reschedules", "how often it may put itself off")
	newLasting(f, &o.timeout, "timeout", "longest time of one attempt")
	f.StringVar(&o.deadline, "deadline", "", "`TIME` by which it must be done: then it fails as expired, or is stopped")
	f.Var(&o.unique, "unique", "enqueue nothing beside a task of the same `[=KEY]`, or without a key of the same parameters, but print that one's ID")
	f.Lookup("unique").NoOptDefVal = sameParameters
	newLasting(f, &o.uniqueFor, "unique-for", "with --unique: for this time, finished or not (default until it is finished, 90 days at most)")
	f.Var((*amount)(&o.replicas), "replicas", "how many of Redis's replicas must have the task (default none)")
	f.BoolVar(&o.wait, "wait", false, "wait for the result and print it, and nothing else, to stdout")
	newPeriod(f, &o.waitTimeout, "wait-timeout", 0, "how long to wait at most (default without end)")
	notSettings(f, "max-attempts")
}

// sameParameters is what --unique means without a key.
const sameParameters = "true"

// uniqueness is the flag --unique[=KEY]. Its type is that of a switch, so that the help shows no value
// which it has without one.
type uniqueness struct {
	set bool
	key string
}

func (u *uniqueness) String() string { return u.key }
func (u *uniqueness) Type() string   { return "bool" }

func (u *uniqueness) Set(key string) error {
	u.set, u.key = true, key
	return nil
}

// unique is the task's uniqueness, nil if it has none.
func (u *uniqueness) unique(life time.Duration) *queue.Unique {
	switch {
	case !u.set:
		return nil
	case u.key == sameParameters:
		return &queue.Unique{For: life}
	}
	return &queue.Unique{Key: u.key, For: life}
}

// task makes the options of the task from the flags.
func (o *enqueueOptions) task(cmd *cobra.Command) (queue.Options, error) {
	options := queue.Options{
		ID: o.id, Key: o.key, Parent: o.parent, Traceparent: o.traceparent, Delay: o.delay, Timeout: o.timeout, Priority: &o.priority, Retry: o.retry,
	}
	options.Retry.Backoff = queue.Backoff(o.backoff.word)
	if o.noJitter {
		options.Retry.Jitter = new(bool)
	}
	options.Unique = o.unique.unique(o.uniqueFor)
	var err error
	if options.Labels, err = parseLabels(cmd, o.labels); err != nil {
		return options, err
	}
	for _, name := range []string{"id", "at", "parent", "traceparent", "deadline"} { // as from a shell's variable that is not set
		if flag := cmd.Flag(name); flag.Changed && flag.Value.String() == "" {
			return options, usagef("--%s is empty: give it a value, or leave it out", name)
		}
	}
	switch {
	case o.delay != 0 && o.at != "":
		return options, usagef("both --delay and --at: give one of them")
	case cmd.Flags().Changed("wait-timeout") && !o.wait:
		return options, usagef("--wait-timeout without --wait: add --wait, or leave it out")
	case o.unique.set && (o.unique.key == "" || o.unique.key == "false"):
		return options, usagef("--unique=%s is no key: use --unique=KEY, or --unique for that of the parameters", o.unique.key)
	case o.uniqueFor != 0 && !o.unique.set:
		return options, usagef("--unique-for without --unique: add --unique or --unique=KEY, or leave it out")
	}
	for _, moment := range []struct {
		name, text string
		time       *time.Time
	}{{"at", o.at, &options.At}, {"deadline", o.deadline, &options.Deadline}} {
		if moment.text == "" {
			continue
		}
		if *moment.time, err = parseTime(moment.text); err != nil {
			return options, wrongValue(cmd.Flag(moment.name), moment.text, err)
		}
	}
	return options, nil
}

// parseLabels reads the values of a flag --label.
func parseLabels(cmd *cobra.Command, words []string) (map[string]string, error) {
	labels := make(map[string]string, len(words))
	for _, label := range words {
		name, value, ok := strings.Cut(label, "=")
		if !ok || name == "" {
			return nil, wrongValue(cmd.Flag("label"), label, errors.New("use NAME=VALUE"))
		}
		labels[name] = value
	}
	return labels, nil
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
	var lacking *queue.NotReplicatedError
	switch {
	case errors.Is(err, queue.ErrQueueFull):
		return refusedf("the queue %q is full, so nothing was enqueued: wait until it has worked some off, or raise its limit with `quern queue limit %s N`",
			args[0], args[0])
	case errors.As(err, &lacking):
		err = refusedf("task %s is enqueued, but known to be on %d of %d replicas only: see Redis's `INFO replication`, or ask for fewer with --replicas",
			receipts[0].ID, lacking.Got, lacking.Wanted)
	case isUnanswered(err):
		id := receipts[0].ID
		return fmt.Errorf("%w: task %s may be enqueued all the same: repeat it with --id %s, which enqueues it once", err, id, id)
	case err != nil:
		return err
	}
	return cmp.Or(o.answer(cmd, client, args[0], receipts[0], json, err != nil), err)
}

// answer prints what became of the task. One that is lacking a replica is not waited for.
func (o *enqueueOptions) answer(cmd *cobra.Command, client *queue.Client, name string, receipt queue.Receipt, json, lacking bool) error {
	id := receipt.ID
	switch {
	case receipt.Existed && id == o.id:
		fmt.Fprintf(cmd.ErrOrStderr(), "quern: a task of the ID %s exists already, so nothing was enqueued\n", escape(id))
	case receipt.Existed:
		fmt.Fprintf(cmd.ErrOrStderr(), "quern: task %s is the same by --unique, so nothing was enqueued\n", escape(id))
	}
	switch {
	case o.wait && lacking:
		return nil
	case o.wait:
		return waitInterruptibly(cmd, client, id, o.waitTimeout)
	case json:
		return writeJSON(cmd.OutOrStdout(), struct {
			ID      string `json:"id"`
			Tenant  string `json:"tenant"`
			Queue   string `json:"queue"`
			Existed bool   `json:"existed"`
		}{id, client.Tenant(), name, receipt.Existed})
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), id); err != nil {
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
