package runtime

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// languages are those in which the same guest is written, in testdata/languages.
var languages = []struct {
	name, source string
	build        func(t testing.TB, source string, arguments ...string) []byte
}{
	{"C", "guest.c", func(t testing.TB, source string, _ ...string) []byte {
		return runtimetest.BuildC(t, source, "-D_GNU_SOURCE")
	}},
	{"Go", "guest.go", runtimetest.BuildGo},
	{"Rust", "guest.rs", runtimetest.BuildRust},
	{"AssemblyScript", "guest.ts", runtimetest.BuildAssemblyScript},
}

// behaviour is what a guest in every language does, and what comes of it.
type behaviour struct {
	name, of   string // the guest is told the first
	env        map[string]string
	input      []byte
	checkpoint []byte
	want       string                                     // the whole output, if check is nil
	check      func(t *testing.T, language string, r ran) // otherwise
	cannot     map[string]string                          // by language: why its library has nothing for it
}

// ran is what a guest left.
type ran struct {
	Outcome
	lines []string       // of the log
	again func() Outcome // makes the same call once more
	began time.Time
}

const (
	hello    = "hello, granted file\n"
	greeting = "héllo = wörld ☃"
)

// The errors of WASI that guests name by their numbers.
const (
	wasiInval  = "28"
	wasiNoent  = "44"
	wasiNotdir = "54"
	wasiRofs   = "69"
)

var (
	noFiles    = map[string]string{"AssemblyScript": "the library has no files"}
	noSleep    = map[string]string{"AssemblyScript": "the library does not wait"}
	behaviours = append(append([]behaviour{
		{name: "args", want: "1 plugin"},
		{name: "env", env: map[string]string{"GREETING": greeting, "EMPTY": ""}, want: greeting + "|id||unset"},
		{name: "stdin", input: pattern(1 << 20), want: digestOf(pattern(1 << 20))},
		{name: "stdin", of: "nothing", want: digestOf(nil)},
		{name: "stdin in small reads", input: pattern(32 << 10), want: digestOf(pattern(32 << 10))},
		{name: "streams", check: checkStreams},
		{name: "flood", check: checkFlood},
		{name: "clocks", check: checkClocks},
		{name: "random", check: checkRandom},
		{name: "sleep", check: checkSleep, cannot: noSleep},
		{name: "memory", want: strconv.Itoa(8192 / 256 * (255 * 256 / 2))},
		{name: "panic", check: checkEnds("went wrong", map[string]string{
			"C":              "unreachable (the program aborted or panicked): went wrong",
			"Go":             "exit status 2: panic: went wrong",
			"Rust":           "unreachable (the program aborted or panicked): ",
			"AssemblyScript": "exit status 255: abort: went wrong",
		})},
		{name: "trap", check: checkEnds("", map[string]string{
			"C":              "unreachable",
			"Go":             "exit status 2: panic: runtime error: invalid memory address",
			"Rust":           "unreachable",
			"AssemblyScript": "unreachable",
		})},
	}, exits()...), fileBehaviours()...)
)

// exits end with codes that mean something, and some that do not.
func exits() []behaviour {
	var all []behaviour
	for code, kind := range map[int]OutcomeKind{0: Complete, 1: Failed, 65: Fatal, 75: Retry, 125: Failed} {
		all = append(all, behaviour{
			name: "exit", of: strconv.Itoa(code), env: map[string]string{"CODE": strconv.Itoa(code)},
			check: func(t *testing.T, _ string, r ran) {
				if r.Kind != kind || r.Code != code {
					t.Errorf("outcome = %+v, want %s with %d", r.Outcome, kind, code)
				}
				if output := string(r.Output); kind == Complete && output != "left" || kind != Complete && output != "" {
					t.Errorf("output = %q", output)
				}
			},
		})
	}
	return all
}

func fileBehaviours() []behaviour {
	refused := strings.Repeat(wasiRofs+" ", 5)
	all := []behaviour{
		{name: "file", want: hello},
		{name: "relative path", want: hello},
		{name: "large file", want: digestOf(pattern(300_000))},
		{name: "seek", want: "file granted 7 100 0 " + wasiInval},
		{name: "stat", want: "20 file 20 file directory 0 file"},
		{name: "missing file", want: wasiNoent + " " + wasiNoent + " " + wasiNotdir + " closed"},
		{name: "writes", want: refused + hello},
		{name: "directories", want: "empty:file hello.txt:file nested:directory 900 000:file 899:file"},
		{name: "checkpoint", checkpoint: []byte("as far as 42"), want: "as far as 42"},
		{name: "checkpoint", of: "nothing", want: wasiNoent},
	}
	for i := range all {
		all[i].cannot = noFiles
	}
	return all
}

// TestLanguages runs guests of real compilers with their real libraries: what WASI is to them is what these
// see of it.
func TestLanguages(t *testing.T) {
	t.Parallel()
	engine := setupBuild(t, "")
	files := grantedFiles(t)
	for _, language := range languages {
		t.Run(language.name, func(t *testing.T) {
			t.Parallel()
			source, err := os.ReadFile(filepath.Join("testdata", "languages", language.source))
			if err != nil {
				t.Fatal(err)
			}
			module := loadInto(t, engine, language.build(t, string(source)))
			for _, b := range behaviours {
				if b.cannot[language.name] != "" {
					continue
				}
				t.Run(strings.TrimSpace(b.name+" "+b.of), func(t *testing.T) {
					t.Parallel()
					b.run(t, language.name, module, files)
				})
			}
		})
	}
}

