package hostlog

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
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
	return newLogger(&hclog.LoggerOptions{Name: "quern", Level: hclog.LevelFromString(s.Level), Output: out, JSONFormat: s.Format == "json"})
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
