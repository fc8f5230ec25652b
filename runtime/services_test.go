package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/service"
)

// asking builds a handler that calls functions which the one of handler does not import. Its memory begins with "the words".
func asking(t testing.TB, body string) []byte {
	t.Helper()
	return runtimetest.BuildWAT(t, fmt.Sprintf(`(module
		(import "quern_v1" "log" (func $log (param i32 i32 i32 i32 i32) (result i32)))
		(import "quern_v1" "progress" (func $progress (param f64 i32 i32) (result i32)))
		(import "quern_v1" "sleep" (func $sleep (param i64) (result i32)))
		(import "quern_v1" "secret_get" (func $secret_get (param i32 i32) (result i32)))
		(import "quern_v1" "result_read" (func $result_read (param i32 i32 i32) (result i32)))
		(import "quern_v1" "output_write" (func $output_write (param i32 i32) (result i32)))
		(memory (export "memory") 1)
		(data (i32.const 0) "the words")
		(func (export "quern_handle") (result i32) %s))`, body))
}

// secrets is a service that does what the test says.
type secrets func(ctx context.Context, name string) ([]byte, error)

func (f secrets) Secret(ctx context.Context, name string) ([]byte, error) { return f(ctx, name) }

const askSecret = `(call $secret_get (i32.const 4) (i32.const 5))`

// TestServiceAnswers: what a service answers reaches the guest, and each call is counted.
func TestServiceAnswers(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	module := loadInto(t, engine, asking(t, `
		(drop (call $result_read (i32.const 0) (i32.const 100) `+askSecret+`))
		(drop (call $output_write (i32.const 100) (i32.const 6)))
		(i32.const 0)`))
	got := bound(module, "pool", Profile{}).Run(t.Context(), Call{Services: service.Services{Secrets: secrets(func(_ context.Context, name string) ([]byte, error) {
		return []byte(name + "!"), nil
	})}})
	if output := complete(t, got); output != "words!" {
		t.Errorf("output = %q", output)
	}
	counted, want := countedCalls(engine), "[output_write 6 B output_write ok 1 result_read 6 B result_read ok 1 secret_get 11 B secret_get ok 1]"
	if fmt.Sprint(counted) != want {
		t.Errorf("counted %v, want %s", counted, want)
	}
}

// countedCalls lists what an engine counted, in order.
func countedCalls(engine *Engine) []string {
	var counted []string
	engine.HostCalls().Each(func(function, result string, n uint64) {
		if n > 0 {
			counted = append(counted, fmt.Sprint(function, " ", result, " ", n))
		}
	}, func(function string, n uint64) {
		if n > 0 {
			counted = append(counted, fmt.Sprint(function, " ", n, " B"))
		}
	})
	slices.Sort(counted)
	return counted
}

// TestSecretCost: a guest pays for what it takes to look for a secret, by its size, when it is given it first.
func TestSecretCost(t *testing.T) {
	t.Parallel()
	const ask = `(drop ` + askSecret + `)`
	once, twice := load(t, asking(t, ask+`(i32.const 0)`)), load(t, asking(t, ask+ask+`(i32.const 0)`))
	fuel := func(module *Module, size int) int64 {
		got := bound(module, "", Profile{}).Run(t.Context(), Call{Services: service.Services{Secrets: secrets(func(context.Context, string) ([]byte, error) {
			return bytes.Repeat([]byte("12345678\n"), size/9), nil
		})}})
		complete(t, got)
		return got.Fuel
	}
	const size = 9000
	first := fuel(once, size) - fuel(once, 0)
	if first < size*revealPrice {
		t.Errorf("a secret of %d bytes costs %d", size, first)
	}
	if again := fuel(twice, size) - fuel(twice, 0) - first; again > first/10 {
		t.Errorf("the same once more costs %d, at first %d", again, first)
	}
}

// TestServiceLetsOthersRun: while a guest waits for a service another one has its place.
func TestServiceLetsOthersRun(t *testing.T) {
	t.Parallel()
	engine := setupWith(t, Config{Guests: 1})
	waiting := loadInto(t, engine, asking(t, `(drop `+askSecret+`) (i32.const 0)`))
	other := loadInto(t, engine, handler(t, "", `(i32.const 0)`))
	complete(t, bound(waiting, "", Profile{}).Run(t.Context(), Call{Services: service.Services{Secrets: secrets(func(ctx context.Context, _ string) ([]byte, error) {
		if got := bound(other, "", Profile{}).Run(ctx, Call{}); got.Kind != Complete {
			t.Errorf("%+v", got)
		}
		return nil, nil
	})}}))
	if engine.gate.free != 1 {
		t.Errorf("%d places are free", engine.gate.free)
	}
}

