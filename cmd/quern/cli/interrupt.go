package cli

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Interruptibly calls run. On Ctrl-C it prints the error that interrupted returns, then ends the process by SIGINT, so
// that a loop in a shell ends as well.
func Interruptibly(cmd *cobra.Command, run, interrupted func() error) error {
	if signal.Ignored(os.Interrupt) { // in the background of a script
		return run()
	}
	before := cmd.Context()
	ctx, stop := signal.NotifyContext(before, os.Interrupt)
	defer stop()
	cmd.SetContext(ctx)
	err := run()
	if err == nil || ctx.Err() == nil || before.Err() != nil {
		return err
	}
	err = interrupted()
	Report(WithHints(cmd, err), cmd.ErrOrStderr())
	stop()
	if syscall.Kill(os.Getpid(), syscall.SIGINT) == nil {
		<-time.After(time.Second) // another thread gets the signal
	}
	return err
}
