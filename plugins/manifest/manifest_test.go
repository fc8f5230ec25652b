package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

const fullManifest = `# A comment, and a key in another order than the documentation's.
name: thumbnails
version: 1.10
queues: [thumbnails, "123", a.b:c]
concurrency: 8
warm: {input: samples/sample.json}
max_running: 20
on_crash: rerun
max_crashes: 3
dead: thumbnails.dead
pin: task
retry: {max_attempts: 5, backoff: exponential, base: 1s, min: 500ms, max: 12h, jitter: true, max_age: 1d, max_reschedules: 1000}
limits: {memory: 64MiB, timeout: 1d12h, cpu: 1.5s, input: 512MiB, output: 1B, log: 64KiB}
capabilities:
  env:
    MODE: prod
    DEBUG: true
    N: 007
    EMPTY: ""
    DAY: 2026-01-02
  files:
    - from: model.bin
      to: /data/model.bin
    - {to: /data/b, from: "models/a b.bin"}
`

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		data string
		want Manifest
	}{
		"every key": {fullManifest, Manifest{
			Name: "thumbnails", Version: "1.10", Queues: []string{"thumbnails", "123", "a.b:c"}, Concurrency: 8,
			Warm:       Warm{Input: "samples/sample.json", line: 6},
			MaxRunning: 20, OnCrash: "rerun", MaxCrashes: 3, Dead: "thumbnails.dead", Pin: "task",
			Retry: Retry{
				MaxAttempts: 5, Backoff: "exponential", Base: time.Second, Min: time.Second / 2, Max: 12 * time.Hour,
				Jitter: new(true), MaxAge: 24 * time.Hour, MaxReschedules: 1000,
			},
			Limits: runtime.Limits{Memory: 64 << 20, Timeout: 36 * time.Hour, CPU: 1500 * time.Millisecond, Input: 512 << 20, Output: 1, Log: 64 << 10},
			Capabilities: Capabilities{
				Env: map[string]string{"MODE": "prod", "DEBUG": "true", "N": "007", "EMPTY": "", "DAY": "2026-01-02"},
				Files: []FileGrant{
					{From: "model.bin", To: "/data/model.bin", line: 22},
					{From: "models/a b.bin", To: "/data/b", line: 24},
				},
			},
		}},
		"one key":       {"name: thumbnails", Default("thumbnails")},
		"no key":        {"{}", Default("thumbnails")},
		"empty section": {"limits: {}\ncapabilities: {}", Default("thumbnails")},
		"document mark": {"---\nname: thumbnails\n...\n", Default("thumbnails")},
		"byte order":    {"\ufeffname: thumbnails\r\n", Default("thumbnails")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Parse("dir/thumbnails.yaml", []byte(tt.data))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// The manifest that the manual shows is one.
func TestManualManifest(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../cmd/quern/manual/manifest.md")
	check(t, err)
	_, text, ok := strings.Cut(string(page), "```yaml\n# handlers/mail.yaml\n")
	text, _, ends := strings.Cut(text, "```\n")
	if !ok || !ends {
		t.Fatal("the page has no handlers/mail.yaml")
	}
	m, err := Parse("mail.yaml", []byte(text))
	if err != nil || m.Warm.Input == "" || len(m.Capabilities.Files) != 1 {
		t.Errorf("%v, %+v", err, m)
	}
}

// Each message is compared whole: it is read by people, and has file, line, field, fault and remedy.
func TestParseErrors(t *testing.T) {
	t.Parallel()
	const (
		words     = "1 to 128 printable ASCII characters without a space"
		durations = "write a duration such as 30s, 5m, 24h or 7d, or leave the key out for no limit"
		timeouts  = "write a duration such as 30s, 5m, 24h or 7d, or leave the key out for 1h"
		numbers   = "write a whole number from 1 to 65536, or leave the key out for no bound of its own"
		lines     = `write it as "key: value" lines`
		name      = "write letters, digits and _, not beginning with a digit"
	)
	sizes := "write a size from 64KiB to " + units.FormatSize(runtime.MaxMemory) + ", such as 16MiB"
	long := strings.Repeat("q", 129)
	tests := []struct{ data, want string }{
		{"", "x.yaml: is empty: write at least name: x, or remove the file"},
		{"# only this\n", "x.yaml: is empty: write at least name: x, or remove the file"},
		{"---\n", "x.yaml: is empty: write at least name: x, or remove the file"},
		{"- name", "x.yaml:1: expected a mapping, but it is a list: " + lines},
		{"name", "x.yaml:1: expected a mapping, but it is a text: " + lines},
		{"name: x\n---\nname: x\n", "x.yaml:2: there is a second document: keep one, without a --- between its lines"},
		{"name: x\nqueues: [a\n", "x.yaml:2: is not YAML: did not find expected ',' or ']': " + lines},
		{"name: x\nqueues: [a", "x.yaml:2: is not YAML: did not find expected ',' or ']': " + lines},
		{"name: x\n queues: [a]\n", "x.yaml:2: is not YAML: mapping values are not allowed in this context: " + lines},
		{"limits:\n  log: 1KiB\n log: 2KiB\n", "x.yaml:3: is not YAML: did not find expected key: " + lines},
		{"limits:\n\tlog: 1KiB\n", "x.yaml:2: has a tab at its beginning: indent it with spaces"},
		{"a: b: c", "x.yaml:1: is not YAML: mapping values are not allowed in this context: " + lines},
		{"name: x\nversion: *x", "x.yaml:2: has an alias (*): write the value out, and a text that begins with * in quotes"},
		{"name: x\nversion: &v 1.0\nqueues: [*v]", "x.yaml:2: has an anchor (&), for which aliases would stand: write the value out wherever it is needed, and a text that begins with & in quotes"},
		{"config: {a: " + strings.Repeat("[", 99) + strings.Repeat("]", 99) + "}", "x.yaml:1: is more than 100 levels deep: put fewer lists and mappings into each other"},
		{"queues: [" + strings.Repeat("a,", maxValues) + "]", "x.yaml: has more than 50000 keys and values: put less into it"},
		{"name: x\nversion: \x01", "x.yaml:2: has the control character 0x01: remove it"},
		{"name: x\nversion: \xff", "x.yaml:2: has the byte 0xff, which is not UTF-8: save the file as UTF-8"},
		{"[a]: 1", "x.yaml:1: has a list as a key: write a word"},
		{"<<: {name: x}", "x.yaml:1: merges keys with <<: write the keys out"},
		{"name: x\nname: x", "x.yaml:2: name: is here a second time, after line 1: keep one of them"},
		{"limits:\n  log: 1KiB\n  log: 2KiB", "x.yaml:3: limits.log: is here a second time, after line 2: keep one of them"},

		{"name: y", `x.yaml:1: name: "y" is not the file's name: write name: x, or rename the two files to y.wasm and y.yaml`},
		{"name: [x]", "x.yaml:1: name: is a list: write name: x"},
		{"name:", "x.yaml:1: name: is empty: write name: x"},
		{"version: {}", "x.yaml:1: version: is a mapping: write " + words},
		{"version: 1 2", `x.yaml:1: version: "1 2" has the byte 0x20: write ` + words},
		{"version: !!binary aGk=", "x.yaml:1: version: is of the type !!binary: write " + words},

		{"queues: x", "x.yaml:1: queues: is a text: write a list, such as [x]"},
		{"queues: []", `x.yaml:1: queues: is empty: name one, or leave the key out to serve "x"`},
		{"queues: [a, a]", `x.yaml:1: queues[1]: "a" is in the list twice: name it once`},
		{"queues:\n- a\n- b c\n", `x.yaml:3: queues[1]: "b c" has the byte 0x20: write ` + words},
		{"queues: [\"a\\nb\"]", `x.yaml:1: queues[0]: "a\nb" has the byte 0x0a: write ` + words},
		{"queues: [ü]", `x.yaml:1: queues[0]: "ü" has the byte 0xc3: write ` + words},
		{`queues: [""]`, `x.yaml:1: queues[0]: "" is empty: write ` + words},
		{"queues: [" + long + "]", `x.yaml:1: queues[0]: "` + long[:64] + `…" has 129 bytes: write ` + words},
		{"queues: [" + strings.Repeat("a, ", 100) + "b]", "x.yaml:1: queues: has 101 entries: name at most 100"},
		{"queues: [~]", "x.yaml:1: queues[0]: is empty: write " + words},

		{"limits: 64MiB", "x.yaml:1: limits: expected a mapping, but it is a text: write its keys, such as limits: {memory: 64MiB, timeout: 30s}, or leave it out"},
		{"limits:", "x.yaml:1: limits: expected a mapping, but it is empty: write its keys, such as limits: {memory: 64MiB, timeout: 30s}, or leave it out"},
		{"limits: {memory: 64}", `x.yaml:1: limits.memory: "64" has no unit: ` + sizes},
		{"limits: {memory: 64mb}", `x.yaml:1: limits.memory: "64mb" is not a size: ` + sizes},
		{"limits: {memory: -64MiB}", `x.yaml:1: limits.memory: "-64MiB" is not a size: ` + sizes},
		{"limits: {memory: 1KiB}", `x.yaml:1: limits.memory: "1KiB" is too small: ` + sizes},
		{"limits: {memory: 5GiB}", `x.yaml:1: limits.memory: "5GiB" is too large: ` + sizes},
		{"limits: {memory: 99999999999TiB}", `x.yaml:1: limits.memory: "99999999999TiB" is not a size: ` + sizes},
		{"limits: {memory: }", "x.yaml:1: limits.memory: is empty: " + sizes},
		{"limits: {input: 0B}", `x.yaml:1: limits.input: "0B" is too small: write a size from 1B to 512MiB, such as 16MiB`},
		{"limits: {output: 1GiB}", `x.yaml:1: limits.output: "1GiB" is too large: write a size from 1B to 512MiB, such as 16MiB`},
		{"limits: {log: 1GiB}", `x.yaml:1: limits.log: "1GiB" is too large: write a size from 1B to 64MiB, such as 16MiB`},
		{"limits: {timeout: 30}", `x.yaml:1: limits.timeout: "30" has no unit: ` + timeouts},
		{"limits: {timeout: soon}", `x.yaml:1: limits.timeout: "soon" is not a duration: ` + timeouts},
		{"limits: {timeout: 0s}", `x.yaml:1: limits.timeout: "0s" is not above zero: ` + timeouts},
		{"limits: {timeout: -1s}", `x.yaml:1: limits.timeout: "-1s" is not above zero: ` + timeouts},
		{"limits: {timeout: 1d-2h}", `x.yaml:1: limits.timeout: "1d-2h" is not a duration: ` + timeouts},
		{"limits: {timeout: 366d}", `x.yaml:1: limits.timeout: "366d" is more than 365d: ` + timeouts},
		{"limits: {timeout: 99999d}", `x.yaml:1: limits.timeout: "99999d" is more than 365d: ` + timeouts},
		{"limits: {cpu: 10}", `x.yaml:1: limits.cpu: "10" has no unit: ` + durations},
		{"limits: {cpu: 0s}", `x.yaml:1: limits.cpu: "0s" is not above zero: ` + durations},
		{"limits: {cpu: 366d}", `x.yaml:1: limits.cpu: "366d" is more than 365d: ` + durations},
		{"concurrency: 0", `x.yaml:1: concurrency: "0" is not allowed: ` + numbers},
		{"concurrency: 1.5", `x.yaml:1: concurrency: "1.5" is not allowed: ` + numbers},
		{"concurrency: 65537", `x.yaml:1: concurrency: "65537" is not allowed: ` + numbers},
		{"concurrency: [1]", "x.yaml:1: concurrency: is a list: " + numbers},

		{"capabilities: {env: [A]}", "x.yaml:1: capabilities.env: expected a mapping, but it is a list: write its keys, such as env: {MODE: prod}, or leave it out"},
		{"capabilities: {env: {TASK_ID: 1}}", "x.yaml:1: capabilities.env.TASK_ID: variables that begin with TASK_ are set by the host: choose another name"},
		{"capabilities: {env: {A-B: 1}}", `x.yaml:1: capabilities.env.A-B: "A-B" is not a variable name: ` + name},
		{"capabilities: {env: {1A: 1}}", `x.yaml:1: capabilities.env.1A: "1A" is not a variable name: ` + name},
		{`capabilities: {env: {"": 1}}`, `x.yaml:1: capabilities.env.: "" is not a variable name: ` + name},
		{"capabilities: {env: {A: }}", `x.yaml:1: capabilities.env.A: is empty: write a text, "" for an empty one`},
		{"capabilities: {env: {A: [1]}}", `x.yaml:1: capabilities.env.A: is a list: write a text, "" for an empty one`},
		{`capabilities: {env: {A: "\0"}}`, "x.yaml:1: capabilities.env.A: has a zero byte: remove it"},
		{"capabilities: {env: {A: 1, A: 2}}", "x.yaml:1: capabilities.env.A: is here a second time, after line 1: keep one of them"},
	}
	for _, tt := range tests {
		_, err := Parse("x.yaml", []byte(tt.data))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%q\ngot  %v\nwant %v", tt.data, err, tt.want)
			continue
		}
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%q: the error does not wrap ErrRefused", tt.data)
		}
	}
}

