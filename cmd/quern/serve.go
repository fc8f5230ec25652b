package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/host"
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
	maxCPU      time.Duration
	maxQueues   int
	ceilings    []string
	maxAttempts int
	maxCrashes  int
	keep        time.Duration
	keepTasks   int
	foreign     bool
	cache       string
	idleUnload  time.Duration
	secrets     string
	grants      string
	networks    []string
	proxy       string
	logLevel    *choice
	logFormat   *choice
	http        string

	tenantRedis      tenantURLs
	tenantRedisFiles []string
}

// newHostOptions adds the settings of a node host to a command; http is the default of --http.
func newHostOptions(cmd *cobra.Command, http string) *hostOptions {
	o := &hostOptions{
		memory:   memorySetting{percent: 75},
		logLevel: &choice{"info", []string{"trace", "debug", "info", "warn", "error"}}, logFormat: newChoice("text", "json"),
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.tenants, "tenants", []string{queue.DefaultTenant}, "whose queues to serve: key prefixes in Redis")
	f.StringVar(&o.plugins, "plugins", "./handlers", "plugin `DIR`: NAME.wasm serves the queue NAME, TENANT/NAME.wasm that of one tenant")
	f.StringSliceVar(&o.queues, "queues", nil, "which of the queues that have a plugin: names, globs, !exclusions (default all)")
	f.IntVar(&o.concurrency, "concurrency", 0, "how many tasks run at a time; 0, the default, for 2 × cores, at least 4")
	f.Var(&o.memory, "memory", "what all running tasks together may take: a size, or a share of the memory there is")
	newPeriod(f, &o.lease, "lease", 10*time.Second, "how long this host counts as alive after it was last heard of")
	newPeriod(f, &o.grace, "grace", 30*time.Second, "how long running tasks may go on after SIGTERM")
	newPeriod(f, &o.poll, "poll", 5*time.Second, "poll interval for producers that do not notify, ± 20 %")
	newPeriod(f, &o.maxTimeout, "max-timeout", 0, "longest time that a task may run, whatever its manifest says (default none)")
	newPeriod(f, &o.maxCPU, "max-cpu", 0, "most computing of a task, whatever its manifest says: 1s is 10⁹ fuel, on every machine the same (default none)")
	f.StringSliceVar(&o.ceilings, "ceiling", nil, "most of a limit that a task has, whatever its manifest says, such as limits.memory=256MiB or retry.max_attempts=10 (default none)")
	f.IntVar(&o.maxQueues, "max-queues", 1000, "most queues that the plugins of a tenant serve, all together; once it has as many, its handlers enqueue to no new one")
	o.maxAttempts = 1
	f.Var((*attempts)(&o.maxAttempts), "max-attempts", "how many attempts a task has for which neither its producer nor its manifest says, or unlimited")
	f.IntVar(&o.maxCrashes, "max-crashes", queue.DefaultMaxCrashes, "how many hosts a task may lose before it fails, unless its manifest says fewer")
	newPeriod(f, &o.keep, "keep", 7*24*time.Hour, "how long finished tasks are kept; 0s for ever")
	f.IntVar(&o.keepTasks, "keep-tasks", 100_000, "how many complete tasks of a queue are kept, and how many failed ones; 0 for all")
	f.BoolVar(&o.foreign, "purge-foreign", false, "forget also finished tasks that clients other than Quern's enqueued: they may want to read them")
	f.StringVar(&o.cache, "cache", "", "`DIR` of compiled plugins, private to this user (default quern/compiled in the user's cache folder)")
	f.StringSliceVar(&o.networks, "allow-networks", nil, "networks that handlers may reach by HTTP beside the public ones, such as 10.0.0.0/8 (default none)")
	f.Var((*urlValue)(&o.proxy), "proxy", "`URL` of the proxy for what handlers send by HTTP (default none, whatever the environment says)")
	f.StringVar(&o.secrets, "secrets", "", "`DIR` of secrets: TENANT/NAME holds the one that a manifest names (default none)")
	grantsFlag(f, &o.grants)
	newPeriod(f, &o.idleUnload, "idle-unload", 5*time.Minute, "how long a plugin may be idle until its code and instances are given back; 0s never")
	engineFlags(f)
	f.Var(o.logLevel, "log-level", "trace, debug, info, warn or error")
	f.Var(o.logFormat, "log-format", "text or json")
	f.StringVar(&o.http, "http", http, "`ADDRESS` of /metrics, /healthz and /readyz; port 0 for a free one")
	return o
}

func newServe(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node host until SIGTERM; a second SIGTERM gives running tasks back at once",
		Args:  arguments(0, 0),
	}
	o := newHostOptions(cmd, "127.0.0.1:9464")
	cmd.Flags().Var(&o.tenantRedis, "tenant-redis", "`TENANT=URL`: serve this tenant with a Redis user, or a Redis, of its own (default that of --redis)")
	cmd.Flags().StringSliceVar(&o.tenantRedisFiles, "tenant-redis-file", nil, "`TENANT=FILE` that holds such a URL, for secrets that are mounted as files")
	confined := newConfinement(cmd.Flags())
	check := cmd.Flags().Bool("check", false, "print the settings that would hold, secrets hidden, and end")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		url, err := redisURL(cmd)
		if err != nil {
			return err
		}
		if url == "" {
			url = defaultRedis
		}
		confined.prepare()
		defer confined.close()
		n, err := newNode(cmd, env, o, url)
		if err != nil {
			return err
		}
		defer n.close()
		if *check {
			if _, err := os.Stat(o.plugins); err != nil {
				n.logger.Warn("the plugin directory does not exist: make it, or name another with --plugins", "dir", o.plugins)
			}
			return printSettings(cmd, url)
		}
		if err := confined.begin(n); err != nil {
			return err
		}
		return n.run(cmd.Context(), nil)
	}
	return cmd
}

