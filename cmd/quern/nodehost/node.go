// Package nodehost builds a node host from its settings: Redis, engine, plugins, metrics, log, traces, webhooks and the
// API.
//
//	Options ── New ──▶ Node ── Run ──▶ until SIGTERM
//
// [New] finds every error of configuration before anything runs. [Node.Run] listens on ports and serves.
package nodehost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/hostlog"
	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/host/relay"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/host/web"
	"github.com/quern-project/quern/host/webhook"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/periodic"
	"github.com/quern-project/quern/sdk/queue/release"
	"github.com/quern-project/quern/sdk/queue/seal"
)

// Node is a host and everything that it is made of, ready to run.
type Node struct {
	options  *Options
	flags    *pflag.FlagSet // know where the options come from
	Stderr   *hostlog.Sink  // takes all output of the host to stderr
	Logger   hclog.Logger
	registry *prometheus.Registry
	metrics  *metrics.Metrics
	tracer   *trace.Tracer // nil if there are no traces
	clients  []*queue.Client
	stores   map[string]*kv.Store // key-value stores by tenant
	Host     *host.Host
	compiler string // name of the compiler of plugins
	closers  []func()
	// account counts the memory that tenants use in addition to that of running tasks.
	account *account.Account

	deliveries []*webhook.Runner       // each delivers the webhooks of one tenant
	Background []func(context.Context) // functions that run beside the host, until the last task has ended
}

// New checks the settings and makes everything, but neither calls Redis nor listens on a port. So every error of
// configuration is reported before anything runs. It sets the options that depend on the machine.
func New(cmd *cobra.Command, env cli.Environment, o *Options, redisURL string) (_ *Node, err error) {
	if err := o.validate(cmd.Flags()); err != nil {
		return nil, err
	}
	if o.Host.Guests = sandbox.GuestPlaces(); o.Host.Concurrency == 0 {
		o.Host.Concurrency = max(4, 2*o.Host.Guests)
	}
	if o.Plugins.Grants, err = sandbox.LoadGrants(cmd.Flags(), o.grants,
		func(g *manifest.Grants) error { return cmp.Or(g.Check(o.Plugins.Tenants), o.readQuotas(g)) }); err != nil {
		return nil, err
	}
	if o.Plugins.Ceilings, err = manifest.ParseCeilings(cli.Origin(cmd.Flag("ceiling")), o.ceilings); err != nil {
		return nil, cli.WrongUsage(err)
	}
	o.Plugins.Ceilings = o.Plugins.Ceilings.With(runtime.Limits{Timeout: o.limits.Timeout},
		cli.Origin(cmd.Flag("max-timeout"))).
		With(runtime.Limits{CPU: o.limits.CPU}, cli.Origin(cmd.Flag("max-cpu")))
	if o.Plugins.MaxMemory, err = o.memory.resolve(); err != nil {
		return nil, err
	}
	n := &Node{options: o, flags: cmd.Flags(), stores: map[string]*kv.Store{}, account: account.New(o.Plugins.MaxMemory)}
	defer func() {
		if err != nil {
			n.Close()
		}
	}()
	if err := n.observe(cmd.ErrOrStderr()); err != nil {
		return nil, err
	}
	for _, warning := range o.Plugins.Grants.Warnings() {
		n.Logger.Warn(warning)
	}
	if err := n.connect(cmd, redisURL); err != nil {
		return nil, err
	}
	if err := n.relay(cmd); err != nil {
		return nil, err
	}
	engine, err := n.engine(cmd, env)
	if err != nil {
		return nil, err
	}
	o.Plugins.MaxQueues, o.Plugins.Logger, o.Plugins.Observer = o.Host.MaxQueues, n.Logger.Named("plugins"), n.metrics
	o.Plugins.Hold = n.holdPlugins()
	directory, err := plugins.New(engine, o.Plugins)
	if err != nil {
		return nil, cli.WrongUsage(err)
	}
	outside, err := o.services.Egress(cmd.Flags())
	if err != nil {
		return nil, err
	}
	handlers := outside
	if o.Loopback {
		sandbox.AllowLoopback(&handlers, "a handler calls", "manifest allows", func(text string) { n.Logger.Info(text) })
	}
	client := egress.New(handlers)
	n.closers = append(n.closers, client.Close)
	config := o.config()
	tracer, end, err := NewTracer(cmd, env, o.Host.Name, n.Logger)
	if err != nil {
		return nil, err
	}
	n.closers, n.tracer, config.Tracer = append(n.closers, end), tracer, tracer
	databases := sql.New(sql.Config{
		Application: strings.TrimSpace("quern " + o.Host.Name), MaxConnections: o.databaseConnections, Tenants: len(o.Plugins.Tenants),
		Open: n.open, Logger: n.Logger.Named("sql"),
	})
	n.closers = append(n.closers, databases.Close)
	n.metrics.CollectSQL(func() metrics.SQLSample { return metrics.SQLSample(databases.Sample()) })
	n.Background = append(n.Background, databases.Run, func(ctx context.Context) { n.checkDatabases(ctx, databases) })
	config.Services = guest.Config{KV: n.stores, HTTP: client, Secrets: o.services.Secrets, Databases: databases}
	config.Memory, config.Account, config.Cache, config.Logger = o.Plugins.MaxMemory, n.account, engine, n.Logger
	config.Version, _ = cli.BuildVersion()
	config.Verify = func(tenant string, r *release.Release) error {
		return o.Plugins.Grants.Of(tenant).CheckSigned(r.Statement(), r.Signatures, o.requireSigned)
	}
	if cache := o.engine.CacheDir; cache != "" {
		config.Releases = filepath.Join(cache, "releases")
	}
	if config.Artifacts, end, err = o.registries.artifacts(cmd, outside); err != nil {
		return nil, err
	}
	n.closers = append(n.closers, end)
	sandbox.BoundHeap(config.Concurrency, config.Memory)
	n.Host, err = host.New(n.clients, directory, n.metrics, config)
	if err != nil {
		return nil, cli.WrongUsage(err)
	}
	n.deliver(outside, config)
	return n, nil
}

