package runtime

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// TestWhereOfWait: a handler that waits in a call of the host tells where, whatever ends the wait.
func TestWhereOfWait(t *testing.T) {
	t.Parallel()
	m := load(t, runtimetest.BuildWAT(t, `(module
	(import "quern_v1" "progress" (func $progress (param f64 i32 i32) (result i32)))
	(import "quern_v1" "sleep" (func $sleep (param i64) (result i32)))
	(memory (export "memory") 1) (data (i32.const 16) "a.py:7 in f\0a")
	(func (export "quern_handle") (result i32)
		(drop (call $progress (f64.const 0.5) (i32.const 0) (i32.const 0)))
		(call $sleep (i64.const 3600000000000)))
	(func (export "quern_where") (result i32) (local $n i32)
		(loop (local.set $n (i32.add (local.get $n) (i32.const 1))) (br_if 0 (i32.lt_s (local.get $n) (i32.const 50000))))
		(i32.const 16)))`))
	p := m.Bind(Profile{Tenant: "acme"})
	defer p.Close()
	for range 2 { // the second time in an instance that was reset
		ctx, cancel := context.WithCancelCause(t.Context())
		got := p.Run(ctx, Call{Progress: func(float64, string) { cancel(errDrain) }})
		want := "cancelled: " + errDrain.Error() + " [a.py:7 in f]"
		if got.Kind != Cancelled || got.Message != want || got.Place != "a.py:7 in f" || !slices.Equal(got.Backtrace, []string{"a.py:7 in f"}) {
			t.Errorf("%+v, want %q", got, want)
		}
		got = p.Run(t.Context(), Call{Timeout: 20 * time.Millisecond})
		want = "timeout of 20ms exceeded at a.py:7 in f: let it end sooner there, or give the task a longer timeout, if the host's ceiling allows it"
		if got.Message != want || got.Place != "a.py:7 in f" {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

// TestWhere: a handler tells where it was stopped, and whatever that function does changes nothing but the place. If it
// does not tell, there are no frames: those of an interpreter mean nothing to its users.
func TestWhere(t *testing.T) {
	t.Parallel()
	const handler = `(module
	(import "quern_v1" "error_set" (func $error_set (param i32 i32) (result i32)))
	(import "quern_v1" "sleep" (func $sleep (param i64) (result i32)))
	(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
	(memory (export "memory") 1) (data (i32.const 16) "%s")
	(func (export "quern_handle") (result i32) %s)
	(func (export "quern_where") (result i32) %s))`
	const spin, trap = "(loop (br 0)) (i32.const 0)", "unreachable"
	const limit = "cpu limit of 10ms exceeded"
	const raise = "raise limits.cpu in the plugin's manifest"
	for name, test := range map[string]struct {
		text, handle, where string
		message             string
		frames              []string
	}{
		"limit":                {`a.py:7 in f\0ab.py:1 in g\0a`, spin, "(i32.const 16)", limit + " at a.py:7 in f < b.py:1 in g: let it compute less there, or " + raise, []string{"a.py:7 in f", "b.py:1 in g"}},
		"earlier":              {`or after f (a.js:1:2)\0ag (a.js:3:4)\0a`, spin, "(i32.const 16)", limit + " at or after f (a.js:1:2) < g (a.js:3:4): let it compute less there, or " + raise, []string{"f (a.js:1:2)", "g (a.js:3:4)"}},
		"trap":                 {`a.py:7 in f\0a`, trap, "(i32.const 16)", "unreachable (the program aborted or panicked) [a.py:7 in f]", []string{"a.py:7 in f"}},
		"controls":             {`a\1b[31m: b\0a`, spin, "(i32.const 16)", limit + ` at a\x1b[31m: b: let it compute less there, or ` + raise, []string{`a\x1b[31m: b`}},
		"none":                 {"", spin, "(i32.const 0)", limit + ": " + raise, nil},
		"empty":                {"", spin, "(i32.const 16)", limit + ": " + raise, nil},
		"outside":              {"", spin, "(i32.const -1)", limit + ": " + raise, nil},
		"endless":              {"", spin, spin, limit + ": " + raise, nil},
		"trapping":             {"", spin, trap, limit + ": " + raise, nil},
		"exiting":              {"", spin, "(call $exit (i32.const 0)) (i32.const 16)", limit + ": " + raise, nil},
		"waiting":              {`a.py:7 in f\0a`, trap, "(drop (call $sleep (i64.const 3600000))) (i32.const 16)", "unreachable (the program aborted or panicked)", nil},
		"growing":              {`a.py:7 in f\0a`, trap, "(drop (memory.grow (i32.const 60000))) (i32.const 16)", "unreachable (the program aborted or panicked) [a.py:7 in f]", []string{"a.py:7 in f"}},
		"endless after a trap": {"", trap, spin, "unreachable (the program aborted or panicked)", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := load(t, runtimetest.BuildWAT(t, fmt.Sprintf(handler, test.text, test.handle, test.where)))
			p := m.Bind(Profile{Tenant: "acme", Limits: Limits{CPU: 10 * time.Millisecond}})
			defer p.Close()
			for range 2 { // the second time in an instance that was reset
				got := p.Run(t.Context(), Call{TaskID: "id", Queue: "queue", Plugin: "plugin"})
				if got.Message != test.message || !slices.Equal(got.Backtrace, test.frames) || got.Fuel > 20_000_000 {
					t.Errorf("%+v\nwant %s %q", got, test.message, test.frames)
				}
			}
		})
	}
}

// TestWhereOfPlace: a handler whose quern_where takes an argument is told the function that was stopped, and its first
// parameter, or 0 in a function of the host; it is not asked where it is unknown.
func TestWhereOfPlace(t *testing.T) {
	t.Parallel()
	const handler = `(module
	(import "quern_v1" "sleep" (func $sleep (param i64) (result i32)))
	(memory (export "memory") 1) (data (i32.const 16) "a.go:0\0a\00")
	(func $unused)
	(func $spin (param $block i32) (result i32) (loop (local.set $block (i32.const 7)) (br 0)) (i32.const 0))
	(func $other (param i64) (result i32) (loop (br 0)) (i32.const 0))
	(func (export "quern_handle") (result i32) %s)
	(func (export "quern_where") (param $at i32) (result i32)
		(i32.store8 (i32.const 21) (i32.add (i32.const 48) (i32.and (local.get $at) (i32.const 15))))
		(i32.store8 (i32.const 16) (i32.add (i32.const 97) (i32.shr_u (local.get $at) (i32.const 16))))
		(i32.const 16)))`
	for code, want := range map[string]string{
		"(call $spin (i32.const 0))":                                    "b.go:7",
		"(call $other (i64.const 7))":                                   "",
		"(call $sleep (i64.const 3600000000000))":                       "a.go:0",
		"(unreachable)":                                                 "",
		"(drop (call $sleep (i64.const 1))) (call $spin (i32.const 0))": "b.go:7",
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			m := load(t, runtimetest.BuildWAT(t, fmt.Sprintf(handler, code)))
			p := m.Bind(Profile{Tenant: "acme"})
			defer p.Close()
			for range 2 { // the second time in an instance that was reset
				if got := p.Run(t.Context(), Call{Timeout: 50 * time.Millisecond}); got.Kind == Complete || got.Place != want {
					t.Errorf("%+v, want %q", got, want)
				}
			}
		})
	}
}

