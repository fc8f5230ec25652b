package show

import (
	"bytes"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// frame is what a command prints at one look, for the stream that gets it.
type frame struct {
	bytes.Buffer
	out io.Writer
}

// Watch runs look until it returns an error, or the command ends.
func Watch(cmd *cobra.Command, every time.Duration, look func() error) error {
	out, shown := cmd.OutOrStdout(), ""
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		now := &frame{out: out}
		cmd.SetOut(now)
		err := look()
		if text := now.String(); text != shown {
			shown = text
			if IsTerminal(out) {
				text = "\x1b[H\x1b[2J" + text // from the top of an empty screen
			}
			if _, err := io.WriteString(out, text); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		if isUnread(out) { // while nothing changes, no write would fail
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
