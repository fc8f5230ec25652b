package runtime

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/service"
)

// extismImports are those that the tests' plugins need, and what makes a block of the text in memory from $at on.
const extismImports = `
	(import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
	(import "extism:host/env" "free" (func $free (param i64)))
	(import "extism:host/env" "length" (func $length (param i64) (result i64)))
	(import "extism:host/env" "store_u8" (func $store_u8 (param i64 i32)))
	(import "extism:host/env" "store_u64" (func $store_u64 (param i64 i64)))
	(import "extism:host/env" "load_u8" (func $load_u8 (param i64) (result i32)))
	(import "extism:host/env" "input_length" (func $input_length (result i64)))
	(import "extism:host/env" "input_offset" (func $input_offset (result i64)))
	(import "extism:host/env" "input_load_u64" (func $input_load_u64 (param i64) (result i64)))
	(import "extism:host/env" "output_set" (func $output_set (param i64 i64)))
	(import "extism:host/env" "error_set" (func $error_set (param i64)))
	(import "extism:host/env" "config_get" (func $config_get (param i64) (result i64)))
	(import "extism:host/env" "var_get" (func $var_get (param i64) (result i64)))
	(import "extism:host/env" "var_set" (func $var_set (param i64 i64)))
	(import "extism:host/env" "http_request" (func $http_request (param i64 i64) (result i64)))
	(import "env" "extism_log_warn" (func $log_warn (param i64)))
	(memory 1)
	(func $block (param $at i32) (param $n i32) (result i64) (local $b i64) (local $i i32)
		(local.set $b (call $alloc (i64.extend_i32_u (local.get $n))))
		(loop $next
			(call $store_u8 (i64.add (local.get $b) (i64.extend_i32_u (local.get $i))) (i32.load8_u (i32.add (local.get $at) (local.get $i))))
			(local.set $i (i32.add (local.get $i) (i32.const 1)))
			(br_if $next (i32.lt_u (local.get $i) (local.get $n))))
		(local.get $b))
	(func $show (param $b i64) (call $output_set (local.get $b) (call $length (local.get $b))))
	(data (i32.const 0) "name")
	(data (i32.const 8) "what is wrong")
	(data (i32.const 32) "{\"url\": \"https://example.com\"}")`

// extism is a plugin whose export run has this body.
func extism(t testing.TB, body string) []byte {
	t.Helper()
	return runtimetest.BuildWAT(t, "(module "+extismImports+` (func (export "run") (result i32) (local $b i64) (local $n i64) (local $i i32) `+body+"))")
}

const echo = `
	(local.set $n (call $input_length))
	(local.set $b (call $alloc (local.get $n)))
	(loop $next
		(call $store_u64 (i64.add (local.get $b) (i64.extend_i32_u (local.get $i))) (call $input_load_u64 (i64.extend_i32_u (local.get $i))))
		(local.set $i (i32.add (local.get $i) (i32.const 8)))
		(br_if $next (i64.lt_u (i64.extend_i32_u (local.get $i)) (local.get $n))))
	(call $show (local.get $b))
	(i32.const 0)`

// TestKernel: the kernel is what its source says.
func TestKernel(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("abi/kernel.wat")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(runtimetest.BuildWAT(t, string(source)), abi.Kernel) {
		t.Error("kernel.wasm is not made of kernel.wat: run the command in its first lines")
	}
}

