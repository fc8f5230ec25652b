package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/runtime/crash"
)

// crashMonitor is the command of a process that a host starts to be told of its crash.
const crashMonitor = "crash-monitor"

func newCrashMonitor() *cobra.Command {
	return &cobra.Command{
		Use: crashMonitor, Short: "Name the task that a host has died of, for a host that has started this process",
		Hidden:            true,
		Args:              arguments(0, 0),
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // needs no settings
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // it ends with its host, after what that does last
			return crash.Watch(cmd.InOrStdin(), cmd.ErrOrStderr())
		},
	}
}

// watchCrashes starts a monitor of this process, and returns what it reads and what ends it. A host without one works
// as well.
func watchCrashes(logger hclog.Logger) (table *crash.Table, end func()) {
	program, err := ownCommand(crashMonitor)
	if err == nil {
		var monitor *crash.Monitor
		if monitor, err = crash.Start(program, func(err error) {
			logger.Warn("the crash monitor has ended: a crash of this host will not name the task that it dies of", "error", err)
		}); err == nil {
			return monitor.Table, func() {
				if err := monitor.Close(); err != nil {
					logger.Debug("the crash monitor did not end well", "error", err)
				}
			}
		}
	}
	logger.Info("a crash of this host will not name the task that it dies of", "error", err)
	return nil, func() {}
}
