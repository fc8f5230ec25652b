package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

// someLimits sets some limits of a manifest, at the ends of what it may say more often than not.
var someLimits = rapid.Custom(func(t *rapid.T) (m Manifest) {
	sizes := map[string]int64{"limits.memory": runtime.MaxMemory, "limits.input": maxPayload, "limits.output": maxPayload, "limits.log": maxLog, "limits.record": maxRecord}
	counts := map[string]int64{"retry.max_attempts": maxTries, "retry.max_reschedules": maxTries, "max_crashes": maxTries}
	m.eachLimit(func(path string, l key) {
		if rapid.Bool().Draw(t, "sets "+path) {
			least, most := int64(1), cmp.Or(sizes[path], counts[path], int64(maxDuration))
			switch path {
			case "limits.memory":
				least = minMemory
			case "limits.record":
				least = minRecord
			}
			l.set(rapid.OneOf(rapid.Just(least), rapid.Just(most), rapid.Int64Range(least, most)).Draw(t, path))
		}
	})
	if m.Retry.MaxAttempts != 0 && rapid.Bool().Draw(t, "without end") {
		m.Retry.MaxAttempts = Unlimited
	}
	return m
})

// limitOf is a limit of a manifest.
func limitOf(m *Manifest, of string) (found key) {
	m.eachLimit(func(path string, l key) {
		if path == of {
			found = l
		}
	})
	return found
}

// What stays of a limit is never more than the manifest asks for, nor than any ceiling gives, nor less than both; two
// ceilings are as good as the stricter one, in either order; and what was lowered is told, with its place.
func TestCeilingsOfLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := someLimits.Draw(t, "manifest")
		flags, tenants := someLimits.Draw(t, "flags"), someLimits.Draw(t, "tenant's")
		one, two := flags.ceilings("--ceiling"), tenants.ceilings("acme")
		both := one.with(two)
		under, lowered, hosts := m.limitTo(both)
		if other, _, _ := m.limitTo(two.with(one)); fmt.Sprint(other) != fmt.Sprint(under) {
			t.Fatalf("in the other order: %+v, %+v", under, other)
		}
		if again, _, _ := under.limitTo(both); fmt.Sprint(again) != fmt.Sprint(under) {
			t.Fatalf("twice: %+v, %+v", under, again)
		}
		m.eachLimit(func(path string, l key) {
			asked, got := l.get(), limitOf(&under, path).get()
			strictest, place := int64(0), ""
			for name, bound := range map[string]Ceilings{"--ceiling": one, "acme": two} {
				if c, ok := bound[path]; ok && (strictest == 0 || l.floor && c.value > strictest || !l.floor && c.value < strictest) {
					strictest, place = c.value, name
				}
			}
			want := asked
			if own := asked; strictest != 0 {
				if own == 0 {
					own = l.absent
				}
				unbounded := own <= 0
				switch over := unbounded || own > strictest; {
				case asked == 0 && strings.HasPrefix(path, "retry."): // is for the policy as a whole
				case l.floor && own < strictest, !l.floor && over:
					want = strictest
				}
			}
			if got != want {
				t.Fatalf("%s: %d of %d under %d (%s), want %d", path, got, asked, strictest, place, want)
			}
			told := slices.IndexFunc(lowered, func(less Lowered) bool { return less.Key == path })
			if lower := asked != 0 && got != asked; lower != (told >= 0) ||
				lower && (lowered[told].Manifest != l.format(asked) || lowered[told].Host != l.format(got) || both[path].value != got) {
				t.Fatalf("%s: %d of %d, told %+v", path, got, asked, lowered)
			}
			if got != asked && hosts[path] != both[path].where {
				t.Fatalf("%s: %d of %d is the host's, not of %q", path, got, asked, hosts[path])
			}
		})
	})
}

