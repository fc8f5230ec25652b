package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// enqueueOptions holds the flags of `quern enqueue`.
type enqueueOptions struct {
	task        queue.Options
	unique      string
	uniqueFor   time.Duration
	noJitter    bool
	replicas    int
	wait        bool
	waitTimeout time.Duration
	file        string
	skip        int
	then        string
	thenInput   string
}

func newEnqueue(env cli.Environment) *cobra.Command {
	o := &enqueueOptions{}
	cmd := &cobra.Command{
		Use:   "enqueue QUEUE [PARAMETERS|-]",
		Short: "Enqueue a task and print its ID, with --wait its result; or with --file a task for each line of a file",
		Long: "Enqueues a task and prints its ID. PARAMETERS are its input; - reads them from stdin. With --wait it\n" +
			"prints the result's bytes instead, and nothing else; if no host serves the queue, it enqueues nothing.\n\n" +
			"These flags decide how a failed task is retried, then the manifest of its plugin, then the host's\n" +
			"settings. If none does, there is one attempt.\n\n" +
			"With --file each line of a file is a task: a JSON object with parameters (the text of a string, or\n" +
			"any other value as JSON) or parameters_base64, and with what differs from the flags, by the API's names:\n" +
			"id, key, labels, headers, parent, traceparent, priority, delay_seconds, at, deadline, timeout_seconds,\n" +
			"max_attempts, max_age_seconds, max_reschedules, backoff, backoff_base_seconds, backoff_min_seconds,\n" +
			"backoff_max_seconds, no_jitter, unique, unique_key, unique_for_seconds, after, when, open, dead_queue,\n" +
			"fair_key, fair_weight, concurrency_key, max_concurrent. It names the lines that are no tasks, or whose ID\n" +
			"is taken by something else, enqueues the others, and exits with 2. The IDs are ID-LINE, with --id or a new\n" +
			"UUID as ID: the same command with the same --id enqueues no line twice while its task exists. If it is\n" +
			"interrupted, or Redis or the server is away for 30s, it says how to go on with --id and --skip.\n\n" +
			"With --after the task waits for others, which must exist; those that have ended count. By default it\n" +
			"runs when all are complete, and fails as soon as one has failed; --when says otherwise. With one of\n" +
			"them and no PARAMETERS, its input is that one's result. With --then all tasks of a file are a batch:\n" +
			"the task ID-then, in another queue, runs when they have ended as --when says.\n\n" +
			"Exit status: 0 done, 1 the task failed, 2 wrong usage, 3 refused, not reachable, deleted, or timed out.",
		Example: "  quern enqueue mail '{\"to\": \"ada@example.com\"}' --max-attempts 5 --backoff-max 10m\n" +
			"  quern enqueue reports 2026-01 --unique --unique-for 1h\n" +
			"  quern enqueue thumbnails - --wait < photo.jpg > thumb.jpg\n" +
			"  quern enqueue mail --file tasks.jsonl --id import-7 --max-attempts 5\n" +
			"  quern enqueue report --after import-1,import-2 --when ended\n" +
			"  quern enqueue imports --file tasks.jsonl --then report --when ended\n" +
			"  jq -c '{parameters: .}' orders.jsonl | quern enqueue orders --file -",
		Args: cli.Arguments(1, 2),
	}
	o.flags(cmd.Flags())
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := o.complete(cmd.Flags()); err != nil {
			return err
		}
		if o.file != "" && len(args) > 1 {
			return cli.Usagef("both --file and parameters: the file's lines have them, leave the parameters out")
		}
		if o.wait && cmd.Flag("output").Value.String() == "json" {
			return cli.Usagef("both --wait and -o json: --wait prints the result's bytes and nothing else; use `quern task show ID -o json` for the rest")
		}
		return nil
	}
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		if o.file == "" {
			return o.run(cmd, client, args, json)
		}
		err := o.enqueueFile(cmd, client, args[0], json)
		if err == nil {
			warnUnserved(cmd, client, args[0], "enqueued, but ")
		}
		return err
	})
}

