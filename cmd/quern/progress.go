package main

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// progressInterval is how often a terminal shows how far a command is.
const progressInterval = 200 * time.Millisecond

// progress is a line on a terminal that is written again and again. Elsewhere it shows nothing. It is safe for concurrent use.
type progress struct {
	w io.Writer // nil if that is no terminal

	mu    sync.Mutex // guards what follows
	last  time.Time
	shown bool
}

func newProgress(w io.Writer) *progress {
	if !isTerminal(w) {
		w = nil
	}
	return &progress{w: w}
}

// show writes the line, cut to the terminal's width: a longer one could not be written over. It does not if that was done a moment ago.
func (p *progress) show(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.w != nil && now.Sub(p.last) >= progressInterval {
		line := fmt.Sprintf(format, args...)
		fmt.Fprint(p.w, "\r\x1b[K"+ansi.Truncate(line, cmp.Or(widthOf(terminalOf(p.w)), len(line)), "…"))
		p.last, p.shown = now, true
	}
}

// clear removes the line.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
