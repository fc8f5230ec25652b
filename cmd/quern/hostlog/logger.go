// Package hostlog is the log of a host: one form for all fields, written so that a slow reader delays nobody.
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

// digests are the fields with a digest.
var digests = []string{"digest", "replaces", "serving"}

// logger gives the fields of all records one form: durations in seconds, short digests, and the fields of a guest's
// line as they are, each on its own where the log is text.
type logger struct {
	hclog.Logger
	json bool
}

// Settings are which lines a log has, and in which form.
type Settings struct{ Level, Format string }

// Flags adds the settings to a command.
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

// fields formats names and values for the log.
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

// flat makes each field of an object a field of the record. A name keeps only letters, digits, points and dashes. Names
// that would become the same get a different number of _ at their ends.
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
		} else if value, err := json.Marshal(object[key]); err == nil { // it was JSON
			fields = append(fields, name+"."+word, string(value))
		}
	}
	return fields
}

const (
	// maxUnwritten bounds the bytes that wait to be written.
	maxUnwritten = 1 << 20
	// flushTimeout is how long Close waits for them.
	flushTimeout = time.Second
)

// Sink writes a log in the background and in order, so that a slow reader delays nobody who logs. When too much waits,
// it drops whole lines and counts them. A single write above maxUnwritten is kept if nothing else waits.
//
// A crash of the process loses what was not written: usually nothing, or the lines of the last milliseconds.
type Sink struct {
	out     io.Writer
	dropped func(lines int)
	logger  hclog.Logger  // to out, used by run alone
	ended   chan struct{} // closed when run has ended

	mu      sync.Mutex
	more    *sync.Cond
	waiting []byte // guarded by mu
	missing int    // dropped lines after those that wait; guarded by mu
	closed  bool   // guarded by mu
}

// StartSink writes to out until Close. It reports dropped lines to dropped, and logs their number to logger, which
// writes to out as well, in their place.
func StartSink(out io.Writer, dropped func(lines int), logger hclog.Logger) *Sink {
	s := &Sink{out: out, dropped: dropped, logger: logger, ended: make(chan struct{})}
	s.more = sync.NewCond(&s.mu)
	go s.run()
	return s
}

// Write implements io.Writer: it takes or drops lines, and never waits.
func (s *Sink) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing > 0 || len(s.waiting) > 0 && len(s.waiting)+len(lines) > maxUnwritten { // dropped lines are one gap
		s.missing += s.drop(lines)
	} else {
		s.waiting = append(s.waiting, lines...)
	}
	s.more.Signal()
	return len(lines), nil
}

// drop counts lines that will not be written. The last one may have no newline.
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
		if untold += missing; err != nil { // a full disk, a reader that has gone
			untold += s.drop(lines[n:])
		} else if untold > 0 {
			s.logger.Error("dropped log lines here: the reader of stderr is too slow", "lines", untold)
			untold = 0
		}
	}
}

// take waits for lines, and returns them and how many were dropped after them. It reuses the buffer of written ones.
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

// Close waits until everything is written, at most flushTimeout.
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
