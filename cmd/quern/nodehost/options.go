package nodehost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/hostlog"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Options are the settings of a node host.
type Options struct {
	Host     host.Config    // here 0 means what the flags say: see config
	Plugins  plugins.Config // Dir and Tenants are settings; New sets the rest
	memory   memorySetting
	lease    time.Duration
	ceilings []string
	limits   runtime.Limits // ceilings that have separate flags: --max-timeout and --max-cpu
	engine   *runtime.Config
	services sandbox.Services
	grants   string
	// requireSigned refuses releases of tenants without signers. With signers, releases are always checked.
	requireSigned bool
	Log           *hostlog.Settings
	http          string
	native        bool
	webhooks      int
	Loopback      bool // handlers and webhooks may reach loopback addresses that their URLs name
	Admin         *API // nil if the command has no flags of the API

	tenantRedis         tenantURLs
	sources             string
	databaseConnections int
	tenantRedisFiles    []string
	registries          registryOptions
}

// NewOptions adds the settings of a node host to a command. http is the default of --http.
func NewOptions(cmd *cobra.Command, http string) *Options {
	o := &Options{
		memory: memorySetting{percent: 75}, webhooks: 400, databaseConnections: sql.DefaultConnections,
		engine: sandbox.EngineFlags(cmd.Flags()),
	}
	f, standard := cmd.Flags(), host.Defaults()
	option.List(f, &o.Plugins.Tenants, "tenants", []string{queue.DefaultTenant}, "tenants to serve: key prefixes in Redis")
	f.StringVar(&o.Plugins.Dir, "plugins", plugins.DefaultDir,
		"plugin `DIR`: NAME.wasm serves the queue NAME, TENANT/NAME.wasm that of one tenant")
	option.List(f, &o.Host.Queues, "queues", nil, "queues to serve, of those that have a plugin: names, globs, !exclusions (default all)")

	option.Number(f, &o.Host.Concurrency, "concurrency",
		"most tasks that run at a time; 0, the default, for 2 × cores, at least 4", 0, 10_000,
		"use 1 to 10000, or 0 for 2 × cores, at least 4")
	option.Number(f, &o.webhooks, "webhooks", "most deliveries of webhooks at a time of each tenant, an eighth of them to one destination; 0: this host delivers none", 0, 8000,
		"use 1 to 8000, or 0 for none")
	f.Var(&o.memory, "memory", "most memory of all running tasks together: a size, or a share of the available memory")
	option.DurationWithin(f, &o.lease, "lease", queue.DefaultLease, time.Second, time.Hour, "use 1s to 1h",
		"other hosts take over the tasks of a host that was silent for this long")
	option.Duration(f, &o.Host.Grace, "grace", standard.Grace, "how long running tasks may go on after SIGTERM")
	option.DurationWithin(f, &o.Host.Poll, "poll", standard.Poll, 10*time.Millisecond, math.MaxInt64, "use at least 10ms",
		"poll interval for producers that do not notify, ± 20 %")
	o.Host.KeepTasks = standard.KeepTasks
	option.Duration(f, &o.Host.Keep, "keep", standard.Keep, "how long finished tasks are kept; 0s forever")
	option.Number(f, &o.Host.KeepTasks, "keep-tasks", "how many complete and how many failed tasks of a queue are kept; 0 for all", 0, math.MaxInt64,
		"use 1 or more, or 0 for all")
	f.BoolVar(&o.Host.PurgeForeign, "purge-foreign", false,
		"also delete finished tasks of other clients than Quern's, which may still want to read them")

	option.Duration(f, &o.limits.Timeout, "max-timeout", 0,
		"longest timeout of a task, whatever its manifest says (default none)")
	option.Duration(f, &o.limits.CPU, "max-cpu", 0, "most CPU time of a task, whatever its manifest says: 1s is 10⁹ fuel, the same on every machine (default none)")
	option.List(f, &o.ceilings, "ceiling", nil, "highest value of a limit, whatever a manifest says, such as limits.memory=256MiB or retry.max_attempts=10 (default none)")
	o.Host.MaxQueues, o.Host.MaxCrashes, o.Host.Retry.MaxAttempts = standard.MaxQueues, standard.MaxCrashes, 1
	option.Number(f, &o.Host.MaxQueues, "max-queues", "most queues of a tenant, and of its plugins together; beyond it nothing makes a new queue", 1, 1_000_000,
		"use 1 to 1000000")
	option.Attempts(f, &o.Host.Retry.MaxAttempts, "attempts of a task if neither its producer nor its manifest says how many, or unlimited")
	option.Number(f, &o.Host.MaxCrashes, "max-crashes",
		"a task fails once this many hosts died while they ran it, or fewer if its manifest says so", 1, math.MaxInt,
		"use 1 or more")

	f.StringVar(&o.engine.CacheDir, "cache", "", "`DIR` of compiled plugins, private to this user (default quern/compiled in the user's cache folder)")
	o.services.Flags(f)
	sandbox.GrantsFlag(f, &o.grants)
	f.BoolVar(&o.requireSigned, "require-signed", false, "serve only releases that are signed by a signer of the tenant's entry in --grants")
	f.BoolVar(&o.Host.KeepBadReleases, "keep-bad-releases", false,
		"report releases that are worse than the one before, and do not stop them")
	option.Number(f, &o.databaseConnections, "database-connections", "most connections to the databases of handlers, of all tenants together", 1, 10_000,
		"use 1 to 10000")
	option.Duration(f, &o.engine.IdleUnload, "idle-unload", runtime.DefaultIdleUnload,
		"unload the code and instances of a plugin that is idle for this long; 0s never")
	o.Log = hostlog.Flags(f)
	f.StringVar(&o.Host.Name, "name", "", "name of this host in its listeners' IDs, its log and quern_build_info, the same for all tenants after each start (default the hostname, in the IDs alone)")
	f.StringVar(&o.http, "http", http, "`ADDRESS` of /metrics, /healthz and /readyz; port 0 for a free one")
	f.BoolVar(&o.native, "native-histograms", false, "serve histograms also as native ones, with steps of 10 %, to a Prometheus that scrapes them")
	TracesFlag(f)
	return o
}

