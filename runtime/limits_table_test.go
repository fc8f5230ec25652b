package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/units"
)

// limitRow is a row of LIMITS.md.
type limitRow struct {
	name, fallback, outcome, text string
	tests                         []string
}

// number is the default of a row that counts.
func (r limitRow) number(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(strings.ReplaceAll(r.fallback, ",", ""))
	if err != nil {
		t.Fatalf("%s: default %q: %v", r.name, r.fallback, err)
	}
	return n
}

// limitRows reads the rows below a heading of LIMITS.md, by name.
func limitRows(t *testing.T, heading string) map[string]limitRow {
	t.Helper()
	text, err := os.ReadFile("LIMITS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("LIMITS.md has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]limitRow{}
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 7 {
			t.Fatalf("%d cells: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		name := strings.Trim(cells[0], "`")
		if _, twice := rows[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		rows[name] = limitRow{name: name, fallback: cells[2], outcome: cells[4], text: cells[5], tests: strings.Split(cells[6], ", ")}
	}
	return rows
}

// check fails the test if a row does not say what was found.
func (r limitRow) check(t *testing.T, fallback, outcome, text string) {
	t.Helper()
	if r.fallback != fallback {
		t.Errorf("%s: the default is %s, LIMITS.md says %s", r.name, fallback, r.fallback)
	}
	if r.outcome != outcome || r.text != text {
		t.Errorf("%s: %s: %s\nLIMITS.md says\n%s: %s", r.name, outcome, text, r.outcome, r.text)
	}
}

// sameNames fails the test if there is a row without a test case, or the other way round.
func sameNames[T any](t *testing.T, rows map[string]limitRow, cases map[string]T) {
	t.Helper()
	for name := range rows {
		if _, ok := cases[name]; !ok {
			t.Errorf("%s is in LIMITS.md, but not in the test", name)
		}
	}
	for name := range cases {
		if _, ok := rows[name]; !ok {
			t.Errorf("%s is not in LIMITS.md", name)
		}
	}
}

// TestLimitsShown: the tests that LIMITS.md names exist.
func TestLimitsShown(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	for _, others := range []string{"compile/*_test.go", "../host/*_test.go", "../host/sql/*_test.go"} {
		more, err2 := filepath.Glob(others)
		files, err = append(files, more...), errors.Join(err, err2)
	}
	if err != nil {
		t.Fatal(err)
	}
	var code bytes.Buffer
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	for _, heading := range []string{"Of a call", "Of a file", "Of its compilation", "Of a call to the host", "Of databases", "Of what is told"} {
		rows := limitRows(t, heading)
		if len(rows) == 0 {
			t.Errorf("%s: no rows", heading)
		}
		for name, row := range rows {
			for _, test := range row.tests {
				if !bytes.Contains(code.Bytes(), []byte("\nfunc "+test+"(")) {
					t.Errorf("%s: there is no test %s", name, test)
				}
			}
		}
	}
}

// limitCase is a limit of a call: one that stays just under it, and one that passes it.
type limitCase struct {
	binary      []byte
	under, over limitedCall
	fallback    string
}

// limitedCall is a call with the limits of its pool.
type limitedCall struct {
	Call
	Limits Limits
}

func limitCases(t *testing.T) map[string]limitCase {
	t.Helper()
	const kib = 1 << 10
	defaults := Limits{}.WithDefaults()
	duration := func(d time.Duration) string {
		if d == 0 {
			return "none"
		}
		return d.String()
	}
	both := func(l Limits, under, over string) (_, _ limitedCall) {
		return limitedCall{Call{Input: []byte(under)}, l}, limitedCall{Call{Input: []byte(over)}, l}
	}
	cases := map[string]limitCase{}
	add := func(name string, binary []byte, fallback string, under, over limitedCall) {
		cases[name] = limitCase{binary, under, over, fallback}
	}
	add("memory at the start", runtimetest.BuildC(t, `int main(void) { return 0; }`, "-Wl,--initial-memory=8388608"),
		units.FormatSize(defaults.Memory), limitedCall{Limits: Limits{Memory: 8 << 20}}, limitedCall{Limits: Limits{Memory: 8<<20 - 1}})
	under, over := both(Limits{Memory: 32 << 20}, "30", "32")
	add("memory by growing", runtimetest.MemoryBomb(t), units.FormatSize(defaults.Memory), under, over)
	under, over = both(Limits{Input: kib}, strings.Repeat("x", kib), strings.Repeat("x", kib+1))
	add("input", runtimetest.Echo(t), units.FormatSize(defaults.Input), under, over)
	under, over = both(Limits{Output: 100 * kib}, strconv.Itoa(100*kib), strconv.Itoa(100*kib+1))
	add("output", runtimetest.OutputFlood(t), units.FormatSize(defaults.Output), under, over)
	under, over = both(Limits{Output: 1000}, strings.Repeat("x", 1000), strings.Repeat("x", 1001))
	add("output of a handler", handler(t, "", `(call $output_write (i32.const 0) (call $input_size))`), units.FormatSize(defaults.Output), under, over)
	under, over = both(Limits{Log: 4 * kib}, strconv.Itoa(21*64), strconv.Itoa(21*64+1)) // lines of 63 bytes and their newline
	add("log", runtimetest.LogFlood(t), units.FormatSize(defaults.Log), under, over)
	under, over = both(Limits{Timeout: time.Second}, "1", "3600000")
	add("timeout", runtimetest.Sleep(t), duration(defaults.Timeout), under, over)
	under, over = both(Limits{Timeout: time.Hour}, "1", "3600000")
	under.Timeout, over.Timeout = time.Second, time.Second
	add("timeout of the task", runtimetest.Sleep(t), duration(Call{}.Timeout), under, over)
	under, over = both(Limits{CPU: time.Millisecond}, "spare", "")
	add("cpu", attacks()[0].build(t), duration(defaults.CPU), under, over)
	under, over = both(Limits{}, "spare", "")
	add("call stack", attacksByCalls()[0].build(t), "fixed", under, over)
	return cases
}

// TestLimitsTable runs each limit of a call just under, just over, and under again: a limit ends one call.
func TestLimitsTable(t *testing.T) {
	t.Parallel()
	rows, cases := limitRows(t, "Of a call"), limitCases(t)
	sameNames(t, rows, cases)
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			module := load(t, test.binary)
			for _, pool := range []string{"", "pool"} {
				run := func(c limitedCall) Outcome {
					return bound(module, pool, Profile{Limits: c.Limits}).Run(t.Context(), c.Call)
				}
				complete(t, run(test.under))
				got := run(test.over)
				rows[name].check(t, test.fallback, string(got.Kind)+" / "+got.Limit.Name+got.Trap, got.Message)
				if got.Output != nil || got.Err != nil {
					t.Errorf("outcome = %+v, want no output and no error", got)
				}
				complete(t, run(test.under))
			}
		})
	}
}

// TestLimitCPUExact: a guest that burns so much passes with that limit, and not with one unit less, each time. None
// of these reads a clock or random numbers, as Go's runtime does.
func TestLimitCPUExact(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		binary []byte
		input  string
	}{
		"one charge": {command([]byte{0x01, 0x01, 0x01}), ""},
		"C":          {runtimetest.Echo(t), strings.Repeat("x", 100_000)},
		"flood":      {runtimetest.OutputFlood(t), "1000000"},
		"tree":       {runtimetest.BuildWAT(t, `(module (func (export "_start") (call $f12)) (func $f0) `+tree12()+`)`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			module := load(t, test.binary)
			fuel := time.Duration(call(t, module, test.input, Limits{}).Fuel)
			if fuel < 2 {
				t.Fatalf("it burned %d", fuel)
			}
			for range 3 {
				got := call(t, module, test.input, Limits{CPU: fuel})
				if got.Kind != Complete || got.Fuel != int64(fuel) {
					t.Errorf("with a limit of %d: %s, burned %d", fuel, got.Kind, got.Fuel)
				}
				want := Limit{"cpu", formatDuration(fuel - 1)}
				if got = call(t, module, test.input, Limits{CPU: fuel - 1}); got.Kind != LimitExceeded || got.Limit != want {
					t.Errorf("with a limit of %d: %+v, want %v", fuel-1, got, want)
				}
			}
		})
	}
}

// tree12 is a tree of calls that ends.
func tree12() string {
	var text strings.Builder
	for i := range 12 {
		fmt.Fprintf(&text, "(func $f%d (call $f%d) (call $f%d))", i+1, i, i)
	}
	return text.String()
}

// hostCalls tries one limit of the functions of WASI: which, and with how many.
const hostCalls = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wasi/api.h>
int main(void) {
	static char what[32];
	__wasi_size_t n = 0, m = 0;
	int error = 0;
	if (scanf("%31s %zu", what, &n) != 2) return 2;
	char *room = calloc(n + 1, 64);
	if (!room) return 3;
	if (!strcmp(what, "descriptors")) {
		__wasi_fd_t fd = 3;
		while (error == 0 && fd + 1 < n) error = __wasi_path_open(3, 0, "file", 0, 2, 0, 0, &fd);
	} else if (!strcmp(what, "subscriptions")) {
		error = __wasi_poll_oneoff((void *)room, (void *)room, n, &m);
	} else if (!strcmp(what, "vectors")) {
		error = __wasi_fd_write(1, (void *)room, n, &m);
	} else if (!strcmp(what, "transfer")) {
		__wasi_ciovec_t v = {(void *)room, n};
		error = __wasi_fd_write(1, &v, 1, &m);
		if (m < n) error = -1;
	} else if (!strcmp(what, "path")) {
		for (int i = 0; i < n; i++) room[i] = i % 2 ? '/' : '.';
		__wasi_filestat_t stat;
		error = __wasi_path_filestat_get(3, 0, room, &stat);
	} else {
		__wasi_filestat_t stat;
		memset(room, 'x', n);
		error = __wasi_path_filestat_get(3, 0, room, &stat);
		if (error == 44) error = 0; /* noent: there is no such file, but there may be */
	}
	fprintf(stderr, "%d", error);
}`

// TestLimitsOfHostCalls asks the host for as much as it gives, and for one more.
func TestLimitsOfHostCalls(t *testing.T) {
	t.Parallel()
	rows := limitRows(t, "Of a call to the host")
	files, err := NewFiles(map[string][]byte{"/file": nil})
	if err != nil {
		t.Fatal(err)
	}
	module := load(t, runtimetest.BuildC(t, hostCalls))
	grow := `(module (table $t 0 funcref) (func (export "_start")
		(if (i32.eq (table.grow $t (ref.null func) (i32.const %d)) (i32.const -1)) (then unreachable))))`
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try := func(n int) string {
				if name == "random of a handler" {
					asked := handler(t, "", fmt.Sprintf(`(call $random (i32.const 0) (i32.const %d))`, n))
					return strconv.Itoa(call(t, load(t, asked), "", Limits{}).Code)
				}
				if name == "Growth" {
					got := call(t, load(t, runtimetest.BuildWAT(t, fmt.Sprintf(grow, n))), "", Limits{})
					return map[bool]string{true: "0", false: "-1"}[got.Kind == Complete]
				}
				got := bound(module, "", Profile{Files: files, Limits: Limits{Memory: 256 << 20}}).Run(t.Context(), Call{Plugin: "calls", Input: fmt.Appendf(nil, "%s %d", strings.Fields(name)[0], n)})
				complete(t, got)
				return got.Stderr
			}
			limit := row.number(t)
			if under := try(limit); under != "0" {
				t.Errorf("%d: error %s", limit, under)
			}
			outcome := "errno " + try(limit+1)
			if outcome == "errno -1" {
				outcome = map[bool]string{true: "less is moved", false: "-1"}[name == "transfer"]
			}
			row.check(t, row.fallback, outcome, "-")
		})
	}
}

// TestLimitsOfWhatIsTold: the tests that the table names show what is cut.
func TestLimitsOfWhatIsTold(t *testing.T) {
	t.Parallel()
	rows := limitRows(t, "Of what is told")
	lengths := map[string]struct {
		bytes int64
		what  string
	}{
		"log line": {maxLine, "pieces"}, "stderr of an outcome": {maxTail, "cut"}, "progress": {maxProgress, "cut"}, "label": {redact.MaxLabel, "cut"},
	}
	sameNames(t, rows, lengths)
	for name, length := range lengths {
		rows[name].check(t, units.FormatSize(length.bytes), length.what, "-")
	}
}
