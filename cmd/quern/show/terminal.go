package show

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// ProgressInterval is how often a progress line is rewritten.
const ProgressInterval = 200 * time.Millisecond

// Progress is a line on a terminal that is rewritten. On other streams it shows nothing. It is safe for concurrent use.
type Progress struct {
	w io.Writer // nil if that is no terminal

	mu    sync.Mutex // guards what follows
	last  time.Time
	shown bool
}

// NewProgress makes the line of a stream.
func NewProgress(w io.Writer) *Progress {
	if !IsTerminal(w) {
		w = nil
	}
	return &Progress{w: w}
}

// Shows reports whether somebody sees the line.
func (p *Progress) Shows() bool { return p.w != nil }

// Show rewrites the line, at most once per interval. It cuts it to the terminal's width: a longer line could not be
// rewritten.
func (p *Progress) Show(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.w != nil && now.Sub(p.last) >= ProgressInterval {
		line := fmt.Sprintf(format, args...)
		fmt.Fprint(p.w, "\r\x1b[K"+ansi.Truncate(line, cmp.Or(widthOf(terminalOf(p.w)), len(line)), "…"))
		p.last, p.shown = now, true
	}
}

// Clear removes the line.
func (p *Progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

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

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool { return terminalOf(stream) != nil }

// terminalOf returns the terminal that a stream is, nil if it is none.
func terminalOf(stream any) *os.File {
	if of, ok := stream.(*frame); ok {
		stream = of.out
	}
	if f, ok := stream.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return f
	}
	return nil
}

// widthOf is the number of a terminal's columns, 0 if unknown.
func widthOf(terminal *os.File) int {
	size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