func TestParseUnknownKey(t *testing.T) {
	t.Parallel()
	const top = "name, version, queues, limits, retry, concurrency, max_running, on_crash, max_crashes, breaker, record, dead, pin, entry, warm, config, capabilities, subscribe, schedule, tests"
	tests := []struct{ data, want string }{
		{"queue: [a]", `x.yaml:1: unknown key "queue": did you mean "queues"?`},
		{"Name: x", `x.yaml:1: unknown key "Name": did you mean "name"?`},
		{"verison: 1", `x.yaml:1: unknown key "verison": did you mean "version"?`},
		{"max-running: 1", `x.yaml:1: unknown key "max-running": did you mean "max_running"?`},
		{"concurency: 1", `x.yaml:1: unknown key "concurency": did you mean "concurrency"?`},
		{"limits: {memroy: 1MiB}", `x.yaml:1: limits: unknown key "memroy": did you mean "memory"?`},
		{"limits: {time_out: 1s}", `x.yaml:1: limits: unknown key "time_out": did you mean "timeout"?`},
		{"capabilities: {environment: {}}", `x.yaml:1: capabilities: unknown key "environment": did you mean "env"?`},
		{"limits: {mem: 1MiB}", `x.yaml:1: limits: unknown key "mem": did you mean "memory"?`},
		{"retrys: {}", `x.yaml:1: unknown key "retrys": did you mean "retry"?`},
		{"max_attempts: 5", `x.yaml:1: unknown key "max_attempts": it belongs to retry, as retry.max_attempts`},
		{"retry: {attempts: 5, max_age: 1h}", `x.yaml:1: retry: unknown key "attempts": did you mean "max_attempts"?`},
		{"retry: {max-age: 1h, max_attempts: 2}", `x.yaml:1: retry: unknown key "max-age": did you mean "max_age"?`},
		{"retry: {maximum: 1h, max_attempts: 2}", `x.yaml:1: retry: unknown key "maximum": did you mean "max"?`},
		{"retry: {delay: 1h, max_attempts: 2}", `x.yaml:1: retry: unknown key "delay": did you mean "base"?`},
		{"retry: {period: 1h, max_attempts: 2}", `x.yaml:1: retry: unknown key "period": the nearest is "min"; allowed are ` +
			"max_attempts, backoff, base, min, max, jitter, max_age, max_reschedules"},
		{"retry: {max_retries: 3}", `x.yaml:1: retry: unknown key "max_retries": did you mean "max_attempts" (the first run counts, too)?`},
		{"max-retries: 3", `x.yaml:1: unknown key "max-retries": did you mean "retry.max_attempts" (the first run counts, too)?`},
		{"soft_time_limit: 30", `x.yaml:1: unknown key "soft_time_limit": did you mean "limits.timeout"?`},
		{"rate_limit: 10/s", `x.yaml:1: unknown key "rate_limit": did you mean "concurrency" (it bounds how many tasks run at a time, not their rate)?`},
		{"capabilities: {kvs: []}\ntests: [{kv: {a: {b: c}}}]", `x.yaml:1: capabilities: unknown key "kvs": did you mean "kv"?`},
		{"timeout: 30s", `x.yaml:1: unknown key "timeout": it belongs to limits, as limits.timeout`},
		{"env: {A: b}", `x.yaml:1: unknown key "env": it belongs to capabilities, as capabilities.env`},
		{"limits: {queues: [a]}", `x.yaml:1: limits: unknown key "queues": it belongs to the top level`},
		{"frobnicate: 1", `x.yaml:1: unknown key "frobnicate": the nearest is "name"; allowed are ` + top},
		{`"\e[31m": 1`, `x.yaml:1: unknown key "\x1b[31m": the nearest is "warm"; allowed are ` + top},
	}
	for _, tt := range tests {
		if _, err := Parse("x.yaml", []byte(tt.data)); err == nil || err.Error() != tt.want {
			t.Errorf("%q\ngot  %v\nwant %v", tt.data, err, tt.want)
		}
	}
}

func TestParseAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	data := "versoin: 1\nlimits:\n  memory: 1\n  cpu: 10\nretry: {}\nqueues: [a b]\nconcurrency: -1\ndead: a b\n"
	_, err := Parse("x.yaml", []byte(data))
	var refused *Error
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	var got []string
	for _, p := range refused.Problems {
		got = append(got, fmt.Sprint(p.Line, " ", p.Field))
	}
	want := []string{"1 ", "3 limits.memory", "4 limits.cpu", "5 retry", "6 queues[0]", "7 concurrency", "8 dead"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	refusal := refused.Refusals()[1]
	if refusal.Where != "x.yaml:3" || !strings.HasPrefix(refusal.What, "limits.memory: ") || refusal.Remedy == "" {
		t.Errorf("refusal %+v", refusal)
	}
}

func TestParseBounds(t *testing.T) {
	t.Parallel()
	_, err := Parse("x.yaml", []byte("#"+strings.Repeat(" ", MaxSize)))
	if want := "x.yaml: has more than 256KiB: put less into it"; err == nil || err.Error() != want {
		t.Errorf("a big manifest: %v", err)
	}
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "wrong%d: 1\n", i)
	}
	_, err = Parse("x.yaml", []byte(many.String()))
	var refused *Error
	if !errors.As(err, &refused) || len(refused.Problems) != maxProblems+1 {
		t.Fatalf("many problems: %v", err)
	}
	if got := refused.Problems[maxProblems].What; got != "there are more problems" {
		t.Errorf("the rest: %q", got)
	}
}

