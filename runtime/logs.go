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
	// maxTail is how much of the log is kept for the outcome, in bytes.
	maxTail = 4 << 10
	// lineOverhead is what a line costs of the limit beside its own bytes: what the host's log writes around it, which is
	// the time, its own words, and the task's ID, queue and plugin.
	lineOverhead = 128
)

// lineKind is what becomes of a line.
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

// stream is what a guest writes to one of its two streams: the line that has not ended yet.
type stream struct {
	kind     lineKind
	fraction float64 // of a line of progress
	// partial is the line. Of an ordinary one it has at most maxLine bytes and the reach of secrets, of one of progress the
	// beginning of its message: the rest is dropped.
	partial []byte
}

// logs cuts a guest's stderr, and a handler's stdout, into lines, hands each on as soon as it is complete, and keeps the
// end. Of empty lines in a row it takes the first. Both streams are one log, but each has its own line: what stdout leaves open does not swallow what stderr says to
// the host.
type logs struct {
	limit    int64
	written  int64                 // of the limit: ordinary lines as they are handed on, and lineOverhead for each
	lines    int                   // ordinary ones
	owed     int                   // fuel that the guest has not been charged for
	secrets  *redact.Secrets       // not shown; nil is none
	line     func(string)          // nil drops the lines
	progress func(float64, string) // nil drops the lines of progress
	broken   error                 // line or progress has panicked
	full     bool                  // the limit was passed
	empty    bool                  // the last line was

	stream        // stderr
	stdout stream // says nothing to the host
	tail   []byte // of what was handed on, each line with a newline
}

// take takes what the guest has written to a stream. What would pass the limit is an error, and so is a panic of those
// that take the lines; what came before is handed on.
func (l *logs) take(s *stream, p []byte) error {
	for rest := p; len(rest) > 0 && !l.full; {
		if l.empty && s.kind == undecided && len(s.partial) == 0 {
			if rest = bytes.TrimLeft(rest, "\n"); len(rest) == 0 {
				break
			}
		}
		piece, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		l.add(s, piece)
		if ended {
			l.endLine(s)
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
func (l *logs) add(s *stream, piece []byte) {
	if s == &l.stdout {
		s.kind = ordinary // whatever it says
	}
	if s.kind == undecided {
		n := min(len(piece), maxHead-len(s.partial))
		s.partial = append(s.partial, piece[:n]...)
		piece = piece[n:]
		l.decide(s, false)
	}
	switch s.kind {
	case ordinary:
		s.partial = append(s.partial, piece...)
		if ahead := l.secrets.Reach(); len(s.partial) > maxLine+ahead {
			rest := l.pieces(s.partial, ahead)
			s.partial = append(s.partial[:0], rest...)
		}
	case progress:
		// One byte more than the message may have shows where to cut it.
		s.partial = append(s.partial, piece[:min(len(piece), max(0, maxProgress+1-len(s.partial)))]...)
	case undecided:
	}
}

// pieces hands on the pieces of a line that is too long, and returns what is left of it: a piece, and so many bytes more,
// which show whether a secret stands where it would be cut.
func (l *logs) pieces(line []byte, ahead int) (rest []byte) {
	for len(line) > maxLine+ahead {
		cut := l.secrets.Cut(line, len(prefix(line, maxLine)))
		l.emit(line[:cut])
		line = line[cut:]
	}
	return line
}

// decide tells the kind of a line by its beginning, which is in partial, if that is enough.
func (l *logs) decide(s *stream, ended bool) {
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
			return
		}
	} else if !ended && bytes.HasPrefix([]byte(progressPrefix), s.partial) {
		s.kind = undecided
		return
	}
}

// endLine hands on a line whose newline has come.
func (l *logs) endLine(s *stream) {
	if s.kind == undecided {
		l.decide(s, true)
	}
	l.handOver(s, bytes.TrimSuffix(s.partial, []byte("\r")))
}

// flush hands on the last lines that have no newline, that of stderr last: it says most about how the guest has ended. It
// returns what take does.
func (l *logs) flush() error {
	for _, s := range []*stream{&l.stdout, &l.stream} {
		if s.kind == undecided && len(s.partial) > 0 {
			l.decide(s, true)
		}
		if len(s.partial) > 0 || s.kind == progress {
			l.handOver(s, s.partial)
		}
	}
	return l.wrong()
}

// handOver hands a line on as log or as progress, and begins the next one.
func (l *logs) handOver(s *stream, line []byte) {
	if s.kind == ordinary {
		l.emit(l.pieces(line, 0))
	} else {
		_ = l.report(s.fraction, line) // take returns it
	}
	s.partial, s.kind = s.partial[:0], undecided
}

// emit hands on a line, or as much of it as the limit takes.
func (l *logs) emit(line []byte) {
	if l.full || l.empty && len(line) == 0 {
		return
	}
	l.empty = len(line) == 0
	text := l.secrets.Text(line)
	if left := l.limit - l.written - lineOverhead; int64(len(text)) > left {
		l.full = true
		if text = prefix(text, int(max(0, left))); text == "" {
			return
		}
	}
	l.written += int64(len(text)) + lineOverhead
	l.lines++
	l.owed += linePrice
	l.tail = append(append(l.tail, text...), '\n')
	if len(l.tail) > 4*maxTail {
		l.tail = append(l.tail[:0], suffix(l.tail, 2*maxTail)...)
	}
	if l.line != nil && l.broken == nil {
		l.handOn(func() { l.line(text) })
	}
}

// say takes a line, whatever is in it. It returns what take does.
func (l *logs) say(line string) error {
	l.emit([]byte(line))
	return l.wrong()
}

// report takes progress, and returns what take does.
func (l *logs) report(fraction float64, message []byte) error {
	l.owed += progressPrice
	if l.progress != nil && l.broken == nil {
		text := prefix(l.secrets.Text(prefix(message, maxProgress)), maxProgress)
		l.handOn(func() { l.progress(fraction, text) })
	}
	return l.wrong()
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

// The lines of stderr that say something to the host.
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

// parseFraction reads the number of a line of progress, as any language may write one.
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

// cutRetryAfter takes the delay that the last line of stderr names off its end.
func cutRetryAfter(stderr string) (rest string, after time.Duration) {
	last := stderr[strings.LastIndexByte(stderr, '\n')+1:]
	text, found := strings.CutPrefix(last, retryAfterPrefix)
	if !found {
		return stderr, 0
	}
	after, ok := parseRetryAfter(text)
	if !ok {
		return stderr, 0
	}
	return strings.TrimSuffix(stderr, last), after
}

func parseRetryAfter(text string) (time.Duration, bool) {
	if text != "" && strings.Trim(text, "0123456789.") == "" {
		text += "s"
	}
	after, err := time.ParseDuration(text)
	return after, err == nil && after >= 0 && after <= maxRetryAfter
}