func (o *enqueueOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.task.ID, "id", "", "ID of the task, or with --file their beginning (default a new UUID); if it exists, nothing is enqueued")
	f.StringVar(&o.task.Key, "key", "", "your own name for the task's subject")
	option.Pairs(f, &o.task.Labels, "label", "a label of your own, `NAME=VALUE`; up to 16 times")
	option.Pairs(f, &o.task.Headers, "header", "a header that the handler gets with the parameters, `NAME=VALUE`, the name in lower case; up to 32 times")
	keyFlags(f, &o.task)
	f.StringVar(&o.task.Parent, "parent", "", "`ID` of the task that this one comes from")
	f.StringVar(&o.task.Traceparent, "traceparent", "", "its trace, as in the HTTP header of that name; tasks that it enqueues inherit it (default that of the variable TRACEPARENT)")
	option.Duration(f, &o.task.Delay, "delay", 0, "run it after this time (default at once)")
	option.Time(f, &o.task.At, "at", "run it at this `TIME`: 2026-01-31T12:00:00Z, or seconds since the epoch")
	option.List(f, &o.task.After, "after", nil, "`ID,...` of tasks to wait for; \\, is a comma in an ID")
	option.Choice(f, &o.task.When, "when", "with --after or --then: run when all are complete, all have ended, any is complete, or one has failed (default complete)",
		"complete", "ended", "any", "failed")
	f.BoolVar(&o.task.Open, "open", false, "wait until it is closed by quern task await, which also adds tasks to wait for")
	f.StringVar(&o.then, "then", "", "with --file: the `QUEUE` of a task that runs when all of the file have ended, as --when says")
	f.StringVar(&o.thenInput, "then-parameters", "", "`PARAMETERS` of that task")
	o.task.Priority = new(int)
	f.IntVar(o.task.Priority, "priority", queue.DefaultPriority,
		"0 to 100; higher ones of the queue run first. Python listeners see only tasks of 50")
	retryFlags(f, &o.task.Retry, &o.noJitter)
	option.Lasting(f, &o.task.Timeout, "timeout", "longest time of one attempt; that of the wait is --wait-timeout")
	option.Time(f, &o.task.Deadline, "deadline", "`TIME` by which it must be done: then it fails as expired, or is stopped")
	option.Text(f, &o.unique, "bool", "unique", "if the queue has a task with the same `[=KEY]`, or without a key the same parameters, enqueue nothing and print its ID")
	f.Lookup("unique").NoOptDefVal = sameParameters // like a switch, for which the help shows no default value
	option.Lasting(f, &o.uniqueFor, "unique-for", "with --unique: for this time, finished or not (default until it is finished, 90 days at most)")
	option.Count(f, &o.replicas, "replicas", "how many of Redis's replicas must have the task (default none)")
	f.BoolVar(&o.wait, "wait", false, "wait for the result and print it, and nothing else, to stdout")
	option.Duration(f, &o.waitTimeout, "wait-timeout", 0, "how long to wait at most (default without end)")
	f.StringVar(&o.file, "file", "", "enqueue a task for each line of this `FILE` of JSON lines; - reads stdin")
	option.Number(f, &o.skip, "skip", "with --file: do not enqueue this many lines at its beginning", 0, math.MaxInt,
		"use 0 or more")
}

// keyFlags adds the flags of the fairness key and the concurrency key.
func keyFlags(f *pflag.FlagSet, o *queue.Options) {
	f.StringVar(&o.FairKey, "fair-key", "", "whom the task is for, such as a customer: the keys of a queue take turns")
	option.Number(f, &o.FairWeight, "fair-weight", "with --fair-key: how many tasks a turn of the key has (default 1)", 1, 1000, "use 1 to 1000")
	f.StringVar(&o.ConcurrencyKey, "concurrency-key", "", "run the queue's tasks with this key one after another, in their order (default as its plugin's manifest says)")
	option.Number(f, &o.MaxConcurrent, "max-concurrent", "with --concurrency-key: how many of them may run at once (default 1)", 1, 1_000_000, "use 1 to 1000000")
}

// checkKeys refuses empty keys, and numbers without their keys.
func checkKeys(f *pflag.FlagSet) error {
	for number, key := range map[string]string{"fair-weight": "fair-key", "max-concurrent": "concurrency-key"} {
		if f.Changed(number) && !f.Changed(key) {
			return cli.Usagef("--%s without --%s: add --%s, or leave it out", number, key, key)
		}
	}
	return refuseEmpty(f, "fair-key", "concurrency-key")
}

// sameParameters is the value of --unique without a key.
const sameParameters = "true"

// refuseEmpty refuses flags with an empty value, because a script may have used a variable that is not set.
func refuseEmpty(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if flag := flags.Lookup(name); flag.Changed && flag.Value.String() == "" {
			return cli.Usagef("--%s is empty: give it a value, or leave it out", name)
		}
	}
	return nil
}

