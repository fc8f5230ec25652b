package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/alicebob/miniredis/v2"
	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/kv"
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
			"end; what it enqueues is printed to stderr and goes nowhere. It waited for what --dependency names. With\n" +
			"--grants it has what a host with that file would give it in tasks of --tenant. In the current folder it is\n" +
			"built first if its source is newer.\n" +
			"Exit status: 0 it completed, 1 it failed, 3 it is refused, 2 there is no such file.",
		Example: "  quern plugin run thumbnails.wasm < photo.jpg > thumb.jpg",
		Args:    arguments(1, 1),
	}
	local := newLocal(cmd.Flags(), env)
	var dependencies []string
	cmd.Flags().StringArrayVar(&dependencies, "dependency", nil, "a task that it waited for, `ID=FILE` with the file of its result, or ID alone if it failed; for several give it again")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := local.rebuild(cmd, args[0], false); err != nil {
			return err
		}
		p, err := readPlugin(args[0])
		if err != nil {
			return err
		}
		if err := p.refusal(); err != nil {
			return err
		}
		if err := local.open(cmd.Flags()); err != nil {
			return err
		}
		defer local.http.Close()
		const beyond = 1 << 20 // read beyond the limit, so that the error tells the true size of most inputs
		parameters, err := readParameters([]string{"-"}, cmd, p.manifest.Limits.WithDefaults().Input+beyond)
		if err != nil {
			return err
		}
		var named []manifest.Dependency
		for _, text := range dependencies {
			id, file, _ := strings.Cut(text, "=")
			if err := manifest.CheckWord(id); err != nil {
				return usagef("--dependency %q: use ID=FILE, or ID alone for one that failed: the ID is %s", text, manifest.WordRule)
			}
			named = append(named, manifest.Dependency{ID: id, Result: file})
		}
		awaited, err := readDependencies(named, os.ReadFile)
		if err != nil {
			return wrongUsage(err)
		}
		return p.run(cmd, local, parameters, awaited)
	}
	return cmd
}

// run runs one task.
func (p *localPlugin) run(cmd *cobra.Command, local *local, parameters []byte, awaited []dependency) error {
	stderr := cmd.ErrOrStderr()
	l, err := p.open(cmd, local)
	if err != nil {
		return err
	}
	defer l.close()
	if l.module.Info().Kind != runtime.Command && len(p.manifest.Capabilities.KV) > 0 {
		note(cmd, "the buckets are in memory: empty at the start, forgotten at the end")
	}
	outcome, children := l.run(cmd.Context(), runtime.Call{
		Input: parameters,
		Log:   func(line string) { fmt.Fprintln(stderr, line) },
		Progress: func(fraction float64, message string) {
			note(cmd, "progress %.0f %% %s", 100*fraction, message)
		},
	}, awaited)
	if outcome.Kind == runtime.HostFault {
		return fmt.Errorf("internal error: %w", outcome.Err)
	}
	for _, line := range children {
		if outcome.Kind == runtime.Complete || line.atOnce {
			note(cmd, "%s", line.text)
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
	local       *local
	permissions *manifest.Permissions
	limits      runtime.Limits
	embedded    *miniredis.Miniredis // with the buckets
	services    *guest.Services
	module      *runtime.Module
	pool        *runtime.Pool // of all tasks
	closers     []func()
}

// open loads the plugin as a host does. The error names what is wrong with it.
func (p *localPlugin) open(cmd *cobra.Command, local *local) (_ *loaded, err error) {
	ctx := cmd.Context()
	l := &loaded{localPlugin: p, local: local, permissions: manifest.NewPermissions(&p.manifest, local.grants, local.tenant, nil)}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.limits = l.permissions.Limits; l.limits.Timeout == 0 || local.timeout > 0 && local.timeout < l.limits.Timeout {
		l.limits.Timeout = local.timeout
	}
	services := guest.Config{HTTP: local.http, Secrets: local.options.secrets}
	services.KV = map[string]*kv.Store{local.tenant: l.openBuckets()}
	l.services = guest.New(services)
	logger := hclog.New(&hclog.LoggerOptions{Name: "quern", Level: hclog.Off, Output: cmd.ErrOrStderr(), DisableTime: true})
	config := *local.options.engine
	config.Logger = logger
	engine, _, err := newEngine(ctx, local.env, config)
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, func() { _ = engine.Close(context.WithoutCancel(ctx)) })
	logger.SetLevel(hclog.Warn) // from here on it is about the plugin: no task's outcome tells that its warm call failed
	l.module, err = p.load(ctx, engine)
	if refused, ok := errors.AsType[*runtime.RefusedError](err); ok {
		p.refusals = refused.Refusals
		return nil, p.refusal()
	}
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, func() { _ = l.module.Close(context.WithoutCancel(ctx)) })
	l.pool = l.module.Bind(runtime.Profile{
		Tenant: local.tenant, Env: p.manifest.Capabilities.Env, Files: p.files, Limits: l.limits, Config: l.permissions.Config,
		Entry: p.manifest.Entry, Warm: p.warm,
	})
	return l, nil
}