// TestWhereInTheHost: a guest that is stopped in a function of the host is told what it did there, in plain words: few
// authors of handlers know the functions of WASI. One that computes until its timeout may be in an endless loop.
func TestWhereInTheHost(t *testing.T) {
	t.Parallel()
	const handler = `(module
	(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
	(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
	(import "quern_v1" "sleep" (func $sleep (param i64) (result i32)))
	(memory (export "memory") 1) (data (i32.const 24) "\00\00\00\80\00\00\00\ff\ff\ff\ff")
	(data (i32.const 0) "\40\00\00\00\01\00\00\00") (data (i32.const 64) "\0a")
	(func (export "quern_handle") (result i32) %s (i32.const 0)))`
	for code, want := range map[string]string{
		`(drop (call $sleep (i64.const 3600000)))`: " while it slept: let it end sooner there, ",
		`(i64.store (i32.const 152) (i64.const 3600000000000)) (i32.store (i32.const 144) (i32.const 1))
			(drop (call $poll (i32.const 128) (i32.const 512) (i32.const 1) (i32.const 508)))`: " while it slept or waited: let it end sooner there, ",
		`(loop (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 100))) (br 0))`: " while it wrote to stdout or stderr: let it end sooner there, ",
		`(loop (br 0))`: " " + computing + ": give the task a longer timeout",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p := load(t, runtimetest.BuildWAT(t, fmt.Sprintf(handler, code))).Bind(Profile{Tenant: "acme", Limits: Limits{Log: 1 << 30}})
			defer p.Close()
			got := p.Run(t.Context(), Call{Timeout: 100 * time.Millisecond})
			if !strings.HasPrefix(got.Message, "timeout of 100ms exceeded"+want) || strings.Contains(strings.Join(got.Backtrace, " "), ".") {
				t.Errorf("%+v, want %q", got, want)
			}
		})
	}
}
