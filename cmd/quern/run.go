package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
)

// run is the whole program: main and the end-to-end tests call it. The end of ctx stops it like the first SIGTERM.
// report turns the error into an exit status.
func run(ctx context.Context, args []string, env environment, stdin io.Reader, stdout, stderr io.Writer) error {
	ran := false
	root := newRoot(env)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultCompletionCmd() // after SetOut: it keeps the stdout that it finds
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = onlyCommands, needsCommand
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		ran = true
		if err := refuseUnused(cmd); err != nil {
			return err
		}
		return applySettings(cmd, env)
	}
	cmd, err := root.ExecuteContextC(ctx)
	var exit *exitError
	if err != nil && !ran && !errors.As(err, &exit) {
		return usagef("%w: see `%s --help`", err, cmd.CommandPath()) // cobra's own refusal
	}
	if err != nil {
		err = hinted{cmd, err}
	}
	return err
}

func newRoot(env environment) *cobra.Command {
	root := &cobra.Command{
		Use:   "quern",
		Short: "Run tasks from Redis queues in WebAssembly plugins",
		Long: "Quern reserves tasks from Redis queues, runs each in a sandboxed WebAssembly plugin from a\n" +
			"directory, stores the result, and exports Prometheus metrics.\n\n" +
			"The environment sets every flag of `quern serve` (--log-level: QUERN_LOG_LEVEL), and --server,\n" +
			"--tenant, --token, --token-file and --engines. The YAML file of --config sets the same (log-level:\n" +
			"debug), but not --token and --engines. A flag overrides the environment, and that the file. Other\n" +
			"flags belong to one call: the command line alone sets them.\n\n" +
			"Exit status: 0 done, 1 the task failed, 2 wrong usage, 3 refused or not reachable.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          onlyCommands,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if env.get("NO_COLOR") != "" || env.get("TERM") == "dumb" {
		root.Annotations = map[string]string{noColour: "yes"}
	}
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.String("config", "", "YAML `FILE` with settings (or QUERN_CONFIG; default none)")
	newText(flags, new(string), "URL", "redis", "`URL` of Redis: redis://, rediss://, unix:// (or QUERN_REDIS_URL; default that of a running quern dev, else "+defaultRedis+")")
	flags.String("redis-file", "", "`FILE` with the URL of Redis, for mounted secrets")
	root.AddCommand(
		newServe(env), newDev(env), newEnqueue(env), newBench(env), newDoctor(env), newTop(env), newAdmin(env),
		clientGroup("task", "Show tasks, wait for them, cancel, retry and delete them",
			newTaskShow(env), newTaskLs(env), newTaskWait(env), newTaskAwait(env), newTaskLogs(env), newTaskCancel(env), newTaskRetry(env), newTaskDelete(env)),
		clientGroup("queue", "Show queues, pause, limit and purge them",
			newQueueLs(env), newQueueShow(env), newQueuePause(env), newQueueResume(env), newQueueLimit(env), newQueuePurge(env)),
		clientGroup("topic", "List topics and publish to them",
			newTopicLs(env), newTopicShow(env), newTopicPublish(env)),
		clientGroup("subscription", "Subscribe queues and webhooks to topics, pause and delete subscriptions",
			newSubscriptionCreate(env), newSubscriptionLs(env), newSubscriptionShow(env), newSubscriptionUpdate(env),
			newSubscriptionPause(env), newSubscriptionResume(env), newSubscriptionDelete(env), newSubscriptionDeliveries(env), newSubscriptionReplay(env)),
		clientGroup("publication", "Show what was published and what became of it", newPublicationLs(env), newPublicationShow(env)),
		clientGroup("schedule", "Make recurring tasks, show, pause, run and delete them",
			newScheduleCreate(env), newScheduleLs(env), newScheduleShow(env), newSchedulePause(env), newScheduleResume(env), newScheduleRun(env),
			newScheduleDelete(env), newScheduleSync(env)),
		group("plugin", "Make, build, check, test, run, list and release plugins",
			newPluginNew(), newPluginBuild(env), newPluginCheck(env), newPluginTest(env), newPluginRun(env), newPluginSchema(), newPluginLs(env), newPluginRelease(env)),
		clientGroup("node", "List listeners: hosts, workers and Python ones; drain them, requeue the tasks of dead ones",
			newNodeLs(env), newNodeDrain(env), newNodeReclaim(env)),
		clientGroup("kv", "Read the key-value store of handlers", newKVLs(env), newKVGet(env)),
		newAudit(env),
		newHealth(), newVersion(), newCompileChild(), newCrashMonitor(),
	)
	root.AddCommand(topics(env)...)
	root.SetHelpCommand(newHelp(env))
	complete(root, env)
	hideUnused(root)
	return root
}
