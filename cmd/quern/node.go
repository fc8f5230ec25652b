package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/netip"
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
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/host/web"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/sdk/queue"
)

// node is a host with all that belongs to it, ready to run.
type node struct {
	options  *hostOptions
	stderr   *logSink // where all goes that a host writes there
	logger   hclog.Logger
	registry *prometheus.Registry
	clients  []*queue.Client
	firsts   []*queue.Client      // one of each connection pool
	stores   map[string]*kv.Store // by tenant
	host     *host.Host
	compiler string // of plugins
	closers  []func()

	secretFiles []string // that --grants names
}

// newNode checks the settings and makes all that can be made without reaching for Redis or taking a
// port, so that what is wrong is told before anything runs. It puts into the options what is left to
// the machine.
func newNode(cmd *cobra.Command, env environment, o *hostOptions, redisURL string) (_ *node, err error) {
	if err := o.validate(cmd.Flags()); err != nil {
		return nil, err
	}
	if o.concurrency == 0 {
		o.concurrency = slots()
	}
	grants, err := loadGrants(cmd.Flags(), o.grants, func(g *plugins.HostGrants) error { return g.Check(o.tenants) })
	if err != nil {
		return nil, err
	}
	ceilings, err := o.bounds(cmd.Flags())
	if err != nil {
		return nil, err
	}
	memory, err := o.memory.resolve()
	if err != nil {
		return nil, err
	}
	n := &node{options: o, registry: prometheus.NewRegistry(), stores: map[string]*kv.Store{}, secretFiles: grants.SecretFiles()}
	version, revision := buildVersion()
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m, err := metrics.New(n.registry, metrics.Config{Version: version, Revision: revision})
	if err != nil {
		return nil, err
	}
	n.log(cmd.ErrOrStderr(), m)
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	for _, warning := range grants.Warnings() {
		n.logger.Warn(warning)
	}
	if err := n.connect(cmd, redisURL); err != nil {
		return nil, err
	}
	engineSettings, err := engineConfig(cmd.Flags())
	if err != nil {
		return nil, err
	}
	crashes, end := watchCrashes(n.logger)
	n.closers = append(n.closers, end)
	engineSettings.Crash = crashes
	engineSettings.CacheDir, engineSettings.IdleUnload, engineSettings.Logger = o.cache, orNone(o.idleUnload), n.logger
	engine, cache, err := newEngine(cmd.Context(), env, engineSettings)
	if err != nil {
		return nil, err
	}
	o.cache, n.compiler = cache, engine.Compiler()
	m.CollectRuntime(func() metrics.RuntimeSample { return metrics.RuntimeSample(engine.Holdings()) })
	m.CollectHostCalls(engine.HostCalls().Each)
	n.closers = append(n.closers, func() { _ = engine.Close(context.WithoutCancel(cmd.Context())) })
	directory, err := plugins.New(engine, plugins.Config{
		Dir: o.plugins, Tenants: o.tenants, MaxMemory: memory, MaxTimeout: o.maxTimeout, MaxCPU: o.maxCPU, MaxQueues: o.maxQueues, Ceilings: ceilings,
		Grants: grants, Logger: n.logger.Named("plugins"), Observer: m,
	})
	if err != nil {
		return nil, wrongUsage(err)
	}
	config := o.config()
	outside, err := o.egress(cmd.Flags())
	if err != nil {
		return nil, err
	}
	client := egress.New(outside)
	n.closers = append(n.closers, client.Close)
	config.Services = host.Services{KV: n.stores, HTTP: client, Secrets: o.secrets}
	config.Memory, config.Cache, config.Version, config.Logger = memory, engine, version, n.logger
	boundHeap(config.Concurrency)
	n.host, err = host.New(n.clients, directory, m, config)
	if err != nil {
		return nil, wrongUsage(err)
	}
	return n, nil
}

// log makes the logger, which no task waits for.
func (n *node) log(stderr io.Writer, m *metrics.Metrics) {
	options := hclog.LoggerOptions{
		Name: "quern", Level: hclog.LevelFromString(n.options.logLevel.word), Output: stderr, JSONFormat: n.options.logFormat.word == "json",
	}
	n.stderr = startLogSink(stderr, m.HostLogLinesDropped, hclog.New(&options))
	n.closers = append(n.closers, n.stderr.close)
	options.Output = n.stderr
	n.logger = hclog.New(&options)
}

// egress is what handlers may send by HTTP at most.
func (o *hostOptions) egress(flags *pflag.FlagSet) (config egress.Config, err error) {
	for _, text := range o.networks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return config, wrongValue(flags.Lookup("allow-networks"), text, errors.New("use an address and its bits, such as 10.0.0.0/8"))
		}
		config.Networks = append(config.Networks, network)
	}
	if o.proxy != "" {
		if config.Proxy, err = url.Parse(o.proxy); err != nil {
			return config, usagef("%s: use a URL such as http://proxy.example.com:3128", origin(flags.Lookup("proxy"))) // the text may hold a password
		}
	}
	if err := config.Validate(); err != nil {
		return config, usagef("%s: %s", origin(flags.Lookup("proxy")), strings.TrimPrefix(err.Error(), "proxy: ")) // nothing else can be wrong
	}
	return config, nil
}

