package show

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
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
