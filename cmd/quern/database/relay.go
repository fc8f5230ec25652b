package database

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/hostlog"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/host/relay"
	"github.com/quern-project/quern/host/web"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/sdk/queue"
)

func newRelay(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "relay", Short: "Make tasks of the rows that applications insert into the outbox of their database, until SIGTERM",
		Annotations: map[string]string{cli.UsesRedis: "yes"},
		Long: "Makes a task or a publication of each row of quern.outbox, in the order of the rows, and deletes the row. Any\n" +
			"number may run for a database: one leads, and another takes over when it is gone. `quern database init` makes\n" +
			"the tables. The database and Redis may be away: rows wait.\n\n" +
			"With --raquel it runs the rows of tables of Raquel instead, and writes their ends back as workers of Raquel do,\n" +
			"which may share the tables: see `quern help from-raquel`. --nsj does the same for queue tables of nsj-queue-lib: see\n" +
			"`quern help from-nsj`. A table that is missing, or is not as its library makes it, ends the command.",
		Example: "  quern relay --postgres-file /run/secrets/database --redis redis://redis.internal:6379/0\n" +
			"  quern relay --postgres-file /run/secrets/database --raquel jobs\n" +
			"  quern relay --postgres-file /run/secrets/database --nsj fila --nsj-max-retry 10",
		Args: cli.Arguments(0, 0),
	}
	p := placeFlags(cmd)
	var direct, http string
	option.Text(cmd.Flags(), &direct, "URL", "direct", "`URL` of the same database without a pooler, if --postgres leads through one")
	cmd.Flags().StringVar(&http, "http", "", "`ADDRESS` of /metrics, /healthz and /readyz; port 0 for a free one (default none)")
	var tenants []string
	option.List(cmd.Flags(), &tenants, "tenants", []string{queue.DefaultTenant}, "tenants that rows may name; rows that name none are for the first")
	config := relay.Config{KeepEnded: 7 * 24 * time.Hour}
	option.Duration(cmd.Flags(), &config.Hold, "hold", 0, "how long relayed rows are kept, for quern outbox again")
	option.Duration(cmd.Flags(), &config.KeepEnded, "keep-ended", config.KeepEnded, "how long rows of quern.ended are kept")
	option.Time(cmd.Flags(), &config.NotBefore, "not-before", "refuse rows that were inserted before this `TIME`, as a restored dump has them")
	var raquel, nsj []string
	raquelFlag(cmd, &raquel)
	nsjFlag(cmd, &nsj)
	retry := relay.Nsj{MaxRetry: 100, RetryInterval: 5 * time.Minute}
	option.Number(cmd.Flags(), &retry.MaxRetry, "nsj-max-retry", "attempts of a task of --nsj, as QUEUE_MAX_RETRY", 1, 1_000_000, "use 1 to 1000000")
	option.Duration(cmd.Flags(), &retry.RetryInterval, "nsj-retry-interval", retry.RetryInterval, "delay of the first retry of a task of --nsj, as QUEUE_BASE_INTERVAL_RETRY, which counts in minutes")
	replicas := 0
	option.Count(cmd.Flags(), &replicas, "replicas", "how many of Redis's replicas must have a task before its row is deleted (default none)")
	connect.PayloadKeysFlag(cmd.Flags())
	logs := hostlog.Flags(cmd.Flags())
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if len(raquel)+len(nsj) > 0 && cmd.Flags().Changed("keep-ended") {
			return cli.Usagef("--keep-ended is for the outbox, and not for tables of --raquel and --nsj: leave it out")
		}
		for _, name := range []string{"nsj-max-retry", "nsj-retry-interval"} {
			if len(nsj) == 0 && cmd.Flags().Changed(name) {
				return cli.Usagef("--%s without --nsj: name the queue table, as in --nsj fila", name)
			}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if config.Database, err = p.address(cmd); err != nil {
			return err
		}
		if direct != "" {
			if config.Direct, err = parse(cmd, "direct", direct); err != nil {
				return err
			}
		}
		rdb, err := connect.Redis(cmd, env, queue.Connect)
		if err != nil {
			return err
		}
		defer rdb.Close()
		keys, err := connect.PayloadKeys(cmd)
		if err != nil {
			return err
		}
		if keys != nil && len(tenants) > 1 {
			return cli.Usagef("%s with %d --tenants: keys are one tenant's: run a relay for each, or list sources in --sources of quern serve",
				cli.Origin(cmd.Flag("payload-keys")), len(tenants))
		}
		config.Tenant, config.Tenants = tenants[0], make(map[string]*queue.Client)
		for _, tenant := range tenants {
			if queue.ValidTenant(tenant) != nil {
				return cli.Usagef("%s %q: %s", cli.Origin(cmd.Flag("tenants")), tenant, cli.TenantRule)
			}
			client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: tenant, Replicas: replicas, Keys: keys})
			if err != nil {
				return err
			}
			defer client.Close()
			config.Tenants[tenant] = client
		}
		config.Logger = logs.Logger(cmd.ErrOrStderr())
		registry := prometheus.NewRegistry()
		if config.Metrics, err = metrics.NewRelays(registry); err != nil {
			return err
		}
		relays, err := newRelays(config, raquel, nsj, retry)
		if err != nil {
			return cli.WrongUsage(err)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		running, ctx := errgroup.WithContext(ctx)
		if http != "" {
			server, err := web.Listen(http, registry, relays.ready, config.Logger)
			if err != nil {
				return cli.Refusedf("--http %q: %w: choose another address, such as 127.0.0.1:0 for a free port", http, err)
			}
			config.Logger.Info("listening", "http", server.Addr())
			running.Go(func() error { return server.Run(ctx) })
		}
		for _, r := range relays {
			running.Go(func() error {
				if err := r.Preflight(ctx); err != nil {
					return cli.Refusedf("relay: %w", err)
				}
				r.Run(ctx)
				return nil
			})
		}
		return running.Wait()
	}
	return cmd
}

// relays are the relays of a process.
type relays []*relay.Relay

// newRelays makes a relay of the outbox, or one for each table of another library. retry has what tables of
// nsj-queue-lib share.
func newRelays(config relay.Config, raquel, nsj []string, retry relay.Nsj) (all relays, err error) {
	var configs []relay.Config
	for _, table := range raquel {
		config.Raquel = &relay.Raquel{Table: table}
		configs = append(configs, config)
	}
	config.Raquel = nil
	for _, table := range nsj {
		retry.Table = table
		one := retry
		config.Nsj = &one
		configs = append(configs, config)
	}
	if len(configs) == 0 {
		configs = append(configs, config)
	}
	for _, config := range configs {
		r, err := relay.New(config)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// ready returns what the relays do. The error is that of the first one that does nothing.
func (r relays) ready() (string, error) {
	states := make([]string, len(r))
	for i, one := range r {
		var err error
		if states[i], err = one.Ready(); err != nil {
			return "", err
		}
	}
	return strings.Join(states, "; "), nil
}
