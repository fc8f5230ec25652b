package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/host/web"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
)

// hostOptions are the settings of a node host.
type hostOptions struct {
	tenants     []string
	plugins     string
	queues      []string
	concurrency int
	memory      memorySetting
	lease       time.Duration
	grace       time.Duration
	poll        time.Duration
	maxTimeout  time.Duration
	cache       string
	logLevel    string
	logFormat   string
	http        string
}

// hostFlags adds the settings of a node host to a command.
func hostFlags(cmd *cobra.Command, o *hostOptions) {
	f := cmd.Flags()
	f.StringSliceVar(&o.tenants, "tenants", []string{queue.DefaultTenant}, "whose queues to serve: key prefixes in Redis")
	f.StringVar(&o.plugins, "plugins", "./handlers", "plugin directory: NAME.wasm serves the queue NAME, TENANT/NAME.wasm that of one tenant")
	f.StringSliceVar(&o.queues, "queues", nil, "which of the queues that have a plugin: names, globs, !exclusions (default all)")
	f.IntVar(&o.concurrency, "concurrency", 0, "how many tasks run at a time (default 2 × cores, at least 4)")
	o.memory = memorySetting{percent: 75}
	f.Var(&o.memory, "memory", "what all running tasks together may take: a size, or a share of the memory there is")
	f.DurationVar(&o.lease, "lease", 10*time.Second, "how long this host counts as alive after it was last heard of")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "how long running tasks may go on after SIGTERM")
	f.DurationVar(&o.poll, "poll", 5*time.Second, "how often to look at queues that nobody announces, ± 20 %")
	f.DurationVar(&o.maxTimeout, "max-timeout", 0, "longest time that a task may run, whatever its manifest says (default none)")
	f.StringVar(&o.cache, "cache", "", "folder of compiled plugins, private to this user (default quern/compiled in the user's cache folder)")
	f.StringVar(&o.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.StringVar(&o.http, "http", "127.0.0.1:9464", "address of /metrics, /healthz and /readyz; :0 for a free port")
}

func newServe() *cobra.Command {
	var o hostOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node host until SIGTERM; a second SIGTERM ends it at once",
		Args:  cobra.NoArgs,
	}
	hostFlags(cmd, &o)
	check := cmd.Flags().Bool("check", false, "print the settings that would hold, secrets hidden, and end")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		rawURL, err := redisURL(cmd)
		if err != nil {
			return err
		}
		if rawURL == "" {
			rawURL = defaultRedis
		}
		n, err := o.build(rawURL, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer n.close()
		if *check {
			return printSettings(cmd, rawURL)
		}
		return n.run(cmd.Context(), nil)
	}
	return cmd
}

// node is a host with all that belongs to it, ready to run.
type node struct {
	options hostOptions
	logger  hclog.Logger
	clients []*queue.Client
	closers []func()
	memory  int64
}

// build checks the settings and makes what can be made without Redis, files or ports.
func (o hostOptions) build(rawURL string, stderr io.Writer) (*node, error) {
	n := &node{options: o}
	level := hclog.LevelFromString(o.logLevel)
	if level == hclog.NoLevel || level == hclog.Off {
		return nil, usagef("log-level %q: use trace, debug, info, warn or error", o.logLevel)
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		return nil, usagef("log-format %q: use text or json", o.logFormat)
	}
	n.logger = hclog.New(&hclog.LoggerOptions{Name: "quern", Level: level, Output: stderr, JSONFormat: o.logFormat == "json"})
	var err error
	if n.memory, err = o.memory.resolve(); err != nil {
		return nil, err
	}
	rdb, err := queue.Connect(rawURL)
	if err != nil {
		return nil, wrongUsage(err)
	}
	n.closers = append(n.closers, func() { _ = rdb.Close() })
	for _, tenant := range o.tenants {
		client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: tenant, Lease: o.lease})
		if err != nil {
			n.close()
			return nil, wrongUsage(err)
		}
		n.clients = append(n.clients, client)
	}
	return n, nil
}

func (n *node) close() {
	for _, closer := range n.closers {
		closer()
	}
}

