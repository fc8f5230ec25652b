package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

// limit is a number of a manifest that a host can bound. concurrency and max_running are not limits, since they can
// only reduce what a plugin gets.
type limit struct {
	get    func() int64 // returns 0 if the number is not set
	set    func(number int64)
	format func(number int64) string
	absent int64 // the default if a manifest does not set it; 0 for no bound
	floor  bool  // the host's bound is a minimum, to which lower numbers are raised
}

// limitValue makes v, which reads a number into at, the value of a limit. absent is the number's default; 0 means no
// bound.
func limitValue[T ~int | ~int64](v value, at *T, absent T, format func(T) string) value {
	v.limit = &limit{
		get: func() int64 { return int64(*at) }, set: func(number int64) { *at = T(number) },
		format: func(number int64) string { return format(T(number)) }, absent: int64(absent),
	}
	return v
}

// The bounds of limits, and the default delays of a retry.
const (
	minMemory     = 64 << 10  // one page of WebAssembly
	maxPayload    = 512 << 20 // the largest value that Redis keeps
	maxLog        = 64 << 20  // bytes of the log of one task, in memory while the task runs
	minRecord     = 1 << 10   // bytes of the record of a run
	maxRecord     = 4 << 20   // the same
	maxTries      = 1_000_000 // attempts, reschedules or crashes; a larger number would mean unlimited
	taskTimeout   = time.Hour // the default of limits.timeout
	shortestRetry = time.Second
	longestRetry  = 12 * time.Hour
)

// limitKeys returns the keys limits, retry and max_crashes.
func (m *Manifest) limitKeys() (limits, retry, crashes key) {
	l, r, standard := &m.Limits, &m.Retry, runtime.Limits{}.WithDefaults()
	bytes := func(name, about string, at *int64, least, most, standard int64) key {
		about = fmt.Sprintf("%s, from %s to %s. Default %s.", about, units.FormatSize(least), units.FormatSize(most),
			units.FormatSize(standard))
		return key{name, about, limitValue(sizeValue(at, least, most, standard), at, standard, units.FormatSize)}
	}
	duration := func(at *time.Duration, without string, absent time.Duration) value {
		return limitValue(durationValue(at, without), at, absent, time.Duration.String)
	}
	shortest := duration(&r.Min, "1s", shortestRetry)
	shortest.limit.floor = true

	limits = key{"limits", "What one task may take. One that passes a limit fails. A host may give less.", section(
		bytes("memory", "Linear memory", &l.Memory, minMemory, runtime.MaxMemory, standard.Memory),
		key{"timeout", "Time by the clock on the wall, up to 365d. Default 1h.", duration(&l.Timeout, "1h", taskTimeout)},
		key{
			"cpu", "Computing: a second is 10⁹ units of fuel, on every machine the same. Default no limit.",
			duration(&l.CPU, "no limit", 0),
		},
		bytes("input", "Bytes of parameters", &l.Input, 1, maxPayload, standard.Input),
		bytes("output", "Bytes of the result", &l.Output, 1, maxPayload, standard.Output),
		bytes("log", "Bytes of the log, and 128 for each line", &l.Log, 1, maxLog, standard.Log),
		bytes("record", "Compressed bytes of what record keeps of a run; more is dropped, and the task goes on", &l.Record, minRecord,
			maxRecord, standard.Record),
	)}
	retry = key{"retry", "How often and when a failed task is tried again, unless the task says so itself. Default: one attempt.", section(
		key{
			"max_attempts", "How many attempts a task has at most, or unlimited. Left out it is unlimited, until max_age.",
			limitValue(attemptsValue(&r.MaxAttempts, maxTries), &r.MaxAttempts, 1, formatAttempts),
		},
		key{"backoff", "How the delay grows with the attempts n: exponential, base × 2ⁿ, or linear, base × n. Default exponential.", choiceValue(&r.Backoff, BackoffExponential, BackoffLinear)},
		key{"base", "The delay after the first attempt. Default 1s.", durationValue(&r.Base, "1s", "1s")},
		key{"min", "The shortest delay. Default 1s.", shortest},
		key{"max", "The longest delay. Default 12h.", durationValue(&r.Max, "12h", "12h")},
		key{"jitter", "Whether a random part, up to half, is taken from each delay. Default true.", booleanValue(&r.Jitter)},
		key{
			"max_age", "How old a task may become before it is not tried any more. Default no limit.",
			duration(&r.MaxAge, "no limit", 0),
		},
		key{"max_reschedules", "How often a task may ask to be run later, by status 75, without an attempt being counted. Default 1000.", limitValue(countValue(&r.MaxReschedules, maxTries, "1000"), &r.MaxReschedules, 1000, strconv.Itoa)},
	)}
	retry.schema.AnyOf = []*property{{Required: []string{"max_attempts"}}, {Required: []string{"max_age"}}}
	crashes = key{"max_crashes", "How many hosts may die over a task before it fails; the host's own bound holds if it is less. Default the host's bound.", limitValue(countValue(&m.MaxCrashes, maxTries, "the host's bound"), &m.MaxCrashes, 0, strconv.Itoa)}
	return limits, retry, crashes
}