// A ceiling is written as the manifest's key is, and what stands there wrong is told.
func TestParseCeilings(t *testing.T) {
	t.Parallel()
	c, err := ParseCeilings("--ceiling", []string{"limits.memory=256MiB", "retry.max_attempts = 10", "retry.min=1s", "retry.max_age=7d"})
	check(t, err)
	var m Manifest
	m.eachLimit(func(path string, l key) { l.set(c[path].value) })
	if m.Limits.Memory != 256<<20 || m.Retry != (Retry{MaxAttempts: 10, Min: time.Second, MaxAge: 168 * time.Hour}) || len(c) != 4 {
		t.Errorf("%+v", c)
	}
	for text, want := range map[string]string{
		"limits.memroy=1MiB": `--ceiling: "limits.memroy=1MiB" names no limit: write KEY=VALUE, with one of the keys limits.memory, limits.timeout, ` +
			`limits.cpu, limits.input, limits.output, limits.log, limits.record, retry.max_attempts, retry.min, retry.max_age, retry.max_reschedules, max_crashes, ` +
			`schedule.entries, schedule.every, schedule.parameters, subscribe.entries`,
		"concurrency=1":               `"concurrency=1" names no limit`,
		"limits.log":                  `--ceiling: limits.log: "" is not a size: write a size from 1B to 64MiB, such as 16MiB`,
		"limits.log=5":                `--ceiling: limits.log: "5" has no unit: write a size from 1B to 64MiB, such as 16MiB`,
		"limits.cpu=1s,limits.cpu=2s": `--ceiling: limits.cpu: is there twice: keep one of them`,
	} {
		if _, err := ParseCeilings("--ceiling", strings.Split(text, ",")); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
	if c, err := ParseCeilings("--ceiling", nil); err != nil || len(c) != 0 {
		t.Errorf("none: %+v, %v", c, err)
	}
}

// Dead letters go to the queue that is named for them, or where the tenant may have tasks enqueued.
func TestCeilingOfDead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		grants, dead string
		stays        bool
	}{
		{"", "anything", true},
		{"acme: {}", "anything", true},
		{"acme: {capabilities: {}}", "x.dead", true},
		{"acme: {capabilities: {}}", "b.dead", true},
		{"acme: {capabilities: {}}", "", true},
		{"acme: {capabilities: {}}", "c.dead", false},
		{"acme: {capabilities: {}}", "x.dead.dead", false},
		{"acme: {capabilities: {}}", ".dead", false},
		{`acme: {capabilities: {enqueue: {queues: ["mail*"]}}}`, "mailbox", true},
		{`acme: {capabilities: {enqueue: {queues: ["mail*"]}}}`, "post", false},
		{"beta: {}", "post", false},
		{"beta: {}", "x.dead", true},
	} {
		m, want := Manifest{Name: "x", Queues: []string{"a", "b"}, Dead: tt.dead}, tt.dead
		var hosts *Grants
		if tt.grants != "" {
			hosts = hostGrants(t, tt.grants)
		}
		terms := NewPermissions(&m, hosts, "acme", nil)
		if !tt.stays {
			want = ""
		}
		if lowered := len(terms.Lowered) == 1 && terms.Lowered[0].Key == "dead"; terms.Dead != want || lowered == tt.stays {
			t.Errorf("%+v: %q, %+v", tt, terms.Dead, terms.Lowered)
		}
	}
}

// The most that a limit may be is what the runtime gives.
func TestMostMemory(t *testing.T) {
	t.Parallel()
	m, err := Parse("x.yaml", []byte("limits: {memory: "+units.FormatSize(runtime.MaxMemory)+"}"))
	if err != nil || NewPermissions(&m, nil, "acme", nil).Limits.Memory != runtime.MaxMemory {
		t.Errorf("%+v, %v", m.Limits, err)
	}
	if _, err = Parse("x.yaml", fmt.Appendf(nil, "limits: {memory: %dB}", runtime.MaxMemory+1)); err == nil {
		t.Error("more is taken")
	}
}

// An endless loop ends even if nobody thought of a timeout.
func TestDefaultTimeout(t *testing.T) {
	for _, test := range []struct {
		manifest, ceiling, want time.Duration
		lowered                 int
	}{
		{0, 0, time.Hour, 0},
		{0, 2 * time.Hour, time.Hour, 0},
		{0, time.Minute, time.Minute, 0},
		{48 * time.Hour, 0, 48 * time.Hour, 0},
		{48 * time.Hour, 2 * time.Hour, 2 * time.Hour, 1},
	} {
		ceilings := Ceilings{}.With(runtime.Limits{Timeout: test.ceiling}, "--max-timeout")
		p := NewPermissions(&Manifest{Limits: runtime.Limits{Timeout: test.manifest}}, nil, "acme", ceilings)
		if p.Limits.Timeout != test.want || len(p.Lowered) != test.lowered {
			t.Errorf("%+v: timeout %s, lowered %+v", test, p.Limits.Timeout, p.Lowered)
		}
	}
}
