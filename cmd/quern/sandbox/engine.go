// Package sandbox has the settings of the sandbox in which handlers run, for hosts and for commands that run a plugin
// on this machine: the engine, the services outside the sandbox, and the grants of tenants. It also has the hidden
// commands of the processes that a host starts.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/compile"
	"github.com/quern-project/quern/runtime/crash"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/snapshot"
	"github.com/quern-project/quern/sdk/queue"
)

// resetAuto selects the best reset mode that works on this system.
const resetAuto = "auto"

// EngineFlags adds the settings of an engine to a command.
func EngineFlags(flags *pflag.FlagSet) *runtime.Config {
	config := &runtime.Config{CompileMemory: compile.DefaultMemory}
	reset := func(word string) (runtime.ResetMode, error) { return resetMode(word, snapshot.Probe) }
	show := func(mode runtime.ResetMode) string { return cmp.Or(string(mode), resetAuto) }
	option.Parsed(flags, &config.ResetMode, "word", reset, show, "reset",
		"how an instance is made pristine for the next task: scan, pagemap, copy, new, or auto for the best that works here")
	option.DurationWithin(flags, &config.CompileTime, "compile-time", compile.DefaultTime, time.Second, 30*time.Minute,
		"use 1s to 30m",
		"longest processor time to compile a plugin; it gets 4s, and 6s for each MiB of its code, up to this")
	option.Size(flags, &config.CompileMemory, "compile-memory",
		"most memory to compile a plugin; it gets 512MiB, and 64MiB for each MiB of its code, up to this; all together twice this", 64<<20)
	return config
}

// resetMode reads a reset mode, and refuses one that does not work on this system.
func resetMode(word string, probe func() []snapshot.Verdict) (runtime.ResetMode, error) {
	if word == resetAuto {
		return "", nil
	}
	for _, v := range probe() {
		switch {
		case string(v.Mode) != word:
		case v.Err != nil:
			return "", fmt.Errorf("it does not work here (%w): use %s", v.Err, resetAuto)
		default:
			return v.Mode, nil
		}
	}
	return "", errors.New("use auto, scan, pagemap, copy or new")
}

// NewEngine makes the engine and returns its cache folder. The folder of --cache must be usable. Without --cache, an
// engine also works if the default folder is unusable: then it has no cache.
func NewEngine(ctx context.Context, env cli.Environment, config runtime.Config) (*runtime.Engine, string, error) {
	var err error
	if config.Compiler, err = ownCommand(compileChild); err != nil {
		return nil, "", err
	}
	config.Guests = GuestPlaces()
	named := config.CacheDir != ""
	dir, err := env.CacheDir()
	if named || err == nil {
		config.CacheDir = cmp.Or(config.CacheDir, filepath.Join(dir, "quern", "compiled"))
		var engine *runtime.Engine
		engine, err = runtime.New(ctx, config)
		var unusable *fs.PathError
		if named || err == nil || !errors.As(err, &unusable) && !errors.Is(err, compile.ErrDirectory) {
			return engine, config.CacheDir, err
		}
	}
	config.Logger.Warn("no cache folder: plugins are compiled at every start; name a folder with --cache", "error", err)
	config.CacheDir = ""
	engine, err := runtime.New(ctx, config)
	return engine, "", err
}

// spareThreads is the number of the host's goroutines that can run while guests occupy all cores.
const spareThreads = 2

// GuestPlaces returns how many guests compute at the same time: one for each core. It also lets Go use more threads
// than there are cores. A guest keeps its thread for a quarter of a millisecond, during which Go runs nothing else on
// it; and while any goroutine is ready, Go polls the network only every 10 ms. With more threads, the operating system,
// which can interrupt a guest, shares the cores.
var GuestPlaces = sync.OnceValue(func() int {
	cores := goruntime.GOMAXPROCS(0)
	goruntime.GOMAXPROCS(cores + spareThreads)
	return cores
})

const (
	// heapOfSlot is how much of Go's heap each task can need, in bytes: 32 MiB for input and output at their default
	// limits, and 128 MiB for the call stack of a guest that recurses without end. heapOfHost is what the host itself
	// needs.
	heapOfSlot = 32<<20 + 128<<20
	heapOfHost = 128 << 20
)

// BoundHeap sets a soft limit for Go's memory. Near the limit the collector works harder: when tasks leave much garbage
// at once, or the host has little memory for tasks. Without a limit, the heap grows to twice the live size: eight
// guests that recursed without end took 2 GiB. GOMEMLIMIT overrides the limit.
func BoundHeap(slots int, memory int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapOfHost + min(int64(slots)*heapOfSlot, memory))
	}
}

// Names of the hidden commands, which run in processes that a host starts.
const (
	compileChild = "compiler"
	crashMonitor = "crash-monitor"
)