// validate refuses values that cannot be. The packages behind would refuse most of them as well, but
// do not know where a value comes from.
func (o *hostOptions) validate(flags *pflag.FlagSet) error {
	_, port, badAddress := net.SplitHostPort(o.http)
	if badAddress == nil {
		_, badAddress = net.DefaultResolver.LookupPort(context.Background(), "tcp", port)
	}
	badGlob := slices.ContainsFunc(o.queues, func(pattern string) bool {
		pattern = strings.TrimPrefix(pattern, "!")
		_, err := path.Match(pattern, "")
		return err != nil || pattern == ""
	})
	badTenant := slices.ContainsFunc(o.tenants, func(tenant string) bool { return queue.ValidTenant(tenant) != nil })
	twice := len(slices.Compact(slices.Sorted(slices.Values(o.tenants)))) < len(o.tenants)
	rules := []struct {
		name    string
		broken  bool
		allowed string
	}{
		{"tenants", badTenant || len(o.tenants) == 0, tenantRule},
		{"tenants", twice, "use each name once"},
		{"plugins", o.plugins == "", "use the path of a folder"},
		{"queues", badGlob, "use names or globs like mail.*, with ! before those to exclude"},
		{"concurrency", o.concurrency < 0 || o.concurrency > 10_000, "use 1 to 10000, or 0 for 2 × cores, at least 4"},
		{"lease", o.lease < time.Second || o.lease > time.Hour, "use 1s to 1h"},
		{"max-queues", o.maxQueues < 1 || o.maxQueues > 1_000_000, "use 1 to 1000000"},
		{"max-attempts", o.maxAttempts > 1_000_000, "use 1 to 1000000, or " + unlimited},
		{"max-crashes", o.maxCrashes < 1, "use 1 or more"},
		{"keep-tasks", o.keepTasks < 0, "use 1 or more, or 0 for all"},
		{"poll", o.poll < 10*time.Millisecond, "use at least 10ms"},
		{"http", badAddress != nil, "use HOST:PORT, with port 0 for a free one"},
	}
	for _, rule := range rules {
		if flag := flags.Lookup(rule.name); rule.broken {
			return usagef("%s %q: %s", origin(flag), flag.Value.String(), rule.allowed)
		}
	}
	if info, err := os.Stat(o.secrets); o.secrets != "" && (err != nil || !info.IsDir()) {
		return wrongValue(flags.Lookup("secrets"), o.secrets, errors.New("is no folder that can be read: name the one that holds TENANT/NAME"))
	}
	return o.checkPlugins(flags)
}

// checkPlugins refuses what is no folder of plugins. One that is missing may be made later: the host waits for it.
func (o *hostOptions) checkPlugins(flags *pflag.FlagSet) error {
	_, err := os.ReadDir(o.plugins)
	var wrong *fs.PathError
	if errors.Is(err, fs.ErrNotExist) || !errors.As(err, &wrong) {
		return nil
	}
	return wrongValue(flags.Lookup("plugins"), o.plugins, fmt.Errorf("%w: name a folder that this user may read", wrong.Err))
}

// config is what the settings mean to a host, but for what the machine and the program add.
func (o *hostOptions) config() host.Config {
	return host.Config{
		Concurrency: o.concurrency, Queues: o.queues, Poll: o.poll,
		Grace:      max(o.grace, time.Nanosecond), // zero would be the default
		MaxCrashes: o.maxCrashes, MaxQueues: o.maxQueues, Retry: queue.Retry{MaxAttempts: o.maxAttempts},
		Keep: orNone(o.keep), KeepTasks: orNone(int64(o.keepTasks)), PurgeForeign: o.foreign,
	}
}

// orNone is a bound as a host takes it, to which zero means the default and a negative one none.
func orNone[T ~int64](bound T) T {
	if bound == 0 {
		return -1
	}
	return bound
}

// printSettings writes the settings as YAML that --config would take, secrets hidden.
func printSettings(cmd *cobra.Command, redisURL string) error {
	settings := make(map[string]any)
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		value := shown(flag, flag.Value.String())
		switch list, ok := flag.Value.(pflag.SliceValue); {
		case flag.Name == "check" || flag.Name == "config" || flag.Name == "help":
		case flag.Name == "redis" || flag.Name == "redis-file" && value == "":
		case ok:
			settings[flag.Name] = list.GetSlice()
		case flag.Value.Type() == "int", flag.Value.Type() == "number" && value != unlimited:
			settings[flag.Name], _ = strconv.Atoi(value)
		case flag.Value.Type() == "bool":
			settings[flag.Name] = value == "true"
		default:
			settings[flag.Name] = value
		}
	})
	if settings["redis-file"] == nil {
		settings["redis"] = queue.Redact(redisURL)
	}
	text, err := yaml.Parser().Marshal(settings)
	if err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}
