package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

func newPluginRun(env cli.Environment) *cobra.Command {
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
		Args:    cli.Arguments(1, 1),
	}
	local := newLocal(cmd.Flags(), env)
	var dependencies []string
	cmd.Flags().StringArrayVar(&dependencies, "dependency", nil,
		"a task that it waited for, `ID=FILE` with the file of its result, or ID alone if it failed; for several give it again")
	around := surroundings{attempt: 1}
	cmd.Flags().StringVar(&around.queue, "queue", "", "the task's queue, one of the plugin's (default the first in its manifest)")
	option.Number(cmd.Flags(), &around.attempt, "attempt", "the number of the attempt that the handler sees", 1,
		math.MaxInt32, "use 1 or more")
	option.Number(cmd.Flags(), &around.reschedules, "reschedules", "how often the task has put itself off, as the handler sees it",
		0, math.MaxInt32, "use 0 or more")
	option.Lasting(cmd.Flags(), &around.timeout, "timeout", "longest time of the run, as a task's own: in place of limits.timeout (default that, but at most 1m if stdin is no terminal)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := local.rebuild(cmd, args[0], false); err != nil {
			return err
		}
		p, err := pluginfile.Read(args[0])
		if err != nil {
			return err
		}
		if err := p.Refusal(); err != nil {
			return err
		}
		if around.queue != "" && !slices.Contains(p.Manifest.Queues, around.queue) {
			return cli.Usagef("--queue %q: the plugin serves %s: name one of them, or add it to queues in its manifest", around.queue,
				strings.Join(p.Manifest.Queues, ", "))
		}
		if err := local.open(cmd); err != nil {
			return err
		}
		defer local.http.Close()
		if !cmd.Flags().Changed("timeout") && !show.IsTerminal(cmd.InOrStdin()) {
			local.timeout = unattended
		}
		const beyond = 1 << 20 // bytes read beyond the limit, so that the error has the true size of most inputs
		parameters, err := cli.ReadParameters([]string{"-"}, cmd, p.Manifest.Limits.WithDefaults().Input+beyond)
		if err != nil {
			return err
		}
		var named []manifest.Dependency
		for _, text := range dependencies {
			id, file, _ := strings.Cut(text, "=")
			if err := manifest.CheckWord(id); err != nil {
				return cli.Usagef("--dependency %q: use ID=FILE, or ID alone for one that failed: the ID is %s", text,
					manifest.WordRule)
			}
			named = append(named, manifest.Dependency{ID: id, Result: file})
		}
		if around.awaited, err = readDependencies(named, os.ReadFile); err != nil {
			return cli.WrongUsage(err)
		}
		place := ""
		return cli.Interruptibly(cmd, func() error {
			return runPlugin(p, cmd, local, parameters, around, &place)
		}, func() error {
			if place != "" {
				return fmt.Errorf("interrupted at %s", place)
			}
			return errors.New("interrupted")
		})
	}
	return cmd
}

// unattended bounds runs whose stdin is no terminal: those of tests and scripts, which nobody may be there to end.
const unattended = time.Minute