// close undoes open, in reverse.
func (l *loaded) close() {
	for _, undo := range slices.Backward(l.closers) {
		undo()
	}
}

// run runs a task as a host does, in an instance of the pool, with empty buckets, and describes what it enqueued and published. The call
// has its input, and what takes its log and progress; awaited is what it waited for. run also logs what the plugin was denied at its start, which is in no
// task's log.
func (l *loaded) run(ctx context.Context, call runtime.Call, awaited []dependency) (outcome runtime.Outcome, sent []sentLine) {
	l.embedded.FlushAll()
	task := &localTask{awaited: awaited}
	call.Services, task.children = l.services.For(guest.Task{
		ID: localID, Tenant: l.local.tenant, Asked: &l.manifest.Capabilities, Permissions: l.permissions, Host: task,
	})
	call.Services.Enqueue, call.Services.Publish = numberedChildren{task}, numberedChildren{task}
	var secrets redact.Secrets
	call.TaskID, call.Queue, call.Plugin, call.Attempt, call.Secrets = localID, l.manifest.Queues[0], l.name, 1, &secrets
	var said, denied []string
	log := call.Log
	call.Log = func(line string) {
		if strings.HasPrefix(line, abi.ModuleName+".") {
			said = append(said, line)
		}
		log(line)
	}
	call.Denied = func(function, reason string) { denied = append(denied, abi.ModuleName+"."+function+": "+reason) }
	outcome = l.permissions.Explain(l.pool.Run(ctx, call))
	for _, line := range denied {
		if !slices.Contains(said, line) {
			log(line)
		}
	}
	for _, child := range task.enqueued() {
		sent = append(sent, sentLine{"enqueued " + describe(child, &secrets), l.manifest.Capabilities.Enqueue.AfterCall()})
	}
	for _, p := range task.publications() {
		sent = append(sent, sentLine{"published " + describePublication(p, &secrets), l.manifest.Capabilities.Publish.AfterCall()})
	}
	return outcome, sent
}

// sentLine describes what a task enqueued or published, and tells whether that happened at once.
type sentLine struct {
	text   string
	atOnce bool
}

// describePublication describes a publication to the author of the handler, without secrets.
func describePublication(p *queue.Publication, secrets *redact.Secrets) string {
	head := fmt.Sprintf("%s to topic %s", p.ID, p.Topic)
	if len(p.Attributes) > 0 {
		head += ", " + pairs(p.Attributes).String()
	}
	body := p.Payload
	if secrets.In(body) {
		body = []byte(secrets.Text(body))
	}
	return oneLine(secrets.Text([]byte(head)) + ": " + preview(body))
}

// describe describes a task that was enqueued to the author of the handler, without secrets.
func describe(c listen.Child, secrets *redact.Secrets) string {
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
	add(len(c.After) > 0, "waits for %s", strings.Join(c.After, ","))
	add(c.When != "", "when %s", c.When)
	body := c.Parameters
	if secrets.In(body) {
		body = []byte(secrets.Text(body))
	}
	return oneLine(secrets.Text([]byte(strings.Join(words, ", "))) + ": " + preview(body))
}

// preview is the beginning of a task's parameters, or their size if they are not text.
func preview(body []byte) string {
	switch {
	case len(body) == 0:
		return "no parameters"
	case !isText(body):
		return fmt.Sprintf("%d bytes", len(body))
	}
	return headOf(string(body), 200)
}
