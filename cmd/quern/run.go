package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/bench"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/database"
	"github.com/quern-project/quern/cmd/quern/dev"
	"github.com/quern-project/quern/cmd/quern/manual"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/plugin"
	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/cmd/quern/serve"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/cmd/quern/tenant"
)

// run is the whole program, for main and for the end-to-end tests. The end of ctx stops it like a first SIGTERM.
// cli.Report turns the error into an exit status.
func run(ctx context.Context, args []string, env cli.Environment, stdin io.Reader, stdout, stderr io.Writer) error {
	ran := false
	root := newRoot(env)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultCompletionCmd() // after SetOut, because it keeps the stdout that is set then
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = cli.OnlyCommands, cli.NeedsCommand
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		ran = true
		if err := cli.RefuseUnusedFlags(cmd); err != nil {
			return err
		}
		return cli.ApplySettings(cmd, env)
	}
	cmd, err := root.ExecuteContextC(ctx)
	var exit *cli.ExitError
	if err != nil && !ran && !errors.As(err, &exit) {
		return cli.Usagef("%w: see `%s --help`", err, cmd.CommandPath()) // an error of cobra itself
	}
	if err != nil {
		err = cli.WithHints(cmd, err)
	}
	return err
}

func newRoot(env cli.Environment) *cobra.Command {
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
		Args:          cli.OnlyCommands,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if env.Get("NO_COLOR") != "" || env.Get("TERM") == "dumb" {
		root.Annotations = map[string]string{show.NoColor: "yes"}
	}
	root.SetFlagErrorFunc(cli.FlagError)
	flags := root.PersistentFlags()
	flags.String("config", "", "YAML `FILE` with settings (or QUERN_CONFIG; default none)")
	option.Text(flags, new(string), "URL", "redis", "`URL` of Redis: redis://, rediss://, unix:// (or QUERN_REDIS_URL; default that of a running quern dev, else "+connect.DefaultURL+")")
	flags.String("redis-file", "", "`FILE` with the URL of Redis, for mounted secrets")
	root.AddCommand(tenant.Commands(env)...)
	root.AddCommand(serve.Commands(env)...)
	root.AddCommand(database.Commands(env, tenant.DatabaseCommands(env)...)...)
	root.AddCommand(dev.Command(env), bench.Command(env), cli.VersionCommand(),
		cli.Group("plugin", "Make, build, check, test, run and list plugins, push and roll back their releases",
			append(plugin.Commands(env), tenant.PluginCommands(env)...)...))
	root.AddCommand(sandbox.Commands()...)
	manual.AddTopics(root, env)
	root.SetHelpCommand(manual.Help(env))
	tenant.Complete(root, env)
	cli.HideUnusedFlags(root)
	return root
}
