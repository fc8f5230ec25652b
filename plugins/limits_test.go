package plugins

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/units"
)

// someLimits sets some limits of a manifest, at the ends of what it may say more often than not.
var someLimits = rapid.Custom(func(t *rapid.T) (m Manifest) {
	for _, l := range limits {
		if rapid.Bool().Draw(t, "sets "+l.path) {
			least := max(l.least, 1)
			l.at(&m).set(rapid.OneOf(rapid.Just(least), rapid.Just(l.most), rapid.Int64Range(least, l.most)).Draw(t, l.path))
		}
	}
	if m.Retry.MaxAttempts != 0 && rapid.Bool().Draw(t, "without end") {
		m.Retry.MaxAttempts = Unlimited
	}
	return m
})

// What stays of a limit is never more than the manifest asks for, nor than any ceiling gives, nor less than both; two
// ceilings are as good as the stricter one, in either order; and what was lowered is told, with its place.
func TestCeilingsOfLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := someLimits.Draw(t, "manifest")
		flags, tenants := someLimits.Draw(t, "flags"), someLimits.Draw(t, "tenant's")
		one, two := ceilingsOf(&flags, "--ceiling"), ceilingsOf(&tenants, "acme")
		both := one.with(two)
		under, lowered := m.under(both)
		if other, _ := m.under(two.with(one)); fmt.Sprint(other) != fmt.Sprint(under) {
			t.Fatalf("in the other order: %+v, %+v", under, other)
		}
		if again, _ := under.under(both); fmt.Sprint(again) != fmt.Sprint(under) {
			t.Fatalf("twice: %+v, %+v", under, again)
		}
		for _, l := range limits {
			asked, got := l.at(&m).get(), l.at(&under).get()
			strictest, place := int64(0), ""
			for name, bound := range map[string]Ceilings{"--ceiling": one, "acme": two} {
				if c, ok := bound[l.path]; ok && (strictest == 0 || l.floor && c.value > strictest || !l.floor && c.value < strictest) {
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
				case asked == 0 && strings.HasPrefix(l.path, "retry."): // is for the policy as a whole
				case l.floor && own < strictest, !l.floor && over:
					want = strictest
				}
			}
			if got != want {
				t.Fatalf("%s: %d of %d under %d (%s), want %d", l.path, got, asked, strictest, place, want)
			}
			told := slices.IndexFunc(lowered, func(less Lowered) bool { return less.Key == l.path })
			if lower := asked != 0 && got != asked; lower != (told >= 0) ||
				lower && (lowered[told].Manifest != l.kind.format(asked) || lowered[told].Host != l.kind.format(got) || both[l.path].value != got) {
				t.Fatalf("%s: %d of %d, told %+v", l.path, got, asked, lowered)
			}
		}
	})
}

