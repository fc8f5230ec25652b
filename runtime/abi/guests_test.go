package abi

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// handler is an instance that imports the functions of this package. They are those of system, which the
// test makes anew for each call.
type handler struct {
	t      *testing.T
	module api.Module
	system *System
}

// instantiate makes an instance of a guest in text format.
func instantiate(t *testing.T, text string) *handler {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	t.Cleanup(func() {
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	h := &handler{t: t}
	builder := rt.NewHostModuleBuilder(ModuleName)
	for _, f := range Functions() {
		builder.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, stack []uint64) {
			f.Call(h.system, m.Memory(), stack)
		}), f.Params, f.Results).Export(f.Name)
	}
	if _, err := builder.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	var err error
	if h.module, err = rt.Instantiate(ctx, runtimetest.BuildWAT(t, text)); err != nil {
		t.Fatal(err)
	}
	return h
}

// call is one call of quern_handle, with a system of its own.
func (h *handler) call(c Config) (status int32, host *account) {
	h.t.Helper()
	host = &account{limit: 1 << 20, fuel: 77}
	c.Host, c.Reporter = host, host
	h.system = newSystem(c)
	results, err := h.module.ExportedFunction("quern_handle").Call(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	return int32(uint32(results[0])), host
}

// imports are the functions of this package in text format, each under its name.
func imports() string {
	var text strings.Builder
	for _, f := range Functions() {
		fmt.Fprintf(&text, "(import %q %q (func $%s", ModuleName, f.Name, f.Name)
		for _, p := range f.Params {
			fmt.Fprintf(&text, " (param %s)", api.ValueTypeName(p))
		}
		text.WriteString(" (result i32)))\n")
	}
	return text.String()
}

// TestGuest: a handler makes its input upper case. It reads it in pieces of 7 bytes, into memory that it
// grows meanwhile.
func TestGuest(t *testing.T) {
	t.Parallel()
	h := instantiate(t, `(module `+imports()+`
		(memory (export "memory") 1)
		(func (export "quern_handle") (result i32)
			(local $at i32) (local $n i32) (local $i i32)
			loop $more
				(local.set $n (call $input_read (local.get $at) (i32.const 65529) (i32.const 7)))
				(if (i32.lt_s (local.get $n) (i32.const 0)) (then (return (local.get $n))))
				(drop (memory.grow (i32.const 1)))
				(local.set $i (i32.const 0))
				(if (local.get $n) (then
					loop $next
						(if (i32.ge_u (i32.load8_u offset=65529 (local.get $i)) (i32.const 97)) (then
							(i32.store8 offset=65529 (local.get $i) (i32.sub (i32.load8_u offset=65529 (local.get $i)) (i32.const 32)))))
						(local.set $i (i32.add (local.get $i) (i32.const 1)))
						(br_if $next (i32.lt_u (local.get $i) (local.get $n)))
					end
					(if (call $output_write (i32.const 65529) (local.get $n)) (then (return (i32.const 1))))
					(local.set $at (i32.add (local.get $at) (local.get $n)))
					(br $more)))
			end
			(i32.ne (local.get $at) (call $input_size))))`)
	for _, input := range []string{"", "a", "a quern", "a quern is a hand mill; it rhymes with burn"} {
		status, host := h.call(Config{Input: []byte(input)})
		if got := host.output.String(); status != 0 || got != strings.ToUpper(input) {
			t.Errorf("%d, %q", status, got)
		}
		if host.spent != 2*len(input) {
			t.Errorf("%d bytes in and out cost %d", len(input), host.spent)
		}
	}
}

// TestDescription: a handler writes down all that it can learn of its task, fails with a text, and asks to
// be called again. Nothing of that is left in its next call.
func TestDescription(t *testing.T) {
	t.Parallel()
	h := instantiate(t, `(module `+imports()+`
		(memory (export "memory") 1)
		(func (export "quern_handle") (result i32)
			(local $field i32) (local $n i32)
			loop $texts
				(local.set $n (call $task_text (local.get $field)))
				(if (i32.ge_s (local.get $n) (i32.const 0)) (then
					(local.set $n (call $result_read (i32.const 0) (i32.const 0) (i32.const 1000)))
					(i32.store8 (local.get $n) (i32.const 10))
					(drop (call $output_write (i32.const 0) (i32.add (local.get $n) (i32.const 1))))
					(local.set $field (i32.add (local.get $field) (i32.const 1)))
					(br $texts)))
			end
			(local.set $field (i32.const 0))
			loop $numbers
				(if (i32.eqz (call $task_number (local.get $field) (i32.const 8))) (then
					(drop (call $output_write (i32.const 8) (i32.const 8)))
					(local.set $field (i32.add (local.get $field) (i32.const 1)))
					(br $numbers)))
			end
			(drop (call $error_set (i32.const 0) (call $result_read (i32.const 1) (i32.const 0) (i32.const 4))))
			(drop (call $retry_after (i64.const 1500)))
			(call $cancelled)))`)
	deadline := time.UnixMilli(1_900_000_000_123)
	for _, task := range []Task{
		{ID: "7f", Queue: "print", Tenant: "acme", Plugin: "printer", PreviousError: "no ink", Parent: "7e", Key: "page", Traceparent: "00-7", Headers: map[string]string{"x-b": "2: ü", "x-a": ""}, Attempt: 2, MaxAttempts: 5, Reschedules: 7, Deadline: deadline},
		{ID: "80", Queue: "print", Tenant: "acme", Plugin: "printer", Key: "k", Traceparent: "-", Headers: map[string]string{"a": "-"}, Attempt: 1},
	} {
		status, host := h.call(Config{Task: task})
		want := strings.Join([]string{task.ID, task.Queue, task.Tenant, task.Plugin, task.PreviousError, task.Parent, task.Key, task.Traceparent, FormatHeaders(task.Headers), ""}, "\n")
		ms := uint64(0)
		if !task.Deadline.IsZero() {
			ms = 1_900_000_000_123
		}
		for _, n := range []uint64{uint64(task.Attempt), uint64(task.MaxAttempts), ms, 77, uint64(task.Reschedules)} {
			want += string(binary.LittleEndian.AppendUint64(nil, n))
		}
		if got := host.output.String(); status != 0 || got != want {
			t.Errorf("%d, %q, want %q", status, got, want)
		}
		text, said := h.system.Error()
		if text != FormatHeaders(task.Headers)[1:5] || !said || h.system.RetryAfter() != 1500*time.Millisecond {
			t.Errorf("error %q, %v; retry after %v", text, said, h.system.RetryAfter())
		}
	}
}

// TestWarm: a handler that warms finds its input, the time and random numbers, but no task.
func TestWarm(t *testing.T) {
	t.Parallel()
	h := instantiate(t, `(module `+imports()+`
		(memory (export "memory") 1)
		(func (export "quern_handle") (result i32)
			(drop (call $input_read (i32.const 0) (i32.const 0) (i32.const 8)))
			(drop (call $clock (i32.const 0) (i32.const 8)))
			(drop (call $clock (i32.const 1) (i32.const 16)))
			(drop (call $random (i32.const 24) (i32.const 16)))
			(drop (call $output_write (i32.const 0) (i32.const 40)))
			(i32.add (call $task_text (i32.const 0)) (call $task_number (i32.const 0) (i32.const 0)))))`)
	status, host := h.call(Config{Stage: Warming, Input: []byte("a sample"), Task: Task{ID: "not for the image"}, Started: time.Now().Add(-time.Second)})
	got := host.output.Bytes()
	if status != -20 || len(got) != 40 || string(got[:8]) != "a sample" || h.system.Misused() != "" {
		t.Fatalf("%d, %q, misused %q", status, got, h.system.Misused())
	}
	for at, what := range map[int]string{8: "wall clock", 16: "monotonic clock", 24: "random number", 32: "random number"} {
		if bytes.Equal(got[at:at+8], make([]byte, 8)) {
			t.Errorf("no %s", what)
		}
	}
}