// TestExtism: how a task of an Extism plugin ends, and with what.
func TestExtism(t *testing.T) {
	t.Parallel()
	const fails = `(call $error_set (call $block (i32.const 8) (i32.const 13)))`
	denied := service.Services{HTTP: deniedHTTP{}, KV: cappedKV{}}
	for name, test := range map[string]struct {
		body   string
		limits Limits
		kind   OutcomeKind
		want   string // of the output, or in the message
	}{
		"echo":            {body: echo, want: "the input of 24 bytes..."},
		"nothing":         {body: `(i32.const 0)`},
		"input offset":    {body: `(call $show (call $input_offset)) (i32.const 0)`, want: "the input of 24 bytes..."},
		"last output":     {body: `(call $output_set (call $input_offset) (i64.const 5)) (call $output_set (call $input_offset) (i64.const 3)) (i32.const 0)`, want: "the"},
		"output beyond":   {body: `(call $output_set (call $input_offset) (i64.const 5)) (call $output_set (call $input_offset) (i64.const 1000000)) (i32.const 0)`, want: "the i"},
		"config":          {body: `(call $show (call $config_get (call $block (i32.const 0) (i32.const 4)))) (i32.const 0)`, want: "configured"},
		"no config":       {body: `(i32.wrap_i64 (call $config_get (call $block (i32.const 0) (i32.const 3))))`},
		"variable":        {body: `(call $var_set (call $block (i32.const 0) (i32.const 4)) (call $block (i32.const 8) (i32.const 4))) (call $show (call $var_get (call $block (i32.const 0) (i32.const 4)))) (i32.const 0)`, want: "what"},
		"no variable":     {body: `(call $var_set (call $block (i32.const 0) (i32.const 4)) (i64.const 0)) (i32.wrap_i64 (call $var_get (call $block (i32.const 0) (i32.const 4))))`},
		"status":          {body: `(i32.const 3)`, kind: Failed, want: "exit status 3"},
		"fatal":           {body: `(i32.const 65)`, kind: Fatal},
		"retry":           {body: `(i32.const 75)`, kind: Retry},
		"error":           {body: fails + `(i32.const 0)`, kind: Failed, want: "what is wrong"},
		"error, status":   {body: fails + `(i32.const 7)`, kind: Failed, want: "what is wrong"},
		"error, trap":     {body: fails + `(unreachable)`, kind: Trap, want: "what is wrong"},
		"denied":          {body: `(i32.wrap_i64 (call $http_request (call $block (i32.const 32) (i32.const 30)) (i64.const 0)))`, kind: Failed, want: "extism:host/env.http_request: denied"},
		"no request":      {body: `(i32.wrap_i64 (call $http_request (call $block (i32.const 32) (i32.const 29)) (i64.const 0)))`, kind: Failed, want: "extism:host/env.http_request: invalid: the request is not like"},
		"many variables":  {body: `(loop $next (call $var_set (call $block (i32.const 0) (i32.const 4)) (call $alloc (i64.const 1048576))) (br $next)) (i32.const 0)`, kind: Failed, want: "variables of a task take at most 1 MiB"},
		"output limit":    {body: `(call $output_set (call $alloc (i64.const 1000)) (i64.const 1000)) (i32.const 0)`, limits: Limits{Output: 999}, kind: LimitExceeded, want: "output limit"},
		"memory limit":    {body: `(loop $next (br_if $next (i64.ne (call $alloc (i64.const 100000)) (i64.const 0)))) (i32.const 1)`, limits: Limits{Memory: 1 << 20}, kind: LimitExceeded, want: "memory limit"},
		"memories beside": {body: `(drop (memory.grow (i32.const 14))) (i64.eqz (call $alloc (i64.const 100000)))`, limits: Limits{Memory: 1 << 20}, kind: LimitExceeded, want: "memory limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			module := load(t, extism(t, test.body))
			if info := module.Info(); info.Kind != Extism || info.Entry != "run" {
				t.Fatalf("kind %s, entry %s", info.Kind, info.Entry)
			}
			pool := module.Bind(Profile{Tenant: "acme", Config: map[string]string{"name": "configured"}, Limits: test.limits})
			for range 3 {
				got := pool.Run(t.Context(), Call{Input: []byte("the input of 24 bytes..."), Services: denied})
				if test.kind == "" {
					test.kind = Complete
				}
				if got.Kind != test.kind || test.kind == Complete && string(got.Output) != test.want || !strings.Contains(got.Message, test.want) && test.kind != Complete {
					t.Errorf("%+v, want %s %q", got, test.kind, test.want)
				}
			}
		})
	}
}

// deniedHTTP denies all, cappedKV by the host's grants.
type (
	deniedHTTP struct{ service.HTTP }
	cappedKV   struct{ service.KV }
)

func (deniedHTTP) Do(context.Context, service.Request) (service.Response, error) {
	return service.Response{}, service.ErrDenied
}

var errCapped = &service.Denial{By: service.ByHost, Where: "grants.yaml"}

func (cappedKV) Get(context.Context, string, string) ([]byte, error) { return nil, errCapped }

func (cappedKV) Set(context.Context, string, string, []byte, time.Duration) error { return errCapped }

// TestExtismVariablesCapped: variables that the host does not let last fail the task, rather than be lost with it.
func TestExtismVariablesCapped(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"var_get": `(drop (call $var_get (call $block (i32.const 0) (i32.const 4))))`,
		"var_set": `(call $var_set (call $block (i32.const 0) (i32.const 4)) (call $block (i32.const 8) (i32.const 4)))`,
	} {
		pool := load(t, extism(t, body+`(i32.const 0)`)).Bind(Profile{Tenant: "acme"})
		var log []string
		got := pool.Run(t.Context(), Call{Services: service.Services{KV: cappedKV{}, Vars: true}, Log: func(line string) { log = append(log, line) }})
		if got.Kind != Failed || !strings.Contains(got.Message, name+": denied: the manifest allows it, the host does not") {
			t.Errorf("%s: %+v", name, got)
		}
		if len(log) != 1 || !strings.HasPrefix(log[0], "extism:host/env."+name+": denied: ") {
			t.Errorf("log %q", log)
		}
	}
}

