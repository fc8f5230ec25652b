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

// ProgressInterval is the interval at which a progress line is rewritten.
const ProgressInterval = 200 * time.Millisecond

// Progress is a line on a terminal that is rewritten in place. On other streams it shows nothing. It is safe for
// concurrent use.
type Progress struct {
	w io.Writer // nil if the stream is no terminal

	mu    sync.Mutex // guards last and shown
	last  time.Time
	shown bool
}

// NewProgress makes a progress line for a stream.
func NewProgress(w io.Writer) *Progress {
	if !IsTerminal(w) {
		w = nil
	}
	return &Progress{w: w}
}

// Shows reports whether somebody sees the line.
func (p *Progress) Shows() bool { return p.w != nil }

// Show rewrites the line, at most once in ProgressInterval. It cuts the line to the terminal's width, because a longer
// line could not be rewritten.
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

// frame buffers what a command prints in one call of look. out is the stream that the frame is written to.
type frame struct {
	bytes.Buffer
	out io.Writer
}

// Watch calls look at once and then after each interval, until look returns an error, the command ends, or nobody reads
// its output any more. It prints what look prints, if that has changed.
func Watch(cmd *cobra.Command, interval time.Duration, look func() error) error {
	out, shown := cmd.OutOrStdout(), ""
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		now := &frame{out: out}
		cmd.SetOut(now)
		err := look()
		if text := now.String(); text != shown {
			shown = text
			if IsTerminal(out) {
				text = "\x1b[H\x1b[2J" + text // on a cleared screen
			}
			if _, err := io.WriteString(out, text); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		if isUnread(out) { // without a change there is no write that would fail
			return nil
		}
		cmd.SetErr(io.Discard) // print notes only the first time
		select {
		case <-cmd.Context().Done():
			return nil
		case <-ticker.C:
		}
	}
}

// isUnread reports whether a stream is a pipe whose reader has closed it.
func isUnread(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	state := []unix.PollFd{{Fd: int32(file.Fd())}}
	_, err := unix.Poll(state, 0)
	return err == nil && state[0].Revents&unix.POLLERR != 0
}

// HasInput reports whether there is something to read from a stream now, which is a file or a pipe, without waiting for
// more. It is false for a terminal, and for a device such as /dev/null.
func HasInput(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil {
		return false
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		at, err := file.Seek(0, io.SeekCurrent)
		return err == nil && at < info.Size()
	case mode&(os.ModeNamedPipe|os.ModeSocket) != 0:
		state := []unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLIN}}
		_, err := unix.Poll(state, 0)
		return err == nil && state[0].Revents&unix.POLLIN != 0
	}
	return false
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool { return terminalOf(stream) != nil }

// terminalOf returns the terminal that a stream writes to; nil if it writes to something else.
func terminalOf(stream any) *os.File {
	if of, ok := stream.(*frame); ok {
		stream = of.out
	}
	if f, ok := stream.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return f
	}
	return nil
}

// widthOf returns the number of a terminal's columns; 0 if unknown.
func widthOf(terminal *os.File) int {
	size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
