package runtime

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// logged writes pieces to a log and returns its lines and its end.
func logged(pieces ...string) (lines []string, end string) {
	l := logs{limit: math.MaxInt64, line: func(line string) { lines = append(lines, line) }}
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
	return lines, l.end()
}

func TestLogLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLine)
	for name, test := range map[string]struct{ pieces, want []string }{
		"nothing":    {nil, nil},
		"line":       {[]string{"a\n"}, []string{"a"}},
		"lines":      {[]string{"a\nb\n\nc\n"}, []string{"a", "b", "", "c"}},
		"empty":      {[]string{"\n\na\n\n\r\n", "\n", "\n\nb\n", "\n"}, []string{"", "a", "", "b", ""}},
		"pieces":     {[]string{"a", "b\nc", "\n"}, []string{"ab", "c"}},
		"no newline": {[]string{"a\nb"}, []string{"a", "b"}},
		"crlf":       {[]string{"a\r\nb\r\n"}, []string{"a", "b"}},
		"controls":   {[]string{"\x1b[31mred\x00\x7f\ttab\rreturn\n"}, []string{"\\x1b[31mred\\x00\\x7f\ttab\\x0dreturn"}},
		"forged":     {[]string{"a\u2028b\u0085c\u202ed\u200be\n"}, []string{`a\u2028b\u0085c\u202ed\u200be`}},
		"plane 14":   {[]string{"\U000e0001\n"}, []string{`\U000e0001`}},
		"not utf-8":  {[]string{"a\xffb\xc3\n"}, []string{"a\ufffdb\ufffd"}},
		"split rune": {[]string{"gr\xc3", "\xbc\xc3\x9fe\n"}, []string{"grüße"}},
		"full line":  {[]string{long + "\n"}, []string{long}},
		"long line":  {[]string{long + "yz\n"}, []string{long, "yz"}},
		"long runes": {[]string{long[1:] + "üz\n"}, []string{long[1:], "üz"}},
		"very long":  {[]string{long, long, "end"}, []string{long, long, "end"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, _ := logged(test.pieces...); !slices.Equal(got, test.want) {
				t.Errorf("lines = %q, want %q", got, test.want)
			}
		})
	}
}

func TestLogTail(t *testing.T) {
	t.Parallel()
	if _, end := logged("a\nb\n\n"); end != "a\nb" {
		t.Errorf("end = %q", end)
	}
	var pieces []string
	for range 1000 {
		pieces = append(pieces, "grüße an alle\n")
	}
	_, end := logged(append(pieces, "last\n")...)
	if len(end) > maxTail || len(end) < maxTail-utf8.UTFMax || !utf8.ValidString(end) || !strings.HasSuffix(end, "alle\nlast") {
		t.Errorf("end has %d bytes: …%q", len(end), end[len(end)-20:])
	}
	// Escapes make a line longer than it was written.
	if _, end := logged(strings.Repeat("\x00", 100_000)); len(end) > maxTail || !strings.HasSuffix(end, `\x00`) {
		t.Errorf("end has %d bytes", len(end))
	}
}

// TestLogStreams: what a handler writes to stdout is log, and neither a directive nor in the way of one on stderr.
func TestLogStreams(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLine)
	// Each piece begins with its stream: 1 is stdout, 2 is stderr.
	for name, test := range map[string]struct{ pieces, lines, reports []string }{
		"directive beside an open line": {[]string{"1open", "2quern:progress=0.5 half\n", "1 line\n"}, []string{"open line"}, []string{"0.5 half"}},
		"open directive":                {[]string{"2quern:prog", "1out\n", "2ress=0.5 half", "1more", "2 of it\n"}, []string{"out", "more"}, []string{"0.5 half of it"}},
		"directive on stdout":           {[]string{"1quern:progress=0.5 half\n", "1quern:pro"}, []string{"quern:progress=0.5 half", "quern:pro"}, nil},
		"both open":                     {[]string{"2err", "1out", "2or", "1put"}, []string{"output", "error"}, nil},
		"empty":                         {[]string{"1\n", "2\n", "1"}, []string{""}, nil},
		"long":                          {[]string{"2e", "1" + long + "y", "2r\n"}, []string{long, "er", "y"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines, reports []string
			l := logs{
				limit:    math.MaxInt64,
				line:     func(line string) { lines = append(lines, line) },
				progress: func(f float64, message string) { reports = append(reports, fmt.Sprintf("%v %s", f, message)) },
			}
			for _, piece := range test.pieces {
				l.write(map[byte]*stream{'1': &l.stdout, '2': &l.stream}[piece[0]], []byte(piece[1:]))
				if l.wrong != nil {
					t.Fatal(l.wrong)
				}
			}
			l.flush()
			if l.wrong != nil {
				t.Fatal(l.wrong)
			}
			if !slices.Equal(lines, test.lines) || !slices.Equal(reports, test.reports) {
				t.Errorf("lines = %q, reports = %q, want %q, %q", lines, reports, test.lines, test.reports)
			}
			if want := strings.Join(test.lines, "\n"); l.end() != string(redact.Suffix([]byte(strings.TrimRight(want, "\n")), maxTail)) {
				t.Errorf("end = %q, want that of %q", l.end(), want)
			}
		})
	}
}