// checkDatabases warns at the start of what is wrong with the databases of handlers.
func (n *Node) checkDatabases(ctx context.Context, databases *sql.Databases) {
	for _, tenant := range n.options.Plugins.Tenants {
		granted := n.options.Plugins.Grants.Of(tenant).Secrets
		for _, name := range guest.SecretNames(n.options.services.Secrets, tenant, granted) {
			if !strings.HasPrefix(name, manifest.DatabaseSecret) || ctx.Err() != nil {
				continue
			}
			url, err := guest.ReadSecret(n.options.services.Secrets, tenant, name, granted)
			if err != nil {
				n.Logger.Warn("the URL of a database cannot be read", "tenant", tenant, "secret", name, "error", err)
				continue
			}
			databases.Check(ctx, tenant, sql.Source{Name: name, URL: string(url)})
		}
	}
}

// open returns which of these tasks of a tenant have not ended.
func (n *Node) open(ctx context.Context, tenant string, ids []string) (map[string]bool, error) {
	open := make(map[string]bool)
	for _, client := range n.clients {
		if client.Tenant() != tenant {
			continue
		}
		tasks, _, _, err := client.Summaries(ctx, "", "", ids, 0)
		if err != nil {
			return nil, err
		}
		for _, task := range tasks {
			open[task.ID] = !task.Status.Finished()
		}
	}
	return open, nil
}

// holdPlugins returns a function that reserves memory for loaded plugins. A quarter of the account is for plugins of
// tenants, and a quarter for plugins of all tenants, whose tenant is "". The function returns nil if there is no room.
func (n *Node) holdPlugins() func(tenant string, bytes int64) (give func()) {
	own := n.account.Open(account.Plugins, n.account.Part(4), len(n.clients))
	common := n.account.Open(account.Plugins, n.account.Part(4), 1)
	return func(tenant string, bytes int64) func() {
		budget := own
		if tenant == "" {
			budget = common
		}
		share := budget.TryTake(tenant, bytes)
		if share == nil {
			return nil
		}
		return share.Give
	}
}

