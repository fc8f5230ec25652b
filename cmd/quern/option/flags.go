// Package option adds flags to commands: numbers, durations, sizes, times, choices and lists. Each flag checks the
// values that it is given.
package option

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

// parsed is the value of a flag. The function parse reads it from text, and show prints it.
type parsed[T any] struct {
	value *T
	kind  string // what the help calls the value
	parse func(text string) (T, error)
	show  func(T) string
}

func (p *parsed[T]) String() string {
	if p.value == nil { // pflag also calls this on the zero value
		return ""
	}
	return p.show(*p.value)
}

func (p *parsed[T]) Type() string { return p.kind }

func (p *parsed[T]) Set(text string) error {
	value, err := p.parse(text)
	if err == nil {
		*p.value = value
	}
	return err
}

// Parsed adds a flag. The function parse reads its value from text, and show prints it. kind is what the help calls the
// value.
func Parsed[T any](flags *pflag.FlagSet, value *T, kind string, parse func(text string) (T, error), show func(T) string,
	name, usage string,
) *pflag.Flag {
	return flags.VarPF(&parsed[T]{value, kind, parse, show}, name, "", usage)
}

// Duration adds a flag for a duration of 0 or more.
func Duration(flags *pflag.FlagSet, value *time.Duration, name string, standard time.Duration, usage string) {
	DurationWithin(flags, value, name, standard, 0, math.MaxInt64, "", usage)
}

// Lasting adds a flag that takes a duration above 0. The value is 0 if the flag is not given.
func Lasting(flags *pflag.FlagSet, value *time.Duration, name, usage string) {
	DurationWithin(flags, value, name, 0, 1, math.MaxInt64, durationRule+", or leave it out", usage)
}

// DurationWithin adds a flag that takes a duration from minimum to maximum. rule is the error for a duration outside of
// that range.
func DurationWithin(flags *pflag.FlagSet, value *time.Duration, name string, standard, minimum, maximum time.Duration,
	rule, usage string,
) {
	*value = standard
	parse := func(text string) (time.Duration, error) {
		d, err := units.ParseDuration(text)
		switch {
		case errors.Is(err, units.ErrTooLong):
			return 0, err
		case err != nil || d < 0:
			return 0, errors.New(durationRule)
		case d < minimum || d > maximum:
			return 0, errors.New(rule)
		}
		return d, nil
	}
	flag := Parsed(flags, value, "duration", parse, time.Duration.String, name, usage)
	if standard == 0 {
		flag.DefValue = "0" // pflag does not print this default; the usage explains it
	}
}

const durationRule = "use a duration like 500ms, 10s, 1h30m or 7d"

// Unlimited is what Attempts accepts instead of a number. CountRule is the error of Count.
const (
	Unlimited = "unlimited"
	CountRule = "use 1 or more"
)

// Count adds a flag that takes a whole number of at least 1. The value is 0 if the flag is not given.
func Count[T int | int64](flags *pflag.FlagSet, value *T, name, usage string) {
	Number(flags, value, name, usage, 1, math.MaxInt, CountRule)
}

// Number adds a flag that takes a whole number from minimum to maximum. rule is the error for other numbers. The
// default is the current *value.
func Number[T int | int64](flags *pflag.FlagSet, value *T, name, usage string, minimum, maximum T, rule string) {
	show := func(n T) string { return strconv.FormatInt(int64(n), 10) }
	Parsed(flags, value, "number", ParseNumber(minimum, maximum, rule), show, name, usage)
}

// ParseNumber returns a function that reads a whole number from minimum to maximum. rule is the error for other
// numbers.
func ParseNumber[T int | int64](minimum, maximum T, rule string) func(string) (T, error) {
	return func(text string) (T, error) {
		n, err := strconv.ParseInt(text, 0, 64)
		if errors.Is(err, strconv.ErrSyntax) {
			return 0, fmt.Errorf("no whole number: %s", rule)
		}
		if err != nil || T(n) < minimum || T(n) > maximum {
			return 0, errors.New(rule)
		}
		return T(n), nil
	}
}

// Attempts adds the flag --max-attempts, which takes a number or Unlimited.
func Attempts(flags *pflag.FlagSet, value *int, usage string) {
	number := ParseNumber(1, 1_000_000, "use 1 to 1000000, or "+Unlimited)
	parse := func(text string) (int, error) {
		if text == Unlimited {
			return queue.Unlimited, nil
		}
		return number(text)
	}
	show := func(n int) string {
		if n == queue.Unlimited {
			return Unlimited
		}
		return strconv.Itoa(n)
	}
	Parsed(flags, value, "number", parse, show, "max-attempts", usage)
}

// Size adds a flag that takes a size from minimum to MaxSize.
func Size(flags *pflag.FlagSet, value *int64, name, usage string, minimum int64) {
	parse := func(text string) (int64, error) {
		bytes, err := units.ParseSize(text)
		if err != nil || bytes < minimum || bytes > MaxSize {
			return 0, fmt.Errorf("use a size of %s to %s, like 1GiB", units.FormatSize(minimum), units.FormatSize(MaxSize))
		}
		return bytes, nil
	}
	Parsed(flags, value, "size", parse, units.FormatSize, name, usage)
}

