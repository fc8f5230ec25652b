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
	// maxLine is the maximum length of a line of the log, in bytes; longer lines are cut into pieces.
	maxLine = 8 << 10
	// maxTail is the maximum number of bytes from the end of the log that the outcome contains.
	maxTail = 4 << 10
	// lineOverhead is the number of bytes that each line counts against the limit, in addition to its own bytes: the
	// host's log adds the time, a message, and the task's ID, queue and plugin.
	lineOverhead = 128
)

// lineKind decides where a line goes.
type lineKind int

const (
	// undecided means that the line is still too short to show its kind.
	undecided lineKind = iota
	// ordinary means that the line goes into the log.
	ordinary
	// progress means that the line goes to Call.Progress. It is not counted against the limit.
	progress
)

// maxHead is the number of bytes of a line that are enough to decide its kind.
const maxHead = len(progressPrefix) + maxFraction + 1

// stream holds the line of stdout or stderr that has not ended yet.
type stream struct {
	kind     lineKind
	fraction float64 // the fraction that a progress line reports
	// partial is the line so far: at most maxLine bytes of an ordinary line, or maxProgress bytes of a progress message.
	// In both cases it can have some bytes more, to find secrets that would be cut. The rest of a progress message is
	// dropped.
	partial []byte
}

// logs cuts a guest's stderr, and a handler's stdout, into lines, passes each complete line on, and keeps the last
// lines. Of several empty lines in a row, it keeps one. The two streams share one log, but each has its own unfinished
// line: an unfinished line of stdout does not swallow a directive on stderr.
type logs struct {
	limit    int64 // maximum of written, in bytes
	remedies Remedies
	written  int64                 // bytes counted against limit: ordinary lines as logged, and lineOverhead for each
	lines    int                   // number of ordinary lines so far
	owed     int                   // fuel that the guest has not been charged for yet
	secrets  *redact.Secrets       // secrets that are replaced in all lines; nil for none
	line     func(string)          // receives ordinary lines; nil drops them
	progress func(float64, string) // receives progress; nil drops it
	wrong    error                 // why the guest must end: the limit, or a panic of line or progress; else nil
	empty    bool                  // the last line was empty

	trace  goTrace
	stream        // stderr
	stdout stream // of a handler; no line of stdout is a directive
	tail   []byte // the last lines that were logged, each with a newline
}

// write adds the guest's output to a stream, and passes complete lines on.
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

// add adds a piece of a line to the unfinished line of a stream.
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
		// The bytes beyond maxProgress, at least one, show that the message must be cut, and where.
		room := maxProgress + 1 + l.secrets.Reach() - len(s.partial)
		s.partial = append(s.partial, piece[:min(len(piece), max(0, room))]...)
	case undecided:
	}
}

// pieces emits pieces of a line until at most maxLine+ahead bytes are left, and returns these bytes. The ahead bytes
// show whether a cut would split a secret.
func (l *logs) pieces(line []byte, ahead int) (rest []byte) {
	for len(line) > maxLine+ahead {
		cut := len(l.secrets.Head(line, maxLine))
		l.emit(line[:cut])
		line = line[cut:]
	}
	return line
}

// decide sets the kind of a line by its beginning, which is in partial. If ended is false, the line goes on, and its
// kind can stay undecided.
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

// flush passes on the last lines, which have no newline. The line of stderr comes last, since it says most about how
// the guest ended.
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

// handOver passes a line on as log or as progress, and begins the next line.
func (l *logs) handOver(s *stream, line []byte) {
	if s.kind == ordinary {
		l.emit(l.pieces(line, 0))
	} else {
		l.report(s.fraction, line)
	}
	s.partial, s.kind = s.partial[:0], undecided
}

// emit logs a line, or as much of it as the limit allows.
func (l *logs) emit(line []byte) {
	if l.wrong != nil {
		return
	}
	text := l.secrets.Text(line)
	if l.trace.omits(text) {
		l.empty = false
		return
	}
	if l.empty && len(line) == 0 {
		return
	}
	l.empty = len(line) == 0
	if left := l.limit - l.written - lineOverhead; int64(len(text)) > left {
		l.wrong = l.remedies.sizeExceeded("log", l.limit, "log limit of %s exceeded")
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

// report passes a report of progress to the caller of Run.
func (l *logs) report(fraction float64, message []byte) {
	l.owed += progressPrice
	if l.progress != nil && l.wrong == nil {
		text := redact.Prefix(l.secrets.Text(l.secrets.Head(message, maxProgress)), maxProgress)
		l.handOn(func() { l.progress(fraction, text) })
	}
}

// handOn calls a function that the caller of Run has set. A panic in that function becomes the cause of the outcome.
func (l *logs) handOn(call func()) {
	defer func() {
		if p := recover(); p != nil {
			l.wrong = &faultError{fmt.Errorf("panic in the log or progress function of a call: %v\n%s", p, debug.Stack())}
		}
	}()
	call()
}

// end returns the end of the log, at most maxTail bytes, without the last newline.
func (l *logs) end() string {
	return string(redact.Suffix(bytes.TrimRight(l.tail, "\n"), maxTail))
}

// The prefixes of directives. A directive is a line of stderr that is meant for the host.
const (
	progressPrefix   = "quern:progress="
	retryAfterPrefix = "quern:retry-after="
)

const (
	// maxFraction is the maximum length of the number in a progress line, in bytes.
	maxFraction = 64
	// maxProgress is the maximum length of the message in a progress line, in bytes.
	maxProgress = 1 << 10
	// maxRetryAfter is the longest delay that a guest can ask for.
	maxRetryAfter = 365 * 24 * time.Hour
)

// parseFraction parses the number of a progress line, which any language may have printed: 0.5, 5e-1.
func parseFraction(text []byte) (float64, bool) {
	if len(text) > maxFraction || len(bytes.Trim(text, "0123456789.eE+-")) > 0 {
		return 0, false // ParseFloat also accepts hexadecimal numbers, underscores, infinity
	}
	fraction, err := strconv.ParseFloat(string(text), 64)
	if err != nil || fraction < 0 || fraction > 1 {
		return 0, false
	}
	return fraction + 0, true // -0 becomes 0
}

// cutRetryAfter removes the last line of stderr if it is a retry-after directive. It returns the directive's delay, and
// whether the word key behind it makes it that of all tasks with the key.
func cutRetryAfter(stderr string) (rest string, after time.Duration, key bool) {
	last := stderr[strings.LastIndexByte(stderr, '\n')+1:]
	text, found := strings.CutPrefix(last, retryAfterPrefix)
	text, key = strings.CutSuffix(text, " key")
	if text != "" && strings.Trim(text, "0123456789.") == "" {
		text += "s"
	}
	after, err := time.ParseDuration(text)
	if !found || err != nil || after < 0 || after > maxRetryAfter {
		return stderr, 0, false
	}
	return strings.TrimSuffix(stderr, last), after, key
}
