package runtime

import (
	"bytes"
	"fmt"
	"runtime/debug"
)

const (
	// maxLine is where a line of stderr is cut into pieces, in bytes.
	maxLine = 8 << 10
	// maxTail is how much of stderr is kept for the outcome, in bytes.
	maxTail = 4 << 10
)

// lineKind is what becomes of a line of stderr.
type lineKind int

const (
	// undecided: what has come of the line may still begin one of progress.
	undecided lineKind = iota
	// ordinary: a line of the log.
	ordinary
	// progress: a line for Call.Progress, which is not counted.
	progress
)

// maxHead is how much of a line it takes at most to tell its kind.
const maxHead = len(progressPrefix) + maxFraction + 1

// logs cuts a guest's stderr into lines, hands each on as soon as it is complete, and keeps the end.
type logs struct {
	limit    int64
	written  int64                 // bytes of ordinary lines
	line     func(string)          // nil drops the lines
	progress func(float64, string) // nil drops the lines of progress
	broken   error                 // line or progress has panicked
	full     bool                  // the limit was passed

	kind     lineKind // of the line that has not ended yet
	fraction float64  // of a line of progress
	// partial is the line that has not ended yet. Of an ordinary one it has at most maxLine bytes, of one
	// of progress the beginning of its message: the rest is dropped.
	partial []byte
	tail    []byte // sanitized lines, each with its newline
}

// write takes what the guest has written. What would pass the limit is an error, and so is a panic of those
// that take the lines; what came before is handed on.
func (l *logs) write(p []byte) error {
	for rest := p; len(rest) > 0 && !l.full; {
		piece, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		l.add(piece)
		if ended {
			l.endLine()
		}
	}
	return l.wrong()
}

// wrong is why the guest must end, if it must.
func (l *logs) wrong() error {
	switch {
	case l.broken != nil:
		return l.broken
	case l.full:
		return logExceeded(l.limit)
	default:
		return nil
	}
}

// add takes a piece of a line.
func (l *logs) add(piece []byte) {
	if l.kind == undecided {
		n := min(len(piece), maxHead-len(l.partial))
		l.partial = append(l.partial, piece[:n]...)
		piece = piece[n:]
		l.decide(false)
	}
	switch l.kind {
	case ordinary:
		l.partial = append(l.partial, piece[:l.admit(len(piece))]...)
		for len(l.partial) > maxLine {
			long := prefix(l.partial, maxLine)
			l.emit(long)
			l.partial = append(l.partial[:0], l.partial[len(long):]...)
		}
	case progress:
		// One byte more than the message may have shows where to cut it.
		l.partial = append(l.partial, piece[:min(len(piece), max(0, maxProgress+1-len(l.partial)))]...)
	case undecided:
	}
}

// decide tells the kind of a line by its beginning, which is in partial, if that is enough.
func (l *logs) decide(ended bool) {
	l.kind = ordinary
	if text, ok := bytes.CutPrefix(l.partial, []byte(progressPrefix)); ok {
		number, message, found := bytes.Cut(text, []byte(" "))
		if !found && !ended && len(l.partial) < maxHead {
			l.kind = undecided
			return
		}
		if !found {
			number = bytes.TrimSuffix(number, []byte("\r"))
		}
		if l.fraction, ok = parseFraction(number); ok {
			l.kind = progress
			l.partial = append(l.partial[:0], message...)
			return
		}
	} else if !ended && bytes.HasPrefix([]byte(progressPrefix), l.partial) {
		l.kind = undecided
		return
	}
	l.partial = l.partial[:l.admit(len(l.partial))]
}

// admit returns how many of n more bytes of ordinary lines the limit takes.
func (l *logs) admit(n int) int {
	within := min(int64(n), l.limit-l.written)
	l.written += within
	l.full = l.full || within < int64(n)
	return int(within)
}

// endLine hands on a line whose newline has come.
func (l *logs) endLine() {
	if l.kind == undecided {
		l.decide(true)
	}
	if l.kind == ordinary && l.admit(1) == 0 {
		return // over the limit: the line is left without its end
	}
	l.handOver(bytes.TrimSuffix(l.partial, []byte("\r")))
}

// flush hands on a last line that has no newline. The guest has ended. It returns what write does.
func (l *logs) flush() error {
	if len(l.partial) == 0 && l.kind != progress {
		return nil
	}
	if l.kind == undecided {
		l.decide(true)
	}
	if len(l.partial) > 0 || l.kind == progress {
		l.handOver(l.partial)
	}
	return l.wrong()
}

// handOver gives a line to whom it is for, and begins the next one.
func (l *logs) handOver(line []byte) {
	if l.kind == ordinary {
		l.emit(line)
	} else if l.progress != nil && l.broken == nil {
		l.handOn(func() { l.progress(l.fraction, clean(line, maxProgress)) })
	}
	l.partial, l.kind = l.partial[:0], undecided
}

func (l *logs) emit(line []byte) {
	text := sanitize(line)
	l.tail = append(append(l.tail, text...), '\n')
	if len(l.tail) > 4*maxTail {
		l.tail = append(l.tail[:0], suffix(l.tail, 2*maxTail)...)
	}
	if l.line != nil && l.broken == nil {
		l.handOn(func() { l.line(text) })
	}
}

// handOn calls a function of the caller's. A panic of it is the cause of the outcome.
func (l *logs) handOn(call func()) {
	defer func() {
		if p := recover(); p != nil {
			l.broken = &faultError{fmt.Errorf("panic in the log or progress function of a call: %v\n%s", p, debug.Stack())}
		}
	}()
	call()
}

// end is the end of what was logged, at most maxTail bytes, without the last newline.
func (l *logs) end() string {
	return string(suffix(bytes.TrimRight(l.tail, "\n"), maxTail))
}