// runPlugin runs one task and prints its result. It sets place to where a task was stopped, if that is known.
func runPlugin(p *pluginfile.File, cmd *cobra.Command, local *local, parameters []byte, around surroundings,
	place *string,
) error {
	stderr := cmd.ErrOrStderr()
	l, err := openPlugin(p, cmd, local)
	if err != nil {
		return err
	}
	defer l.close()
	if l.module.Info().Kind != runtime.Command && len(p.Manifest.Capabilities.KV) > 0 {
		cli.Note(cmd, "the buckets are in memory: empty at the start, forgotten at the end")
	}
	if len(local.databases) > 0 {
		cli.Note(cmd, "what it changes in databases is undone at the end")
	}
	begun := time.Now()
	slow := time.AfterFunc(slowAfter, func() {
		cli.Note(cmd, "it has run for %s, of %s at most (limits.timeout, --timeout): Ctrl-C ends it and says where it is",
			slowAfter, cmp.Or(around.timeout, l.limits.Timeout))
	})
	defer slow.Stop()
	denial := "" // the last line of the log if it tells a denial, which the failure may tell as well
	flush := func() {
		if denial != "" {
			fmt.Fprintln(stderr, denial)
		}
		denial = ""
	}
	outcome, children := l.run(cmd.Context(), runtime.Call{
		Input: parameters,
		Log: func(line string) {
			flush()
			if strings.HasPrefix(line, abi.ModuleName+".") {
				denial = line
				return
			}
			fmt.Fprintln(stderr, line)
		},
		Progress: func(fraction float64, message string) {
			flush()
			cli.Note(cmd, "progress %.0f %% %s", 100*fraction, message)
		},
	}, around)
	*place = outcome.Place
	failure := host.Failure(outcome)
	if _, why, _ := strings.Cut(denial, ": "); failure == nil || !strings.Contains(failure.Message, why) {
		flush()
	}
	if outcome.Kind == runtime.HostFault {
		return fmt.Errorf("internal error: %w", outcome.Err)
	}
	for _, line := range children {
		if outcome.Kind == runtime.Complete || line.atOnce {
			cli.Note(cmd, "%s", line.text)
		}
	}
	for _, line := range computed(outcome, time.Since(begun)) {
		cli.Note(cmd, "%s", line)
	}
	if outcome.Kind == runtime.LimitExceeded {
		for i, frame := range outcome.Backtrace {
			cli.Note(cmd, "frame %d: %s", i, frame)
		}
	}
	if failure != nil {
		return cli.TaskFailed(pluginfile.LocalID, failure)
	}
	return cli.WriteResult(cmd, outcome.Output, "run it again with > FILE")
}

// slowAfter is the time after which a command says that a task still runs: it may be an endless loop.
const slowAfter = 10 * time.Second

// computed explains the end of a task at limits.cpu, which took so long: that it counts no seconds of a clock.
func computed(outcome runtime.Outcome, took time.Duration) []string {
	if outcome.Kind != runtime.LimitExceeded || outcome.Limit.Name != "cpu" {
		return nil
	}
	return []string{fmt.Sprintf("limits.cpu counts fuel, not time: 1s is 10⁹ on every machine; this run burned %.3g × 10⁹ (the %.1f s that it took do not count)",
		float64(outcome.Fuel)/1e9, took.Seconds())}
}

// loaded is a plugin that is ready for tasks on this machine.
type loaded struct {
	*pluginfile.File
	local       *local
	permissions *manifest.Permissions
	limits      runtime.Limits
	embedded    *miniredis.Miniredis // Redis that holds the buckets
	services    guest.Config
	module      *runtime.Module
	pool        *runtime.Pool // pool in which all tasks run
	closers     []func()
}

// openPlugin loads the plugin as a host does. Its error names what is wrong with the plugin.
func openPlugin(p *pluginfile.File, cmd *cobra.Command, local *local) (_ *loaded, err error) {
	ctx := cmd.Context()
	l := &loaded{File: p, local: local, permissions: manifest.NewPermissions(&p.Manifest, local.grants, local.tenant, nil)}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.limits = l.permissions.Limits; local.timeout > 0 && local.timeout < l.limits.Timeout {
		l.limits.Timeout = local.timeout
		l.limits.Remedies["timeout"] = "raise --timeout of this command"
	}
	l.services = guest.Config{
		HTTP: local.http, Secrets: local.services.Secrets, Databases: sql.New(sql.Config{Application: "quern plugin", Undo: true}),
		DatabaseURLs: local.databases,
	}
	l.closers = append(l.closers, l.services.Databases.Close)
	l.services.KV = map[string]*kv.Store{local.tenant: l.openBuckets()}
	logger := hclog.New(&hclog.LoggerOptions{
		Name: "quern", Level: hclog.Off, Output: cmd.ErrOrStderr(),
		DisableTime: true,
	})
	config := *local.engine
	config.Logger = logger
	engine, _, err := sandbox.NewEngine(ctx, local.env, config)
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, func() { _ = engine.Close(context.WithoutCancel(ctx)) })
	logger.SetLevel(hclog.Warn) // from now on about the plugin: no task's outcome says that a warm call failed
	l.module, err = p.Load(ctx, engine)
	if refused, ok := errors.AsType[*runtime.RefusedError](err); ok {
		p.Refusals = refused.Refusals
		return nil, p.Refusal()
	}
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, func() { _ = l.module.Close(context.WithoutCancel(ctx)) })
	l.pool = l.module.Bind(runtime.Profile{
		Tenant: local.tenant, Env: p.Manifest.Capabilities.Env, Files: p.Files, Limits: l.limits,
		Config: l.permissions.Config,
		Entry:  p.Manifest.Entry, Warm: p.Warm,
	})
	return l, nil
}

