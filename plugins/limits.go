package plugins

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

// limit is a number of a manifest that a host may bound. How a manifest and a host's grants write it, what the schema says
// of it and how a ceiling lowers it all come from its row in limits.
type limit struct {
	path string
	// about says what it bounds, for the schema.
	about string
	kind  *kind
	// A manifest may set it from least to most.
	least, most int64
	// absent is what a manifest has that does not set it, 0 for no bound; without says the same in words.
	absent  int64
	without string
	// floor tells that a host bounds it from below: what is less is raised.
	floor bool
	at    func(m *Manifest) cell
}

// timeoutKey is the limit under whose ceiling a task's own timeout is as well.
const timeoutKey = "limits.timeout"

// limits are all of them. concurrency and max_running are none: they only take away from what a plugin has without them.
var limits = func() []limit {
	standard := runtime.Limits{}.WithDefaults()
	const year = int64(maxTimeout)
	return []limit{
		{
			path: "limits.memory", about: "Linear memory", kind: sizes, least: minMemory, most: runtime.MaxMemory, absent: standard.Memory,
			at: func(m *Manifest) cell { return cellOf(&m.Limits.Memory) },
		},
		{
			path: timeoutKey, about: "Time by the clock on the wall", kind: durations, most: year, without: "no limit",
			at: func(m *Manifest) cell { return cellOf(&m.Limits.Timeout) },
		},
		{
			path: "limits.cpu", about: "Computing: a second is 10⁹ units of fuel, on every machine the same", kind: durations, most: year, without: "no limit",
			at: func(m *Manifest) cell { return cellOf(&m.Limits.CPU) },
		},
		{
			path: "limits.input", about: "Bytes of parameters", kind: sizes, least: 1, most: maxPayload, absent: standard.Input,
			at: func(m *Manifest) cell { return cellOf(&m.Limits.Input) },
		},
		{
			path: "limits.output", about: "Bytes of the result", kind: sizes, least: 1, most: maxPayload, absent: standard.Output,
			at: func(m *Manifest) cell { return cellOf(&m.Limits.Output) },
		},
		{
			path: "limits.log", about: "Bytes of the log, and 128 for each line", kind: sizes, least: 1, most: maxLog, absent: standard.Log,
			at: func(m *Manifest) cell { return cellOf(&m.Limits.Log) },
		},
		{
			path: "retry.max_attempts", about: "How many attempts a task has at most, or unlimited. Left out it is unlimited, until max_age",
			kind: attempts, least: 1, most: maxTries, absent: 1,
			at: func(m *Manifest) cell { return cellOf(&m.Retry.MaxAttempts) },
		},
		{
			path: "retry.min", about: "The shortest delay", kind: durations, most: year, absent: int64(shortestRetry), without: "1s", floor: true,
			at: func(m *Manifest) cell { return cellOf(&m.Retry.Min) },
		},
		{
			path: "retry.max_age", about: "How old a task may become before it is not tried any more", kind: durations, most: year, without: "no limit",
			at: func(m *Manifest) cell { return cellOf(&m.Retry.MaxAge) },
		},
		{
			path: "retry.max_reschedules", about: "How often a task may ask to be run later, by status 75, without an attempt being counted",
			kind: counts, least: 1, most: maxTries, absent: 1000, without: "1000",
			at: func(m *Manifest) cell { return cellOf(&m.Retry.MaxReschedules) },
		},
		{
			path: "max_crashes", about: "How many hosts may die over a task before it fails; the host's own bound holds if it is less",
			kind: counts, least: 1, most: maxTries, without: "the host's bound",
			at: func(m *Manifest) cell { return cellOf(&m.MaxCrashes) },
		},
	}
}()

// limitOf is the row of a key; it panics if there is none.
func limitOf(path string) limit {
	return limits[slices.IndexFunc(limits, func(l limit) bool { return l.path == path })]
}

// cell is a number of one manifest. 0 is one that it does not set.
type cell struct {
	get func() int64
	set func(value int64)
}

func cellOf[T ~int | ~int64](at *T) cell {
	return cell{func() int64 { return int64(*at) }, func(value int64) { *at = T(value) }}
}

// kind is how numbers of one kind are read, described and shown.
type kind struct {
	read     func(d *decoder, n node, l limit) int64
	property func(l limit) *property
	format   func(value int64) string
}