func (b behaviour) run(t *testing.T, language string, module *Module, files *Files) {
	t.Helper()
	r := ran{began: time.Now()}
	env := map[string]string{"BEHAVIOUR": b.name}
	for name, value := range b.env {
		env[name] = value
	}
	profile := Profile{Env: env, Files: files, Limits: Limits{Timeout: 4 * patience}}
	c := Call{TaskID: "id", Queue: "queue", Plugin: "plugin", Input: b.input, Checkpoint: b.checkpoint}
	r.again = func() Outcome { return bound(module, "", profile).Run(t.Context(), c) }
	c.Log = func(line string) { r.lines = append(r.lines, line) }
	r.Outcome = bound(module, "", profile).Run(t.Context(), c)
	if b.check != nil {
		b.check(t, language, r)
		return
	}
	if got := complete(t, r.Outcome); got != b.want {
		t.Errorf("output = %q, want %q", got, b.want)
	}
}

// TestLanguagesCannot keeps the table honest: nothing is left out of a language that is not there, or for
// no reason.
func TestLanguagesCannot(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, language := range languages {
		known[language.name] = true
	}
	for _, b := range behaviours {
		for language, reason := range b.cannot {
			if !known[language] || reason == "" {
				t.Errorf("%s: %q cannot, because %q", b.name, language, reason)
			}
		}
	}
}

func grantedFiles(t testing.TB) *Files {
	t.Helper()
	contents := map[string][]byte{
		"/data/hello.txt":         []byte(hello),
		"/data/empty":             nil,
		"/data/nested/deep/large": pattern(300_000),
	}
	for i := range 900 {
		contents[fmt.Sprintf("/many/%03d", i)] = []byte{byte(i)}
	}
	files, err := NewFiles(contents)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// pattern is so many bytes of which none looks like its neighbours.
func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i * i >> 5)
	}
	return p
}

// digestOf is what a guest says of what it has read: the length, the sum, and that nothing followed.
func digestOf(p []byte) string {
	hash := fnv.New32a()
	hash.Write(p)
	return fmt.Sprintf("%d %08x 0", len(p), hash.Sum32())
}

// checkStreams: the lines of both outputs arrive, each in its order.
func checkStreams(t *testing.T, _ string, r ran) {
	var out strings.Builder
	for i := range 500 {
		fmt.Fprintf(&out, "out %d\n", i)
		if want := fmt.Sprintf("err %d", i); i >= len(r.lines) || r.lines[i] != want {
			t.Fatalf("line %d of the log is not %q: %q", i, want, r.lines)
		}
	}
	if got := complete(t, r.Outcome); got != out.String() || len(r.lines) != 500 {
		t.Errorf("%d lines of the log, output %q", len(r.lines), got)
	}
}

// checkFlood: much of both.
func checkFlood(t *testing.T, _ string, r ran) {
	want := make([]byte, 1<<20)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	if got := complete(t, r.Outcome); !bytes.Equal([]byte(got), want) {
		t.Errorf("%d bytes of output differ from %d", len(got), len(want))
	}
	if len(r.lines) != 600 || r.lines[599] != fmt.Sprintf("%099d", 599) {
		t.Errorf("%d lines of the log", len(r.lines))
	}
}

// checkClocks: the wall clock is the host's, the other one rises.
func checkClocks(t *testing.T, _ string, r ran) {
	nanoseconds, rest, _ := strings.Cut(complete(t, r.Outcome), " ")
	n, err := strconv.ParseInt(nanoseconds, 10, 64)
	if at := time.Unix(0, n); err != nil || at.Before(r.began.Truncate(time.Millisecond)) || at.After(time.Now()) {
		t.Errorf("the guest's time %s is not between %d and now", nanoseconds, r.began.UnixNano())
	}
	if rest != "rising" {
		t.Errorf("the monotonic clock is %s", rest)
	}
}

// checkRandom: no draw is like another, in one call or in two.
func checkRandom(t *testing.T, _ string, r ran) {
	seen := map[string]bool{}
	for _, draw := range strings.Fields(complete(t, r.Outcome) + complete(t, r.again())) {
		if len(draw) != 32 || strings.Trim(draw, "0") == "" {
			t.Errorf("draw %q", draw)
		}
		seen[draw] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d different draws of 6", len(seen))
	}
}

// checkSleep: the time passes. How much of it the host waits is less by what the guest takes to ask for it.
func checkSleep(t *testing.T, _ string, r ran) {
	if got := complete(t, r.Outcome); got != "0 slept" || r.WaitTime+r.GuestTime < 20*time.Millisecond {
		t.Errorf("the guest %s, %v and %v in the host", got, r.GuestTime, r.WaitTime)
	}
}

// checkEnds: the message of the outcome begins as the language has it, and the word is passed on.
func checkEnds(word string, want map[string]string) func(*testing.T, string, ran) {
	return func(t *testing.T, language string, r ran) {
		said := r.Message + r.Stderr
		if !strings.HasPrefix(said, want[language]) || want[language] == "" || !strings.Contains(said, word) {
			t.Errorf("outcome = %+v, want %s", r.Outcome, want[language])
		}
	}
}