// close undoes openPlugin, in reverse order.
func (l *loaded) close() {
	for _, undo := range slices.Backward(l.closers) {
		undo()
	}
}

// surroundings is what a task on this machine finds around it.
type surroundings struct {
	awaited []dependency      // tasks that it waited for
	answers *answers          // answers to its HTTP requests; nil if servers answer
	scripts map[string]string // SQL that runs first in the transactions of databases, by name

	queue, key           string // queue is "" for the first one of the plugin
	headers              map[string]string
	attempt, reschedules int
	timeout              time.Duration // the task's own; 0 if it has none
}

// run runs a task as a host does, in an instance of the pool. call has the task's input, and the functions that take
// its log and progress. sent describes what it enqueued and published. run also logs denials at the plugin's start,
// which are in no task's log.
func (l *loaded) run(ctx context.Context, call runtime.Call,
	around surroundings,
) (outcome runtime.Outcome, sent []sentLine) {
	task := &localTask{awaited: around.awaited}
	services := l.services
	services.DatabaseScripts = around.scripts
	if around.answers != nil {
		services.HTTP = egress.New(egress.Config{Answer: around.answers.answer})
		defer services.HTTP.Close()
	}
	var databases *sql.Run
	call.Services, task.children, databases = guest.New(services).For(guest.Task{
		ID: pluginfile.LocalID, Tenant: l.local.tenant, Asked: &l.Manifest.Capabilities, Permissions: l.permissions,
		Headers: around.headers, Host: task,
	})
	defer databases.Close()
	call.Services.Enqueue, call.Services.Publish = numberedChildren{task}, numberedChildren{task}
	var secrets redact.Secrets
	call.TaskID, call.Queue, call.Plugin = pluginfile.LocalID, cmp.Or(around.queue, l.Manifest.Queues[0]), l.Name
	call.Key, call.Headers, call.Traceparent = around.key, around.headers, around.headers[queue.HeaderTraceparent]
	call.Attempt, call.Reschedules, call.Timeout = around.attempt, around.reschedules, around.timeout
	call.Secrets = &secrets
	var said, denied []string
	log := call.Log
	call.Log = func(line string) {
		if strings.HasPrefix(line, abi.ModuleName+".") {
			said = append(said, line)
		}
		if !strings.HasSuffix(line, service.LogSaysMore) { // the denial, which comes later, has the cause
			log(line)
		}
	}
	call.Denied = func(function, reason string) {
		denied = append(denied, abi.ModuleName+"."+function+": "+reason)
		if around.answers != nil && strings.HasPrefix(function, "http") {
			around.answers.denied = true
		}
	}
	outcome = l.pool.Run(ctx, call)
	if outcome.Kind == runtime.Complete {
		if _, err := databases.Complete(ctx, nil); err != nil {
			outcome.Kind, outcome.Code, outcome.Message = runtime.Failed, 1, secrets.Text([]byte(err.Error()))
		}
	}
	if around.answers != nil {
		for i, line := range around.answers.missing {
			around.answers.missing[i] = secrets.Text([]byte(line))
		}
	}
	for _, line := range denied {
		if !slices.Contains(said, line) {
			log(line)
		}
	}
	for _, child := range task.enqueued() {
		sent = append(sent, sentLine{"enqueued " + describe(child, &secrets), l.Manifest.Capabilities.Enqueue.AfterCall()})
	}
	for _, p := range task.publications() {
		sent = append(sent, sentLine{
			"published " + describePublication(p, &secrets),
			l.Manifest.Capabilities.Publish.AfterCall(),
		})
	}
	return outcome, sent
}

// sentLine describes a task or a publication that a task sent. atOnce is true if that did not wait for the task's
// completion.
type sentLine struct {
	text   string
	atOnce bool
}