// TestLogOfHandler: a guest that leaves a line of stdout open reports its progress; both streams are under one limit,
// whose text is right for both.
func TestLogOfHandler(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildCHandler(t, `
#include <stdio.h>
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	setvbuf(stdout, NULL, _IONBF, 0);
	fputs("resizing...", stdout);
	fputs("quern:progress=0.5 half\n", stderr);
	fputs(" done\n", stdout);
	fputs("quern:progress=1\n", stdout);
	return 1;
}`))
	run := func(limit int64) (got Outcome, lines, reports []string) {
		got = module.Bind(Profile{Limits: Limits{Log: limit}}).Run(t.Context(), Call{
			Log:      func(line string) { lines = append(lines, line) },
			Progress: func(f float64, message string) { reports = append(reports, fmt.Sprintf("%v %s", f, message)) },
		})
		return got, lines, reports
	}
	all := []string{"resizing... done", "quern:progress=1"}
	got, lines, reports := run(32 + 2*lineOverhead)
	if got.Kind != Failed || !slices.Equal(lines, all) || !slices.Equal(reports, []string{"0.5 half"}) {
		t.Errorf("outcome = %+v, lines = %q, reports = %q", got, lines, reports)
	}
	got, lines, _ = run(31 + 2*lineOverhead)
	all[1] = "quern:progress="
	if want := "log limit of 287B exceeded: raise limits.log in the plugin's manifest"; got.Message != want || !slices.Equal(lines, all) {
		t.Errorf("outcome = %+v, want %s; lines = %q", got, want, lines)
	}
}

// TestLogIsLive: a line is handed on while the guest runs, not when it has ended.
func TestLogIsLive(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.Loop(t))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var lines []string
	got := bound(module, "", Profile{}).Run(ctx, Call{Log: func(line string) {
		lines = append(lines, line)
		cancel() // or the guest never ends
	}})
	if got.Kind != Cancelled || !slices.Equal(lines, []string{"ready"}) || got.Stderr != "ready" || ctx.Err() != context.Canceled {
		t.Errorf("outcome = %+v, lines = %q", got, lines)
	}
}

// TestLogUpToLimit: what a guest wrote before it passed the limit is there.
func TestLogUpToLimit(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.LogFlood(t))
	var lines []string
	got := bound(module, "", Profile{Limits: Limits{Log: 63 + 36 + 2*lineOverhead}}).Run(t.Context(), Call{Log: func(line string) { lines = append(lines, line) }})
	want := []string{strings.Repeat("x", 63), strings.Repeat("x", 36)}
	if got.Limit.Name != "log" || !slices.Equal(lines, want) || got.Stderr != strings.Join(want, "\n") {
		t.Errorf("outcome = %+v, lines = %q", got, lines)
	}
}

// TestLongLinesCutNoSecret: where the host cuts a line that is too long, it cuts no secret in two.
func TestLongLinesCutNoSecret(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"pw-ABCDEFGHIJK", "topsecretvalue123", "first line of it\nsecond line of it", strings.Repeat("s3cr3t-", 2000)} {
		for _, before := range []int{maxLine - 40, maxLine - 13, maxLine - 7, maxLine - 1, maxLine, 3*maxLine - 7} {
			var secrets redact.Secrets
			secrets.Add("tok", []byte(secret))
			var lines []string
			l := logs{limit: math.MaxInt64, secrets: &secrets, line: func(line string) { lines = append(lines, line) }}
			text := strings.Repeat("x", before) + strings.ReplaceAll(secret, "\n", "\\n") + strings.Repeat("y", 3*maxLine)
			for piece := range slices.Chunk([]byte(text), 500) {
				l.write(&l.stream, piece)
				if l.wrong != nil {
					t.Fatal(l.wrong)
				}
			}
			l.flush()
			if l.wrong != nil {
				t.Fatal(l.wrong)
			}
			said := strings.Join(lines, "")
			if strings.Trim(strings.ReplaceAll(said, "[secret tok]", ""), "xy") != "" || !strings.Contains(said, "[secret tok]") {
				t.Errorf("a secret of %d bytes behind %d others: %q", len(secret), before, strings.Trim(said, "xy"))
			}
		}
	}
}