// run serves until ctx ends or a signal comes. listening is told the address of the web server.
func (n *node) run(ctx context.Context, listening func(http string) error) error {
	o := n.options
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	version, revision := buildVersion()
	m, err := metrics.New(registry, metrics.Config{Version: version, Revision: revision})
	if err != nil {
		return err
	}
	engine, err := runtime.New(ctx, runtime.Config{CacheDir: o.cacheDir(n.logger), Logger: n.logger})
	if err != nil {
		return err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	directory, err := plugins.New(engine, plugins.Config{
		Dir: o.plugins, Tenants: o.tenants, MaxMemory: n.memory, MaxTimeout: o.maxTimeout,
		Logger: n.logger.Named("plugins"), Observer: m,
	})
	if err != nil {
		return wrongUsage(err)
	}
	h, err := host.New(n.clients, directory, m, host.Config{
		Concurrency: o.concurrency, Memory: n.memory, Queues: o.queues, Grace: o.grace, Poll: o.poll,
		Version: version, Logger: n.logger,
	})
	if err != nil {
		return wrongUsage(err)
	}
	server, err := web.Listen(o.http, registry, h.Ready)
	if err != nil {
		return err
	}
	n.logger.Info("listening", "http", server.Addr())
	if listening != nil {
		if err := listening(server.Addr()); err != nil {
			return err
		}
	}
	term, hurry, stop := interrupts(ctx)
	defer stop()
	group, living := errgroup.WithContext(context.WithoutCancel(ctx))
	living, end := context.WithCancel(living)
	group.Go(func() error { return server.Run(living) })
	group.Go(func() error { n.warn(living); return nil })
	group.Go(func() error {
		defer end() // /readyz answers until the last task has ended
		return h.Run(term, hurry)
	})
	return group.Wait()
}

// warn says once what in Redis's settings would lose tasks.
func (n *node) warn(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		if _, err := n.clients[0].Clock(ctx); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C: // not reachable yet: the host says so
		}
	}
	for _, warning := range n.clients[0].Warnings(ctx) {
		n.logger.Warn(warning)
	}
}

// cacheDir is where compiled plugins are kept; "" if the user has no cache folder.
func (o hostOptions) cacheDir(logger hclog.Logger) string {
	if o.cache != "" {
		return o.cache
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		logger.Warn("no cache folder: plugins are compiled at every start; name one with --cache", "error", err)
		return ""
	}
	return filepath.Join(dir, "quern", "compiled")
}

// interrupts makes the two contexts of a host: the first ends with its parent or the first SIGTERM or
// SIGINT, the other with the second.
func interrupts(ctx context.Context) (term, hurry context.Context, stop func()) {
	term, endTerm := context.WithCancel(ctx)
	hurry, endHurry := context.WithCancel(context.WithoutCancel(ctx))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	done := make(chan struct{})
	go func() {
		for _, end := range []func(){endTerm, endHurry} {
			select {
			case <-signals:
				end()
			case <-done:
				return
			}
		}
	}()
	return term, hurry, func() {
		signal.Stop(signals)
		close(done)
		endTerm()
		endHurry()
	}
}

// printSettings writes the settings as YAML that --config would take, secrets hidden.
func printSettings(cmd *cobra.Command, rawURL string) error {
	out := cmd.OutOrStdout()
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		switch flag.Name {
		case "check", "config", "help":
			return
		case "redis":
			if u, err := url.Parse(rawURL); err == nil {
				rawURL = u.Redacted()
			}
			if file, _ := cmd.Flags().GetString("redis-file"); file == "" {
				fmt.Fprintf(out, "redis: %q\n", rawURL)
			}
			return
		case "redis-file":
			if flag.Value.String() == "" {
				return
			}
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			quoted := make([]string, len(list.GetSlice()))
			for i, word := range list.GetSlice() {
				quoted[i] = fmt.Sprintf("%q", word)
			}
			fmt.Fprintf(out, "%s: [%s]\n", flag.Name, strings.Join(quoted, ", "))
			return
		}
		fmt.Fprintf(out, "%s: %s\n", flag.Name, yamlScalar(flag))
	})
	return nil
}

func yamlScalar(flag *pflag.Flag) string {
	switch flag.Value.Type() {
	case "int", "bool":
		return flag.Value.String()
	}
	return fmt.Sprintf("%q", flag.Value.String())
}
