// Package bench implements `quern bench`, which measures how fast a Redis and its hosts are.
package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/nodehost"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// benchOptions holds the flags of `quern bench`.
type benchOptions struct {
	queue, payloadFile, handler string
	tasks, hosts, concurrency   int
	payload                     int64
}

// Command makes the command `quern bench`.
func Command(env cli.Environment) *cobra.Command {
	o := &benchOptions{tasks: 50_000, hosts: 1, payload: 100}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what a Redis and its hosts can do",
		Long: "Enqueues tasks, has hosts of its own run them, and prints how fast that was and what it cost. It uses a\n" +
			"tenant of its own and deletes its keys in the end, also after Ctrl-C. The hosts run in this process: call\n" +
			"it on a machine that hosts are to run on. The figures include whatever else the Redis does meanwhile.\n\n" +
			"With --queue it measures the hosts that serve that queue, and deletes its tasks in the end, with their dead\n" +
			"letters. In a list of more than 100,000 finished tasks their entries stay until a host purges it.\n\n" +
			"A wait ends when a host takes the task, which may be some milliseconds before it runs.\n\n" +
			"Exit status: 0 done, 1 tasks failed, 2 wrong usage, 3 refused or not reachable.",
		Example: "  quern bench --tasks 200000 --payload 1KiB\n" +
			"  quern bench --handler thumbnails.wasm --payload-file photo.jpg --tasks 1000\n" +
			"  quern bench --queue mail --payload-file mail.json --tasks 10000",
		Args: cli.Arguments(0, 0),
	}
	connect.Flags(cmd)
	f := cmd.Flags()
	option.Text(f, &o.queue, "NAME", "queue", "measure the hosts that serve this queue of --tenant (default hosts of its own)")
	option.Number(f, &o.tasks, "tasks", "number of tasks", 1, 10_000_000, "use 1 to 10000000")
	option.Size(f, &o.payload, "payload", "size of the parameters of each task", 0)
	option.Text(f, &o.payloadFile, "FILE", "payload-file", "`FILE` with the parameters of each task, instead of --payload")
	option.Text(f, &o.handler, "FILE", "handler", "`FILE.wasm` that runs the tasks, with its manifest beside it (default one that does nothing)")
	option.Number(f, &o.hosts, "hosts", "number of its own hosts", 1, 64, "use 1 to 64")
	option.Number(f, &o.concurrency, "concurrency", "most tasks that a host runs at a time; 0, the default, for 2 × cores, at least 4", 0, 10_000,
		"use 1 to 10000, or 0 for 2 × cores, at least 4")
	output := option.Output(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		defer context.AfterFunc(ctx, stop)() // a second signal ends the process at once
		cmd.SetContext(ctx)
		report, err := o.run(cmd, env)
		if told := (*cli.ExitError)(nil); ctx.Err() != nil && !errors.As(err, &told) {
			return cli.Refusedf("interrupted: the tasks are deleted")
		}
		if report != nil {
			err = cmp.Or(show.Print(cmd, output.JSON(), report, report), err)
		}
		return err
	}
	return cmd
}

// maxInAQueue is the maximum number of tasks that bench enqueues in an existing queue, which --queue names.
const maxInAQueue = 50_000

// run runs the benchmark, then deletes everything that it made.
func (o *benchOptions) run(cmd *cobra.Command, env cli.Environment) (report show.View, err error) {
	own := o.queue == ""
	for _, name := range []string{"handler", "hosts", "concurrency"} {
		if cmd.Flag(name).Changed && !own {
			return nil, cli.Usagef("both --%s and --queue: bench has hosts of its own, or measures those of a queue; leave one of them out", name)
		}
	}
	if !own && o.tasks > maxInAQueue {
		return nil, cli.Usagef("--tasks %d with --queue: use %d at most, since the entries of deleted tasks stay for a while in a long list of finished ones", o.tasks, maxInAQueue)
	}
	if cmd.Flag("tenant").Changed && own {
		return nil, cli.Usagef("--tenant without --queue: bench has a tenant of its own; name a queue of the tenant, or leave --tenant out")
	}
	tenant, err := connect.Tenant(cmd)
	if err != nil {
		return nil, err
	}
	url, err := connect.FindURL(cmd, env)
	if err != nil {
		return nil, err
	}
	if env.Get("QUERN_SERVER") != "" && !cli.IsGiven(cmd.Flag("redis")) && !cli.IsGiven(cmd.Flag("redis-file")) {
		return nil, cli.Usagef("QUERN_SERVER is set, and %s does not work over a server: it uses Redis itself, name it with --redis", cmd.CommandPath())
	}
	b := &bench{
		cmd: cmd, progress: show.NewProgress(cmd.ErrOrStderr()), name: "bench-" + strings.ToLower(rand.Text()[:8]),
		named: !own, tasks: o.tasks,
	}
	defer b.progress.Clear()
	if b.parameters, err = o.parameters(); err != nil {
		return nil, err
	}
	if own {
		tenant = "{" + b.name + "}" // the braces put all keys into one slot of a Redis Cluster
	}
	rdb, err := queue.Connect(url)
	if err != nil {
		return nil, connect.WrongURL(cmd, err)
	}
	defer func() { _ = rdb.Close() }()
	client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: tenant})
	if err != nil {
		return nil, cli.WrongUsage(err)
	}
	defer func() { _ = client.Close() }()
	b.rdb = manage.OnTenant(rdb, tenant)
	b.client, b.queue = client, client.Queue(o.queue)
	if _, err := client.Clock(cmd.Context()); err != nil {
		return nil, err
	}
	if !own {
		return b.measureQueue(cmd.Context())
	}
	hosts := &benchHosts{options: o, url: url, tenant: tenant}
	if err := hosts.make(cmd, env); err != nil {
		return nil, err
	}
	defer hosts.close()
	b.queue = client.Queue(hosts.queue)
	if err := b.tryWrites(cmd.Context()); err != nil {
		return nil, b.leave(err, b.forgetTenant())
	}
	defer func() { err = b.leave(err, b.forgetTenant()) }()
	living, end := context.WithCancelCause(cmd.Context())
	served := make(chan error, 1)
	go func() { served <- hosts.run(living, end) }()
	report, err = b.measureHosts(living, o.hosts)
	err = cli.Cause(living, err)
	end(nil)
	if failed := <-served; err == nil && failed != nil {
		return nil, failed
	}
	return report, err // the hosts can have failed to leave for the same reason as err
}