// TenantFlags adds the flags that give tenants their own URL of Redis.
func (o *Options) TenantFlags(f *pflag.FlagSet) {
	f.Var(&o.tenantRedis, "tenant-redis", "`TENANT=URL`: a Redis user, or a Redis, of the tenant's own (default that of --redis)")
	option.List(f, &o.tenantRedisFiles, "tenant-redis-file", nil, "`TENANT=FILE` with such a URL, for mounted secrets")
	f.StringVar(&o.sources, "sources", "", "YAML `FILE` with the databases whose outbox this host relays (default none)")
}

// validate refuses invalid values that only show when several settings or the system are considered. It knows each
// value's origin, unlike the packages that use the values.
func (o *Options) validate(flags *pflag.FlagSet) error {
	_, port, badAddress := net.SplitHostPort(o.http)
	if badAddress == nil {
		_, badAddress = net.DefaultResolver.LookupPort(context.Background(), "tcp", port)
	}
	badGlob := slices.ContainsFunc(o.Host.Queues, func(pattern string) bool {
		pattern = strings.TrimPrefix(pattern, "!")
		_, err := path.Match(pattern, "")
		return err != nil || pattern == ""
	})
	tenants := o.Plugins.Tenants
	badTenant := slices.ContainsFunc(tenants, func(tenant string) bool { return queue.ValidTenant(tenant) != nil })
	rules := []struct {
		name    string
		broken  bool
		allowed string
	}{
		{"tenants", badTenant || len(tenants) == 0, cli.TenantRule},
		{"tenants", len(slices.Compact(slices.Sorted(slices.Values(tenants)))) < len(tenants), "use each name once"},
		{"plugins", o.Plugins.Dir == "", "use the path of a folder"},
		{"queues", badGlob, "use names or globs like mail.*, with ! before those to exclude"},
		{"name", o.Host.Name != "" && !hostName.MatchString(o.Host.Name), "use 1 to 63 letters, digits, dots and -"},
		{"http", badAddress != nil, "use HOST:PORT, with port 0 for a free one"},
	}
	for _, rule := range rules {
		if flag := flags.Lookup(rule.name); rule.broken {
			return cli.Usagef("%s %q: %s", cli.Origin(flag), flag.Value.String(), rule.allowed)
		}
	}
	return o.CheckPlugins(flags)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9.-]{1,63}$`)

// CheckPlugins refuses a plugin directory that cannot be read. A directory that does not exist is allowed, because it
// can be made later.
func (o *Options) CheckPlugins(flags *pflag.FlagSet) error {
	_, err := os.ReadDir(o.Plugins.Dir)
	if err == nil || o.Plugins.Dir == plugins.NoDir || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return cli.WrongValue(flags.Lookup("plugins"), o.Plugins.Dir,
		fmt.Errorf("%w: name a folder that this user may read", cli.Bare(err)))
}

// SecretsOf makes dir the folder of secrets if no setting names another one. The folder may be made later. It reports
// whether dir is the folder and exists.
func (o *Options) SecretsOf(dir string) bool {
	if o.services.Secrets != "" {
		return false
	}
	o.services.Secrets, o.services.SecretsLater = dir, true
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// Secrets returns the folder of secrets; "" for none.
func (o *Options) Secrets() string { return o.services.Secrets }

// config returns the settings as a host.Config, in which 0 means the default.
func (o *Options) config() host.Config {
	config := o.Host
	config.Grace = max(config.Grace, time.Nanosecond)
	config.Keep, config.KeepTasks = orNone(config.Keep), orNone(config.KeepTasks)
	return config
}

// readQuotas takes the quotas of the tenants from the file of grants.
func (o *Options) readQuotas(grants *manifest.Grants) error {
	quotas, err := grants.QuotasOf(o.Plugins.Tenants, func(name, text string) (string, error) {
		value, err := admin.ParseQuota(name, text)
		if err != nil {
			err = cli.TrimInvalid(err)
		}
		return value, err
	})
	o.Host.Quotas = make(map[string]manage.Quotas, len(quotas))
	for tenant, of := range quotas {
		o.Host.Quotas[tenant] = of
	}
	return err
}

// orNone translates a bound from a flag to a Config. To disable the bound, a flag has 0, and a Config a negative value.
func orNone[T ~int64](bound T) T {
	if bound == 0 {
		return -1
	}
	return bound
}

// tenantURL is a tenant's own URL, with its origin.
type tenantURL struct{ url, from string }

// urlsOfTenants returns the URLs of the tenants that have their own. `quern dev` has no such flags.
func (o *Options) urlsOfTenants(flags *pflag.FlagSet) (map[string]tenantURL, error) {
	urls := make(map[string]tenantURL)
	shown := append(o.tenantRedis.GetSlice(), o.tenantRedisFiles...)
	for i, pair := range slices.Concat(o.tenantRedis, o.tenantRedisFiles) {
		name, form := "tenant-redis", "URL (a comma in a URL as %2C)"
		isFile := i >= len(o.tenantRedis)
		if isFile {
			name, form = "tenant-redis-file", "FILE"
		}
		from := cli.Origin(flags.Lookup(name))
		about := fmt.Sprintf("%s %q", from, shown[i])
		tenant, url, _ := strings.Cut(pair, "=")
		if !slices.Contains(o.Plugins.Tenants, tenant) {
			return nil, cli.Usagef("%s: the host serves no such tenant: write TENANT=%s, with one of %s", about, form,
				strings.Join(o.Plugins.Tenants, ", "))
		}
		if _, twice := urls[tenant]; twice {
			return nil, cli.Usagef("%s: the tenant has a URL already: leave one of them out", about)
		}
		if isFile {
			var err error
			if url, err = connect.ReadURL(about, url); err != nil {
				return nil, err
			}
			from = about
		}
		urls[tenant] = tenantURL{url, from}
	}
	return urls, nil
}

// flagGroup is a group of flags in the help.
type flagGroup struct {
	title string
	names []string
}

// hostGroups are the flags of `quern serve` and `quern dev`, grouped by purpose. The group without names has all other
// flags.
var hostGroups = []flagGroup{
	{"What it serves", []string{"plugins", "tenants", "queues", "name", "source", "engines", "registry", "registry-config"}},
	{"How much it runs at a time", []string{"concurrency", "webhooks", "memory", "database-connections", "idle-unload"}},
	{"What tasks may use, whatever a manifest says", []string{
		"max-timeout", "max-cpu", "ceiling", "max-queues",
		"grants", "require-signed",
	}},
	{"What handlers may reach", []string{"allow-networks", "proxy", "secrets"}},
	{"When a task fails, or its host", []string{"max-attempts", "max-crashes", "keep-bad-releases", "lease", "grace"}},
	{"Finished tasks", []string{"keep", "keep-tasks", "purge-foreign"}},
	{"Redis and databases", []string{"redis-port", "poll", "tenant-redis", "tenant-redis-file", "sources"}},
	{"Isolation and compilation", []string{"confine", "reset", "cache", "compile-memory", "compile-time"}},
	{"Log, metrics and traces", []string{"log-level", "log-format", "http", "native-histograms", "otlp"}},
	{"API", []string{"admin", "tokens", "admin-cert", "admin-key", "admin-ca", "base-path"}},
	{"Other flags", nil},
}

// GroupFlags makes a command's help list its flags in groups. Flags without a group come last.
func GroupFlags(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	grouped := make([]*pflag.FlagSet, len(hostGroups))
	for i := range grouped {
		grouped[i] = pflag.NewFlagSet("", pflag.ContinueOnError)
	}
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		i := slices.IndexFunc(hostGroups, func(g flagGroup) bool {
			return slices.Contains(g.names, flag.Name) ||
				g.names == nil
		})
		grouped[i].AddFlag(flag)
	})
	var text strings.Builder
	for i, group := range hostGroups {
		if grouped[i].HasFlags() {
			text.WriteString(group.title + ":\n" + grouped[i].FlagUsages() + "\n")
		}
	}
	const all = "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	cmd.SetUsageTemplate(strings.Replace(cmd.UsageTemplate(), all, strings.TrimRight(text.String(), "\n"), 1))
}

// tenantURLs is a flag that takes TENANT=URL and can be given several times. String and GetSlice hide passwords.
type tenantURLs []string

func (u *tenantURLs) String() string { return strings.Join(u.GetSlice(), ",") }

func (u *tenantURLs) Type() string { return "TENANT=URL" }

// Set is part of pflag.Value. urlsOfTenants checks the values.
func (u *tenantURLs) Set(text string) error {
	*u = append(*u, strings.Split(text, ",")...)
	return nil
}

// Append is part of pflag.SliceValue.
func (u *tenantURLs) Append(text string) error { *u = append(*u, text); return nil }

// Replace is part of pflag.SliceValue.
func (u *tenantURLs) Replace(list []string) error { *u = slices.Clone(list); return nil }

// Redact hides the passwords in a value.
func (*tenantURLs) Redact(value string) string {
	list := tenantURLs(strings.Split(value, ","))
	return list.String()
}

// GetSlice is part of pflag.SliceValue. It hides the whole of a URL that cannot be parsed, because any part of that can
// belong to a password.
func (u *tenantURLs) GetSlice() []string {
	list := make([]string, len(*u))
	for i, pair := range *u {
		const hidden = "xxxxx"
		tenant, url, _ := strings.Cut(pair, "=")
		list[i] = hidden
		if shown := queue.Redact(url); shown != hidden && queue.ValidTenant(tenant) == nil {
			list[i] = tenant + "=" + shown
		}
	}
	return list
}

// RegistryFlags adds the flags of registries.
func (o *Options) RegistryFlags(f *pflag.FlagSet) {
	o.registries.flags(f)
	f.Lookup("plugins").Usage += "; " + plugins.NoDir + ": only releases of quern plugin push"
}

// NoPlugins reports whether the plugin directory does not exist, although the host has one.
func (o *Options) NoPlugins() bool {
	_, err := os.Stat(o.Plugins.Dir)
	return err != nil && o.Plugins.Dir != plugins.NoDir
}
