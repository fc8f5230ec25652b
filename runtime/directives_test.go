package runtime

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// directed writes pieces to a log and returns its lines, and what it took for progress.
func directed(pieces ...string) (lines, reports []string) {
	l := logs{
		limit:    math.MaxInt64,
		line:     func(line string) { lines = append(lines, line) },
		progress: func(f float64, message string) { reports = append(reports, fmt.Sprintf("%v %s", f, message)) },
	}
	for _, piece := range pieces {
		l.write(&l.stream, []byte(piece))
		if l.wrong != nil {
			panic(l.wrong)
		}
	}
	l.flush()
	if l.wrong != nil {
		panic(l.wrong)
	}
	return lines, reports
}

func TestProgress(t *testing.T) {
	t.Parallel()
	const (
		half  = "quern:progress=0.5"
		digit = "quern:progress=0."
	)
	long := strings.Repeat("m", maxProgress)
	for text, want := range map[string]struct{ lines, reports []string }{
		half + "\n":                            {nil, []string{"0.5 "}},
		half:                                   {nil, []string{"0.5 "}},
		half + "\r\n":                          {nil, []string{"0.5 "}},
		half + " \n":                           {nil, []string{"0.5 "}},
		half + " half way\n":                   {nil, []string{"0.5 half way"}},
		half + " half way\r\n":                 {nil, []string{"0.5 half way"}},
		half + " half way":                     {nil, []string{"0.5 half way"}},
		"a\n" + half + " b\nc\n":               {[]string{"a", "c"}, []string{"0.5 b"}},
		half + "  two spaces \n":               {nil, []string{"0.5  two spaces "}},
		half + " quern:progress=1\n":           {nil, []string{"0.5 quern:progress=1"}},
		half + "\n\n" + half + "\n":            {[]string{""}, []string{"0.5 ", "0.5 "}},
		"quern:progress=0\nquern:progress=1\n": {nil, []string{"0 ", "1 "}},
		"quern:progress=1e-05 x\nquern:progress=-0\n":   {nil, []string{"1e-05 x", "0 "}},
		"quern:progress=.25\nquern:progress=1.\n":       {nil, []string{"0.25 ", "1 "}},
		digit + strings.Repeat("3", maxFraction-2):      {nil, []string{"0.3333333333333333 "}},
		half + " \x1b[31mred\xff\n":                     {nil, []string{`0.5 \x1b[31mred` + "\ufffd"}},
		half + " " + long + "\n":                        {nil, []string{"0.5 " + long}},
		half + " " + long + "\r\n":                      {nil, []string{"0.5 " + long}},
		half + " " + long + "mm\nend\n":                 {[]string{"end"}, []string{"0.5 " + long}},
		half + " " + long[1:] + "ü\n":                   {nil, []string{"0.5 " + long[1:]}},
		half + " " + strings.Repeat("\xff", 2000):       {nil, []string{"0.5 " + strings.Repeat("\ufffd", maxProgress/3)}},
		"quern:progress=\n":                             {[]string{"quern:progress="}, nil},
		"quern:progress= x\n":                           {[]string{"quern:progress= x"}, nil},
		"quern:progress=1.01\nquern:progress=-0.1\n":    {[]string{"quern:progress=1.01", "quern:progress=-0.1"}, nil},
		"quern:progress=NaN\nquern:progress=Inf\n":      {[]string{"quern:progress=NaN", "quern:progress=Inf"}, nil},
		"quern:progress=0x1p-2\nquern:progress=1_0\n":   {[]string{"quern:progress=0x1p-2", "quern:progress=1_0"}, nil},
		"quern:progress=50% x\nquern:progress=0,5\n":    {[]string{"quern:progress=50% x", "quern:progress=0,5"}, nil},
		"quern:progress=0.5\tx\nquern:progress 0.5\n":   {[]string{"quern:progress=0.5\tx", "quern:progress 0.5"}, nil},
		" quern:progress=0.5\nQuern:progress=0.5\n":     {[]string{" quern:progress=0.5", "Quern:progress=0.5"}, nil},
		"quern:prog\nquern:progress\nq":                 {[]string{"quern:prog", "quern:progress", "q"}, nil},
		digit + strings.Repeat("3", maxFraction) + "\n": {[]string{digit + strings.Repeat("3", maxFraction)}, nil},
		digit + strings.Repeat("3", 2*maxLine) + "\nx": {[]string{
			digit + strings.Repeat("3", maxLine-len(digit)), strings.Repeat("3", maxLine), strings.Repeat("3", len(digit)), "x",
		}, nil},
	} {
		for _, size := range []int{1, 7, len(text)} {
			pieces := []string{}
			for piece := range slices.Chunk([]byte(text), size) {
				pieces = append(pieces, string(piece))
			}
			lines, reports := directed(pieces...)
			if !slices.Equal(lines, want.lines) || !slices.Equal(reports, want.reports) {
				t.Errorf("%.100q in pieces of %d:\nlines   %.100q\nreports %.100q\nwant    %.100q", text, size, lines, reports, want)
			}
		}
	}
}