// TestServiceEnds: the end of the call, its time, or a fault of the service end the guest there, and leave nothing of it.
func TestServiceEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		serve func(ctx context.Context, cancel context.CancelCauseFunc) error
		want  Outcome
	}{
		"cancelled": {func(ctx context.Context, cancel context.CancelCauseFunc) error {
			cancel(errDrain)
			<-ctx.Done()
			return ctx.Err()
		}, Outcome{Kind: Cancelled, Message: "cancelled: draining"}},
		"timeout": {func(ctx context.Context, _ context.CancelCauseFunc) error {
			<-ctx.Done()
			return ctx.Err()
		}, Outcome{Kind: LimitExceeded, Message: "timeout of 50ms exceeded"}},
		"fault": {func(context.Context, context.CancelCauseFunc) error { return errors.New("out of order") }, Outcome{Kind: HostFault, Message: "internal error"}},
		"panic": {func(context.Context, context.CancelCauseFunc) error { panic("oh") }, Outcome{Kind: HostFault, Message: "internal error"}},
		"away":  {func(context.Context, context.CancelCauseFunc) error { return service.ErrUnavailable }, Outcome{Kind: Failed, Message: "exit status -9"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := setupWith(t, Config{Guests: 1})
			module := loadInto(t, engine, asking(t, askSecret))
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var limits Limits
			if test.want.Kind == LimitExceeded {
				limits.Timeout = 50 * time.Millisecond
			}
			got := bound(module, "pool", Profile{Limits: limits}).Run(ctx, Call{
				Services: service.Services{Secrets: secrets(func(ctx context.Context, _ string) ([]byte, error) { return nil, test.serve(ctx, cancel) })},
			})
			if got.Kind != test.want.Kind || !strings.HasPrefix(got.Message, test.want.Message) {
				t.Errorf("outcome = %+v, want %+v", got, test.want)
			}
			if engine.gate.free != 1 {
				t.Errorf("%d places are free", engine.gate.free)
			}
		})
	}
}

