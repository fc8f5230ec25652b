package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

// limit is a number of a manifest that a host may bound. concurrency and max_running are none: they only take away from what
// a plugin has without them.
type limit struct {
	number
	// absent is what holds for a manifest that does not set it, 0 for no bound.
	absent int64
	// floor: a host bounds it from below, and what is less is raised.
	floor bool
}

// What limits may be, and what holds for a retry that leaves them out.
const (
	minMemory     = 64 << 10  // one page of WebAssembly
	maxPayload    = 512 << 20 // the largest value that Redis keeps
	maxLog        = 64 << 20  // of one task, in memory while it runs
	maxTries      = 1_000_000 // attempts, reschedules, crashes: more is meant to be unlimited
	shortestRetry = time.Second
	longestRetry  = 12 * time.Hour
)

// limitKeys are the keys limits, retry and max_crashes.
func (m *Manifest) limitKeys() (limits, retry, crashes key) {
	l, r, standard := &m.Limits, &m.Retry, runtime.Limits{}.WithDefaults()
	bytes := func(name, about string, at *int64, least, most, standard int64) key {
		about = fmt.Sprintf("%s, from %s to %s. Default %s.", about, units.FormatSize(least), units.FormatSize(most), units.FormatSize(standard))
		return key{name, about, limit{number: sizeValue{at, least, most, standard}, absent: standard}}
	}
	limits = key{"limits", "What one task may take. One that passes a limit fails. A host may give less.", section{keys: []key{
		bytes("memory", "Linear memory", &l.Memory, minMemory, runtime.MaxMemory, standard.Memory),
		{"timeout", "Time by the clock on the wall. Default no limit.", limit{number: durationValue{at: &l.Timeout, without: "no limit"}}},
		{"cpu", "Computing: a second is 10⁹ units of fuel, on every machine the same. Default no limit.", limit{number: durationValue{at: &l.CPU, without: "no limit"}}},
		bytes("input", "Bytes of parameters", &l.Input, 1, maxPayload, standard.Input),
		bytes("output", "Bytes of the result", &l.Output, 1, maxPayload, standard.Output),
		bytes("log", "Bytes of the log, and 128 for each line", &l.Log, 1, maxLog, standard.Log),
	}}}
	retry = key{"retry", "How often and when a failed task is tried again, unless the task says so itself. Default: one attempt.", section{either: []string{"max_attempts", "max_age"}, keys: []key{
		{"max_attempts", "How many attempts a task has at most, or unlimited. Left out it is unlimited, until max_age.", limit{number: attemptsValue{countValue{at: &r.MaxAttempts, most: maxTries}}, absent: 1}},
		{"backoff", "How the delay grows with the attempts n: exponential, base × 2ⁿ, or linear, base × n. Default exponential.", choiceValue{&r.Backoff, []string{BackoffExponential, BackoffLinear}}},
		{"base", "The delay after the first attempt. Default 1s.", durationValue{&r.Base, "1s", []any{"1s"}}},
		{"min", "The shortest delay. Default 1s.", limit{durationValue{at: &r.Min, without: "1s"}, int64(shortestRetry), true}},
		{"max", "The longest delay. Default 12h.", durationValue{&r.Max, "12h", []any{"12h"}}},
		{"jitter", "Whether a random part, up to half, is taken from each delay. Default true.", booleanValue{&r.Jitter}},
		{"max_age", "How old a task may become before it is not tried any more. Default no limit.", limit{number: durationValue{at: &r.MaxAge, without: "no limit"}}},
		{"max_reschedules", "How often a task may ask to be run later, by status 75, without an attempt being counted. Default 1000.", limit{number: countValue{&r.MaxReschedules, maxTries, "1000"}, absent: 1000}},
	}}}
	crashes = key{"max_crashes", "How many hosts may die over a task before it fails; the host's own bound holds if it is less. Default the host's bound.", limit{number: countValue{&m.MaxCrashes, maxTries, "the host's bound"}}}
	return limits, retry, crashes
}

// ceilingKeys are the keys of what hosts may bound.
func (m *Manifest) ceilingKeys() []key {
	limits, retry, crashes := m.limitKeys()
	all, _ := retry.value.(section)
	retry.value = section{keys: slices.DeleteFunc(all.keys, func(k key) bool {
		_, bounded := k.value.(limit)
		return !bounded
	})}
	return []key{limits, retry, crashes}
}