// complete checks the flags and completes the task's options.
func (o *enqueueOptions) complete(flags *pflag.FlagSet) error {
	if err := refuseEmpty(flags, "id", "parent", "traceparent", "file", "then"); err != nil {
		return err
	}
	if err := checkKeys(flags); err != nil {
		return err
	}
	unique := flags.Changed("unique") || o.unique != ""
	switch {
	case o.task.Delay != 0 && !o.task.At.IsZero():
		return cli.Usagef("both --delay and --at: give one of them")
	case flags.Changed("wait-timeout") && !o.wait:
		return cli.Usagef("--wait-timeout without --wait: add --wait, or leave it out")
	case unique && (o.unique == "" || o.unique == "false"):
		return cli.Usagef("--unique=%s is no key: use --unique=KEY, or --unique for that of the parameters", o.unique)
	case o.wait && o.file != "":
		return cli.Usagef("both --wait and --file: a file's results have no order; wait for a task with `quern task wait ID`")
	case o.file != "" && unique && o.unique != sameParameters:
		return cli.Usagef("both --unique=KEY and --file: all lines would be the same task; use --unique, which compares their parameters")
	case o.skip != 0 && o.file == "":
		return cli.Usagef("--skip without --file: add --file, or leave it out")
	case o.then != "" && o.file == "":
		return cli.Usagef("--then without --file: add --file, or wait for tasks with `quern enqueue %s --after ID`",
			cli.ShellWord(o.then))
	case o.thenInput != "" && o.then == "":
		return cli.Usagef("--then-parameters without --then: add --then, or leave it out")
	case flags.Changed("when") && len(o.task.After) == 0 && !o.task.Open && o.then == "":
		return cli.Usagef("--when without --after, --then or --open: name the tasks to wait for, or leave it out")
	case o.task.Open && o.file != "":
		return cli.Usagef("both --open and --file: use --then for a task that waits for those of the file")
	case o.uniqueFor != 0 && !unique:
		return cli.Usagef("--unique-for without --unique: add --unique or --unique=KEY, or leave it out")
	}
	if o.noJitter {
		o.task.Retry.Jitter = new(bool)
	}
	if unique {
		o.task.Unique = &queue.Unique{For: o.uniqueFor}
		if o.unique != sameParameters {
			o.task.Unique.Key = o.unique
		}
	}
	return nil
}

// orElse adds another remedy to one that can be a question.
func orElse(remedy, other string) string {
	if strings.HasSuffix(remedy, "?") {
		return remedy + " Or " + other
	}
	return remedy + ", or " + other
}

func (o *enqueueOptions) run(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
	ctx, name := cmd.Context(), args[0]
	q := client.Queue(name)
	if o.wait {
		served, err := q.HasListener(ctx)
		if err != nil {
			return err
		}
		if !served {
			return cli.Refusedf("no host serves the queue %q of tenant %s, so nothing was enqueued: %s",
				name, client.Tenant(), orElse(admin.ServingQueue(ctx, client, name), "leave --wait out"))
		}
	}
	parameters, err := cli.ReadParameters(args[1:], cmd, cli.MaxParameters)
	if err != nil {
		return err
	}
	if o.wait {
		if all, err := client.Plugins(ctx); err == nil { // else a producer may not read them
			if why := admin.FailedBuild(all, name); why != "" {
				cli.Note(cmd, "the last build failed, so the version before it answers: %s", why)
			}
		}
	}
	if len(parameters) > cli.MaxParameters {
		return cli.Usagef("the parameters are longer than %s, Redis's limit: pass a reference to them instead",
			units.FormatSize(cli.MaxParameters))
	}
	receipts, err := q.EnqueueMany(ctx, []queue.Spec{{Parameters: parameters, Options: o.task}})
	var lacking *queue.NotReplicatedError
	switch {
	case errors.Is(err, manage.ErrPaused):
		return cli.Refusedf("nothing was enqueued: %w: wait, or end that pause with `quern queue resume %s --accepting` or `quern tenant resume %s --accepting`",
			err, cli.ShellWord(name), cli.ShellWord(client.Tenant()))
	case errors.Is(err, manage.ErrQuota):
		return fmt.Errorf("nothing was enqueued: %w", err)
	case errors.Is(err, queue.ErrQueueFull):
		return cli.Refusedf("the queue %q is full, so nothing was enqueued: wait until it is shorter, or raise its limit with `quern queue limit %s N`", name, cli.ShellWord(name))
	case errors.Is(err, queue.ErrDependency), errors.Is(err, queue.ErrManyQueues):
		return cli.Refusedf("%w", err)
	case errors.As(err, &lacking):
		err = cli.Refusedf("task %s is enqueued, but only %d of %d replicas confirmed it: see Redis's `INFO replication`, or ask for fewer with --replicas",
			receipts[0].ID, lacking.Got, lacking.Wanted)
	case cli.IsUnanswered(err):
		id := receipts[0].ID
		return fmt.Errorf("%w: task %s may be enqueued all the same: repeat it with --id %s, which enqueues it once", err, id,
			id)
	case err != nil:
		return err
	}
	if !o.wait {
		done := "enqueued, but "
		if receipts[0].Existed {
			done = ""
		}
		warnUnserved(cmd, client, name, done)
	} else if receipts[0].Taken {
		return cli.Refusedf("%s, so nothing was enqueued: choose another --id", existing(ctx, client, receipts[0], name))
	}
	if receipt := receipts[0]; receipt.Existed && receipt.ID == o.task.ID {
		cli.Note(cmd, "%s, so nothing was enqueued", existing(ctx, client, receipt, name))
	} else if receipt.Existed {
		cli.Note(cmd, "task %s is the same by --unique, so nothing was enqueued", receipt.ID)
	} else if over := o.task.Deadline; !over.IsZero() {
		if now, err := client.Clock(ctx); err == nil && over.Before(now) { // Redis's clock decides, not this machine's
			cli.Note(cmd, "the deadline %s is over: the task fails as expired", over.UTC().Format(time.RFC3339))
		}
	}
	return cmp.Or(o.answer(cmd, client, name, receipts[0], json, err != nil), err)
}