// TestDenied: what is not granted is told once to the host, and in the task's log.
func TestDenied(t *testing.T) {
	t.Parallel()
	module := load(t, asking(t, `(drop `+askSecret+`) (drop `+askSecret+`) (i32.const 0)`))
	var told, lines []string
	complete(t, bound(module, "", Profile{}).Run(t.Context(), Call{
		Log:    func(line string) { lines = append(lines, line) },
		Denied: func(function, reason string) { told = append(told, function+": "+reason) },
	}))
	if want := []string{"secret_get: denied: the manifest grants no secret_get, or there is none here"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if want := []string{"quern_v1.secret_get: denied: the manifest grants no secret_get, or there is none here"}; !slices.Equal(lines, want) {
		t.Errorf("logged %q, want %q", lines, want)
	}
}

// TestDeniedInTheFirstLine: lists show the first line of a failure, which says what was denied even if the handler does not.
func TestDeniedInTheFirstLine(t *testing.T) {
	t.Parallel()
	const denial = "secret_get: denied: the manifest grants no secret_get, or there is none here"
	module := load(t, asking(t, `(drop `+askSecret+`) (i32.const 1)`))
	got := bound(module, "", Profile{}).Run(t.Context(), Call{})
	if first, _, _ := strings.Cut(got.Message, "\n"); got.Kind != Failed || strings.Count(first, denial) != 1 {
		t.Errorf("%+v, want %q once", got, denial)
	}
	module = load(t, asking(t, `(i32.const 1)`))
	if got := bound(module, "", Profile{}).Run(t.Context(), Call{}); got.Message != "exit status 1" {
		t.Errorf("%+v", got)
	}
}

// TestRefusalsAreTold: each reason once, and ten at most.
func TestRefusalsAreTold(t *testing.T) {
	t.Parallel()
	module := load(t, asking(t, strings.Repeat(`(drop `+askSecret+`) `, 30)+`(i32.const 0)`))
	var told []string
	calls := 0
	complete(t, bound(module, "", Profile{}).Run(t.Context(), Call{
		Denied: func(_, reason string) { told = append(told, reason) },
		Services: service.Services{Secrets: secrets(func(context.Context, string) ([]byte, error) {
			calls++
			return nil, fmt.Errorf("%w: reason %d", service.ErrDenied, calls/2)
		})},
	}))
	if len(told) != maxDenials || told[0] != "denied: reason 0" || told[9] != "denied: reason 9" {
		t.Errorf("told %q", told)
	}
}

// TestUnavailableIsTold: the host's own addresses are for its log alone.
func TestUnavailableIsTold(t *testing.T) {
	t.Parallel()
	module := load(t, asking(t, `(drop `+askSecret+`) (i32.const 0)`))
	var told, lines []string
	complete(t, bound(module, "", Profile{}).Run(t.Context(), Call{
		Log:    func(line string) { lines = append(lines, line) },
		Denied: func(_, reason string) { told = append(told, reason) },
		Services: service.Services{Secrets: secrets(func(context.Context, string) ([]byte, error) {
			return nil, fmt.Errorf("%w: open /srv/secrets/acme", service.ErrUnavailable)
		})},
	}))
	if !slices.Equal(told, []string{"unavailable: open /srv/secrets/acme"}) ||
		!slices.Equal(lines, []string{"quern_v1.secret_get: unavailable: the host's log says more"}) {
		t.Errorf("told %q, logged %q", told, lines)
	}
}

// TestDeniedIsShort: a guest's own words in a reason do not fill anybody's log.
func TestDeniedIsShort(t *testing.T) {
	t.Parallel()
	module := load(t, asking(t, `(drop `+askSecret+`) (i32.const 0)`))
	var told string
	got := bound(module, "", Profile{}).Run(t.Context(), Call{
		Denied: func(_, reason string) { told = reason },
		Services: service.Services{Secrets: secrets(func(context.Context, string) ([]byte, error) {
			return nil, fmt.Errorf("%w: %s", service.ErrDenied, strings.Repeat("x", 100_000))
		})},
	})
	if complete(t, got); len(told) > 2*maxHeadline || len(got.Stderr) > 2*maxHeadline || !strings.HasPrefix(told, "denied: xxx") {
		t.Errorf("told %d bytes, logged %d", len(told), len(got.Stderr))
	}
}

// TestHandlerLog: a line of log is one line whatever is in it, is made safe, and counts towards the limit; progress is
// handed on.
func TestHandlerLog(t *testing.T) {
	t.Parallel()
	const line = `(drop (call $log (i32.const 4) (i32.const 0) (i32.const 9) (i32.const 0) (i32.const 0)))`
	module := load(t, asking(t, `
		(i32.store8 (i32.const 3) (i32.const 10))
		`+line+`
		(drop (call $progress (f64.const 0.25) (i32.const 4) (i32.const 5)))
		`+line+`
		(i32.const 0)`))
	var lines []string
	c := Call{
		Log:      func(line string) { lines = append(lines, line) },
		Progress: func(fraction float64, message string) { lines = append(lines, fmt.Sprint(fraction, " ", message)) },
	}
	complete(t, bound(module, "", Profile{Limits: Limits{Log: 2 * (19 + lineOverhead)}}).Run(t.Context(), c))
	if want := []string{`error: the\x0awords`, "0.25 words", `error: the\x0awords`}; !slices.Equal(lines, want) {
		t.Errorf("logged %q, want %q", lines, want)
	}
	lines = nil
	got := bound(module, "", Profile{Limits: Limits{Log: 19 + 3 + 2*lineOverhead}}).Run(t.Context(), c)
	if got.Kind != LimitExceeded || got.Limit.Name != "log" || len(lines) != 3 || lines[2] != "err" {
		t.Errorf("outcome = %+v, logged %q", got, lines)
	}
}

// TestHandlerSleeps: a handler sleeps without a place, and no longer than its time.
func TestHandlerSleeps(t *testing.T) {
	t.Parallel()
	module := load(t, asking(t, `(call $sleep (i64.const 86400000))`))
	got := bound(module, "", Profile{Limits: Limits{Timeout: 20 * time.Millisecond}}).Run(t.Context(), Call{})
	if got.Kind != LimitExceeded || got.Limit.Name != "timeout" || got.WaitTime <= 0 {
		t.Errorf("outcome = %+v", got)
	}
}