// TestProgressIsNotCounted: only the lines that are logged count, to the byte.
func TestProgressIsNotCounted(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.Exit(t))
	flood := strings.Repeat("quern:progress=0.5 "+strings.Repeat("x", 2000)+"\n", 100) // each byte is a call of the guest
	malformed := "quern:progress=2\n"
	run := func(text string, limit int) (Outcome, int) {
		reports := 0
		got := bound(module, "", Profile{Limits: Limits{Log: int64(limit), Timeout: patience}}).Run(t.Context(), Call{
			Input: []byte("0" + text),
			Progress: func(f float64, message string) {
				if reports++; f != 0.5 || len(message) != maxProgress {
					t.Errorf("progress %v with %d bytes", f, len(message))
				}
			},
		})
		return got, reports
	}
	// Exit's own scanf leaves a newline before the text.
	text := "\n" + flood + malformed + flood
	if got, reports := run(text, len(malformed)-1+2*lineOverhead); got.Kind != Complete || reports != 200 || got.Stderr != "\nquern:progress=2" {
		t.Errorf("outcome = %+v after %d reports, want complete after 200", got, reports)
	}
	if got, reports := run(text, len(malformed)-2+2*lineOverhead); got.Limit.Name != "log" || reports != 100 {
		t.Errorf("outcome = %+v after %d reports, want the log limit after 100", got, reports)
	}
	// What may still become a line of progress counts when it does not.
	if got, _ := run("\nquern:prog", len("quern:prog")+2*lineOverhead); got.Kind != Complete {
		t.Errorf("outcome = %+v, want complete", got)
	}
	if got, _ := run("\nquern:prog", len("quern:pro")+2*lineOverhead); got.Limit.Name != "log" || got.Stderr != "\nquern:pro" {
		t.Errorf("outcome = %+v, want the log limit", got)
	}
}

// TestProgressFloodTakesNoMemory: neither many lines nor an endless one. It is not parallel, for it
// counts allocations.
func TestProgressFloodTakesNoMemory(t *testing.T) {
	l := logs{limit: 1 << 10}
	line := []byte("quern:progress=0.5 " + strings.Repeat("x", 100) + "\n")
	if n := testing.AllocsPerRun(1000, func() { l.write(&l.stream, line) }); n > 0 {
		t.Errorf("%v allocations a line", n)
	}
	l.write(&l.stream, []byte("quern:progress=0.5 "))
	endless := []byte(strings.Repeat("x", 64<<10))
	for range 1000 {
		l.write(&l.stream, endless)
	}
	if held := cap(l.partial) + cap(l.tail); held > 4*maxProgress || l.written > 0 || l.wrong != nil {
		t.Errorf("%d bytes are held, %d counted", held, l.written)
	}
}