// minDeliveries is the minimum of each budget for deliveries, in bytes. It is enough for four tenants at a time,
// however small the host.
const minDeliveries = 16 << 20

// deliver makes the runners that deliver webhooks. They have their own connections, so that no handler has to wait for
// one.
func (n *Node) deliver(outside egress.Config, config host.Config) {
	places := n.options.webhooks
	if places == 0 {
		return
	}
	destination := max(1, places/8) // a tenant can have 8 times as many connections in all
	outside.MaxConns, outside.Timeout = destination, queue.MaxWebhookTimeout
	outside.MaxResponse, outside.Truncate = webhook.MaxAnswer, true
	if n.options.Loopback {
		sandbox.AllowLoopback(&outside, "a webhook goes to", "subscription says", func(text string) { n.Logger.Info(text) })
	}
	client := egress.New(outside)
	n.closers = append(n.closers, client.Close)
	small := n.account.Open(account.Deliveries, max(n.account.Part(16), minDeliveries), len(n.clients))
	large := n.account.Open(account.Deliveries, max(n.account.Part(6), minDeliveries), len(n.clients))
	for _, tenant := range n.clients {
		grants := n.options.Plugins.Grants.Of(tenant.Tenant())
		var ceiling *egress.Ceiling
		if grants.Ceiling != nil {
			ceiling = &egress.Ceiling{Grants: grants.Ceiling.HTTP, Where: grants.Where}
		}
		var ended func(webhook.Ended)
		if tell := config.Ended; tell != nil {
			ended = func(e webhook.Ended) {
				tell(host.Ended{
					Tenant: tenant.Tenant(), Queue: e.Queue, ID: e.ID, Took: e.Took, Failure: e.Failure, Again: e.Again,
					PutOff: e.PutOffs > 0, Quiet: e.PutOffs > 0 && !host.WorthALine(e.PutOffs), Status: e.Status,
				})
			}
		}
		n.deliveries = append(n.deliveries, webhook.New(tenant, webhook.Config{
			HTTP: client, Ceiling: ceiling, Small: small, Large: large, Places: places, Destination: destination,
			Grace: config.Grace, Poll: config.Poll, Secrets: n.options.services.Secrets,
			SecretNames: func() []string {
				return guest.SecretNames(n.options.services.Secrets, tenant.Tenant(), grants.Secrets)
			},
			TellSecrets: n.options.Loopback, Ended: ended,
			Secret: func(name string) ([]byte, error) {
				asked := &manifest.Manifest{Capabilities: manifest.Capabilities{Secrets: []string{name}}}
				if err := manifest.NewPermissions(asked, n.options.Plugins.Grants, tenant.Tenant(),
					nil).DenySecret(name); err != nil {
					return nil, err
				}
				return guest.ReadSecret(n.options.services.Secrets, tenant.Tenant(), name, grants.Secrets)
			},
			MaxQueues: config.MaxQueues, Version: config.Version, Name: config.Name, Metrics: n.metrics, Tracer: n.tracer,
			Logger: n.Logger.Named("webhooks"),
		}))
	}
}

// observe makes the metrics and the logger. No task waits until a log line is written.
func (n *Node) observe(stderr io.Writer) (err error) {
	version, revision := cli.BuildVersion()
	n.registry = prometheus.NewRegistry()
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if n.metrics, err = metrics.New(n.registry, metrics.Config{
		Version: version, Revision: revision,
		Host: n.options.Host.Name, NativeHistograms: n.options.native,
	}); err != nil {
		return err
	}
	n.Stderr = hostlog.StartSink(stderr, n.metrics.HostLogLinesDropped, n.options.Log.Logger(stderr))
	n.closers = append(n.closers, n.Stderr.Close)
	n.Logger = n.options.Log.Logger(n.Stderr)
	if name := n.options.Host.Name; name != "" {
		n.Logger = n.Logger.With("host", name)
	}
	return nil
}

