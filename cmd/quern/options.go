package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/sdk/queue"
)

// hostOptions are the settings of a node host.
type hostOptions struct {
	host      host.Config    // 0 as the flags mean it: see config
	plugins   plugins.Config // its bounds and folder
	memory    memorySetting
	lease     time.Duration
	ceilings  []string
	limits    runtime.Limits // more ceilings: --max-timeout and --max-cpu
	engine    *runtime.Config
	secrets   string
	grants    string
	networks  []string
	proxy     string
	logLevel  string
	logFormat string
	http      string
	native    bool
	webhooks  int
	admin     *adminOptions // nil: the API is not served

	tenantRedis      tenantURLs
	tenantRedisFiles []string
}

// newHostOptions adds the settings of a node host to a command; http is the default of --http.
func newHostOptions(cmd *cobra.Command, http string) *hostOptions {
	o := &hostOptions{memory: memorySetting{percent: 75}, webhooks: 400, logLevel: "info", logFormat: "text", engine: engineFlags(cmd.Flags())}
	f, standard := cmd.Flags(), host.Defaults()
	newList(f, &o.plugins.Tenants, "tenants", []string{queue.DefaultTenant}, "tenants to serve: key prefixes in Redis")
	f.StringVar(&o.plugins.Dir, "plugins", plugins.DefaultDir, "plugin `DIR`: NAME.wasm serves the queue NAME, TENANT/NAME.wasm that of one tenant")
	newList(f, &o.host.Queues, "queues", nil, "queues to serve, of those that have a plugin: names, globs, !exclusions (default all)")

	newNumber(f, &o.host.Concurrency, "concurrency", "most tasks that run at a time; 0, the default, for 2 × cores, at least 4", 0, 10_000,
		"use 1 to 10000, or 0 for 2 × cores, at least 4")
	newNumber(f, &o.webhooks, "webhooks", "most deliveries of webhooks at a time of each tenant, an eighth of them to one destination; 0: this host delivers none", 0, 8000,
		"use 1 to 8000, or 0 for none")
	f.Var(&o.memory, "memory", "most memory of all running tasks together: a size, or a share of the available memory")
	newPeriodWithin(f, &o.lease, "lease", queue.DefaultLease, time.Second, time.Hour, "use 1s to 1h",
		"other hosts take over the tasks of a host that was silent for this long")
	newPeriod(f, &o.host.Grace, "grace", standard.Grace, "how long running tasks may go on after SIGTERM")
	newPeriodWithin(f, &o.host.Poll, "poll", standard.Poll, 10*time.Millisecond, math.MaxInt64, "use at least 10ms",
		"poll interval for producers that do not notify, ± 20 %")
	o.host.KeepTasks = standard.KeepTasks
	newPeriod(f, &o.host.Keep, "keep", standard.Keep, "how long finished tasks are kept; 0s forever")
	newNumber(f, &o.host.KeepTasks, "keep-tasks", "how many complete and how many failed tasks of a queue are kept; 0 for all", 0, math.MaxInt64,
		"use 1 or more, or 0 for all")
	f.BoolVar(&o.host.PurgeForeign, "purge-foreign", false, "also delete finished tasks of other clients than Quern's, which may still want to read them")

	newPeriod(f, &o.limits.Timeout, "max-timeout", 0, "longest timeout of a task, whatever its manifest says (default none)")
	newPeriod(f, &o.limits.CPU, "max-cpu", 0, "most CPU time of a task, whatever its manifest says: 1s is 10⁹ fuel, the same on every machine (default none)")
	newList(f, &o.ceilings, "ceiling", nil, "highest value of a limit, whatever a manifest says, such as limits.memory=256MiB or retry.max_attempts=10 (default none)")
	o.host.MaxQueues, o.host.MaxCrashes, o.host.Retry.MaxAttempts = standard.MaxQueues, standard.MaxCrashes, 1
	newNumber(f, &o.host.MaxQueues, "max-queues", "most queues of a tenant, and of its plugins together; beyond it nothing makes a new queue", 1, 1_000_000,
		"use 1 to 1000000")
	newAttempts(f, &o.host.Retry.MaxAttempts, "attempts of a task if neither its producer nor its manifest says how many, or unlimited")
	newNumber(f, &o.host.MaxCrashes, "max-crashes", "a task fails once this many hosts died while they ran it, or fewer if its manifest says so", 1, math.MaxInt,
		"use 1 or more")

	f.StringVar(&o.engine.CacheDir, "cache", "", "`DIR` of compiled plugins, private to this user (default quern/compiled in the user's cache folder)")
	o.serviceFlags(f)
	grantsFlag(f, &o.grants)
	newPeriod(f, &o.engine.IdleUnload, "idle-unload", runtime.DefaultIdleUnload, "unload the code and instances of a plugin that is idle for this long; 0s never")
	newChoice(f, &o.logLevel, "log-level", "trace, debug, info, warn or error", "trace", "debug", "info", "warn", "error")
	newChoice(f, &o.logFormat, "log-format", "text or json", "text", "json")
	f.StringVar(&o.host.Name, "name", "", "name of this host in its listeners' IDs, its log and quern_build_info, the same for all tenants after each start (default the hostname, in the IDs alone)")
	f.StringVar(&o.http, "http", http, "`ADDRESS` of /metrics, /healthz and /readyz; port 0 for a free one")
	f.BoolVar(&o.native, "native-histograms", false, "serve histograms also as native ones, with steps of 10 %, to a Prometheus that scrapes them")
	otlpFlag(f)
	return o
}