// TestLongTextsAreNotRepeated: an error is for people, and hosts publish it.
func TestLongTextsAreNotRepeated(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("q", 200_000)
	for _, format := range []string{
		"name: %s", "%s: 1", "queues: [%s]", "limits: {memory: %s}", "dead: %s", "on_crash: %s", "tests: [{%s: 1}]", "config: {'%s ': a}",
		"schedule: [{cron: %s}]", "schedule: [{cron: '@daily', timezone: %s}]", "schedule: [{name: %s, cron: '@daily'}]", "version: !%s b", "version: *%s",
		"capabilities: {http: [{host: %s, methods: [GET]}]}", "capabilities: {http: [{host: 'https://%s', methods: [GET]}]}",
		"capabilities: {http: [{host: 'https://a.b', methods: [%s]}]}", "subscribe: [{topic: a, filter: {attributes: {%s: 1}}}]",
	} {
		if _, err := Parse("x.yaml", fmt.Appendf(nil, format, long)); err == nil || len(err.Error()) > 2*maxMessage+200 {
			t.Errorf("%s: %.200v", format, err)
		}
	}
}

// TestParseProblemsAreBounded: as many mappings as fit, with as many unknown keys, leave the problems that are shown.
func TestParseProblemsAreBounded(t *testing.T) {
	t.Parallel()
	var keys strings.Builder
	for i := range 100 {
		fmt.Fprintf(&keys, "k%x: 1,", i)
	}
	data := []byte("tests:\n" + strings.Repeat("- {"+keys.String()+"}\n", 240))
	allocated := allocatedBy(func() {
		if _, err := Parse("x.yaml", data); err == nil || !strings.HasSuffix(err.Error(), "there are more problems: correct these first") {
			t.Errorf("%.300v", err)
		}
	})
	if most := uint64(64 << 20); allocated > most {
		t.Errorf("%d bytes of YAML take %d MiB, want at most %d", len(data), allocated>>20, most>>20)
	}
}

