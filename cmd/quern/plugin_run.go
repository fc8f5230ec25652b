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
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/service"
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
		const beyond = 1 << 20 // read this much too much, so that the error tells the true size of most
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
	if grant := p.manifest.Capabilities.Enqueue; outcome.Kind == runtime.Complete || grant != nil && grant.AfterCall {
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
	pool   *runtime.Pool // of all tasks; nil before the first one
}

// open loads the plugin as a host does. What is wrong with it is the error.
func (p *localPlugin) open(cmd *cobra.Command, env environment, config runtime.Config, outside *outside) (_ *loaded, err error) {
	ctx := cmd.Context()
	logger := hclog.New(&hclog.LoggerOptions{Name: "quern", Level: hclog.Off, Output: cmd.ErrOrStderr(), DisableTime: true})
	l := &loaded{localPlugin: p, limits: plugins.NewTerms(&p.manifest, outside.grants, outside.tenant).Limits}
	defer func() {
		if err != nil {
			l.close(context.WithoutCancel(ctx))
		}
	}()
	config.Logger = logger
	if l.engine, _, err = newEngine(ctx, env, config); err != nil {
		return nil, err
	}
	logger.SetLevel(hclog.Warn) // from here on it is about the plugin: that its warm call failed, which no task's outcome tells
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
}

// observer is told what a task says while it runs.
type observer struct {
	log      func(line string)
	progress func(fraction float64, message string)
}

// run runs a task as a host does, in an instance of a pool, with services of its own, and describes what it enqueued. What
// the start of a plugin was denied, which is in no task's log, is told to the log as well.
func (l *loaded) run(ctx context.Context, outside *outside, parameters []byte, tell observer) (outcome runtime.Outcome, enqueued []string) {
	var secrets redact.Secrets
	terms := plugins.NewTerms(&l.manifest, outside.grants, outside.tenant)
	services, children := outside.services(terms, &l.manifest.Capabilities)
	var said, denied []string
	if l.pool == nil {
		l.pool = l.module.Bind(runtime.Profile{
			Tenant: outside.tenant, Env: l.manifest.Capabilities.Env, Files: l.files, Limits: l.limits, Config: terms.Config, Warm: l.warm,
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
	outcome = terms.Explain(outcome)
	for _, line := range denied {
		if !slices.Contains(said, line) {
			tell.log(line)
		}
	}
	for _, child := range children() {
		enqueued = append(enqueued, describe(child, &secrets))
	}
	return outcome, enqueued
}

// describe tells of a task that was enqueued what somebody who wrote the handler wants to see, but no secret.
func describe(c service.Child, secrets *redact.Secrets) string {
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
	add(c.MaxAttempts > 0, "max attempts %d", c.MaxAttempts)
	add(c.Timeout > 0, "timeout %s", c.Timeout)
	add(c.Unique != nil, "%s", "unique")
	if secrets.In(c.Body) {
		c.Body = []byte(secrets.Text(c.Body))
	}
	return oneLine(secrets.Text([]byte(strings.Join(words, ", "))) + ": " + preview(c.Body))
}

// preview is the beginning of a task's parameters, or their size if they are no text.
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
