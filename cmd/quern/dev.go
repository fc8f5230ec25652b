package main

import (
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"
	"github.com/spf13/cobra"
)

func newDev(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run an embedded Redis and a host beside it, for one's own machine; forgets all at exit",
		Long: "Runs an embedded Redis on a free port of this machine and a node host beside it, which watches the\n" +
			"plugin directory. Other quern commands of this user find it without flags. Everything in it is\n" +
			"forgotten at exit: for production use a real Redis and `quern serve`.",
		Args: arguments(0, 0),
	}
	o := newHostOptions(cmd, "127.0.0.1:0")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("redis") || cmd.Flags().Changed("redis-file") {
			return usagef("dev brings its own Redis: leave --redis and --redis-file out, or use `quern serve`")
		}
		if url, err := redisURL(cmd); err != nil || url != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "quern: the environment or the configuration names a Redis: other commands will use that one, not this `quern dev`")
		}
		return runDev(cmd, env, o)
	}
	return cmd
}

func runDev(cmd *cobra.Command, env environment, o *hostOptions) error {
	other, ok, err := findDev(cmd.Context(), env)
	if err != nil {
		return err
	}
	if ok {
		return refusedf("a `quern dev` of this user runs already (process %d): use that one, or end it first", other.PID)
	}
	if err := os.MkdirAll(o.plugins, 0o755); err != nil { // a newcomer copies the first plugin into it
		return fmt.Errorf("make plugin directory: %w", err)
	}
	embedded := miniredis.NewMiniRedis()
	embedded.ClockTTL(true) // keys expire by the clock; without it never
	if err := embedded.StartAddr("127.0.0.1:0"); err != nil {
		return fmt.Errorf("start embedded Redis: %w", err)
	}
	defer embedded.Close()
	url := "redis://" + embedded.Addr() + "/0"

	n, err := newNode(cmd, env, o, url)
	if err != nil {
		return err
	}
	defer n.close()
	forget := func() {}
	defer func() { forget() }()
	return n.run(cmd.Context(), func(http string) {
		n.logger.Info("embedded Redis is running; it forgets everything at exit", "redis", url)
		n.logger.Info("watching for plugins", "plugins", o.plugins, "try", "quern enqueue QUEUE PARAMETERS --wait")
		remove, err := writeDev(env, devFile{Redis: url, HTTP: http, PID: os.Getpid()})
		if err != nil {
			n.logger.Warn("other commands do not find this one by themselves: give them --redis "+url, "error", err)
			return
		}
		forget = remove
	})
}
