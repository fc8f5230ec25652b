package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/crash"
	"github.com/quern-project/quern/runtime/snapshot"
)

const (
	resetName         = "reset"
	resetAuto         = "auto"
	compileTimeName   = "compile-time"
	compileMemoryName = "compile-memory"
)

// engineFlags adds the settings of an engine, which engineConfig reads.
func engineFlags(flags *pflag.FlagSet) {
	resetFlag(flags)
	newPeriodWithin(flags, new(time.Duration), compileTimeName, runtime.DefaultCompileTime, time.Second, 30*time.Minute, "use 1s to 30m",
		"longest processor time to compile a plugin; it gets 4s, and 6s for each MiB of its code, up to this")
	memory := runtime.DefaultCompileMemory
	newSize(flags, &memory, compileMemoryName,
		"most memory to compile a plugin; it gets 512MiB, and 64MiB for each MiB of its code, up to this; all together twice this", 64<<20)
}

// resetFlag adds the reset mode of instances.
func resetFlag(flags *pflag.FlagSet) {
	modes := newChoice(resetAuto, string(runtime.ResetScan), string(runtime.ResetPagemap), string(runtime.ResetCopy), string(runtime.ResetNew))
	flags.Var(modes, resetName, "how an instance is made pristine for the next task: scan, pagemap, copy, new, or auto for the best that works here")
}

// engineConfig reads the flags of engineFlags.
func engineConfig(flags *pflag.FlagSet) (config runtime.Config, err error) {
	config.CompileTime = valueOf[time.Duration](flags, compileTimeName)
	config.CompileMemory = valueOf[int64](flags, compileMemoryName)
	flag := flags.Lookup(resetName)
	if mode := runtime.ResetMode(flag.Value.String()); mode != resetAuto {
		config.ResetMode = mode
		err = checkResetMode(flag, mode, snapshot.Probe())
	}
	return config, err
}

// checkResetMode refuses a reset mode that does not work on this system.
func checkResetMode(flag *pflag.Flag, forced runtime.ResetMode, verdicts []snapshot.Verdict) error {
	for _, v := range verdicts {
		if v.Mode == forced && v.Err != nil {
			return usagef("%s %q: it does not work here (%w): use %s", origin(flag), forced, v.Err, resetAuto)
		}
	}
	return nil
}

// newEngine makes the engine and returns its cache folder. The folder of --cache must be usable; without --cache, an
// engine whose user has no usable cache folder works without one.
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
		config.CacheDir = filepath.Join(dir, "quern", "compiled")
		var engine *runtime.Engine
		engine, err = runtime.New(ctx, config)
		var unusable *fs.PathError
		if err == nil || !errors.As(err, &unusable) && !errors.Is(err, runtime.ErrCacheDir) {
			return engine, config.CacheDir, err
		}
	}
	config.Logger.Warn("no cache folder: plugins are compiled at every start; name a folder with --cache", "error", err)
	config.CacheDir = ""
	engine, err := runtime.New(ctx, config)
	return engine, "", err
}

// spareThreads is how many goroutines of the host may run while guests occupy all cores.
const spareThreads = 2

// guestPlaces is how many guests compute at the same time: one for each core. A guest keeps its thread for a quarter of
// a millisecond, during which Go runs nothing else on it; and while any goroutine is ready, Go polls the network only
// every 10 ms. So Go may use more threads than there are cores, and the operating system, which can interrupt a guest,
// shares the cores.
var guestPlaces = sync.OnceValue(func() int {
	cores := goruntime.GOMAXPROCS(0)
	goruntime.GOMAXPROCS(cores + spareThreads)
	return cores
})

const (
	// heapOfSlot is what a task may take of Go's own heap: its input and output by default, and the call
	// stack of a guest that recurses without end.
	heapOfSlot = 32<<20 + 128<<20
	heapOfHost = 128 << 20
)

// boundHeap makes the collector work harder where tasks leave much garbage at once. By itself it lets the heap grow to
// twice the live size: eight guests that recursed without end took 2 GiB. The bound is soft; GOMEMLIMIT overrides it.
func boundHeap(slots int) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapOfHost + int64(slots)*heapOfSlot)
	}
}

// The hidden commands of the processes that a host starts.
const (
	compileChild = "compiler"
	crashMonitor = "crash-monitor"
)

func newCompileChild() *cobra.Command {
	return &cobra.Command{
		Use: compileChild + " MEMORY SECONDS SIZE", Short: "Compile the module on stdin for the host that started this process",
		Hidden:            true,
		Args:              arguments(3, 3),
		PersistentPreRunE: withoutSettings,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runtime.CompileChild(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

func newCrashMonitor() *cobra.Command {
	return &cobra.Command{
		Use: crashMonitor, Short: "Name the task that crashed the host that started this process",
		Hidden:            true,
		Args:              arguments(0, 0),
		PersistentPreRunE: withoutSettings,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // it outlives its host
			return crash.Watch(cmd.InOrStdin(), cmd.ErrOrStderr())
		},
	}
}

// watchCrashes starts a monitor of this process. It returns the table that the monitor reads, and a function that ends
// it. A host works without a monitor, too: then the table is nil.
func watchCrashes(logger hclog.Logger) (table *crash.Table, end func()) {
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

// ownCommand is the command line of one of this program's commands.
func ownCommand(name string) ([]string, error) {
	if goruntime.GOOS == "linux" {
		return []string{"/proc/self/exe", name}, nil // the running file, even after an update replaced it
	}
	program, err := os.Executable()
	return []string{program, name}, err
}