// connect makes a client for each tenant. Those of one URL share one pool of connections.
func (n *node) connect(cmd *cobra.Command, redisURL string) error {
	urls, err := n.options.urlsOfTenants(cmd.Flags())
	if err != nil {
		return err
	}
	// By URL. The key-value stores of handlers have connections of their own, so that their slow calls keep no task from
	// being reserved or settled.
	pools, values := make(map[string]redis.UniversalClient), make(map[string]redis.UniversalClient)
	for _, tenant := range n.options.tenants {
		own, has := urls[tenant]
		url := redisURL
		if has {
			url = own.url
		}
		fresh := pools[url] == nil
		if fresh {
			for _, clients := range []map[string]redis.UniversalClient{pools, values} {
				clients[url], err = queue.Connect(url)
				switch {
				case err != nil && has:
					return usagef("%s: tenant %s: %w", own.from, tenant, trimInvalid(err))
				case err != nil:
					return wrongRedis(cmd, err)
				}
				n.closers = append(n.closers, func() { _ = clients[url].Close() })
			}
		}
		client, err := queue.NewFromRedis(pools[url], queue.Config{Tenant: tenant, Lease: n.options.lease})
		if err != nil {
			return wrongUsage(err)
		}
		n.closers = append(n.closers, func() { _ = client.Close() })
		n.clients = append(n.clients, client)
		if fresh {
			n.firsts = append(n.firsts, client)
		}
		n.stores[tenant] = kv.New(values[url], tenant)
	}
	return nil
}

// close undoes newNode, in reverse.
func (n *node) close() {
	for i := len(n.closers) - 1; i >= 0; i-- {
		n.closers[i]()
	}
}

// newEngine makes the engine, and tells where it keeps compiled plugins. A folder that was asked for
// must do; where it was not, and this user has none, the engine goes without.
func newEngine(ctx context.Context, env environment, config runtime.Config) (*runtime.Engine, string, error) {
	var err error
	if config.Compiler, err = ownCommand(compileChild); err != nil {
		return nil, "", err
	}
	config.Guests = guestPlaces()
	if config.CacheDir != "" {
		engine, err := runtime.New(ctx, config)
		return engine, config.CacheDir, err
	}
	dir, err := env.cacheDir()
	if err == nil {
		dir = filepath.Join(dir, "quern", "compiled")
		config.CacheDir = dir
		var engine *runtime.Engine
		engine, err = runtime.New(ctx, config)
		if err == nil {
			return engine, dir, nil
		}
		var unusable *fs.PathError
		if !errors.As(err, &unusable) && !errors.Is(err, runtime.ErrCacheDir) {
			return nil, "", err
		}
	}
	config.Logger.Warn("no cache folder, plugins are compiled at every start: name one with --cache", "error", err)
	config.CacheDir = ""
	engine, err := runtime.New(ctx, config)
	return engine, "", err
}

// run serves until ctx ends or a signal comes. listening is told the address of the web server.
func (n *node) run(ctx context.Context, listening func(http string)) error {
	server, err := web.Listen(n.options.http, n.registry, n.host.Ready, n.logger)
	if err != nil {
		var network *net.OpError
		if errors.As(err, &network) {
			err = network.Err
		}
		return refusedf("--http %q: %w: choose another address, such as 127.0.0.1:0 for a free port", n.options.http, err)
	}
	n.logger.Info("plugins run as machine code", "compiler", n.compiler)
	n.logger.Info("listening", "http", server.Addr())
	if listening != nil {
		listening(server.Addr())
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of stderr may go, and the host stays
	term, hurry, stop := interrupts(ctx)
	defer stop()
	term, drain := context.WithCancel(term)
	defer drain()
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()

	var group errgroup.Group
	group.Go(func() error {
		defer drain() // nobody could see a host without its web server
		return server.Run(living)
	})
	for _, client := range n.firsts {
		group.Go(func() error { n.warn(living, client); return nil })
	}
	group.Go(func() error {
		defer end() // /readyz answers until the last task has ended
		return n.host.Run(term, hurry)
	})
	return group.Wait()
}

// warn says once what in the settings of a Redis would lose tasks.
func (n *node) warn(ctx context.Context, client *queue.Client) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		if _, err := client.Clock(ctx); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C: // not reachable yet: the host says so
		}
	}
	for _, warning := range client.Warnings(ctx) {
		n.logger.Warn(warning)
	}
}

// sameSignal is how long after the first signal another one is the same: coreutils' timeout, for one, sends two.
const sameSignal = 200 * time.Millisecond

// interrupts makes the two contexts of a host: the first ends with its parent or the first SIGTERM or
// SIGINT, the other with the second. A third has the system's own effect.
func interrupts(ctx context.Context) (term, hurry context.Context, stop func()) {
	term, endTerm := context.WithCancel(ctx)
	hurry, endHurry := context.WithCancel(context.WithoutCancel(ctx))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	done := make(chan struct{})
	go func() {
		defer signal.Stop(signals)
		var first time.Time
		for {
			select {
			case <-signals:
			case <-done:
				return
			}
			if first.IsZero() {
				first = time.Now()
				endTerm()
			} else if time.Since(first) >= sameSignal {
				endHurry()
				return
			}
		}
	}()
	return term, hurry, func() {
		close(done)
		endTerm()
		endHurry()
	}
}