// serviceFlags add the settings of what handlers reach outside.
func (o *hostOptions) serviceFlags(f *pflag.FlagSet) {
	newList(f, &o.networks, "allow-networks", nil, "networks that handlers may reach by HTTP in addition to public ones, such as 10.0.0.0/8 (default none)")
	newText(f, &o.proxy, "URL", "proxy", "`URL` of the proxy for HTTP requests of handlers (default none, whatever the environment says)")
	f.StringVar(&o.secrets, "secrets", "", "`DIR` of secrets: TENANT/NAME is the secret NAME of a manifest (default none)")
}

// validate refuses invalid values that span settings or need the system. It knows a value's origin, which the packages
// behind do not.
func (o *hostOptions) validate(flags *pflag.FlagSet) error {
	_, port, badAddress := net.SplitHostPort(o.http)
	if badAddress == nil {
		_, badAddress = net.DefaultResolver.LookupPort(context.Background(), "tcp", port)
	}
	badGlob := slices.ContainsFunc(o.host.Queues, func(pattern string) bool {
		pattern = strings.TrimPrefix(pattern, "!")
		_, err := path.Match(pattern, "")
		return err != nil || pattern == ""
	})
	tenants := o.plugins.Tenants
	badTenant := slices.ContainsFunc(tenants, func(tenant string) bool { return queue.ValidTenant(tenant) != nil })
	rules := []struct {
		name    string
		broken  bool
		allowed string
	}{
		{"tenants", badTenant || len(tenants) == 0, tenantRule},
		{"tenants", len(slices.Compact(slices.Sorted(slices.Values(tenants)))) < len(tenants), "use each name once"},
		{"plugins", o.plugins.Dir == "", "use the path of a folder"},
		{"queues", badGlob, "use names or globs like mail.*, with ! before those to exclude"},
		{"name", o.host.Name != "" && !hostName.MatchString(o.host.Name), "use 1 to 63 letters, digits, dots and -"},
		{"http", badAddress != nil, "use HOST:PORT, with port 0 for a free one"},
	}
	for _, rule := range rules {
		if flag := flags.Lookup(rule.name); rule.broken {
			return usagef("%s %q: %s", origin(flag), flag.Value.String(), rule.allowed)
		}
	}
	return o.checkPlugins(flags)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9.-]{1,63}$`)

// checkPlugins refuses a plugin directory that cannot be read. One that does not exist may be made later.
func (o *hostOptions) checkPlugins(flags *pflag.FlagSet) error {
	_, err := os.ReadDir(o.plugins.Dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return wrongValue(flags.Lookup("plugins"), o.plugins.Dir, fmt.Errorf("%w: name a folder that this user may read", bare(err)))
}

// config translates the settings for a host, in whose Config 0 means the default.
func (o *hostOptions) config() host.Config {
	config := o.host
	config.Grace = max(config.Grace, time.Nanosecond)
	config.Keep, config.KeepTasks = orNone(config.Keep), orNone(config.KeepTasks)
	return config
}

// orNone translates a bound: 0 means none to a flag, and a negative value to a Config.
func orNone[T ~int64](bound T) T {
	if bound == 0 {
		return -1
	}
	return bound
}

// grantsFlag adds the file with the grants of each tenant.
func grantsFlag(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "grants", "", "`FILE` with the most that each tenant is granted, and its config and secrets; read at the start (default: manifests alone decide)")
}

// loadGrants reads the file of --grants, and checks it; nil without a file.
func loadGrants(flags *pflag.FlagSet, path string, check func(*manifest.Grants) error) (*manifest.Grants, error) {
	if path == "" {
		return nil, nil
	}
	grants, err := manifest.LoadGrants(path)
	if err == nil {
		err = check(grants)
	}
	var wrong *manifest.Error
	switch {
	case errors.As(err, &wrong):
		return nil, wrongUsage(err)
	case err != nil:
		return nil, usagef("%s %q: %w: name a YAML file that this user may read", origin(flags.Lookup("grants")), path, errors.Unwrap(err))
	}
	return grants, nil
}

// grantsOfTenantFlags adds the flags of a command that tries a plugin with a host's grants for a tenant. No setting
// gives the file: the plugin may be for another host than that of this machine.
func grantsOfTenantFlags(f *pflag.FlagSet, path, tenant *string) {
	grantsFlag(f, path)
	notSettings(f, "grants")
	f.StringVar(tenant, "tenant", queue.DefaultTenant, "whose grants to apply")
}

// loadGrantsOf reads the file that these flags name; nil without one.
func loadGrantsOf(flags *pflag.FlagSet, path, tenant string) (*manifest.Grants, error) {
	if err := queue.ValidTenant(tenant); err != nil {
		return nil, usagef("%s %q: %s", origin(flags.Lookup("tenant")), tenant, tenantRule)
	}
	return loadGrants(flags, path, func(g *manifest.Grants) error { return g.CheckTenants([]string{tenant}) })
}

// egress bounds the HTTP requests of handlers, and refuses a folder of secrets that is none.
func (o *hostOptions) egress(flags *pflag.FlagSet) (config egress.Config, err error) {
	if info, err := os.Stat(o.secrets); o.secrets != "" && (err != nil || !info.IsDir()) {
		return config, wrongValue(flags.Lookup("secrets"), o.secrets, errors.New("not a readable folder: name the one with TENANT/NAME"))
	}
	for _, text := range o.networks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return config, wrongValue(flags.Lookup("allow-networks"), text, errors.New("use an address and its bits, such as 10.0.0.0/8"))
		}
		config.Networks = append(config.Networks, network)
	}
	proxy := origin(flags.Lookup("proxy"))
	if o.proxy != "" {
		if config.Proxy, err = url.Parse(o.proxy); err != nil {
			return config, usagef("%s: use a URL such as http://proxy.example.com:3128", proxy) // without the text, which may have a password
		}
	}
	if err := config.Validate(); err != nil { // about the proxy: ParsePrefix checked the networks
		return config, usagef("%s: %s", proxy, strings.TrimPrefix(err.Error(), "proxy: "))
	}
	return config, nil
}

// tenantURL is a tenant's own URL, with its origin.
type tenantURL struct{ url, from string }

// urlsOfTenants returns the URLs of the tenants that have their own. `quern dev` has no such flags.
func (o *hostOptions) urlsOfTenants(flags *pflag.FlagSet) (map[string]tenantURL, error) {
	urls := make(map[string]tenantURL)
	shown := append(o.tenantRedis.GetSlice(), o.tenantRedisFiles...)
	for i, pair := range slices.Concat(o.tenantRedis, o.tenantRedisFiles) {
		name, form := "tenant-redis", "URL (a comma in a URL as %2C)"
		isFile := i >= len(o.tenantRedis)
		if isFile {
			name, form = "tenant-redis-file", "FILE"
		}
		from := origin(flags.Lookup(name))
		about := fmt.Sprintf("%s %q", from, shown[i])
		tenant, url, _ := strings.Cut(pair, "=")
		if !slices.Contains(o.plugins.Tenants, tenant) {
			return nil, usagef("%s: the host serves no such tenant: write TENANT=%s, with one of %s", about, form, strings.Join(o.plugins.Tenants, ", "))
		}
		if _, twice := urls[tenant]; twice {
			return nil, usagef("%s: the tenant has a URL already: leave one of them out", about)
		}
		if isFile {
			var err error
			if url, err = urlOfFile(about, url); err != nil {
				return nil, err
			}
			from = about
		}
		urls[tenant] = tenantURL{url, from}
	}
	return urls, nil
}