// ceilingKeys returns the keys that hosts can bound.
func (m *Manifest) ceilingKeys() []key {
	limits, retry, crashes := m.limitKeys()
	retry.keys = slices.DeleteFunc(retry.keys, func(k key) bool { return k.limit == nil })
	return append([]key{limits, retry, crashes}, m.most.keys()...)
}

// eachLimit calls each for every limit of a manifest, with the limit's path.
func (m *Manifest) eachLimit(each func(path string, l key)) {
	walk(m.ceilingKeys(), "", func(path string, k key) {
		if k.limit != nil {
			each(path, k)
		}
	})
}

// Ceilings are a host's bounds on the limits of manifests, by the limits' keys. Of a ceiling and a manifest's limit,
// the stricter one applies. A limit that is not in the map has no ceiling.
type Ceilings map[string]ceiling

// ceiling is a bound, and the file or flag that sets it, for messages.
type ceiling struct {
	value int64
	where string
}

// ParseCeilings parses ceilings of the form KEY=VALUE, with the keys and the values of a manifest. An *Error lists all
// problems. where is the file or flag that has the ceilings, for messages.
func ParseCeilings(where string, texts []string) (Ceilings, error) {
	d, m, limits := newDecoder(where), Manifest{}, map[string]key{}
	var paths []string
	m.eachLimit(func(path string, l key) {
		paths = append(paths, path)
		limits[path] = l
	})
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		at := node{&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.TrimSpace(value)}, strings.TrimSpace(name)}
		l, known := limits[at.path]
		switch _, twice := d.values[at.path]; {
		case !known:
			d.wrong(node{at.Node, ""}, Quote(text)+" names no limit",
				"write KEY=VALUE, with one of the keys "+strings.Join(paths, ", "))
		case twice:
			d.wrong(at, "is there twice", "keep one of them")
		default:
			d.values[at.path] = at
			l.read(d, at)
		}
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return m.ceilings(where), nil
}

// ceilings returns the limits that the manifest sets, as ceilings. where is for messages.
func (m *Manifest) ceilings(where string) Ceilings {
	c := Ceilings{}
	m.eachLimit(func(path string, l key) {
		if value := l.get(); value > 0 {
			c[path] = ceiling{value, where}
		}
	})
	return c
}

// With returns the ceilings combined with those limits that are not 0; of two bounds, the stricter one applies. where
// says where the limits are set, for messages.
func (c Ceilings) With(limits runtime.Limits, where string) Ceilings {
	return c.with((&Manifest{Limits: limits}).ceilings(where))
}

// with combines two sets of ceilings; of two bounds, the stricter one applies.
func (c Ceilings) with(others Ceilings) Ceilings {
	if len(others) == 0 {
		return c
	}
	both := Ceilings{}
	maps.Copy(both, c)
	new(Manifest).eachLimit(func(path string, l key) {
		own, bound := c[path]
		if other, bounds := others[path]; bounds && (!bound || l.beyond(own.value, other.value)) {
			both[path] = other
		}
	})
	return both
}

// beyond reports whether a value is above the bound, or below it if the bound is a floor.
func (l *limit) beyond(value, bound int64) bool {
	if l.floor {
		return value < bound
	}
	return value <= 0 || value > bound // 0 is no bound, -1 unlimited
}

// Lowered is a limit that a host lowers below the manifest's.
type Lowered struct {
	Key string `json:"key"`
	// Manifest is the value that the manifest asks for, Host the value that the host gives, and Where the place of the
	// host's bound.
	Manifest string `json:"manifest"`
	Host     string `json:"host"`
	Where    string `json:"place"`
}

// limitTo returns the manifest with its limits bounded by the ceilings, and the limits that it lowered. hosts has the
// place of the ceiling for each limit that a ceiling decides, by the limit's key.
func (m Manifest) limitTo(ceilings Ceilings) (limited Manifest, lowered []Lowered, hosts map[string]string) {
	if len(ceilings) == 0 {
		return m, nil, nil
	}
	hosts = map[string]string{}
	m.eachLimit(func(path string, l key) {
		asked, bound := l.get(), ceilings[path]
		value := cmp.Or(asked, l.absent)
		switch {
		case bound.where == "":
			return
		case asked == 0 && strings.HasPrefix(path, "retry."):
			return // a task or the host can set it: see Permissions.MostRetry
		case l.beyond(value, bound.value):
			if asked != 0 {
				lowered = append(lowered, Lowered{path, l.format(asked), l.format(bound.value), bound.where})
			}
			l.set(bound.value)
		case asked != 0 || value != bound.value:
			return
		}
		hosts[path] = bound.where
	})
	return m, lowered, hosts
}
