package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/sdk/queue"
)

// localID is the task's ID in a run without Redis.
const localID = "local"

func newPluginRun(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "run FILE", Short: "Run a plugin on this machine, without Redis: stdin is the parameters, stdout the result",
		Long: "Runs a plugin once with the manifest beside it, within the limits and to the outcome that it would have\n" +
			"on a host; a handler with warm in its manifest is warmed first. What the manifest grants is there: HTTP\n" +
			"and secrets as on a host, buckets and the checkpoint in memory, empty at the start and forgotten at the\n" +
			"end; what it enqueues is printed to stderr and goes nowhere. With --grants it has what a host with that\n" +
			"file would give it in tasks of --tenant. Exit status: 0 it completed, 1 it failed, 3 it is refused,\n" +
			"2 there is no such file.",
		Example: "  quern plugin run thumbnails.wasm < photo.jpg > thumb.jpg",
		Args:    arguments(1, 1),
	}
	engineFlags(cmd.Flags())
	services := newServiceOptions(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := readPlugin(args[0])
		if err != nil {
			return err
		}
		if err := p.refusal(nil); err != nil {
			return err
		}
		config, err := engineConfig(cmd.Flags())
		if err != nil {
			return err
		}
		outside, err := services.open()
		if err != nil {
			return err
		}
		defer outside.close()
		const beyond = 1 << 20 // read beyond the limit, so that the error tells the true size of most inputs
		parameters, err := readParameters([]string{"-"}, cmd, p.manifest.Limits.WithDefaults().Input+beyond)
		if err != nil {
			return err
		}
		return p.run(cmd, env, config, outside, parameters)
	}
	return cmd
}

// run runs one task.
func (p *localPlugin) run(cmd *cobra.Command, env environment, config runtime.Config, outside *outside, parameters []byte) error {
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	l, err := p.open(cmd, env, config, outside)
	if err != nil {
		return err
	}
	defer l.close(context.WithoutCancel(ctx))
	if l.module.Info().Kind == runtime.Handler && len(p.manifest.Capabilities.KV) > 0 {
		fmt.Fprintln(stderr, "quern: the buckets are in memory: empty at the start, forgotten at the end")
	}
	outcome, children := l.run(ctx, outside, parameters, observer{
		log: func(line string) { fmt.Fprintln(stderr, line) },
		progress: func(fraction float64, message string) {
			fmt.Fprintf(stderr, "quern: progress %.0f %% %s\n", 100*fraction, message)
		},
	})
	if outcome.Kind == runtime.HostFault {
		return fmt.Errorf("internal error: %w", outcome.Err)
	}
	if outcome.Kind == runtime.Complete || p.manifest.Capabilities.Enqueue.AfterCall() {
		for _, child := range children {
			fmt.Fprintln(stderr, "quern: enqueued "+child)
		}
	}
	if failure := host.Failure(outcome); failure != nil {
		return taskFailed(localID, failure)
	}
	return writeResult(cmd, outcome.Output, "run it again with > FILE")
}

// loaded is a plugin that is ready for tasks on this machine.
type loaded struct {
	*localPlugin
	engine *runtime.Engine
	module *runtime.Module
	warm   []byte
	limits runtime.Limits
	host   *localHost
	pool   *runtime.Pool // of all tasks; nil before the first one
}

// open loads the plugin as a host does. The error names what is wrong with it.
func (p *localPlugin) open(cmd *cobra.Command, env environment, config runtime.Config, outside *outside) (_ *loaded, err error) {
	ctx := cmd.Context()
	logger := hclog.New(&hclog.LoggerOptions{Name: "quern", Level: hclog.Off, Output: cmd.ErrOrStderr(), DisableTime: true})
	l := &loaded{localPlugin: p, limits: manifest.NewPermissions(&p.manifest, outside.grants, outside.tenant, nil).Limits}
	defer func() {
		if err != nil {
			l.close(context.WithoutCancel(ctx))
		}
	}()
	if l.host, err = outside.openHost(&p.manifest.Capabilities); err != nil {
		return nil, err
	}
	config.Logger = logger
	if l.engine, _, err = newEngine(ctx, env, config); err != nil {
		return nil, err
	}
	logger.SetLevel(hclog.Warn) // from here on it is about the plugin: no task's outcome tells that its warm call failed
	l.module, err = p.load(ctx, l.engine)
	var refused *runtime.RefusedError
	if errors.As(err, &refused) {
		return nil, p.refusal(refused)
	}
	if err != nil {
		return nil, err
	}
	if p.files, l.warm, err = plugins.LoadFiles(p.manifestPath, p.manifest); err != nil {
		return nil, refusedf("%s is refused: %w", p.path, err)
	}
	return l, nil
}

