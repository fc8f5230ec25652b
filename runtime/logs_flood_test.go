package runtime

import (
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// flood writes its input to stderr, again and again until it has ended or a gibibyte is written.
const flood = `
#include <string.h>
#include <unistd.h>
static char text[1 << 20];
int main(void) {
	int size = read(0, text, 100);
	for (; 2 * size <= sizeof text; size *= 2) memcpy(text + size, text, size);
	for (int i = 0; i < 1024; i++) if (write(2, text, size) < 0) return 1;
	return 0;
}`

// TestLogFlood: what a host's log gets of a plugin is not much more than its limit says, whatever the lines are; empty
// ones do not even count.
func TestLogFlood(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildC(t, flood))
	for name, test := range map[string]struct {
		text  string
		kind  OutcomeKind
		lines int
	}{
		"empty":   {"\n", Complete, 1},
		"short":   {"x\n", LimitExceeded, 64 << 10 / (1 + lineOverhead)},
		"escaped": {"\x00\n", LimitExceeded, 64 << 10 / (len(`\x00`) + lineOverhead)},
		"both":    {"x\n\n", LimitExceeded, 64 << 10 / (1 + 2*lineOverhead) * 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines, sink := 0, 0
			got := bound(module, "", Profile{Limits: Limits{Log: 64 << 10}}).Run(t.Context(), Call{
				Input: []byte(test.text),
				Log:   func(line string) { lines++; sink += len(line) + lineOverhead },
			})
			if got.Kind != test.kind || lines != test.lines || sink > 64<<10 {
				t.Errorf("%d lines of %d bytes, want %d; outcome = %.100v", lines, sink, test.lines, got)
			}
		})
	}
}

// TestLogRate: a guest that logs very many lines is held back, loses none of them, and pays for them.
func TestLogRate(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildC(t, flood))
	run := func(lines int) (got Outcome, n int) {
		got = bound(module, "", Profile{Limits: Limits{Log: int64(lines) * (4 + lineOverhead)}}).Run(t.Context(), Call{
			Input: []byte("line\n"),
			Log:   func(string) { n++ },
		})
		return got, n
	}
	if got, n := run(burst); n != burst || got.WaitTime != 0 || got.Fuel < burst*linePrice {
		t.Errorf("after %d lines %.100v", n, got)
	}
	const many = 5 * burst
	if got, n := run(many); n != many || got.WaitTime+got.GuestTime < (many-2*burst)*time.Second/maxLines || got.Fuel < many*linePrice || got.WaitTime == 0 {
		t.Errorf("after %d lines %.100v", n, got)
	}
}

// TestLogEndsInTime: neither a limit of time nor one of computing waits for the end of what a guest writes at once.
func TestLogEndsInTime(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildC(t, flood))
	for _, limits := range []Limits{{Timeout: 500 * time.Millisecond}, {CPU: 200 * time.Millisecond}} {
		n := 0
		limits.Log = 1 << 30
		got := bound(module, "", Profile{Limits: limits}).Run(t.Context(), Call{Input: []byte("x\n"), Log: func(string) { n++ }})
		if got.Kind != LimitExceeded || got.Limit.Name == "log" || n > 100_000 || strings.Count(got.Stderr, "x") == 0 {
			t.Errorf("after %d lines %.100v", n, got)
		}
	}
}