// tryWrites checks that Redis accepts writes and messages. Without this check, hosts would retry refused writes for a
// long time.
func (b *bench) tryWrites(ctx context.Context) error {
	for _, limit := range []int64{1, 0} { // the first write is refused by a full Redis, unlike that of a pause
		if err := b.queue.SetLimit(ctx, limit); err != nil {
			return err
		}
	}
	return b.queue.Resume(ctx)
}

// parameters returns the parameters of each task: the content of --payload-file, or --payload bytes of text.
func (o *benchOptions) parameters() ([]byte, error) {
	if o.payloadFile == "" {
		if o.payload > cli.MaxParameters {
			return nil, cli.Usagef("--payload %s is more than 512MiB, Redis's limit: use less", units.FormatSize(o.payload))
		}
		return []byte(strings.Repeat("quern ", int(o.payload)/6+1)[:o.payload]), nil
	}
	content, err := os.ReadFile(o.payloadFile)
	if err != nil {
		return nil, cli.Usagef("--payload-file: %w: name a file that this user may read", err)
	}
	if len(content) > cli.MaxParameters {
		return nil, cli.Usagef("--payload-file %q has more than 512MiB, Redis's limit: name a smaller one", o.payloadFile)
	}
	return content, nil
}

// benchHosts holds the hosts that `quern bench` runs itself.
type benchHosts struct {
	options     *benchOptions
	url, tenant string
	queue       string // name of the queue that the hosts serve
	folder      string // temporary folder of the plugin that does nothing; "" with --handler
	nodes       []*nodehost.Node
}

// emptyHandler is the binary of a module whose handler does nothing:
//
//	(module (memory (export "memory") 1) (func (export "quern_handle") (result i32) (i32.const 0)))
const emptyHandler = "\x00asm\x01\x00\x00\x00" + "\x01\x05\x01\x60\x00\x01\x7f" + "\x03\x02\x01\x00" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x19\x02\x06memory\x02\x00\x0cquern_handle\x00\x00" + "\x0a\x06\x01\x04\x00\x41\x00\x0b"

// make makes the hosts. If it returns no error, the caller must close them.
func (h *benchHosts) make(cmd *cobra.Command, env cli.Environment) (err error) {
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	folder := filepath.Dir(h.options.handler)
	if h.options.handler == "" {
		if folder, err = os.MkdirTemp("", "quern-bench-"); err != nil {
			return fmt.Errorf("make plugin directory: %w", err)
		}
		h.queue, h.folder = "empty", folder
		if err := os.WriteFile(filepath.Join(folder, h.queue+manifest.ModuleSuffix), []byte(emptyHandler),
			0o600); err != nil {
			return fmt.Errorf("write plugin: %w", err)
		}
	} else {
		plugin, err := pluginfile.Read(h.options.handler)
		if err != nil {
			return err
		}
		if _, err = plugin.Check(cmd.Context(), env, *sandbox.EngineFlags(pflag.NewFlagSet("",
			pflag.ContinueOnError))); err != nil {
			return err
		}
		if err = plugin.Refusal(); err != nil {
			return err
		}
		h.queue = plugin.Manifest.Queues[0]
	}
	for range h.options.hosts {
		serve := &cobra.Command{}
		serve.SetContext(cmd.Context())
		serve.SetErr(cmd.ErrOrStderr())
		o := nodehost.NewOptions(serve, "127.0.0.1:0")
		o.Plugins.Dir, o.Plugins.Tenants, o.Host.Queues = folder, []string{h.tenant}, []string{h.queue}
		o.Host.Concurrency, o.Host.Grace, o.Log.Level = h.options.concurrency, time.Second, "error"
		o.Host.Keep, o.Host.KeepTasks = 0, 0 // never purge: bench reads finished tasks at the end
		n, err := nodehost.New(serve, env, o, h.url)
		if err != nil {
			return err
		}
		h.nodes = append(h.nodes, n)
	}
	return nil
}

// run runs the hosts until ctx ends. If a host ends earlier, run calls end with the host's error.
func (h *benchHosts) run(ctx context.Context, end context.CancelCauseFunc) error {
	var group errgroup.Group
	for _, n := range h.nodes {
		group.Go(func() error {
			err := n.Host.Run(ctx, ctx)
			if ctx.Err() == nil {
				end(cmp.Or(err, cli.Refusedf("somebody drained a host of this benchmark")))
			}
			return err
		})
	}
	return group.Wait()
}

func (h *benchHosts) close() {
	for _, n := range h.nodes {
		n.Close()
	}
	if h.folder != "" {
		_ = os.RemoveAll(h.folder)
	}
}