// describePublication describes a publication for the author of the handler, without secrets.
func describePublication(p *queue.Publication, secrets *redact.Secrets) string {
	head := fmt.Sprintf("%s to topic %s", p.ID, p.Topic)
	if len(p.Attributes) > 0 {
		head += ", " + show.Pairs(p.Attributes).String()
	}
	return summary(head, p.Payload, secrets)
}

// summary returns head and the beginning of body in one line, without secrets.
func summary(head string, body []byte, secrets *redact.Secrets) string {
	if secrets.In(body) {
		body = []byte(secrets.Text(body))
	}
	return show.OneLine(secrets.Text([]byte(head)) + ": " + preview(body))
}

// describe describes a task that was enqueued, for the author of the handler, without secrets.
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
	if u := c.Unique; u != nil {
		add(true, "unique by %s", cmp.Or(u.Key, "its parameters"))
		add(u.For > 0, "unique for %s", u.For)
	}
	add(c.FairKey != "", "fair key %s", c.FairKey)
	add(c.ConcurrencyKey != "", "concurrency key %s", c.ConcurrencyKey)
	add(len(c.After) > 0, "waits for %s", strings.Join(c.After, ","))
	add(c.When != "", "when %s", c.When)
	return summary(strings.Join(words, ", "), c.Parameters, secrets)
}

// preview returns the beginning of a task's parameters, or their size if they are not text.
func preview(body []byte) string {
	switch {
	case len(body) == 0:
		return "no parameters"
	case !show.IsText(body):
		return fmt.Sprintf("%d bytes", len(body))
	}
	return show.Head(string(body), 200)
}

// local holds what commands that run handlers on this machine have in place of a host: their flags and, after open,
// what the plugins share. `quern serve` has most of these flags, too, so that an environment variable means the same to
// both.
type local struct {
	env        cli.Environment
	engine     *runtime.Config
	services   sandbox.Services
	grantsFile string
	tenant     string
	timeout    time.Duration // maximum run time of a task; 0 for no maximum
	engines    string        // folder of the builder's engines
	noBuild    bool
	http       *egress.Client
	grants     *manifest.Grants
	databases  map[string]string // URLs by name
	urls       []string          // --database
}

func newLocal(f *pflag.FlagSet, env cli.Environment) *local {
	l := &local{env: env, engine: sandbox.EngineFlags(f)}
	l.services.Flags(f)
	sandbox.TenantGrantsFlags(f, &l.grantsFile, &l.tenant)
	pluginfile.EnginesFlag(f, &l.engines)
	f.StringArrayVar(&l.urls, "database", nil, "a database of the handler, `NAME=URL`; what it changes is undone at the end; for several give it again")
	f.BoolVar(&l.noBuild, "no-build", false, "use the module as it is, even if its source is newer")
	return l
}

func (l *local) open(cmd *cobra.Command) error {
	config, err := l.services.Egress(cmd.Flags())
	if err != nil {
		return err
	}
	if l.grantsFile == "" { // with grants it has what a host with them gives
		sandbox.AllowLoopback(&config, "a handler calls", "manifest allows", func(text string) { cli.Note(cmd, "%s", text) })
	}
	if l.grants, err = sandbox.LoadTenantGrants(cmd.Flags(), l.grantsFile, l.tenant); err != nil {
		return err
	}
	l.databases = make(map[string]string)
	for _, text := range l.urls {
		name, url, found := strings.Cut(text, "=")
		if _, err := postgres.Parse(url); !found || err != nil || !manifest.IsDatabase(name) {
			if found && err != nil {
				return cli.Usagef("--database %s: %w", name, err)
			}
			return cli.Usagef("--database: use NAME=URL, such as shop=postgres://USER:PASSWORD@HOST/DATABASE")
		}
		l.databases[name] = url
	}
	l.http = egress.New(config)
	return nil
}

// openBuckets makes a store of buckets in an embedded Redis. close stops that Redis.
func (l *loaded) openBuckets() *kv.Store {
	l.embedded = miniredis.NewMiniRedis()
	rdb := redis.NewClient(&redis.Options{ // no port, to which other users of this machine could connect
		Dialer:     func(context.Context, string, string) (net.Conn, error) { return l.embedded.Dial() },
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	})
	l.closers = append(l.closers, l.embedded.Close, func() { _ = rdb.Close() })
	return kv.New(rdb, l.local.tenant)
}

