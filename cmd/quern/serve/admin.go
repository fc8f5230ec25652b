package serve

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/hostlog"
	"github.com/quern-project/quern/cmd/quern/nodehost"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func newAdmin(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "admin",
		Short:       "Serve the page and the API that show and steer the fleet, without a host, until SIGTERM",
		Annotations: map[string]string{cli.UsesRedis: "yes"},
		Long: "Serves a page at /, and the API under /v1, which GET /v1/openapi.json describes: tenants, queues, tasks, nodes\n" +
			"and plugins.\n" +
			"`quern serve --admin ADDRESS` serves the same beside a host. It keeps nothing: any number may run.\n\n" +
			"Without --tokens everyone on this machine may do everything, and nobody else can reach it. The file has\n" +
			"any of these lists; only name, role and what tells who it is are needed:\n\n" +
			"  tokens:        # quern admin token prints entries\n" +
			"    - {name: ada, role: operator, sha256: HEX, tenants: [acme], expires: 2027-01-31, payloads: false, rate: 50}\n" +
			"  certificates:  # of clients, signed by the authority of --admin-ca\n" +
			"    - {name: deploy, role: operator, subject: deploy.example.com}\n" +
			"  oidc: {issuer: https://id.example.com, audience: quern, role_claim: role, tenants_claim: tenants}\n\n" +
			"A viewer looks. An operator also enqueues, publishes, cancels and retries tasks, pauses and limits queues, pauses\n" +
			"subscriptions and delivers again, and makes, changes and deletes schedules. An admin also makes and deletes\n" +
			"subscriptions, deletes tasks, purges, drains, reclaims, releases plugins and reads the audit log.",
		Args: cli.Arguments(0, 0),
	}
	f := cmd.Flags()
	o := nodehost.APIFlags(f, "127.0.0.1:9465")
	var tenants []string
	option.List(f, &tenants, "tenants", []string{queue.DefaultTenant}, "tenants to serve: key prefixes in Redis")
	var secrets string
	f.StringVar(&secrets, "secrets", "", "`DIR` of secrets, as hosts have it: TENANT/payload.keys has the keys of the tenant's payloads (default none)")
	logs := hostlog.Flags(f)
	nodehost.TracesFlag(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		rdb, err := connect.Redis(cmd, env, queue.ConnectBounded) // bounded, since it reads what tenants wrote
		if err != nil {
			return err
		}
		defer rdb.Close()
		config, err := adminConfig(cmd, rdb, tenants, secrets)
		defer func() {
			for _, client := range config.Clients {
				_ = client.Close()
			}
		}()
		if err != nil {
			return err
		}
		config.Logger = logs.Logger(cmd.ErrOrStderr())
		var end func()
		if config.Tracer, end, err = nodehost.NewTracer(cmd, env, "", config.Logger); err != nil {
			return err
		}
		defer end()
		server, err := o.Listen(cmd.Flags(), config)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		var looking sync.WaitGroup
		looking.Go(func() {
			if _, err := config.Clients[0].Clock(ctx); queue.IsUnavailable(err) && ctx.Err() == nil {
				config.Logger.Warn("cannot reach Redis: requests are refused with 503 until it answers",
					"redis", manage.New(config.Clients[0]).Address(), "error", err)
			}
		})
		defer looking.Wait()
		defer stop()
		return server.Run(ctx)
	}
	cmd.AddCommand(newAdminToken())
	return cmd
}

// adminConfig makes a client and a store for each tenant. The caller must close the clients, also after an error.
func adminConfig(cmd *cobra.Command, rdb redis.UniversalClient, tenants []string,
	secrets string,
) (config api.Config, err error) {
	config.Stores = make(map[string]*kv.Store)
	for _, tenant := range tenants {
		if queue.ValidTenant(tenant) != nil || config.Stores[tenant] != nil {
			return config, cli.Usagef("%s %q: %s, each once", cli.Origin(cmd.Flag("tenants")), tenant, cli.TenantRule)
		}
		keys, err := nodehost.PayloadKeys(secrets, tenant)
		if err != nil {
			return config, cli.Usagef("%s: %w", cli.Origin(cmd.Flag("secrets")), err)
		}
		client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: tenant, Keys: keys})
		if err != nil {
			return config, err
		}
		config.Clients = append(config.Clients, client)
		config.Stores[tenant] = kv.New(manage.OnTenant(rdb, tenant), tenant)
	}
	return config, nil
}

func newAdminToken() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token NAME", Short: "Make a token, and print it with its entry for the file of --tokens",
		Long: "Makes a token and prints it to stdout, and to stderr its entry for the list `tokens:` in the file of --tokens.\n" +
			"The entry has only the token's SHA-256: nobody can read the token from it, and it is shown only now.",
		Example:           "  quern admin token ada --role operator 2>> entry.yaml",
		Args:              cli.Arguments(1, 1),
		PersistentPreRunE: cli.WithoutSettings,
	}
	role := api.Viewer
	option.Choice(cmd.Flags(), &role, "role", "viewer, operator or admin", api.Viewer, api.Operator, api.Admin)
	var tenants []string
	option.List(cmd.Flags(), &tenants, "tenants", nil, "tenants that it may see (default all)")
	var lasts time.Duration
	option.Lasting(cmd.Flags(), &lasts, "expires", "how long it counts (default without end)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		token, entry, err := api.NewToken(args[0], role, tenants, lasts)
		if err != nil {
			return cli.Usagef("%w", err)
		}
		if _, err := fmt.Fprint(cmd.ErrOrStderr(), entry); err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
		return err
	}
	return cmd
}