// allocatedBy is about how many bytes f allocates: other tests run beside it.
func allocatedBy(f func()) uint64 {
	least := uint64(math.MaxUint64)
	for range 3 {
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		f()
		goruntime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fullManifest))
	f.Add([]byte(completeManifest))
	for _, seed := range []string{
		"", "{}", "a: &a [*a]", "name: x\n---\n", "limits: {memory: 1TiB, timeout: 9d9h}", "queues: [[a]]",
		"retry: {max_attempts: unlimited, min: 13h, max: 7d}\ndead: y", "retry: {max_age: 1h, jitter: no}",
		"<<: {name: x}", "? [x]\n: 1", "capabilities: {env: {A: \"\\0\"}}", "&a name: *a", "\xff\xfen\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse("x.yaml", data)
		if err != nil {
			var refused *Error
			if !errors.As(err, &refused) || len(refused.Problems) == 0 || len(refused.Problems) > maxProblems+1 {
				t.Fatalf("%T: %v", err, err)
			}
			for _, p := range refused.Problems {
				if p.What == "" || p.Remedy == "" || p.Line < 0 {
					t.Fatalf("%+v", p)
				}
			}
			return
		}
		checkAccepted(t, m)
	})
}

// checkAccepted holds an accepted manifest to what the rest of the program relies on.
func checkAccepted(t *testing.T, m Manifest) {
	t.Helper()
	if m.Name != "x" || len(m.Queues) == 0 || m.Concurrency < 0 || m.MaxRunning < 0 || m.MaxCrashes < 0 ||
		m.Dead != "" && slices.Contains(m.Queues, m.Dead) {
		t.Fatalf("%+v", m)
	}
	for _, word := range append(m.Queues, m.Name, "v"+m.Version, "v"+m.Dead) {
		if len(word) > maxWord+1 || strings.Trim(word, printable()) != "" {
			t.Fatalf("word %q", word)
		}
	}
	for name, value := range m.Capabilities.Env {
		if strings.HasPrefix(name, runtime.ReservedEnv) || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			t.Fatalf("variable %q", name)
		}
	}
	checkRetry(t, m.Retry)
	for _, grant := range m.Capabilities.Files {
		if !isPath(grant.From) || !isPath(strings.TrimPrefix(grant.To, "/")) || grant.line < 1 {
			t.Fatalf("file %+v", grant)
		}
	}
	if e := m.Capabilities.Enqueue; e != nil && (len(e.Queues) == 0 || e.Depth < 1 || e.Depth > maxDepth ||
		e.Tasks < 1 || e.Tasks > maxTasks || !e.AfterCall() && e.Tasks > defaultTasks || e.Bytes < 1 ||
		slices.ContainsFunc(e.Queues, func(queue string) bool { return CheckWord(queue) != nil || strings.Count(queue, wildcard) > 1 })) {
		t.Fatalf("enqueue %+v", e)
	}
	for _, test := range m.Tests {
		if test.Name == "" || test.Input != "" && !isPath(test.Input) || test.Output != "" && !isPath(test.Output) {
			t.Fatalf("test %+v", test)
		}
	}
	l := NewPermissions(&m, nil, "acme", Ceilings{}.With(runtime.Limits{Timeout: time.Minute, CPU: time.Second}, "here")).Limits
	if l.Memory < minMemory || l.Memory > runtime.MaxMemory || l.Input < 1 || l.Output < 1 || l.Log < 1 ||
		l.Memory+l.Input+l.Output > runtime.MaxMemory+2*maxPayload || l.Timeout <= 0 || l.Timeout > time.Minute || l.CPU <= 0 || l.CPU > time.Second {
		t.Fatalf("limits %+v", l)
	}
}

// checkRetry: what a manifest says ends some day, or says that it does not.
func checkRetry(t *testing.T, r Retry) {
	t.Helper()
	low, high := cmp.Or(r.Min, shortestRetry), cmp.Or(r.Max, longestRetry)
	if r.MaxAttempts < Unlimited || r.MaxAttempts == 0 && r != (Retry{}) || r.MaxReschedules < 0 || low > high ||
		min(r.Base, r.Min, r.Max, r.MaxAge) < 0 || !slices.Contains([]string{"", "exponential", "linear"}, r.Backoff) {
		t.Fatalf("retry %+v", r)
	}
}

func printable() string {
	var all strings.Builder
	for c := byte(0x21); c <= 0x7e; c++ {
		all.WriteByte(c)
	}
	return all.String()
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		if _, err := Parse("thumbnails.yaml", []byte(fullManifest)); err != nil {
			b.Fatal(err)
		}
	}
}