// fillBuckets gives the buckets these values, by bucket and key, and no others.
func (l *loaded) fillBuckets(ctx context.Context, values map[string]map[string]string) error {
	l.embedded.FlushAll()
	for _, bucket := range slices.Sorted(maps.Keys(values)) {
		grants := []kv.Grant{{Bucket: bucket, Write: true, Quota: math.MaxInt64}}
		store := l.services.KV[l.local.tenant].For(grants, nil)
		for _, key := range slices.Sorted(maps.Keys(values[bucket])) {
			if err := store.Set(ctx, bucket, key, []byte(values[bucket][key]), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// localTask implements guest.Host for one task. It records what the task enqueues and publishes.
type localTask struct {
	children  *guest.Children
	atOnce    []listen.Child
	published []*queue.Publication // publications that were made at once
	awaited   []dependency
}

// dependency is a task that the local task waited for, with its result.
type dependency struct {
	listen.Dependency
	result []byte
}

// readDependencies reads the results of dependencies from files. A dependency without a file has failed.
func readDependencies(named []manifest.Dependency, read func(path string) ([]byte, error)) ([]dependency, error) {
	all := make([]dependency, len(named))
	for i, one := range named {
		all[i].ID, all[i].End = one.ID, string(queue.Failed)
		if one.Result == "" {
			continue
		}
		var err error
		all[i].End = string(queue.Complete)
		if all[i].result, err = read(one.Result); err != nil {
			return nil, fmt.Errorf("the result %q of the dependency %s cannot be read: %w", one.Result, one.ID, cli.Bare(err))
		}
	}
	return all, nil
}

// enqueued returns the task's children: those enqueued at once, then those that wait for its completion.
func (t *localTask) enqueued() []listen.Child { return append(t.atOnce, t.children.Waiting()...) }

// publications returns the task's publications: those made at once, then those that wait for its completion.
func (t *localTask) publications() []*queue.Publication {
	return append(t.published, t.children.Publications()...)
}

// numberedChildren gives children and publications numbered IDs, so that they have the same IDs in every run.
type numberedChildren struct{ *localTask }

func (t numberedChildren) Enqueue(ctx context.Context, child service.Child) (string, error) {
	if child.ID == "" {
		child.ID = fmt.Sprintf("%s-%d", pluginfile.LocalID, len(t.enqueued())+1)
	}
	return t.children.Enqueue(ctx, child)
}

func (t numberedChildren) Publish(ctx context.Context, p service.Publication) (string, error) {
	if p.ID == "" {
		p.ID = fmt.Sprintf("%s-publication-%d", pluginfile.LocalID, len(t.publications())+1)
	}
	return t.children.Publish(ctx, p)
}

// SaveCheckpoint implements guest.Host. It saves nothing, because no other run would load the value.
func (*localTask) SaveCheckpoint(context.Context, []byte) error { return nil }

// AdmitQueue implements guest.Host.
func (*localTask) AdmitQueue(context.Context, string) error { return nil }

// Enqueue implements guest.Host.
func (t *localTask) Enqueue(_ context.Context, child listen.Child) (string, error) {
	t.atOnce = append(t.atOnce, child)
	return child.ID, nil
}

// Borrow implements guest.Host.
func (*localTask) Borrow(context.Context, int64) error { return nil }

// Warn implements guest.Host. It does nothing, because the handler's error says the same.
func (*localTask) Warn(string, ...any) {}

// Publish implements guest.Host.
func (t *localTask) Publish(_ context.Context, p *queue.Publication) error {
	t.published = append(t.published, p)
	return nil
}

// Failure implements guest.Host. Local dependencies failed without an error.
func (t *localTask) Failure(context.Context, string) (*queue.Failure, error) { return nil, nil }

// Dependencies implements guest.Host.
func (t *localTask) Dependencies(context.Context) (all []listen.Dependency, err error) {
	for _, one := range t.awaited {
		all = append(all, one.Dependency)
	}
	return all, nil
}

// Result implements guest.Host.
func (t *localTask) Result(_ context.Context, id string, _ int64) ([]byte, error) {
	for _, one := range t.awaited {
		if one.ID == id && one.End == string(queue.Complete) {
			return one.result, nil
		}
	}
	return nil, queue.ErrNoTask
}