// existing says what has the ID of a task that was to be enqueued in the queue with that name.
func existing(ctx context.Context, client admin.Tenant, receipt queue.Receipt, name string) string {
	is := fmt.Sprintf("a task with the ID %s exists already", receipt.ID)
	if !receipt.Taken {
		return is
	}
	switch task, err := client.Summary(ctx, receipt.ID); {
	case err != nil: // it is no task, or cannot be read
		return fmt.Sprintf("the ID %s is taken by something else", receipt.ID)
	case task.Queue != name:
		return fmt.Sprintf("%s in the queue %q", is, task.Queue)
	}
	return is + " with other parameters"
}

// answer prints the receipt, or with --wait waits for the result. It does not wait if lacking is true, because then too
// few replicas have the task.
func (o *enqueueOptions) answer(cmd *cobra.Command, client admin.Tenant, name string, receipt queue.Receipt,
	json, lacking bool,
) error {
	id := receipt.ID
	switch {
	case o.wait && lacking:
		return nil
	case o.wait:
		// The error has to give the ID, which was not printed yet, because the task goes on.
		return cli.Interruptibly(cmd, func() error { return waitFor(cmd, client, id, o.waitTimeout) }, func() error {
			return cli.Refusedf("interrupted, but the task goes on: continue with `quern task wait %s`", cli.ShellWord(id))
		})
	}
	v := show.Object("id", id, "tenant", client.Tenant(), "queue", name, "existed", receipt.Existed)
	if err := show.Line(cmd, json, v, id); err != nil {
		return fmt.Errorf("task %s is enqueued, but its ID could not be written: %w", id, err)
	}
	return nil
}

// retryFlags adds the flags of a retry policy.
func retryFlags(f *pflag.FlagSet, retry *queue.Retry, noJitter *bool) {
	option.Attempts(f, &retry.MaxAttempts, "number of attempts, or unlimited (not set by QUERN_MAX_ATTEMPTS, which is a host's)")
	option.Choice(f, &retry.Backoff, "backoff", "growth of the delay before a retry: exponential or linear", "exponential",
		"linear")
	option.Lasting(f, &retry.Base, "backoff-base", "the first delay, which grows")
	option.Lasting(f, &retry.Min, "backoff-min", "shortest delay before a retry")
	option.Lasting(f, &retry.Max, "backoff-max", "longest delay before a retry")
	f.BoolVar(noJitter, "no-jitter", false, "do not shorten the delay at random")
	option.Lasting(f, &retry.MaxAge, "max-age", "begin no attempt later than this after it was due: then it fails as expired")
	option.Count(f, &retry.MaxReschedules, "max-reschedules", "how often it may reschedule itself")
	cli.NotSettings(f, "max-attempts")
}
