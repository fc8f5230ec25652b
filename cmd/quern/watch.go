package main

import (
	"bytes"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

// clientRun is a command that needs a client.
type clientRun = func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error

// frame is what a command prints at one look, for the stream that gets it.
type frame struct {
	bytes.Buffer
	out io.Writer
}

// watchable adds --watch to a command: it runs again and again, and prints what has changed. A run that calls end is the last one.
func watchable(cmd *cobra.Command, run func(end func()) clientRun) clientRun {
	var every time.Duration
	newPeriodWithin(cmd.Flags(), &every, "watch", 0, 100*time.Millisecond, math.MaxInt64, "use at least 100ms", "look again, every 2s or as given, and print what has changed")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	notSettings(cmd.Flags(), "watch")
	return func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error {
		last := every == 0
		once := run(func() { last = true })
		if last {
			return once(cmd, client, args, json)
		}
		out, shown := cmd.OutOrStdout(), ""
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			now := &frame{out: out}
			cmd.SetOut(now)
			err := once(cmd, client, args, json)
			text := now.String()
			if text != shown && isTerminal(out) {
				now = &frame{}
				now.WriteString("\x1b[H\x1b[2J" + text) // from the top of an empty screen
			}
			if text != shown {
				if _, err := now.WriteTo(out); err != nil {
					return err
				}
			}
			if shown = text; err != nil || last {
				return err
			}
			cmd.SetErr(io.Discard) // notes are for the first look
			select {
			case <-cmd.Context().Done():
				return nil
			case <-ticker.C:
			}
		}
	}
}
