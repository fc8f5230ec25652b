package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/spf13/cobra"
)

func newDev(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run an embedded Redis and a host for development; forgets everything at exit",
		Long: "Runs an embedded Redis on a free port and a node host that watches the plugin directory. Other quern\n" +
			"commands of this user find it without flags. It forgets everything at exit: for production use a real\n" +
			"Redis and `quern serve`.\n\n" +
			"In the folder of a plugin's source, or with --source, it builds that plugin into the plugin directory,\n" +
			"as `quern plugin build --to` does, and again whenever a file in the folder is saved; it does not watch\n" +
			"sources elsewhere, such as imported packages. While the source does not compile, the last version that\n" +
			"did keeps running.",
		Args: arguments(0, 0),
	}
	o := newHostOptions(cmd, "127.0.0.1:0")
	folders := cmd.Flags().StringArray("source", nil, "`DIR` with the source of a plugin, to build now and whenever a file in it changes; may be given several times (default the current folder, if it is one)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("redis") || cmd.Flags().Changed("redis-file") {
			return usagef("dev brings its own Redis: leave --redis and --redis-file out, or use `quern serve`")
		}
		if url, err := redisURL(cmd); err != nil || url != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "quern: the environment or the configuration file names a Redis: other commands will use that one, not this `quern dev`")
		}
		sources, err := devSources(*folders, func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), "quern: "+text) })
		if err != nil {
			return err
		}
		return runDev(cmd, env, o, sources)
	}
	return cmd
}

func runDev(cmd *cobra.Command, env environment, o *hostOptions, sources []source) error {
	other, ok, err := findDev(cmd.Context(), env)
	if err != nil {
		return err
	}
	if ok {
		return refusedf("a `quern dev` of this user is running already (process %d): use that one, or end it first", other.PID)
	}
	if err := os.MkdirAll(o.plugins.Dir, 0o755); err != nil { // for the first plugin
		return cmp.Or(o.checkPlugins(cmd.Flags()), fmt.Errorf("make plugin directory: %w", err))
	}
	embedded := miniredis.NewMiniRedis()
	embedded.ClockTTL(true) // without it keys never expire
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
	stop := rebuild(cmd, env, n, sources)
	defer stop()
	return n.run(cmd.Context(), func(http string) {
		n.logger.Info("embedded Redis is running; it forgets everything at exit", "redis", url)
		n.logger.Info("watching for plugins", "plugins", o.plugins.Dir, "try", "quern enqueue QUEUE PARAMETERS --wait")
		remove, err := writeDev(env, devFile{Redis: url, HTTP: http, PID: os.Getpid()})
		if err != nil {
			n.logger.Warn("other commands cannot find this one: give them --redis "+url, "error", err)
			return
		}
		forget = remove
	})
}

// rebuild builds the sources into the plugin directory whenever they change, until stop is called.
func rebuild(cmd *cobra.Command, env environment, n *node, sources []source) (stop func()) {
	ctx, cancel := context.WithCancel(cmd.Context())
	builder := &builder{compilers: compilers{env: env}, stderr: n.stderr}
	var group sync.WaitGroup
	for _, s := range sources {
		r := &rebuilder{dir: s.dir, name: s.name, to: n.options.plugins.Dir, builder: builder, logger: n.logger}
		group.Go(func() { r.run(ctx) })
	}
	return func() {
		cancel()
		group.Wait()
	}
}
