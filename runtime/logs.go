package runtime

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/redact"
)

const (
	// maxLine is where a line of the log is cut into pieces, in bytes.
	maxLine = 8 << 10
	// maxTail is how much of the log the outcome has, in bytes.
	maxTail = 4 << 10
	// lineOverhead is what a line costs of the limit beside its own bytes: the host's log adds the time, a message, and the
	// task's ID, queue and plugin.
	lineOverhead = 128
)

// lineKind is where a line goes.
type lineKind int

const (
	// undecided: the line is too short to tell.
	undecided lineKind = iota
	// ordinary: a line of the log.
	ordinary
	// progress: a line for Call.Progress, which is not counted.
	progress
)

// maxHead is how much of a line tells its kind at most, in bytes.
const maxHead = len(progressPrefix) + maxFraction + 1

// stream is the line of stdout or stderr that has not ended yet.
type stream struct {
	kind     lineKind
	fraction float64 // of a line of progress
	// partial has at most maxLine bytes of an ordinary line, or maxProgress of a message of progress, and the reach of
	// secrets. The rest of the message is dropped.
	partial []byte
}

// logs cuts a guest's stderr, and a handler's stdout, into lines, hands each on when it is complete, and keeps the end. It
// drops an empty line after another. The two streams are one log of separate lines: an open line of stdout does not swallow
// a directive on stderr.
type logs struct {
	limit    int64
	written  int64                 // of the limit: ordinary lines as they are handed on, and lineOverhead for each
	lines    int                   // ordinary ones
	owed     int                   // fuel that the guest has not been charged for
	secrets  *redact.Secrets       // to be replaced; nil is none
	line     func(string)          // nil drops the lines
	progress func(float64, string) // nil drops the lines of progress
	wrong    error                 // why the guest must end: the limit, or a panic of line or progress
	empty    bool                  // the last line was

	stream        // stderr
	stdout stream // without directives
	tail   []byte // the last lines that were handed on, each with a newline
}

// write adds the guest's output to a stream, and hands complete lines on.
func (l *logs) write(s *stream, p []byte) {
	for rest := p; len(rest) > 0 && l.wrong == nil; {
		if l.empty && s.kind == undecided && len(s.partial) == 0 {
			if rest = bytes.TrimLeft(rest, "\n"); len(rest) == 0 {
				break
			}
		}
		piece, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		l.add(s, piece)
		if ended {
			if s.kind == undecided {
				s.decide(true)
			}
			l.handOver(s, bytes.TrimSuffix(s.partial, []byte("\r")))
		}
	}
}

// add adds a piece of a line.
func (l *logs) add(s *stream, piece []byte) {
	if s == &l.stdout {
		s.kind = ordinary
	}
	if s.kind == undecided {
		n := min(len(piece), maxHead-len(s.partial))
		s.partial = append(s.partial, piece[:n]...)
		piece = piece[n:]
		s.decide(false)
	}
	switch s.kind {
	case ordinary:
		s.partial = append(s.partial, piece...)
		if ahead := l.secrets.Reach(); len(s.partial) > maxLine+ahead {
			rest := l.pieces(s.partial, ahead)
			s.partial = append(s.partial[:0], rest...)
		}
	case progress:
		// What is over the limit shows where to cut the message, one byte at least.
		room := maxProgress + 1 + l.secrets.Reach() - len(s.partial)
		s.partial = append(s.partial, piece[:min(len(piece), max(0, room))]...)
	case undecided:
	}
}

// pieces hands on the pieces of a line that is too long, and returns the rest: at most a piece and ahead bytes more, which show
// whether the cut would split a secret.
func (l *logs) pieces(line []byte, ahead int) (rest []byte) {
	for len(line) > maxLine+ahead {
		cut := len(l.secrets.Head(line, maxLine))
		l.emit(line[:cut])
		line = line[cut:]
	}
	return line
}

// decide tells the kind of a line by its beginning, which is in partial, if that is enough.
func (s *stream) decide(ended bool) {
	s.kind = ordinary
	if text, ok := bytes.CutPrefix(s.partial, []byte(progressPrefix)); ok {
		number, message, found := bytes.Cut(text, []byte(" "))
		if !found && !ended && len(s.partial) < maxHead {
			s.kind = undecided
			return
		}
		if !found {
			number = bytes.TrimSuffix(number, []byte("\r"))
		}
		if s.fraction, ok = parseFraction(number); ok {
			s.kind = progress
			s.partial = append(s.partial[:0], message...)
		}
	} else if !ended && bytes.HasPrefix([]byte(progressPrefix), s.partial) {
		s.kind = undecided
	}
}

