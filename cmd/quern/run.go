package main

import (
	"context"
	"io"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// run is the whole program: what main calls, and what end-to-end tests call. When ctx ends, what
// runs ends as on the first SIGTERM. report tells what an error means to the caller's shell.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	redis.SetLogger(silence{}) // what it would say is in the errors that it returns
	ran := false
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := applySettings(cmd); err != nil {
			return err
		}
		ran = true
		return nil
	}
	err := root.ExecuteContext(ctx)
	if err != nil && !ran {
		return wrongUsage(err) // what cobra says of arguments, before any command ran
	}
	return err
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "quern",
		Short: "Run tasks from Redis queues in WebAssembly plugins",
		Long: "Quern reserves tasks from Redis queues, runs each in a sandboxed WebAssembly plugin from a\n" +
			"directory, stores the result, and shows it to Prometheus.\n\n" +
			"Every flag may also be set in the environment (--log-level: QUERN_LOG_LEVEL) or in the YAML file\n" +
			"that --config names (log-level: debug); flags win over the environment, that over the file.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	flags := root.PersistentFlags()
	flags.String("config", "", "YAML file with settings (or QUERN_CONFIG); without it no file is read")
	flags.String("redis", "", "URL of Redis: redis://, rediss://, unix:// (or QUERN_REDIS_URL; default: a running `quern dev`, else "+defaultRedis+")")
	flags.String("redis-file", "", "file that holds the URL of Redis, for secrets that are mounted as files")
	root.AddCommand(
		newServe(), newDev(), newEnqueue(), newTask(), newQueue(), newPlugin(), newVersion(),
	)
	root.InitDefaultCompletionCmd()
	return root
}

// silence drops what go-redis would write to stderr by itself.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
