package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue"
)

// adminOptions are where and to whom the API is served.
type adminOptions struct {
	address       string // "": not served
	base          string
	tokens        string
	cert, key, ca string
}

// newAdminOptions adds the settings of the API to a command; address is the default of --admin.
func newAdminOptions(f *pflag.FlagSet, address string) *adminOptions {
	o := &adminOptions{}
	usage := "`ADDRESS` of the page and the API that show and steer the fleet; port 0 for a free one; only a loopback address without --tokens"
	if address == "" {
		usage += " (default none)"
	}
	f.StringVar(&o.address, "admin", address, usage)
	f.StringVar(&o.base, "base-path", "", "`PATH`, such as /quern, under which a proxy leads to --admin (default none)")
	f.StringVar(&o.tokens, "tokens", "", "YAML `FILE` that says who may do what with the API, read again when it changes (default none: everyone on this machine may do everything)")
	f.StringVar(&o.cert, "admin-cert", "", "`FILE` with the certificate of the API, for HTTPS (default none)")
	f.StringVar(&o.key, "admin-key", "", "`FILE` with the key of --admin-cert")
	f.StringVar(&o.ca, "admin-ca", "", "`FILE` with the authority of client certificates, which then may take the place of tokens (default none)")
	return o
}

// listen takes the address of the API; nil if it is not to be served. A command without its flags has nil options.
func (o *adminOptions) listen(flags *pflag.FlagSet, config api.Config) (_ *api.Server, err error) {
	if o == nil || o.address == "" {
		return nil, nil
	}
	if o.base = strings.TrimSuffix(o.base, "/"); o.base != "" && (o.base[0] != '/' || path.Clean(o.base) != o.base) {
		return nil, wrongValue(flags.Lookup("base-path"), o.base, errors.New("use a path such as /quern: //, . and .. are not taken"))
	}
	config.Logger, config.BasePath = config.Logger.Named("admin"), o.base
	if o.tokens != "" {
		if config.Access, err = api.LoadAccess(o.tokens, config.Logger); err != nil {
			if unreadable, ok := errors.AsType[*fs.PathError](err); ok {
				err = fmt.Errorf("%w: name a YAML file with the entries that `quern admin token` prints", unreadable.Err)
			}
			return nil, wrongValue(flags.Lookup("tokens"), o.tokens, err)
		}
	}
	if config.TLS, err = o.tls(flags, config.Logger); err != nil {
		return nil, err
	}
	server, err := api.Listen(o.address, config)
	if network, ok := errors.AsType[*net.OpError](err); ok {
		return nil, refusedf("%s %q: %w: choose another address, such as 127.0.0.1:0 for a free port", origin(flags.Lookup("admin")), o.address, network.Err)
	}
	if err != nil {
		return nil, usagef("%s: %w", origin(flags.Lookup("admin")), err)
	}
	scheme := "http"
	if config.TLS != nil {
		scheme = "https"
	}
	config.Logger.Info("listening", "admin", server.Addr(), "page", scheme+"://"+server.Addr()+"/")
	return server, nil
}

// tls is nil without a certificate. The files are read again for new connections, since certificates are renewed.
func (o *adminOptions) tls(flags *pflag.FlagSet, logger hclog.Logger) (*tls.Config, error) {
	if o.cert == "" && o.key == "" && o.ca == "" {
		return nil, nil
	}
	if o.cert == "" || o.key == "" {
		return nil, usagef("--admin-cert %q, --admin-key %q, --admin-ca %q: HTTPS needs a certificate and its key, name both files", o.cert, o.key, o.ca)
	}
	if o.ca != "" && o.tokens == "" {
		return nil, usagef("--admin-ca %q: only with --tokens, whose list `certificates` says what the holders of client certificates may do", o.ca)
	}
	config, err := o.read(flags)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // guards what follows
	current, checked, told := config, time.Now(), ""
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(checked) < time.Second {
			return current, nil
		}
		checked = time.Now()
		fresh, err := o.read(flags)
		switch {
		case err == nil:
			current, told = fresh, ""
		case err.Error() != told:
			told = err.Error()
			logger.Warn("cannot use the certificates of the API as they are now; the last good ones count", "error", err)
		}
		return current, nil
	}}, nil
}