// TestProgressIsLive: a report comes while the guest runs, and a panic in the host's function is the
// host's.
func TestProgressIsLive(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildC(t, `
#include <stdio.h>
int main(void) {
	fputs("quern:progress=0.25 ready\n", stderr);
	for (volatile unsigned n = 0;; n++) {}
}`))
	got := bound(module, "", Profile{}).Run(t.Context(), Call{Progress: func(f float64, message string) {
		if f != 0.25 || message != "ready" {
			t.Errorf("progress %v %q", f, message)
		}
		panic("out of paper") // or the guest never ends
	}})
	if got.Kind != HostFault || got.Stderr != "" || !strings.Contains(fmt.Sprint(got.Err), "out of paper") {
		t.Errorf("outcome = %+v, want a host fault that names the panic", got)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.Exit(t))
	const plain = "exit status 75 (try again later)"
	for stderr, want := range map[string]struct {
		after   time.Duration
		message string
	}{
		"busy\nquern:retry-after=30s\n":                              {30 * time.Second, plain + ": busy"},
		"busy\nquern:retry-after=30s":                                {30 * time.Second, plain + ": busy"},
		"busy\nquern:retry-after=30s\r\n\n":                          {30 * time.Second, plain + ": busy"},
		"\nquern:retry-after=1h30m\n":                                {90 * time.Minute, plain},
		"\nquern:retry-after=90\n":                                   {90 * time.Second, plain},
		"\nquern:retry-after=0.5\n":                                  {time.Second / 2, plain},
		"\nquern:retry-after=8760h\n":                                {maxRetryAfter, plain},
		"\nquern:retry-after=0\n":                                    {0, plain},
		"\nquern:retry-after=5\nquern:progress=1 told\n":             {5 * time.Second, plain},
		"\nquern:retry-after=5\nquern:retry-after=7\n":               {7 * time.Second, plain + ": quern:retry-after=5"},
		"\nquern:retry-after=5\nno, wait\n":                          {0, plain + ": no, wait"},
		"\nquern:retry-after=-5\n":                                   {0, plain + ": quern:retry-after=-5"},
		"\nquern:retry-after=-5s\n":                                  {0, plain + ": quern:retry-after=-5s"},
		"\nquern:retry-after=8761h\n":                                {0, plain + ": quern:retry-after=8761h"},
		"\nquern:retry-after=99999999999999999999\n":                 {0, plain + ": quern:retry-after=99999999999999999999"},
		"busy\nquern:retry-after=30s key\n":                          {30 * time.Second, plain + ": busy"},
		"\nquern:retry-after=5 key\n":                                {5 * time.Second, plain},
		"\nquern:retry-after=5 keys\n":                               {0, plain + ": quern:retry-after=5 keys"},
		"\nquern:retry-after= key\n":                                 {0, plain + ": quern:retry-after= key"},
		"\nquern:retry-after=soon\n":                                 {0, plain + ": quern:retry-after=soon"},
		"\nquern:retry-after=\n":                                     {0, plain + ": quern:retry-after="},
		"\nquern:retry-after=1e3\n":                                  {0, plain + ": quern:retry-after=1e3"},
		"\nx quern:retry-after=5\n":                                  {0, plain + ": x quern:retry-after=5"},
		"\n" + strings.Repeat("x", 9000) + "\nquern:retry-after=5\n": {5 * time.Second, plain + ": " + strings.Repeat("x", 9000-maxLine)[:maxHeadline] + "…"},
	} {
		var logged []string
		got := bound(module, "", Profile{}).Run(t.Context(), Call{
			Input: []byte("75" + stderr), Log: func(line string) { logged = append(logged, line) },
		})
		key := want.after > 0 && strings.HasSuffix(stderr, " key\n")
		if got.Kind != Retry || got.RetryAfter != want.after || got.HoldKey != key || got.Message != want.message {
			t.Errorf("%q: outcome = %+v, want %v, %s", stderr, got, want.after, want.message)
		}
		if !strings.Contains(strings.Join(logged, "\n"), "quern:retry-after=") || !strings.Contains(got.Stderr, "quern:retry-after=") {
			t.Errorf("%q: log = %q, stderr = %q, want the line in both", stderr, logged, got.Stderr)
		}
	}
	// A failure may ask, too, but not one for good.
	for code, want := range map[string]time.Duration{"0": 0, "1": 5 * time.Second, "65": 0} {
		if got := call(t, module, code+"\nquern:retry-after=5\n", Limits{}); got.RetryAfter != want {
			t.Errorf("exit %s = %+v", code, got)
		}
	}
}

// TestTaskTimeout: a task's own limit of time holds instead of the other, be it shorter or longer.
func TestTaskTimeout(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.Sleep(t))
	run := func(input string, own, limit time.Duration) Outcome {
		return bound(module, "", Profile{Limits: Limits{Timeout: limit}}).Run(t.Context(), Call{Input: []byte(input), Timeout: own})
	}
	const message = "timeout of 50ms exceeded while it slept or waited: let it end sooner there, or give the task a longer timeout, if the host's ceiling allows it"
	for _, limit := range []time.Duration{0, time.Hour} {
		got := run("3600000", 50*time.Millisecond, limit)
		if got.Kind != LimitExceeded || got.Limit != (Limit{"timeout", "50ms"}) || got.Message != message {
			t.Errorf("outcome = %+v, want the task's timeout", got)
		}
	}
	complete(t, run("20", patience, time.Millisecond))
	for _, none := range []time.Duration{0, -1} {
		if got := run("3600000", none, 50*time.Millisecond); got.Limit.Name != "timeout" || strings.Contains(got.Message, "the task") {
			t.Errorf("outcome = %+v, want the plugin's timeout", got)
		}
	}
}

// FuzzLogs: however lines come in, each goes one way, and what the host is told is bounded and clean.
func FuzzLogs(f *testing.F) {
	for _, seed := range []string{"a\nquern:progress=0.5 b\n", "quern:progress=\xff\r\n", "quern:progress=1e9\nquern:pro"} {
		f.Add([]byte(seed), 3, 10)
	}
	f.Fuzz(func(t *testing.T, text []byte, size, limit int) {
		limit = max(1, limit)
		logged := 0
		l := logs{limit: int64(limit)}
		l.line = func(line string) { logged++ }
		l.progress = func(fraction float64, message string) {
			if !(fraction >= 0 && fraction <= 1) || len(message) > maxProgress || !utf8.ValidString(message) || strings.ContainsAny(message, "\n\r\x1b") {
				t.Errorf("progress %v %q", fraction, message)
			}
		}
		for piece := range slices.Chunk(text, max(1, size)) {
			if l.write(&l.stream, piece); l.wrong != nil {
				break
			}
		}
		l.flush()
		var full *limitError
		if l.written > int64(limit) || logged > limit+1 || l.wrong != nil && !errors.As(l.wrong, &full) || len(l.partial) > 0 {
			t.Errorf("%d bytes and %d lines within %d, stopped by %v, %q is left", l.written, logged, limit, l.wrong, l.partial)
		}
	})
}
