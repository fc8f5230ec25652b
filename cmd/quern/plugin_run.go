package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
)

// localID is the task's ID in a run without Redis.
const localID = "local"

func newPluginRun(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "run FILE", Short: "Run a plugin on this machine, without Redis: stdin is the parameters, stdout the result",
		Long: "Runs a plugin once with the manifest beside it, within the limits and to the outcome that it would have\n" +
			"on a host; a handler with warm in its manifest is warmed first. Exit status: 0 it completed, 1 it failed,\n" +
			"3 it is refused, 2 there is no such file.",
		Example: "  quern plugin run thumbnails.wasm < photo.jpg > thumb.jpg",
		Args:    arguments(1, 1),
	}
	rungFlag(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := readPlugin(args[0])
		if err != nil {
			return err
		}
		if err := p.refusal(nil); err != nil {
			return err
		}
		rung, err := rungOf(cmd.Flags())
		if err != nil {
			return err
		}
		const beyond = 1 << 20 // read this much too much, so that the error tells the true size of most
		parameters, err := readParameters([]string{"-"}, cmd, p.manifest.Limits.WithDefaults().Input+beyond)
		if err != nil {
			return err
		}
		return p.run(cmd, env, rung, parameters)
	}
	return cmd
}

// run runs a task as a host does: in an instance of a pool.
func (p *localPlugin) run(cmd *cobra.Command, env environment, rung runtime.Rung, parameters []byte) error {
	ctx := cmd.Context()
	logger := hclog.New(&hclog.LoggerOptions{Name: "quern", Level: hclog.Off, Output: cmd.ErrOrStderr(), DisableTime: true})
	engine, _, err := newEngine(ctx, env, runtime.Config{Rung: rung, Logger: logger})
	if err != nil {
		return err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	logger.SetLevel(hclog.Warn) // from here on it is about the plugin: that its warm call failed, which no task's outcome tells
	module, err := p.load(ctx, engine)
	var refused *runtime.RefusedError
	if errors.As(err, &refused) {
		return p.refusal(refused)
	}
	if err != nil {
		return err
	}
	defer module.Close(context.WithoutCancel(ctx))
	files, warm, err := plugins.LoadFiles(p.manifestPath, p.manifest)
	if err != nil {
		return refusedf("%s is refused: %w", p.path, err)
	}
	outcome := module.Run(ctx, runtime.Call{
		TaskID: localID, Queue: p.manifest.Queues[0], Tenant: queue.DefaultTenant, Plugin: p.name, Attempt: 1,
		Input: parameters, Env: p.manifest.Capabilities.Env, Files: files, Limits: p.manifest.Limits.WithDefaults(),
		Pool: localID, Warm: warm,
		Log: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) },
		Progress: func(fraction float64, message string) {
			fmt.Fprintf(cmd.ErrOrStderr(), "quern: progress %.0f %% %s\n", 100*fraction, message)
		},
	})
	if outcome.Kind == runtime.HostFault {
		return fmt.Errorf("internal error: %w", outcome.Err)
	}
	if failure := host.Failure(outcome); failure != nil {
		return taskFailed(localID, failure)
	}
	return writeResult(cmd, outcome.Output, "run it again with > FILE")
}
