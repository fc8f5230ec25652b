package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// run is the whole program: what main calls, and what end-to-end tests call. When ctx ends, what
// runs ends as on the first SIGTERM. report tells what an error means to the caller's shell.
func run(ctx context.Context, args []string, env environment, stdin io.Reader, stdout, stderr io.Writer) error {
	ran := false
	root := newRoot(env)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addCompletion(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		ran = true
		return applySettings(cmd, env)
	}
	cmd, err := root.ExecuteContextC(ctx)
	var exit *exitError
	if err != nil && !ran && !errors.As(err, &exit) {
		return usagef("%w: see `%s --help`", err, cmd.CommandPath()) // what cobra itself refuses
	}
	return err
}

func newRoot(env environment) *cobra.Command {
	root := &cobra.Command{
		Use:   "quern",
		Short: "Run tasks from Redis queues in WebAssembly plugins",
		Long: "Quern reserves tasks from Redis queues, runs each in a sandboxed WebAssembly plugin from a\n" +
			"directory, stores the result, and shows it to Prometheus.\n\n" +
			"Every flag may also be set in the environment (--log-level: QUERN_LOG_LEVEL), those of `quern serve`\n" +
			"also in the YAML file that --config names (log-level: debug). Flags win over the environment, that\n" +
			"over the file. Which tasks `queue purge` and `task retry` take is said by their flags alone.\n\n" +
			"Exit status: 0 done, 1 the task failed, 2 wrong usage, 3 refused or not reachable.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          onlyCommands,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.String("config", "", "YAML `FILE` with settings (or QUERN_CONFIG); without it no file is read")
	flags.Var(new(urlValue), "redis", "`URL` of Redis: redis://, rediss://, unix:// (or QUERN_REDIS_URL; default that of a running quern dev, else "+defaultRedis+")")
	flags.String("redis-file", "", "`FILE` that holds the URL of Redis, for secrets that are mounted as files")
	root.AddCommand(
		newServe(env), newDev(env), newEnqueue(env), newTask(env), newQueue(env), newPlugin(env), newNodes(env), newKV(env), newVersion(), newCompileChild(), newCrashMonitor(),
	)
	root.SetHelpCommand(newHelp())
	return root
}

// addCompletion adds cobra's command, which keeps the stdout that it finds.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = onlyCommands, needsCommand
	}
}

// newHelp is cobra's, but for an unknown command, which is wrong usage.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // needs no settings
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil {
				return wrongUsage(err)
			}
			if target.HasSubCommands() && len(rest) > 0 {
				return onlyCommands(target, rest)
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}

// onlyCommands are the arguments of a command that does nothing but hold others.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("unknown command %q: %s", cmd.CommandPath()+" "+args[0], didYouMean(args[0], subcommands(cmd)))
}

// needsCommand refuses a group that was called without one of its commands.
func needsCommand(cmd *cobra.Command, _ []string) error {
	return usagef("%s needs a command: use one of %s", cmd.CommandPath(), strings.Join(subcommands(cmd), ", "))
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// arguments bounds the number of a command's arguments.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if n := len(args); n < least || n > most {
			return usagef("%s got %d arguments: use `%s`", cmd.CommandPath(), n, cmd.UseLine())
		}
		return nil
	}
}

// flagError says of a flag on the command line that cannot be taken what would be right.
func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &value):
		return wrongValue(value.GetFlag(), value.GetValue(), value.Unwrap())
	case errors.As(err, &missing):
		return usagef("--%s needs a value: see `%s --help`", missing.GetFlag().Name, cmd.CommandPath())
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return usagef("unknown flag -%s: see `%s --help`, and write -- before arguments that begin with -",
			unknown.GetSpecifiedName(), cmd.CommandPath())
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, "--"+flag.Name) })
		slices.Sort(names)
		return usagef("unknown flag --%s of %s: %s", unknown.GetSpecifiedName(), cmd.CommandPath(),
			didYouMean("--"+unknown.GetSpecifiedName(), names))
	}
	return wrongUsage(fmt.Errorf("%w: see `%s --help`", err, cmd.CommandPath()))
}