// Time adds a flag that takes a time.
func Time(flags *pflag.FlagSet, value *time.Time, name, usage string) {
	parse := func(text string) (time.Time, error) {
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return t, nil
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil && f > 0 && f < 1e11 {
			return time.UnixMicro(int64(f * 1e6)), nil
		}
		return time.Time{}, errors.New("use a time like 2026-01-31T12:00:00Z, or seconds since the epoch")
	}
	Parsed(flags, value, "time", parse, time.Time.String, name, usage).DefValue = ""
}

// Pairs adds a flag that takes NAME=VALUE and can be given several times.
func Pairs(flags *pflag.FlagSet, values *map[string]string, flag, usage string) {
	parse := func(text string) (map[string]string, error) {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, errors.New("use NAME=VALUE")
		}
		if *values == nil {
			*values = make(map[string]string)
		}
		if _, twice := (*values)[name]; twice {
			return nil, fmt.Errorf("%s has a value already: give it one", name)
		}
		(*values)[name] = value
		return *values, nil
	}
	text := func(values map[string]string) string { return show.Pairs(values).String() }
	Parsed(flags, values, flag+"s", parse, text, flag, usage)
}

// Choice adds a flag that takes one of the choices. name is NAME or NAME/SHORTHAND. The default is the current *value.
func Choice[T, W ~string](flags *pflag.FlagSet, value *T, name, usage string, choices ...W) {
	words := make([]string, len(choices))
	for i, word := range choices {
		words[i] = string(word)
	}
	parse := func(word string) (T, error) {
		if !slices.Contains(words, word) {
			return "", errors.New("use one of " + strings.Join(words, ", ")) // a similar word can mean the opposite
		}
		return T(word), nil
	}
	name, shorthand, _ := strings.Cut(name, "/")
	show := func(word T) string { return string(word) }
	flags.VarP(&choice[T]{parsed[T]{value, "word", parse, show}, words}, name, shorthand, usage)
}

// choice is the value of a flag that Choice adds.
type choice[T ~string] struct {
	parsed[T]
	right []string
}

func (c *choice[T]) Words() []string { return c.right }

// Format is the value of -o: text or json.
type Format string

// Output adds -o. Scripts rely on the form of the JSON: names are in snake_case, times in seconds as in Redis,
// durations in fields that end in _seconds, and sizes in bytes. Missing values are left out.
func Output(cmd *cobra.Command) *Format {
	output := Format("text")
	Choice(cmd.Flags(), &output, "output/o", "text or json", "text", "json")
	return &output
}

// JSON reports whether -o asks for JSON.
func (f *Format) JSON() bool { return *f == "json" }

// Text adds a flag that takes any text. When settings are printed, the password in a value of the kind URL is hidden,
// and all of a value of the kind TOKEN.
func Text(flags *pflag.FlagSet, value *string, kind, name, usage string) {
	same := func(text string) string { return text }
	Parsed(flags, value, kind, func(text string) (string, error) { return text, nil }, same, name, usage)
}

// List adds a flag that takes words separated by commas, and can be given several times. A word can contain any
// character: \, stands for a comma, and \\ for a backslash.
func List(flags *pflag.FlagSet, value *[]string, name string, standard []string, usage string) {
	*value = standard
	flags.Var(&wordList{list: value}, name, usage)
}

// wordList is the value of a flag that List adds.
type wordList struct {
	list  *[]string
	given bool // true once the list is no longer the default
}

func (w *wordList) String() string {
	if w.list == nil || len(*w.list) == 0 { // pflag also calls this on the zero value
		return ""
	}
	return "[" + strings.Join(*w.list, ",") + "]"
}

func (w *wordList) Type() string { return "strings" }

// Set is part of pflag.Value. The first call replaces the default; later calls add to the list.
func (w *wordList) Set(text string) error {
	list, word := []string(nil), []byte(nil)
	for i := 0; i < len(text); i++ {
		switch escaped := text[i] == '\\' && i+1 < len(text) && (text[i+1] == ',' || text[i+1] == '\\'); {
		case escaped:
			i++
			word = append(word, text[i])
		case text[i] == ',':
			list, word = append(list, string(word)), nil
		default:
			word = append(word, text[i])
		}
	}
	if text != "" {
		list = append(list, string(word))
	}
	if w.given {
		list = slices.Concat(*w.list, list)
	}
	return w.Replace(list)
}

// Append is part of pflag.SliceValue.
func (w *wordList) Append(word string) error { return w.Replace(append(slices.Clone(*w.list), word)) }

// Replace is part of pflag.SliceValue.
func (w *wordList) Replace(list []string) error {
	*w.list, w.given = list, true
	return nil
}

// GetSlice is part of pflag.SliceValue.
func (w *wordList) GetSlice() []string { return *w.list }

// MaxSize is the largest size of memory in a setting, in bytes.
const MaxSize = 64 << 40