// eachLimit calls each for all limits of a manifest, with their paths.
func (m *Manifest) eachLimit(each func(path string, l limit)) {
	walk(m.ceilingKeys(), "", func(path string, k key) {
		if l, ok := k.value.(limit); ok {
			each(path, l)
		}
	})
}

// Ceilings are the most that a host gives of limits, by their keys: the smaller of a ceiling and of what a manifest asks for
// holds. A limit that is not there has no ceiling.
type Ceilings map[string]ceiling

// ceiling is a bound, and where it stands, for messages.
type ceiling struct {
	value int64
	place string
}

// ParseCeilings reads ceilings that are written as KEY=VALUE, with the keys and the values of a manifest. An *Error tells
// what is wrong with them; place is where they stand.
func ParseCeilings(place string, texts []string) (Ceilings, error) {
	d, m, limits := newDecoder(place), Manifest{}, map[string]limit{}
	var paths []string
	m.eachLimit(func(path string, l limit) {
		paths = append(paths, path)
		limits[path] = l
	})
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		at := node{&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.TrimSpace(value)}, strings.TrimSpace(name)}
		l, known := limits[at.path]
		switch _, twice := d.values[at.path]; {
		case !known:
			d.wrong(node{at.Node, ""}, Quote(text)+" names no limit", "write KEY=VALUE, with one of the keys "+strings.Join(paths, ", "))
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
	return m.ceilings(place), nil
}

// ceilings are the limits that a manifest sets, as ceilings that stand in a place.
func (m *Manifest) ceilings(place string) Ceilings {
	c := Ceilings{}
	m.eachLimit(func(path string, l limit) {
		if value := l.get(); value > 0 {
			c[path] = ceiling{value, place}
		}
	})
	return c
}

// manifest is one that sets the limits to their ceilings.
func (c Ceilings) manifest() (m Manifest) {
	m.eachLimit(func(path string, l limit) { l.set(c[path].value) })
	return m
}

// With returns the ceilings with those of the limits that are not 0, which stand in a place: of two the stricter holds.
func (c Ceilings) With(limits runtime.Limits, place string) Ceilings {
	return c.with((&Manifest{Limits: limits}).ceilings(place))
}

// with are the stricter of both.
func (c Ceilings) with(others Ceilings) Ceilings {
	if len(others) == 0 {
		return c
	}
	both := maps.Clone(c)
	if both == nil {
		both = Ceilings{}
	}
	new(Manifest).eachLimit(func(path string, l limit) {
		own, bound := c[path]
		if other, bounds := others[path]; bounds && (!bound || l.beyond(own.value, other.value)) {
			both[path] = other
		}
	})
	return both
}

// beyond tells whether a value is more than a ceiling gives, or less than a floor.
func (l limit) beyond(value, bound int64) bool {
	if l.floor {
		return value < bound
	}
	return value <= 0 || value > bound // no bound at all, or unlimited
}

// Lowered is a limit that a host lowers below the manifest's.
type Lowered struct {
	Key string `json:"key"`
	// Manifest is what it asks for, Host what is left, Place where the host says so.
	Manifest string `json:"manifest"`
	Host     string `json:"host"`
	Place    string `json:"place"`
}

// limitTo returns the manifest with its limits under the ceilings, those that are less than it asks for, and for each that is
// the host's, so that it would be in vain to raise it in the manifest, the place of the ceiling.
func (m Manifest) limitTo(ceilings Ceilings) (limited Manifest, lowered []Lowered, hosts map[string]string) {
	if len(ceilings) == 0 {
		return m, nil, nil
	}
	hosts = map[string]string{}
	m.eachLimit(func(path string, l limit) {
		asked, bound := l.get(), ceilings[path]
		value := cmp.Or(asked, l.absent)
		switch {
		case bound.place == "":
			return
		case asked == 0 && strings.HasPrefix(path, "retry."):
			return // a task or the host may set it: see Permissions.MostRetry
		case l.beyond(value, bound.value):
			if asked != 0 {
				lowered = append(lowered, Lowered{path, l.format(asked), l.format(bound.value), bound.place})
			}
			l.set(bound.value)
		case asked != 0 || value != bound.value:
			return
		}
		hosts[path] = bound.place
	})
	return m, lowered, hosts
}