func (l *loaded) close(ctx context.Context) {
	if l.module != nil {
		_ = l.module.Close(ctx)
	}
	if l.engine != nil {
		_ = l.engine.Close(ctx)
	}
	if l.host != nil {
		l.host.close()
	}
}

// observer receives the log and the progress of a task while it runs.
type observer struct {
	log      func(line string)
	progress func(fraction float64, message string)
}

// run runs a task as a host does, in an instance of a pool, with services of its own, and describes what it enqueued. It
// also logs what the plugin was denied at its start, which is in no task's log.
func (l *loaded) run(ctx context.Context, outside *outside, parameters []byte, tell observer) (outcome runtime.Outcome, enqueued []string) {
	var secrets redact.Secrets
	permissions := manifest.NewPermissions(&l.manifest, outside.grants, outside.tenant, nil)
	services, task := l.host.begin(permissions, &l.manifest.Capabilities)
	var said, denied []string
	if l.pool == nil {
		l.pool = l.module.Bind(runtime.Profile{
			Tenant: outside.tenant, Env: l.manifest.Capabilities.Env, Files: l.files, Limits: l.limits, Config: permissions.Config, Warm: l.warm,
		})
	}
	outcome = l.pool.Run(ctx, runtime.Call{
		TaskID: localID, Queue: l.manifest.Queues[0], Plugin: l.name, Attempt: 1,
		Input: parameters, Services: services, Secrets: &secrets,
		Progress: tell.progress,
		Log: func(line string) {
			if strings.HasPrefix(line, abi.ModuleName+".") {
				said = append(said, line)
			}
			tell.log(line)
		},
		Denied: func(function, reason string) { denied = append(denied, abi.ModuleName+"."+function+": "+reason) },
	})
	outcome = permissions.Explain(outcome)
	for _, line := range denied {
		if !slices.Contains(said, line) {
			tell.log(line)
		}
	}
	for _, child := range task.enqueued() {
		enqueued = append(enqueued, describe(child, &secrets))
	}
	return outcome, enqueued
}

// describe describes a task that was enqueued to the author of the handler, without secrets.
func describe(c queue.Child, secrets *redact.Secrets) string {
	words := []string{fmt.Sprintf("%s to %s", c.ID, c.Queue)}
	add := func(given bool, format string, value any) {
		if given {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	add(c.Key != "", "key %s", c.Key)
	add(len(c.Labels) > 0, "labels %v", c.Labels)
	if c.Priority != nil {
		add(true, "priority %d", *c.Priority)
	}
	add(c.Delay > 0, "after %s", c.Delay)
	add(!c.At.IsZero(), "at %s", c.At)
	add(c.Retry.MaxAttempts > 0, "max attempts %d", c.Retry.MaxAttempts)
	add(c.Timeout > 0, "timeout %s", c.Timeout)
	add(c.Unique != nil, "%s", "unique")
	body := c.Parameters
	if secrets.In(body) {
		body = []byte(secrets.Text(body))
	}
	return oneLine(secrets.Text([]byte(strings.Join(words, ", "))) + ": " + preview(body))
}

// preview is the beginning of a task's parameters, or their size if they are not text.
func preview(body []byte) string {
	const most = 200
	switch {
	case len(body) == 0:
		return "no parameters"
	case !isText(body):
		return fmt.Sprintf("%d bytes", len(body))
	case len(body) <= most:
		return string(body)
	}
	end := most
	for !utf8.RuneStart(body[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes)", body[:end], len(body))
}
