package runtime

import (
	"bytes"
	"context"
	"fmt"
	"runtime/debug"
)

const (
	// maxLine is where a line of stderr is cut into pieces, in bytes.
	maxLine = 8 << 10
	// maxTail is how much of stderr is kept for the outcome, in bytes.
	maxTail = 4 << 10
)

// logs cuts a guest's stderr into lines, hands each on as soon as it is complete, and keeps the end.
type logs struct {
	limit   int64
	written int64
	line    func(string) // nil drops the lines
	stop    context.CancelCauseFunc
	broken  bool // line has panicked

	partial []byte // a line that has not ended yet, at most maxLine bytes
	tail    []byte // sanitized lines, each with its newline
}

// Write implements io.Writer for wazero. What would pass the limit ends the guest; what came before
// is still logged.
func (l *logs) Write(p []byte) (int, error) {
	defer guard()
	within := p[:min(int64(len(p)), l.limit-l.written)]
	l.written += int64(len(within))
	l.split(within)
	if len(within) < len(p) {
		l.stop(logExceeded(l.limit))
	}
	if l.broken || len(within) < len(p) {
		unwind()
	}
	return len(p), nil
}

func (l *logs) split(p []byte) {
	for len(p) > 0 {
		piece, rest, ended := bytes.Cut(p, []byte("\n"))
		p = rest
		l.partial = append(l.partial, piece...)
		for len(l.partial) > maxLine {
			long := prefix(l.partial, maxLine)
			l.emit(long)
			l.partial = append(l.partial[:0], l.partial[len(long):]...)
		}
		if ended {
			l.emit(bytes.TrimSuffix(l.partial, []byte("\r")))
			l.partial = l.partial[:0]
		}
	}
}

// flush hands on a last line that has no newline. The guest has ended.
func (l *logs) flush() {
	if len(l.partial) > 0 {
		l.emit(l.partial)
		l.partial = nil
	}
}

func (l *logs) emit(line []byte) {
	text := sanitize(line)
	l.tail = append(append(l.tail, text...), '\n')
	if len(l.tail) > 4*maxTail {
		l.tail = append(l.tail[:0], suffix(l.tail, 2*maxTail)...)
	}
	if l.line != nil && !l.broken {
		l.handOn(text)
	}
}

// handOn calls the host's function. It runs below the guest, where wazero would take a panic for the
// guest's: it is caught here and becomes the cause of the outcome.
func (l *logs) handOn(text string) {
	defer func() {
		if p := recover(); p != nil {
			l.broken = true
			l.stop(&faultError{fmt.Errorf("panic in the log function of a call: %v\n%s", p, debug.Stack())})
		}
	}()
	l.line(text)
}

// end is the end of what was logged, at most maxTail bytes, without the last newline.
func (l *logs) end() string {
	return string(suffix(bytes.TrimRight(l.tail, "\n"), maxTail))
}