// flush hands on the last lines, which have no newline; that of stderr last, since it says most about how the guest ended.
func (l *logs) flush() {
	for _, s := range []*stream{&l.stdout, &l.stream} {
		if s.kind == undecided && len(s.partial) > 0 {
			s.decide(true)
		}
		if len(s.partial) > 0 || s.kind == progress {
			l.handOver(s, s.partial)
		}
	}
}

// handOver hands a line on as log or as progress, and begins the next one.
func (l *logs) handOver(s *stream, line []byte) {
	if s.kind == ordinary {
		l.emit(l.pieces(line, 0))
	} else {
		l.report(s.fraction, line)
	}
	s.partial, s.kind = s.partial[:0], undecided
}

// emit hands on a line, or as much of it as the limit takes.
func (l *logs) emit(line []byte) {
	if l.wrong != nil || l.empty && len(line) == 0 {
		return
	}
	l.empty = len(line) == 0
	text := l.secrets.Text(line)
	if left := l.limit - l.written - lineOverhead; int64(len(text)) > left {
		l.wrong = sizeExceeded("log", l.limit, "log limit of %s exceeded")
		if text = redact.Prefix(text, int(max(0, left))); text == "" {
			return
		}
	}
	l.written += int64(len(text)) + lineOverhead
	l.lines++
	l.owed += linePrice
	l.tail = append(append(l.tail, text...), '\n')
	if len(l.tail) > 4*maxTail {
		l.tail = append(l.tail[:0], redact.Suffix(l.tail, 2*maxTail)...)
	}
	if l.line != nil {
		l.handOn(func() { l.line(text) })
	}
}

// report hands on progress.
func (l *logs) report(fraction float64, message []byte) {
	l.owed += progressPrice
	if l.progress != nil && l.wrong == nil {
		text := redact.Prefix(l.secrets.Text(l.secrets.Head(message, maxProgress)), maxProgress)
		l.handOn(func() { l.progress(fraction, text) })
	}
}

// handOn calls a function of the caller's, whose panic becomes the cause of the outcome.
func (l *logs) handOn(call func()) {
	defer func() {
		if p := recover(); p != nil {
			l.wrong = &faultError{fmt.Errorf("panic in the log or progress function of a call: %v\n%s", p, debug.Stack())}
		}
	}()
	call()
}

// end is the end of the log, at most maxTail bytes, without the last newline.
func (l *logs) end() string {
	return string(redact.Suffix(bytes.TrimRight(l.tail, "\n"), maxTail))
}

// The directives: lines of stderr for the host.
const (
	progressPrefix   = "quern:progress="
	retryAfterPrefix = "quern:retry-after="
)

const (
	// maxFraction bounds the number of a line of progress, in bytes.
	maxFraction = 64
	// maxProgress bounds the message of a line of progress, in bytes.
	maxProgress = 1 << 10
	// maxRetryAfter is the longest delay that a guest may ask for.
	maxRetryAfter = 365 * 24 * time.Hour
)

// parseFraction reads the number of a line of progress, in the form of any language.
func parseFraction(text []byte) (float64, bool) {
	if len(text) > maxFraction || len(bytes.Trim(text, "0123456789.eE+-")) > 0 {
		return 0, false // ParseFloat takes more: hexadecimal numbers, underscores, infinity
	}
	fraction, err := strconv.ParseFloat(string(text), 64)
	if err != nil || fraction < 0 || fraction > 1 {
		return 0, false
	}
	return fraction + 0, true // -0 becomes 0
}

// cutRetryAfter cuts a directive off the end of stderr, and returns its delay.
func cutRetryAfter(stderr string) (rest string, after time.Duration) {
	last := stderr[strings.LastIndexByte(stderr, '\n')+1:]
	text, found := strings.CutPrefix(last, retryAfterPrefix)
	if text != "" && strings.Trim(text, "0123456789.") == "" {
		text += "s"
	}
	after, err := time.ParseDuration(text)
	if !found || err != nil || after < 0 || after > maxRetryAfter {
		return stderr, 0
	}
	return strings.TrimSuffix(stderr, last), after
}
