// Package hostlog makes the log of a host. All fields have one form, and lines are written in the background, so that a
// slow reader delays nobody.
package hostlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/show"
)

// digests lists the fields whose values are digests.
var digests = []string{"digest", "replaces", "serving"}

// logger gives the fields of all records one form: durations are in seconds, and digests are shortened. The fields of a
// line that a guest logged are copied unchanged; in a text log, each becomes a separate field.
type logger struct {
	hclog.Logger
	json bool
}

// Settings are the minimum level of the lines in a log, and the log's format.
type Settings struct{ Level, Format string }

// Flags adds the flags of the settings to a command.
func Flags(f *pflag.FlagSet) *Settings {
	s := &Settings{"info", "text"}
	option.Choice(f, &s.Level, "log-level", "trace, debug, info, warn or error", "trace", "debug", "info", "warn", "error")
	option.Choice(f, &s.Format, "log-format", "text or json", "text", "json")
	return s
}

// Logger makes the logger that writes to out.
func (s *Settings) Logger(out io.Writer) hclog.Logger {
	return newLogger(&hclog.LoggerOptions{
		Name: "quern", Level: hclog.LevelFromString(s.Level), Output: out,
		JSONFormat: s.Format == "json",
	})
}

func newLogger(options *hclog.LoggerOptions) hclog.Logger {
	return logger{hclog.New(options), options.JSONFormat}
}

func (l logger) Log(level hclog.Level, text string, args ...any) {
	if level >= l.GetLevel() {
		l.Logger.Log(level, text, l.fields(args)...)
	}
}

func (l logger) Trace(text string, args ...any) { l.Log(hclog.Trace, text, args...) }

func (l logger) Debug(text string, args ...any) { l.Log(hclog.Debug, text, args...) }

func (l logger) Info(text string, args ...any) { l.Log(hclog.Info, text, args...) }

func (l logger) Warn(text string, args ...any) { l.Log(hclog.Warn, text, args...) }

func (l logger) Error(text string, args ...any) { l.Log(hclog.Error, text, args...) }

func (l logger) With(args ...any) hclog.Logger {
	return logger{l.Logger.With(l.fields(args)...), l.json}
}

func (l logger) Named(name string) hclog.Logger { return logger{l.Logger.Named(name), l.json} }

func (l logger) ResetNamed(name string) hclog.Logger {
	return logger{l.Logger.ResetNamed(name), l.json}
}

// fields formats alternating names and values for the log.
func (l logger) fields(args []any) []any {
	formed := make([]any, 0, len(args))
	for i := 0; i+1 < len(args); i += 2 {
		name, value := fmt.Sprint(args[i]), args[i+1]
		switch v := value.(type) {
		case time.Duration:
			name, value = name+"_seconds", json.Number(strconv.FormatFloat(v.Round(time.Microsecond).Seconds(), 'f', -1, 64))
		case string:
			if slices.Contains(digests, name) {
				value = show.Digest(v)
			}
		case map[string]any:
			if !l.json {
				formed = append(formed, flat(name, v)...)
				continue
			}
		}
		formed = append(formed, name, value)
	}
	return formed
}

// flat makes each field of an object a separate field of the record, named name.FIELD. In FIELD, letters, digits, dots
// and dashes stay, and other characters become _. If two names would be the same, _ is appended to one.
func flat(name string, object map[string]any) []any {
	var fields []any
	taken := map[string]bool{"": true}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		word := strings.Map(func(r rune) rune {
			if strings.ContainsRune(".-", r) || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' {
				return r
			}
			return '_'
		}, key)
		for taken[word] {
			word += "_"
		}
		taken[word] = true
		if text, ok := object[key].(string); ok {
			fields = append(fields, name+"."+word, hclog.Quote(text))
		} else if value, err := json.Marshal(object[key]); err == nil { // it was decoded from JSON
			fields = append(fields, name+"."+word, string(value))
		}
	}
	return fields
}

const (
	// maxUnwritten is the maximum number of bytes that wait to be written.
	maxUnwritten = 1 << 20
	// flushTimeout is how long Close waits until these bytes are written.
	flushTimeout = time.Second
)

// Sink writes a log in the background and in order, so that a slow reader delays nobody who logs. When more than
// maxUnwritten bytes would wait, it drops the lines of a write and counts them. A single write above maxUnwritten is
// kept if nothing else waits.
//
// A crash of the process loses what was not written: usually nothing, or the lines of the last milliseconds.
type Sink struct {
	out     io.Writer
	dropped func(lines int)
	logger  hclog.Logger  // writes to out; used only by run
	ended   chan struct{} // closed when run has ended

	mu      sync.Mutex
	more    *sync.Cond // signals that lines wait, or that the sink is closed
	waiting []byte     // bytes to be written; guarded by mu
	missing int        // number of lines dropped after waiting; guarded by mu
	closed  bool       // Close was called; guarded by mu
}

// StartSink returns a sink that writes to out until Close. When lines are dropped, it calls dropped with their number.
// In place of the lines it logs their number to logger, which must write to out, too.
func StartSink(out io.Writer, dropped func(lines int), logger hclog.Logger) *Sink {
	s := &Sink{out: out, dropped: dropped, logger: logger, ended: make(chan struct{})}
	s.more = sync.NewCond(&s.mu)
	go s.run()
	return s
}

// Write implements io.Writer. It queues or drops the lines, and never waits.
func (s *Sink) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing > 0 || len(s.waiting) > 0 && len(s.waiting)+len(lines) > maxUnwritten { // drop until all is written
		s.missing += s.drop(lines)
	} else {
		s.waiting = append(s.waiting, lines...)
	}
	s.more.Signal()
	return len(lines), nil
}

// drop counts lines that will not be written, and reports their number. The last line need not end in a newline.
func (s *Sink) drop(lines []byte) int {
	end := []byte("\n")
	n := bytes.Count(lines, end)
	if len(lines) > 0 && !bytes.HasSuffix(lines, end) {
		n++
	}
	s.dropped(n)
	return n
}

// run writes the waiting lines, until Close is called and none waits.
func (s *Sink) run() {
	defer close(s.ended)
	untold := 0
	for lines, missing, ok := s.take(nil); ok; lines, missing, ok = s.take(lines) {
		n, err := s.out.Write(lines)
		if untold += missing; err != nil { // such as a full disk, or a reader that has ended
			untold += s.drop(lines[n:])
		} else if untold > 0 {
			s.logger.Error("dropped log lines here: the reader of stderr is too slow", "lines", untold)
			untold = 0
		}
	}
}

// take waits for lines. It returns them, and the number of lines that were dropped after them. ok is false once the
// sink is closed and everything was taken. take reuses the buffer of the written lines.
func (s *Sink) take(written []byte) (lines []byte, missing int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) == 0 && s.missing == 0 && !s.closed {
		s.more.Wait()
	}
	lines, missing, ok = s.waiting, s.missing, len(s.waiting) > 0 || s.missing > 0
	s.waiting, s.missing = written[:0], 0
	return lines, missing, ok
}

// Close waits until everything is written, for at most flushTimeout.
func (s *Sink) Close() {
	s.mu.Lock()
	s.closed = true
	s.more.Signal()
	s.mu.Unlock()
	timeout := time.NewTimer(flushTimeout)
	defer timeout.Stop()
	select {
	case <-s.ended:
	case <-timeout.C:
	}
}