// TestExtismStarts: what a plugin makes before its first task is there in each, in both memories, and nothing else.
func TestExtismStarts(t *testing.T) {
	t.Parallel()
	binary := runtimetest.BuildWAT(t, "(module "+extismImports+`
		(global $order (mut i32) (i32.const 0)) (global $made (mut i64) (i64.const 0))
		(func (export "_initialize")
			(global.set $order (i32.add (i32.mul (global.get $order) (i32.const 10)) (i32.const 1)))
			(drop (call $alloc (i64.const 300000))) ;; pages of the kernel's that no task touches
			(global.set $made (call $block (i32.const 0) (i32.const 4))))
		(func (export "__wasm_call_ctors") (unreachable))
		(func (export "hs_init") (param i32 i32)
			(global.set $order (i32.add (i32.mul (global.get $order) (i32.const 10)) (i32.add (i32.const 2) (i32.or (local.get 0) (local.get 1))))))
		(func (export "malloc") (param i32) (result i32) (unreachable))
		(func (export "__collect") (unreachable))
		(func (export "asyncify_stop_unwind") (unreachable))
		(func (export "other"))
		(func (export "run") (result i32)
			(if (i32.ne (global.get $order) (i32.const 12)) (then (return (global.get $order))))
			(if (i32.ne (call $load_u8 (global.get $made)) (i32.const 110)) (then (return (i32.const 98))))
			(if (i64.ne (call $length (call $alloc (i64.const 100000))) (i64.const 100000)) (then (return (i32.const 97))))
			(call $store_u8 (global.get $made) (i32.const 120))
			(call $free (global.get $made))
			(call $show (call $input_offset))
			(call $log_warn (call $block (i32.const 8) (i32.const 4)))
			(i32.const 0)))`)
	eachResetMode(t, func(t *testing.T, engine *Engine) {
		pool := loadInto(t, engine, binary).Bind(Profile{Tenant: "acme", Entry: "run"})
		var runs sync.WaitGroup
		for range 4 {
			runs.Go(func() {
				for range 10 {
					var log []string
					got := pool.Run(t.Context(), Call{Input: []byte("x"), Log: func(line string) { log = append(log, line) }})
					if got.Kind != Complete || string(got.Output) != "x" || len(log) != 1 || log[0] != "warning: what" {
						t.Errorf("%+v, log %q", got, log)
					}
				}
			})
		}
		runs.Wait()
	}, binary)
}

// TestExtismArguments: what a block says is bounded before it is copied, like an argument of quern_v1.
func TestExtismArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		call string // of a block of this many bytes
		most int
		want string // "" for any that is no refusal
	}{
		{`(drop (call $var_get (local.get $b)))`, 4 << 10, "extism:host/env.var_get: too big: the name has 4097 bytes, more than 4096"},
		{`(call $var_set (local.get $b) (i64.const 0))`, 4 << 10, "extism:host/env.var_set: too big: the name has 4097 bytes, more than 4096"},
		{`(call $var_set (call $block (i32.const 0) (i32.const 4)) (local.get $b))`, 1<<20 - 68, "extism:host/env.var_set: too big: variables of a task take at most 1 MiB; grant the bucket vars for more"},
		{`(drop (call $http_request (local.get $b) (i64.const 0)))`, 128 << 10, "extism:host/env.http_request: too big: the request has 131073 bytes, more than 131072"},
		{`(drop (call $http_request (call $block (i32.const 32) (i32.const 30)) (local.get $b)))`, 16 << 20, "extism:host/env.http_request: too big: the body has 16777217 bytes, more than 16777216"},
	} {
		run := func(size int) Outcome {
			body := fmt.Sprintf(`(local.set $b (call $alloc (i64.const %d))) %s (i32.const 0)`, size, test.call)
			return load(t, extism(t, body)).Bind(Profile{Tenant: "acme"}).Run(t.Context(), Call{})
		}
		if got := run(test.most); strings.Contains(got.Message, "too big") {
			t.Errorf("%s of %d bytes: %s", test.call, test.most, got.Message)
		}
		if got := run(test.most + 1); got.Message != test.want {
			t.Errorf("%s of %d bytes: %s, want %s", test.call, test.most+1, got.Message, test.want)
		}
	}
}