// read reads the certificates.
func (o *adminOptions) read(flags *pflag.FlagSet) (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return nil, wrongValue(flags.Lookup("admin-cert"), o.cert, fmt.Errorf("%w: name PEM files of a certificate and its key", err))
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}}
	if o.ca == "" {
		return config, nil
	}
	text, err := os.ReadFile(o.ca)
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if err != nil || !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, wrongValue(flags.Lookup("admin-ca"), o.ca, errors.New("name a readable PEM file of certificates"))
	}
	return config, nil
}

// files are those that are read when the process is confined.
func (o *adminOptions) files() []string {
	if o == nil {
		return nil
	}
	return []string{o.tokens, o.cert, o.key, o.ca}
}

func newAdmin(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "admin",
		Short:       "Serve the page and the API that show and steer the fleet, without a host, until SIGTERM",
		Annotations: map[string]string{usesRedis: "yes"},
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
		Args: arguments(0, 0),
	}
	f := cmd.Flags()
	o := newAdminOptions(f, "127.0.0.1:9465")
	var tenants []string
	newList(f, &tenants, "tenants", []string{queue.DefaultTenant}, "tenants to serve: key prefixes in Redis")
	logLevel, logFormat := "info", "text"
	newChoice(f, &logLevel, "log-level", "trace, debug, info, warn or error", "trace", "debug", "info", "warn", "error")
	newChoice(f, &logFormat, "log-format", "text or json", "text", "json")
	otlpFlag(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		rdb, err := connectBy(cmd, env, queue.ConnectBounded) // it serves several tenants
		if err != nil {
			return err
		}
		defer rdb.Close()
		config, closeClients, err := adminConfig(cmd, rdb, tenants)
		if err != nil {
			return err
		}
		defer closeClients()
		config.Logger = newLogger(&hclog.LoggerOptions{
			Name: "quern", Level: hclog.LevelFromString(logLevel), Output: cmd.ErrOrStderr(), JSONFormat: logFormat == "json",
		})
		var end func()
		if config.Tracer, end, err = newTracer(cmd, env, "", config.Logger); err != nil {
			return err
		}
		defer end()
		server, err := o.listen(cmd.Flags(), config)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
		var looking sync.WaitGroup
		looking.Go(func() {
			if _, err := config.Clients[0].Clock(ctx); queue.IsUnavailable(err) && ctx.Err() == nil {
				config.Logger.Warn("cannot reach Redis: requests are refused with 503 until it answers", "redis", config.Clients[0].Address(), "error", err)
			}
		})
		defer looking.Wait()
		defer stop()
		return server.Run(ctx)
	}
	cmd.AddCommand(newAdminToken())
	return cmd
}

// adminConfig makes a client and a store for each tenant.
func adminConfig(cmd *cobra.Command, rdb redis.UniversalClient, tenants []string) (config api.Config, closeAll func(), err error) {
	closeAll = func() {
		for _, client := range config.Clients {
			_ = client.Close()
		}
	}
	config.Stores = make(map[string]*kv.Store)
	for _, tenant := range tenants {
		if queue.ValidTenant(tenant) != nil || config.Stores[tenant] != nil {
			closeAll()
			return config, nil, usagef("%s %q: %s, each once", origin(cmd.Flag("tenants")), tenant, tenantRule)
		}
		client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: tenant})
		if err != nil {
			closeAll()
			return config, nil, err
		}
		config.Clients, config.Stores[tenant] = append(config.Clients, client), kv.New(rdb, tenant)
	}
	return config, closeAll, nil
}

func newAdminToken() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token NAME", Short: "Make a token, and print it with its entry for the file of --tokens",
		Long: "Makes a token and prints it to stdout, and to stderr its entry for the list `tokens:` in the file of --tokens.\n" +
			"The entry has only the token's SHA-256: nobody can read the token from it, and it is shown only now.",
		Example:           "  quern admin token ada --role operator 2>> entry.yaml",
		Args:              arguments(1, 1),
		PersistentPreRunE: withoutSettings,
	}
	role := api.Viewer
	newChoice(cmd.Flags(), &role, "role", "viewer, operator or admin", string(api.Viewer), string(api.Operator), string(api.Admin))
	var tenants []string
	newList(cmd.Flags(), &tenants, "tenants", nil, "tenants that it may see (default all)")
	var lasts time.Duration
	newLasting(cmd.Flags(), &lasts, "expires", "how long it counts (default without end)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		token, entry, err := api.NewToken(args[0], role, tenants, lasts)
		if err != nil {
			return usagef("%w", err)
		}
		if _, err := fmt.Fprint(cmd.ErrOrStderr(), entry); err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
		return err
	}
	return cmd
}
