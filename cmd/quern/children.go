package main

import (
	"os"
	"os/signal"
	goruntime "runtime"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/crash"
)

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
