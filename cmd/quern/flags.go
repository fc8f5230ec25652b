package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

// parsed is a flag that one function reads from text and another one prints.
type parsed[T any] struct {
	value *T
	kind  string // what the help calls it
	parse func(text string) (T, error)
	show  func(T) string
}

func (p *parsed[T]) String() string {
	if p.value == nil { // pflag asks the zero value
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

// newPeriod adds a flag that takes a duration of 0 or more.
func newPeriod(flags *pflag.FlagSet, value *time.Duration, name string, standard time.Duration, usage string) {
	newPeriodWithin(flags, value, name, standard, 0, math.MaxInt64, "", usage)
}

// newLasting adds a flag that takes a duration above 0; 0 means that it was not given.
func newLasting(flags *pflag.FlagSet, value *time.Duration, name, usage string) {
	newPeriodWithin(flags, value, name, 0, 1, math.MaxInt64, durationRule+", or leave it out", usage)
}

// newPeriodWithin adds a flag that takes a duration from least to most, as the rule says.
func newPeriodWithin(flags *pflag.FlagSet, value *time.Duration, name string, standard, least, most time.Duration, rule, usage string) {
	*value = standard
	parse := func(text string) (time.Duration, error) {
		d, err := units.ParseDuration(text)
		switch {
		case errors.Is(err, units.ErrTooLong):
			return 0, err
		case err != nil || d < 0:
			return 0, errors.New(durationRule)
		case d < least || d > most:
			return 0, errors.New(rule)
		}
		return d, nil
	}
	flag := flags.VarPF(&parsed[time.Duration]{value, "duration", parse, time.Duration.String}, name, "", usage)
	if standard == 0 {
		flag.DefValue = "0" // the usage says what it means
	}
}

const durationRule = "use a duration like 500ms, 10s, 1h30m or 7d"

const (
	unlimited = "unlimited"
	countRule = "use 1 or more"
)

// newCount adds a flag that takes a whole number from 1 on; 0 means that it was not given.
func newCount[T int | int64](flags *pflag.FlagSet, value *T, name, usage string) {
	newNumber(flags, value, name, usage, 1, math.MaxInt, countRule)
}

// newNumber adds a flag that takes a whole number from least to most, as the rule says. Its default is the value.
func newNumber[T int | int64](flags *pflag.FlagSet, value *T, name, usage string, least, most T, rule string) {
	flags.Var(&parsed[T]{value, "number", numbers(least, most, rule), func(n T) string { return strconv.FormatInt(int64(n), 10) }}, name, usage)
}

func numbers[T int | int64](least, most T, rule string) func(string) (T, error) {
	return func(text string) (T, error) {
		n, err := strconv.ParseInt(text, 0, 64)
		if errors.Is(err, strconv.ErrSyntax) {
			return 0, fmt.Errorf("no whole number: %s", rule)
		}
		if err != nil || T(n) < least || T(n) > most {
			return 0, errors.New(rule)
		}
		return T(n), nil
	}
}

// newAttempts adds a flag that takes a number of attempts, or unlimited.
func newAttempts(flags *pflag.FlagSet, value *int, usage string) {
	number := numbers(1, 1_000_000, "use 1 to 1000000, or "+unlimited)
	parse := func(text string) (int, error) {
		if text == unlimited {
			return queue.Unlimited, nil
		}
		return number(text)
	}
	show := func(n int) string {
		if n == queue.Unlimited {
			return unlimited
		}
		return strconv.Itoa(n)
	}
	flags.Var(&parsed[int]{value, "number", parse, show}, "max-attempts", usage)
}

// retryFlags add the flags of a retry policy.
func retryFlags(f *pflag.FlagSet, retry *queue.Retry, noJitter *bool) {
	newAttempts(f, &retry.MaxAttempts, "number of attempts, or unlimited (not set by QUERN_MAX_ATTEMPTS, which is a host's)")
	newChoice(f, &retry.Backoff, "backoff", "growth of the delay before a retry: exponential or linear", "exponential", "linear")
	newLasting(f, &retry.Base, "backoff-base", "the first delay, which grows")
	newLasting(f, &retry.Min, "backoff-min", "shortest delay before a retry")
	newLasting(f, &retry.Max, "backoff-max", "longest delay before a retry")
	f.BoolVar(noJitter, "no-jitter", false, "do not shorten the delay at random")
	newLasting(f, &retry.MaxAge, "max-age", "begin no attempt later than this after it was due: then it fails as expired")
	newCount(f, &retry.MaxReschedules, "max-reschedules", "how often it may reschedule itself")
	notSettings(f, "max-attempts")
}

// newSize adds a flag that takes a size from least to mostMemory.
func newSize(flags *pflag.FlagSet, value *int64, name, usage string, least int64) {
	parse := func(text string) (int64, error) {
		bytes, err := units.ParseSize(text)
		if err != nil || bytes < least || bytes > mostMemory {
			return 0, fmt.Errorf("use a size of %s to %s, like 1GiB", units.FormatSize(least), units.FormatSize(mostMemory))
		}
		return bytes, nil
	}
	flags.Var(&parsed[int64]{value, "size", parse, units.FormatSize}, name, usage)
}

// newTime adds a flag that takes a time.
func newTime(flags *pflag.FlagSet, value *time.Time, name, usage string) {
	parse := func(text string) (time.Time, error) {
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return t, nil
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil && f > 0 && f < 1e11 {
			return time.UnixMicro(int64(f * 1e6)), nil
		}
		return time.Time{}, errors.New("use a time like 2026-01-31T12:00:00Z, or seconds since the epoch")
	}
	flag := flags.VarPF(&parsed[time.Time]{value, "time", parse, time.Time.String}, name, "", usage)
	flag.DefValue = ""
}

// pairFlag adds a flag for NAME=VALUE that may be given several times.
func pairFlag(flags *pflag.FlagSet, pairs *map[string]string, flag, usage string) {
	parse := func(text string) (map[string]string, error) {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, errors.New("use NAME=VALUE")
		}
		if *pairs == nil {
			*pairs = make(map[string]string)
		}
		if _, twice := (*pairs)[name]; twice {
			return nil, fmt.Errorf("%s has a value already: give it one", name)
		}
		(*pairs)[name] = value
		return *pairs, nil
	}
	flags.Var(&parsed[map[string]string]{pairs, flag + "s", parse, joinPairs}, flag, usage)
}

// newChoice adds a flag, NAME or NAME/SHORTHAND, that takes one of a few words. Its default is the value.
func newChoice[T ~string](flags *pflag.FlagSet, value *T, name, usage string, words ...string) {
	parse := func(word string) (T, error) {
		if !slices.Contains(words, word) {
			return "", errors.New("use one of " + strings.Join(words, ", ")) // a near word may mean the opposite
		}
		return T(word), nil
	}
	name, shorthand, _ := strings.Cut(name, "/")
	show := func(word T) string { return string(word) }
	flags.VarP(&choice[T]{parsed[T]{value, "word", parse, show}, words}, name, shorthand, usage)
}

// choice is the value of such a flag.
type choice[T ~string] struct {
	parsed[T]
	right []string
}

func (c *choice[T]) words() []string { return c.right }

// format is the value of -o.
type format string

// outputFlag adds -o. Scripts rely on the JSON: snake_case, times in seconds as in Redis, durations in fields that end in
// _seconds, sizes in bytes, missing values left out.
func outputFlag(cmd *cobra.Command) *format {
	output := format("text")
	newChoice(cmd.Flags(), &output, "output/o", "text or json", "text", "json")
	return &output
}

// json reports whether -o asks for JSON. A command without -o has nil.
func (f *format) json() bool { return f != nil && *f == "json" }

// newText adds a flag that takes any text. See shown for a URL, which may hold a password.
func newText(flags *pflag.FlagSet, value *string, kind, name, usage string) {
	same := func(text string) string { return text }
	flags.Var(&parsed[string]{value, kind, func(text string) (string, error) { return text, nil }, same}, name, usage)
}

// newList adds a flag that takes words between commas, and may be given several times. A word may have any character: \, is a
// comma, and \\ a backslash.
func newList(flags *pflag.FlagSet, value *[]string, name string, standard []string, usage string) {
	*value = standard
	flags.Var(&wordList{list: value}, name, usage)
}

// wordList is the value of such a flag.
type wordList struct {
	list  *[]string
	given bool // the list is no longer the default
}

func (w *wordList) String() string {
	if w.list == nil || len(*w.list) == 0 { // pflag asks the zero value
		return ""
	}
	return "[" + strings.Join(*w.list, ",") + "]"
}

func (w *wordList) Type() string { return "strings" }

// Set is part of pflag.Value. What is given first replaces the default.
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

// tenantURLs is a flag that takes TENANT=URL several times. String and GetSlice hide passwords.
type tenantURLs []string

func (u *tenantURLs) String() string { return strings.Join(u.GetSlice(), ",") }
func (u *tenantURLs) Type() string   { return "TENANT=URL" }

// Set is part of pflag.Value. urlsOfTenants checks the values.
func (u *tenantURLs) Set(text string) error {
	*u = append(*u, strings.Split(text, ",")...)
	return nil
}

// Append is part of pflag.SliceValue.
func (u *tenantURLs) Append(text string) error { *u = append(*u, text); return nil } //nolint:unparam // pflag asks for the error

// Replace is part of pflag.SliceValue.
func (u *tenantURLs) Replace(list []string) error { *u = slices.Clone(list); return nil } //nolint:unparam // pflag asks for the error

// GetSlice is part of pflag.SliceValue. In a URL that cannot be read, anything may be part of a password.
func (u *tenantURLs) GetSlice() []string {
	list := make([]string, len(*u))
	for i, pair := range *u {
		const hidden = "xxxxx"
		tenant, url, _ := strings.Cut(pair, "=")
		list[i] = hidden
		if shown := queue.Redact(url); shown != hidden && queue.ValidTenant(tenant) == nil {
			list[i] = tenant + "=" + shown
		}
	}
	return list
}

// joinPairs are pairs as flags take them.
func joinPairs(pairs map[string]string) string {
	words := make([]string, 0, len(pairs))
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		words = append(words, name+"="+pairs[name])
	}
	return strings.Join(words, " ")
}