// TestExtismWithoutStore: without Redis a task is tried again, and its tenant does not learn why.
func TestExtismWithoutStore(t *testing.T) {
	t.Parallel()
	body := `(drop (call $var_get (call $block (i32.const 0) (i32.const 4)))) (i32.const 0)`
	call := Call{Services: service.Services{KV: lostKV{}, Vars: true}}
	got := load(t, extism(t, body)).Bind(Profile{Tenant: "acme"}).Run(t.Context(), call)
	const told = "extism:host/env.var_get: unavailable: the host's log says more"
	if got.Kind != Retry || got.Message != told || got.Stderr != told {
		t.Errorf("%+v", got)
	}
}

// lostKV is a store that cannot be reached.
type lostKV struct{ service.KV }

func (lostKV) Get(context.Context, string, string) ([]byte, error) {
	return nil, fmt.Errorf("%w: dial tcp 10.0.0.7:6379: connection refused", service.ErrUnavailable)
}

// TestExtismEntries: a task calls quern_handle, else the only function, else _start, unless the manifest names another.
func TestExtismEntries(t *testing.T) {
	t.Parallel()
	for exports, want := range map[string]string{
		"run":                     "run",
		"run _start":              "run",
		"_start":                  "_start",
		"run quern_handle _start": "quern_handle",
		"run other":               "",
	} {
		names, fields := strings.Fields(exports), ""
		for code, name := range names {
			fields += fmt.Sprintf(`(func (export %q) (result i32) (i32.const %d))`, name, code+2)
		}
		module := load(t, extismOf(t, fields))
		if info := module.Info(); info.Entry != want || !slices.Equal(info.Entries, names) {
			t.Errorf("%s: %q of %v, want %q", exports, info.Entry, info.Entries, want)
		}
		for code, name := range names {
			got := module.Bind(Profile{Entry: name}).Run(t.Context(), Call{})
			if got.Code != code+2 {
				t.Errorf("%s of %s: %+v, want status %d", name, exports, got, code+2)
			}
		}
	}
}

// TestExtismCounts: calls of Extism's functions are counted, those that end the task too.
func TestExtismCounts(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	module := loadInto(t, engine, extism(t, `
		(call $show (call $config_get (call $block (i32.const 0) (i32.const 4))))
		(drop (call $config_get (call $block (i32.const 0) (i32.const 3))))
		(call $var_set (call $block (i32.const 0) (i32.const 4)) (call $block (i32.const 8) (i32.const 4)))
		(drop (call $var_get (call $block (i32.const 0) (i32.const 4))))
		(drop (call $var_get (call $block (i32.const 0) (i32.const 3))))
		(call $log_warn (call $block (i32.const 8) (i32.const 13)))
		(drop (call $http_request (call $block (i32.const 32) (i32.const 30)) (i64.const 0)))
		(i32.const 0)`))
	pool := module.Bind(Profile{Tenant: "acme", Config: map[string]string{"name": "configured"}})
	if got := pool.Run(t.Context(), Call{Input: []byte("input"), Services: service.Services{HTTP: deniedHTTP{}}}); got.Kind != Failed {
		t.Fatalf("%+v, want a denial", got)
	}
	want := "[extism_config_get 17 B extism_config_get ENOTFOUND 1 extism_config_get ok 1 extism_http_request 30 B " +
		"extism_http_request EDENIED 1 extism_input 5 B extism_input ok 1 extism_log_warn 13 B extism_log_warn ok 1 " +
		"extism_output_set 10 B extism_output_set ok 1 extism_var_get 11 B extism_var_get ENOTFOUND 1 extism_var_get ok 1 " +
		"extism_var_set 8 B extism_var_set ok 1]"
	if counted := countedCalls(engine); fmt.Sprint(counted) != want {
		t.Errorf("counted %v\nwant    %s", counted, want)
	}
}

// BenchmarkExtismEcho moves 1 MiB in and out by eight bytes, as a PDK does.
func BenchmarkExtismEcho(b *testing.B) {
	module := load(b, extism(b, echo))
	pool := module.Bind(Profile{Tenant: "acme"})
	input := bytes.Repeat([]byte("12345678"), 1<<17)
	for b.Loop() {
		if got := pool.Run(b.Context(), Call{Input: input}); got.Kind != Complete || !bytes.Equal(got.Output, input) {
			b.Fatalf("%v %s", got.Kind, got.Message)
		}
	}
}
