package main

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"time"

	"github.com/quern-project/quern/host/admin"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// frame is what a command prints at one look, for the stream that gets it.
type frame struct {
	bytes.Buffer
	out io.Writer
}

// errSeen ends a look after which nothing will change.
var errSeen = errors.New("nothing more will change")

// watchable completes a command that prints something, and has --watch: it runs again and again, until errSeen or another error,
// and prints what has changed.
func watchable(env environment, cmd *cobra.Command, run clientRun) *cobra.Command {
	var every time.Duration
	newPeriodWithin(cmd.Flags(), &every, "watch", 0, 100*time.Millisecond, math.MaxInt64, "use at least 100ms", "look again, every 2s or as --watch=5s says, and print what has changed")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return printing(env, cmd, func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error {
		if flag := cmd.Flag("watch"); every != 0 && flag.Value.String() == flag.NoOptDefVal {
			for _, arg := range args {
				if _, err := time.ParseDuration(arg); err == nil {
					return usagef("--watch %s: use --watch=%s", arg, arg)
				}
			}
		}
		var err error
		if every == 0 {
			err = run(cmd, client, args, json)
		} else {
			err = watch(cmd, every, func() error { return run(cmd, client, args, json) })
		}
		if errors.Is(err, errSeen) {
			return nil
		}
		return err
	})
}

// watch runs look until it returns an error, or the command ends.
func watch(cmd *cobra.Command, every time.Duration, look func() error) error {
	out, shown := cmd.OutOrStdout(), ""
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		now := &frame{out: out}
		cmd.SetOut(now)
		err := look()
		if text := now.String(); text != shown {
			shown = text
			if isTerminal(out) {
				text = "\x1b[H\x1b[2J" + text // from the top of an empty screen
			}
			if _, err := io.WriteString(out, text); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		if isUnread(out) { // no write tells so as long as nothing changes
			return nil
		}
		cmd.SetErr(io.Discard) // notes are for the first look
		select {
		case <-cmd.Context().Done():
			return nil
		case <-ticker.C:
		}
	}
}

// isUnread reports whether a stream is a pipe that nobody reads any more.
func isUnread(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	state := []unix.PollFd{{Fd: int32(file.Fd())}}
	_, err := unix.Poll(state, 0)
	return err == nil && state[0].Revents&unix.POLLERR != 0
}