var (
	sizes = &kind{
		func(d *decoder, n node, l limit) int64 { return d.size(n, l.least, l.most) },
		func(l limit) *property {
			standard := units.FormatSize(l.absent)
			return size(fmt.Sprintf("%s, from %s to %s. Default %s.", l.about, units.FormatSize(l.least), units.FormatSize(l.most), standard), standard)
		},
		units.FormatSize,
	}
	durations = &kind{
		func(d *decoder, n node, l limit) int64 { return int64(d.duration(n, l.without)) },
		func(l limit) *property { return duration(l.about + ". Default " + l.without + ".") },
		func(value int64) string { return time.Duration(value).String() },
	}
	counts = &kind{
		func(d *decoder, n node, l limit) int64 { return int64(d.count(n, int(l.most), l.without)) },
		func(l limit) *property { return number(l.about+". Default "+l.without+".", l.least, l.most) },
		func(value int64) string { return strconv.FormatInt(value, 10) },
	}
	attempts = &kind{
		func(d *decoder, n node, _ limit) int64 { return int64(d.attempts(n)) },
		func(l limit) *property {
			count := number("", l.least, l.most)
			return &property{AnyOf: []*property{count, choice("", unlimitedWord)}, Description: l.about + "."}
		},
		func(value int64) string {
			if value == Unlimited {
				return unlimitedWord
			}
			return strconv.FormatInt(value, 10)
		},
	}
)

const unlimitedWord = "unlimited"

// field is the limit as a key of a manifest.
func (l limit) field() field {
	return field{l.path, func(d *decoder, n node, m *Manifest) { l.at(m).set(l.kind.read(d, n, l)) }}
}

// Ceilings are the most that a host gives of limits, by their keys: of what a manifest asks for and of that, the smaller
// holds. A limit that is not there has no ceiling.
type Ceilings map[string]ceiling

// ceiling is a bound, and where it stands, for messages.
type ceiling struct {
	value int64
	place string
}

// ParseCeilings reads ceilings that are written as KEY=VALUE, with the keys and the values of a manifest. A *ManifestError
// tells what is wrong with them; place is where they stand.
func ParseCeilings(place string, texts []string) (Ceilings, error) {
	d, m := newDecoder(place), Manifest{}
	d.fields, d.top = boundFields(), "the top level"
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		at := node{&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.TrimSpace(value)}, strings.TrimSpace(key)}
		row := slices.IndexFunc(limits, func(l limit) bool { return l.path == at.path })
		switch _, twice := d.values[at.path]; {
		case row < 0:
			d.wrong(node{at.Node, ""}, quote(text)+" names no limit", "write KEY=VALUE, with one of the keys "+limitPaths())
		case twice:
			d.wrong(at, "stands there twice", "keep one of them")
		default:
			d.values[at.path] = at
			limits[row].field().decode(d, at, &m)
		}
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return ceilingsOf(&m, place), nil
}

func limitPaths() string {
	paths := make([]string, len(limits))
	for i, l := range limits {
		paths[i] = l.path
	}
	return strings.Join(paths, ", ")
}

// boundFields are the limits and their sections, as keys of what bounds them.
func boundFields() []field {
	fields := []field{
		{"limits", func(d *decoder, n node, m *Manifest) { d.section(n, m) }},
		{"retry", func(d *decoder, n node, m *Manifest) { d.section(n, m) }},
	}
	for _, l := range limits {
		fields = append(fields, l.field())
	}
	return fields
}

// ceilingsOf are the limits that something sets which is written as a manifest is.
func ceilingsOf(m *Manifest, place string) Ceilings {
	c := Ceilings{}
	for _, l := range limits {
		if value := l.at(m).get(); value > 0 {
			c[l.path] = ceiling{value, place}
		}
	}
	return c
}

// manifest is one that sets the limits to their ceilings.
func (c Ceilings) manifest() (m Manifest) {
	for _, l := range limits {
		l.at(&m).set(c[l.path].value)
	}
	return m
}

// with are the stricter of both.
func (c Ceilings) with(others Ceilings) Ceilings {
	both := Ceilings{}
	for _, l := range limits {
		one, bound := c[l.path]
		if other, bounds := others[l.path]; bounds && (!bound || l.beyond(one.value, other.value)) {
			one, bound = other, true
		}
		if bound {
			both[l.path] = one
		}
	}
	return both
}

// beyond tells whether a value is more than a ceiling gives, or less than a floor.
func (l limit) beyond(value, bound int64) bool {
	if l.floor {
		return value < bound
	}
	return value <= 0 || value > bound // no bound at all, or unlimited
}

// Lowered is a limit of which a host gives less than the manifest asks for.
type Lowered struct {
	Key string `json:"key"`
	// Manifest is what it asks for, Host what is left, Place where the host says so.
	Manifest string `json:"manifest"`
	Host     string `json:"host"`
	Place    string `json:"place"`
}

// under is the manifest with what the ceilings leave of its limits, and those of which that is less than it asks for.
func (m Manifest) under(ceilings Ceilings) (Manifest, []Lowered) {
	var lowered []Lowered
	for _, l := range limits {
		own := l.at(&m)
		asked, bound := own.get(), ceilings[l.path]
		value := asked
		if asked == 0 {
			value = l.absent
		}
		switch {
		case bound.place == "" || !l.beyond(value, bound.value):
			continue
		case asked == 0 && strings.HasPrefix(l.path, "retry."):
			continue // a task or the host may set it: see Terms.MostRetry
		case asked != 0:
			lowered = append(lowered, Lowered{l.path, l.kind.format(asked), l.kind.format(bound.value), bound.place})
		}
		own.set(bound.value)
	}
	return m, lowered
}