// connect makes a client and a key-value store for each tenant. Tenants with the same URL share two connection pools,
// one for tasks and one for the stores. So slow calls of handlers to the stores delay neither reservations nor
// outcomes.
func (n *Node) connect(cmd *cobra.Command, redisURL string) error {
	urls, err := n.options.urlsOfTenants(cmd.Flags())
	if err != nil {
		return err
	}
	type pools struct{ tasks, values redis.UniversalClient }
	byURL := make(map[string]pools)
	for _, tenant := range n.options.Plugins.Tenants {
		own, has := urls[tenant]
		url := redisURL
		if has {
			url = own.url
		}
		shared, known := byURL[url]
		if !known {
			for _, rdb := range []*redis.UniversalClient{&shared.tasks, &shared.values} {
				*rdb, err = queue.ConnectBounded(url)
				switch {
				case err != nil && has:
					return cli.Usagef("%s: tenant %s: %w", own.from, tenant, cli.TrimInvalid(err))
				case err != nil:
					return connect.WrongURL(cmd, err)
				}
				n.closers = append(n.closers, func() { _ = (*rdb).Close() })
			}
			byURL[url] = shared
		}
		keys, err := guest.PayloadKeys(n.options.services.Secrets, tenant, n.options.Plugins.Grants.Of(tenant).Secrets)
		if err != nil {
			return cli.WrongUsage(err)
		}
		if keys != nil {
			n.Logger.Info("payloads are encrypted in Redis", "tenant", tenant, "keys", strings.Join(keys.KeyIDs(), " "))
		}
		client, err := queue.NewFromRedis(shared.tasks, queue.Config{
			Tenant: tenant, Lease: n.options.lease, Name: n.options.Host.Name,
			Keys: keys,
		})
		if err != nil {
			return cli.WrongUsage(err)
		}
		n.closers = append(n.closers, func() { _ = client.Close() })
		n.clients = append(n.clients, client)
		if !known {
			n.Background = append(n.Background, func(ctx context.Context) { n.warn(ctx, client) })
		}
		n.stores[tenant] = kv.New(manage.OnTenant(shared.values, tenant), tenant)
	}
	return nil
}

// PayloadKeys reads the keys of a tenant's payloads from a folder of secrets, "" for none; nil if there are none.
func PayloadKeys(secrets, tenant string) (*seal.Ring, error) {
	return guest.PayloadKeys(secrets, tenant, nil)
}

// relay makes a relay for each source of the file of --sources.
func (n *Node) relay(cmd *cobra.Command) error {
	if n.options.sources == "" {
		return nil
	}
	configs, err := relay.ReadSources(n.options.sources, n.options.Plugins.Tenants)
	if err != nil {
		return cli.Usagef("%s: %w", cli.Origin(cmd.Flag("sources")), err)
	}
	for _, config := range configs {
		for _, client := range n.clients {
			if _, named := config.Tenants[client.Tenant()]; named {
				config.Tenants[client.Tenant()] = client
			}
		}
		config.Logger, config.Metrics = n.Logger.Named("relay"), n.metrics
		r, err := relay.New(config)
		if err != nil {
			return err
		}
		n.Background = append(n.Background, r.Run)
	}
	return nil
}

// Reach checks once that the Redis of each tenant answers.
func (n *Node) Reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	for _, client := range n.clients {
		if _, err := client.Clock(ctx); err != nil {
			return fmt.Errorf("tenant %s: %w", client.Tenant(), err)
		}
		// Errors are ignored: not every user of Redis is allowed to ask.
		if info, err := manage.New(client).Info(ctx); err == nil && info["role"] == "slave" {
			return cli.Refusedf("tenant %s: this Redis is a replica, which takes no tasks: name the primary", client.Tenant())
		}
	}
	return nil
}

// reachTimeout bounds the calls of Reach together.
const reachTimeout = 5 * time.Second