// A ceiling is written as the manifest's key is, and what stands there wrong is told.
func TestParseCeilings(t *testing.T) {
	t.Parallel()
	c, err := ParseCeilings("--ceiling", []string{"limits.memory=256MiB", "retry.max_attempts = 10", "retry.min=1s", "retry.max_age=7d"})
	check(t, err)
	m := c.manifest()
	if m.Limits.Memory != 256<<20 || m.Retry != (Retry{MaxAttempts: 10, Min: time.Second, MaxAge: 168 * time.Hour}) || len(c) != 4 {
		t.Errorf("%+v", c)
	}
	for text, want := range map[string]string{
		"limits.memroy=1MiB": `--ceiling: "limits.memroy=1MiB" names no limit: write KEY=VALUE, with one of the keys limits.memory, limits.timeout, ` +
			`limits.cpu, limits.input, limits.output, limits.log, retry.max_attempts, retry.min, retry.max_age, retry.max_reschedules, max_crashes`,
		"concurrency=1":               `"concurrency=1" names no limit`,
		"limits.log":                  `--ceiling: limits.log: "" is not a size: write a size from 1B to 64MiB, such as 16MiB`,
		"limits.log=5":                `--ceiling: limits.log: "5" has no unit: write a size from 1B to 64MiB, such as 16MiB`,
		"limits.cpu=1s,limits.cpu=2s": `--ceiling: limits.cpu: stands there twice: keep one of them`,
	} {
		if _, err := ParseCeilings("--ceiling", strings.Split(text, ",")); !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
	if c, err := ParseCeilings("--ceiling", nil); err != nil || len(c) != 0 {
		t.Errorf("none: %+v, %v", c, err)
	}
}

// Each tenant's tasks run within its own ceilings, the text of a limit that was reached names the place that lowered it, and
// so does the refusal of a module that they leave too little memory.
func TestCeilingsOfTenants(t *testing.T) {
	t.Parallel()
	grants := hostGrants(t, "acme: {limits: {output: 10B, memory: 1MiB}, retry: {max_attempts: 3}}\n\"{blue}\": {}")
	host, err := ParseCeilings("--ceiling", []string{"limits.output=1KiB"})
	check(t, err)
	f := setup(t, Config{Ceilings: host, Grants: grants}, func(dir string) {
		write(t, dir+"/echo.wasm", runtimetest.Echo(t))
		write(t, dir+"/echo.yaml", []byte("limits: {memory: 16MiB, output: 1MiB}\nretry: {max_attempts: unlimited}"))
		check(t, os.Mkdir(dir+"/acme", 0o700))
		write(t, dir+"/acme/large.wasm", runtimetest.BuildWAT(t, `(module (memory (export "memory") 17) (func (export "_start")))`))
	})
	const acme = `"acme" in /etc/quern/grants.yaml`
	v := f.Acquire("acme", "echo")
	defer v.Release()
	for _, tt := range []struct {
		tenant, value, see string
		fits, over         int
	}{{"acme", "10B", acme, 10, 11}, {"{blue}", "1KiB", "--ceiling", 1 << 10, 1<<10 + 1}} {
		for _, size := range []int{tt.fits, tt.over} {
			got := v.Run(t.Context(), tt.tenant, runtime.Call{Input: make([]byte, size)})
			want := ""
			if size == tt.over {
				want = "output limit of " + tt.value + " exceeded on stdout: the host allows no more, see " + tt.see
			}
			if got.Message != want {
				t.Errorf("%s, %d bytes: %q, want %q", tt.tenant, size, got.Message, want)
			}
		}
	}
	if acme, blue := v.Footprint("acme"), v.Footprint("{blue}"); acme != 1<<20+16<<20+10 || blue != 16<<20+16<<20+1<<10 {
		t.Errorf("footprints %d and %d", acme, blue)
	}
	if terms := v.Terms("acme"); terms.MostRetry != (Retry{MaxAttempts: 3}) || fmt.Sprint(terms.Lowered) !=
		`[{limits.memory 16MiB 1MiB `+acme+`} {limits.output 1MiB 10B `+acme+`} {retry.max_attempts unlimited 3 `+acme+`}]` {
		t.Errorf("%+v", terms)
	}
	for _, line := range []string{
		`plugin=echo tenant="" key=limits.output manifest=1MiB host=1KiB see=--ceiling`,
		`key=retry.max_attempts manifest=unlimited host=3 see="\"acme\" in`,
	} {
		if !strings.Contains(f.logs.String(), "the host gives a plugin less than its manifest asks for: ") || !strings.Contains(f.logs.String(), line) {
			t.Errorf("the log has no %s", line)
		}
	}
	f.awaitRefusal("acme", "large", "needs 1088KiB of memory from its start, over the memory limit of 1MiB", "the host allows no more, see "+acme)
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
		var hosts *HostGrants
		if tt.grants != "" {
			hosts = hostGrants(t, tt.grants)
		}
		terms := NewTerms(&m, hosts, "acme")
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
	m, err := ParseManifest("x.yaml", []byte("limits: {memory: "+units.FormatSize(runtime.MaxMemory)+"}"))
	if err != nil || NewTerms(&m, nil, "acme").Limits.Memory != runtime.MaxMemory {
		t.Errorf("%+v, %v", m.Limits, err)
	}
	if _, err = ParseManifest("x.yaml", fmt.Appendf(nil, "limits: {memory: %dB}", runtime.MaxMemory+1)); err == nil {
		t.Error("more is taken")
	}
}