// Commands returns the hidden commands.
func Commands() []*cobra.Command {
	return []*cobra.Command{{
		Use: compileChild + " MEMORY SECONDS SIZE", Short: "Compile the module on stdin for the host that started this process",
		Hidden: true, Args: cli.Arguments(3, 3), PersistentPreRunE: cli.WithoutSettings,
		RunE: func(cmd *cobra.Command, args []string) error {
			return compile.Child(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}, {
		Use: crashMonitor, Short: "Name the task that crashed the host that started this process",
		Hidden: true, Args: cli.Arguments(0, 0), PersistentPreRunE: cli.WithoutSettings,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // the monitor outlives its host
			return crash.Watch(cmd.InOrStdin(), cmd.ErrOrStderr())
		},
	}}
}

// WatchCrashes starts a crash monitor of this process. It returns the table that the monitor reads, and a function that
// ends the monitor. If there is no monitor, the table is nil; a host works without it.
func WatchCrashes(logger hclog.Logger) (table *crash.Table, end func()) {
	const lost = "no crash monitor: a crash of this host will not name the task that caused it"
	program, err := ownCommand(crashMonitor)
	var monitor *crash.Monitor
	if err == nil {
		monitor, err = crash.Start(program, func(err error) { logger.Warn(lost, "error", err) })
	}
	if err != nil {
		logger.Info(lost, "error", err)
		return nil, func() {}
	}
	return monitor.Table, func() {
		if err := monitor.Close(); err != nil {
			logger.Debug("end crash monitor", "error", err)
		}
	}
}

// ownCommand returns the command line that runs a command of this program.
func ownCommand(name string) ([]string, error) {
	if goruntime.GOOS == "linux" {
		return []string{"/proc/self/exe", name}, nil // the running file, even after an update replaced it
	}
	program, err := os.Executable()
	return []string{program, name}, err
}

// Services holds the settings of what handlers can reach outside the sandbox.
type Services struct {
	networks       []string
	proxy, Secrets string
	SecretsLater   bool // the folder Secrets may be made later
}

// Flags adds the settings to a command.
func (o *Services) Flags(f *pflag.FlagSet) {
	option.List(f, &o.networks, "allow-networks", nil,
		"networks that handlers may reach by HTTP in addition to public ones, such as 10.0.0.0/8 (default none)")
	option.Text(f, &o.proxy, "URL", "proxy", "`URL` of the proxy for HTTP requests of handlers (default none, whatever the environment says)")
	f.StringVar(&o.Secrets, "secrets", "", "`DIR` of secrets: TENANT/NAME is the secret NAME of a manifest (default none)")
}

// GrantsFlag adds --grants.
func GrantsFlag(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "grants", "", "`FILE` with the most that each tenant is granted, and its config and secrets; read at the start (default: manifests alone decide)")
}

// LoadGrants reads the file of --grants and calls check with its content. It returns nil without a file.
func LoadGrants(flags *pflag.FlagSet, path string, check func(*manifest.Grants) error) (*manifest.Grants, error) {
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
		return nil, cli.WrongUsage(err)
	case err != nil:
		return nil, cli.Usagef("%s %q: %w: name a YAML file that this user may read", cli.Origin(flags.Lookup("grants")),
			path, errors.Unwrap(err))
	}
	return grants, nil
}

// TenantGrantsFlags adds --grants and --tenant to a command that tries a plugin with the grants of a host. Only the
// command line sets --grants, because the plugin can be meant for another host than that of this machine.
func TenantGrantsFlags(f *pflag.FlagSet, path, tenant *string) {
	GrantsFlag(f, path)
	cli.NotSettings(f, "grants")
	f.StringVar(tenant, "tenant", queue.DefaultTenant, "whose grants to apply")
}

// LoadTenantGrants reads the file of --grants and checks the tenant. It returns nil without a file.
func LoadTenantGrants(flags *pflag.FlagSet, path, tenant string) (*manifest.Grants, error) {
	if err := queue.ValidTenant(tenant); err != nil {
		return nil, cli.Usagef("%s %q: %s", cli.Origin(flags.Lookup("tenant")), tenant, cli.TenantRule)
	}
	return LoadGrants(flags, path, func(g *manifest.Grants) error { return g.CheckTenants([]string{tenant}) })
}

// Egress returns the bounds on the HTTP requests of handlers. It also refuses a value of --secrets that is not a
// readable folder.
func (o *Services) Egress(flags *pflag.FlagSet) (config egress.Config, err error) {
	if info, err := os.Stat(o.Secrets); o.Secrets != "" && !o.SecretsLater && (err != nil || !info.IsDir()) {
		return config, cli.WrongValue(flags.Lookup("secrets"), o.Secrets,
			errors.New("not a readable folder: name the one with TENANT/NAME"))
	}
	for _, text := range o.networks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return config, cli.WrongValue(flags.Lookup("allow-networks"), text,
				errors.New("use an address and its bits, such as 10.0.0.0/8"))
		}
		config.Networks = append(config.Networks, network)
	}
	proxy := cli.Origin(flags.Lookup("proxy"))
	if o.proxy != "" {
		if config.Proxy, err = url.Parse(o.proxy); err != nil {
			// The error omits the text, which can contain a password.
			return config, cli.Usagef("%s: use a URL such as http://proxy.example.com:3128", proxy)
		}
	}
	if err := config.Validate(); err != nil { // the error is about the proxy: ParsePrefix has checked the networks
		return config, cli.Usagef("%s: %s", proxy, strings.TrimPrefix(err.Error(), "proxy: "))
	}
	return config, nil
}

// AllowLoopback lets requests also reach loopback addresses that their URL names. It is for commands of development: a
// host of `quern serve` leaves it to --allow-networks. tell gets one line at the first such request, which begins with
// what (who sends it, and a verb) and says that its reason (a subject, and a verb) allows it.
func AllowLoopback(config *egress.Config, what, reason string, tell func(text string)) {
	config.Loopback = func(origin string, addr netip.Addr) {
		tell(fmt.Sprintf("%s %s on this machine, as its %s; `quern serve` also needs --allow-networks %s", what, origin, reason,
			netip.PrefixFrom(addr, addr.BitLen())))
	}
}