// engine makes the engine with its crash monitor and metrics.
func (n *Node) engine(cmd *cobra.Command, env cli.Environment) (*runtime.Engine, error) {
	config := *n.options.engine
	var end func()
	config.Crash, end = sandbox.WatchCrashes(n.Logger)
	n.closers = append(n.closers, end)
	config.IdleUnload, config.Logger = orNone(config.IdleUnload), n.Logger
	engine, cache, err := sandbox.NewEngine(cmd.Context(), env, config)
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, func() { _ = engine.Close(context.WithoutCancel(cmd.Context())) })
	n.options.engine.CacheDir, n.compiler = cache, engine.Compiler()
	n.metrics.CollectRuntime(func() metrics.RuntimeSample { return metrics.RuntimeSample(engine.Holdings()) })
	n.metrics.CollectHostCalls(engine.HostCalls().Each)
	return engine, nil
}

// Close undoes New, in reverse order.
func (n *Node) Close() {
	for _, undo := range slices.Backward(n.closers) {
		undo()
	}
}

// Run serves until ctx ends or a signal arrives, and returns when the last task has ended. It calls listening with the
// address of the web server.
func (n *Node) Run(ctx context.Context, listening func(http, admin string)) error {
	server, err := web.Listen(n.options.http, n.registry, n.Host.Ready, n.Logger)
	if err != nil {
		if network, ok := errors.AsType[*net.OpError](err); ok {
			err = network.Err
		}
		return cli.Refusedf("--http %q: %w: choose another address, such as 127.0.0.1:0 for a free port", n.options.http, err)
	}
	admin, err := n.options.Admin.Listen(n.flags, api.Config{
		Clients: n.clients, Stores: n.stores, Account: n.account,
		Logger: n.Logger, Tracer: n.tracer,
	})
	if err != nil {
		server.Close()
		return err
	}
	n.Logger.Info("plugins run as machine code", "compiler", n.compiler)
	n.Logger.Info("listening", "http", server.Addr())
	n.Host.Listening(server.Addr())
	url := ""
	if admin != nil {
		url = n.options.Admin.origin(admin) + n.options.Admin.base
	}
	listening(server.Addr(), url)
	signal.Ignore(syscall.SIGPIPE) // the host outlives a reader of its stderr
	term, drain := context.WithCancel(ctx)
	defer drain()
	hurry, stop := interrupts(ctx, drain)
	defer stop()
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()

	var group errgroup.Group
	group.Go(func() error {
		defer drain() // a host without its web server is invisible
		return server.Run(living)
	})
	if admin != nil {
		group.Go(func() error {
			defer drain()
			return admin.Run(living)
		})
	}
	for _, run := range n.Background {
		group.Go(func() error { run(living); return nil })
	}
	for _, runner := range n.deliveries {
		group.Go(func() error { runner.Run(term, hurry); return nil })
	}
	group.Go(func() error {
		defer end() // /readyz answers until the last task has ended
		return n.Host.Run(term, hurry)
	})
	return group.Wait()
}

// warn waits until Redis answers, and logs settings of Redis that could lose tasks.
func (n *Node) warn(ctx context.Context, client *queue.Client) {
	for _, err := client.Clock(ctx); err != nil; _, err = client.Clock(ctx) {
		if !periodic.Sleep(ctx, time.Second) { // the host logs that it cannot reach Redis
			return
		}
	}
	warnings, _ := manage.New(client).Warnings(ctx) // ignore errors: a host needs no permission for this
	for _, warning := range warnings {
		n.Logger.Warn(warning)
	}
}

// sameSignal is how long after the first signal a second one is taken for the same: timeout of coreutils sends two.
const sameSignal = 200 * time.Millisecond

// interrupts calls drain at the first SIGTERM or SIGINT. The context hurry ends at the second one, or when stop is
// called. From then on, the signals have their default effect.
func interrupts(ctx context.Context, drain func()) (hurry context.Context, stop func()) {
	hurry, stop = context.WithCancel(context.WithoutCancel(ctx))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		defer signal.Stop(signals)
		var first time.Time
		for {
			select {
			case <-signals:
			case <-hurry.Done():
				return
			}
			if first.IsZero() {
				first = time.Now()
				drain()
			} else if time.Since(first) >= sameSignal {
				stop()
				return
			}
		}
	}()
	return hurry, stop
}
