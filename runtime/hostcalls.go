package runtime

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/wasi"
)

// instantiateHost adds the functions that guests import to a wazero runtime: WASI preview 1, quern_v1, Extism's
// functions, and the only function of Emscripten that guests may import.
func instantiateHost(ctx context.Context, rt wazero.Runtime) error {
	preview1, own := rt.NewHostModuleBuilder(wasi.ModuleName), rt.NewHostModuleBuilder(abi.ModuleName)
	for _, f := range wasi.Functions() {
		call := hostFunction(func(r *run, mem api.Memory, stack []uint64) { f.Call(&r.wasi, mem, stack) })
		preview1.NewFunctionBuilder().WithGoModuleFunction(call, f.Params, f.Results).Export(f.Name)
	}
	add := func(module wazero.HostModuleBuilder, functions []abi.Function) {
		for _, f := range functions {
			call := hostFunction(func(r *run, mem api.Memory, stack []uint64) { f.Call(&r.abi, mem, stack) })
			module.NewFunctionBuilder().WithGoModuleFunction(call, f.Params, f.Results).Export(f.Name)
		}
	}
	add(own, abi.Functions())
	extism := rt.NewHostModuleBuilder(abi.KernelImports)
	add(extism, append(abi.ExtismFunctions(), abi.KernelGrow()))
	env := rt.NewHostModuleBuilder(abi.EmscriptenModule)
	env.NewFunctionBuilder().WithGoModuleFunction(hostFunction(func(*run, api.Memory, []uint64) {}),
		[]api.ValueType{api.ValueTypeI32}, nil).Export(abi.EmscriptenGrowth)
	for _, module := range []wazero.HostModuleBuilder{preview1, own, extism, env} {
		if _, err := module.Instantiate(ctx); err != nil {
			return fmt.Errorf("instantiate host functions: %w", err)
		}
	}
	return nil
}

// runOf returns the run that uses the instance which ctx carries. ctx is the context of the guest's calls.
func runOf(ctx context.Context) *run {
	i, ok := ctx.Value(instanceKey{}).(*instance)
	if !ok || i.run == nil {
		panic("runtime: a guest was called outside of a run")
	}
	return i.run
}

// hostFunction wraps a host function: it finds the run, charges hostPrice, and turns a panic of host code into a fault
// of the host. f must access the guest's memory on the calling goroutine only, and must keep no reference to it. Only
// ticks and waits check the guest's time: reading the clock here would take half the time of a short function.
func hostFunction(f func(r *run, mem api.Memory, stack []uint64)) api.GoModuleFunc {
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		r := runOf(ctx)
		defer func() { r.guard(recover()) }()
		if r.asking {
			panic(unwound{})
		}
		r.Spend(hostPrice)
		f(r, mod.Memory(), stack)
	}
}

// tick serves the call that a guest makes when its counter has fallen below zero. stack[0] holds the counter, and on
// return the counter's next value.
func tick(ctx context.Context, _ api.Module, stack []uint64) {
	r := runOf(ctx)
	defer func() { r.guard(recover()) }()
	r.ticking = true
	stack[0] = uint64(uint32(r.tick(int32(uint32(stack[0])))))
	r.ticking = false
}

// Exit implements wasi.Host.
func (r *run) Exit(code uint32) {
	r.exited, r.code = true, int(int32(code))
	panic(unwound{})
}

// Stdout implements wasi.Host. A handler's stdout is part of its log, since a handler returns its output by a function.
func (r *run) Stdout(p []byte) {
	if r.module.info.Kind != Command {
		r.log(&r.logs.stdout, p)
		return
	}
	if !r.output.add(p) {
		r.end(r.limits.Remedies.sizeExceeded("output", r.limits.Output, "output limit of %s exceeded on stdout"))
	}
}

// Stderr implements wasi.Host.
func (r *run) Stderr(p []byte) { r.log(&r.logs.stream, p) }

// Output implements abi.Host.
func (r *run) Output(p []byte) bool { return r.output.add(p) }

// Reserve implements abi.Host.
func (r *run) Reserve(bytes int) bool {
	room := r.output.has(bytes)
	if room {
		r.output.reserved += int64(bytes)
	}
	return room
}

// FuelLeft implements abi.Host.
func (r *run) FuelLeft() int64 {
	if r.meter.limit == 0 {
		return math.MaxInt64
	}
	return max(0, r.meter.limit-r.meter.spent())
}

// maxLogged is the maximum length of a text that a guest logs by a function, in bytes; the rest is cut off.
const maxLogged = 64 << 10

// Log implements abi.Reporter.
func (r *run) Log(text, fields string) {
	r.logged(min(len(text), maxLogged)+len(fields), func() {
		line := append(r.secrets.Head([]byte(text), maxLogged), fields...)
		r.logs.emit(r.logs.pieces(line, 0))
	})
}

// Progress implements abi.Reporter.
func (r *run) Progress(fraction float64, message string) {
	r.logged(min(len(message), maxProgress), func() { r.logs.report(fraction, []byte(message)) })
}

// Reveal implements abi.Reporter.
func (r *run) Reveal(name string, value []byte) {
	if r.secrets.Add(name, value) {
		r.Spend(len(value) * revealPrice)
	}
}

// Do implements abi.Host. The context of f ends with the call's context, or at the call's deadline.
func (r *run) Do(f func(ctx context.Context)) {
	r.Spend(waitPrice)
	ctx := r.ctx
	if !r.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.deadline)
		defer cancel()
	}
	r.wait(func() { f(ctx) })
}

// maxDenials is the maximum number of denials in a task's log.
const maxDenials = 10

// Refused implements abi.Reporter. It logs each report once, and at most maxDenials reports. The guest pays only for
// the report. A replay does not know what else the host's log says.
func (r *run) Refused(function string, err error) (report string) {
	words, report := err.Error(), service.Told(err)
	r.Spend(2 * len(report) * secretPrice)
	text := redact.Shorten(r.secrets.Text([]byte(words)), maxHeadline) // the reason can contain text of the guest
	report = redact.Shorten(r.secrets.Text([]byte(report)), maxHeadline)
	module := abi.ModuleName
	if r.module.info.Kind == Extism {
		module = abi.ExtismModule
	}
	report = module + "." + function + ": " + report
	once := func(list *[]string, text string) bool {
		if len(*list) == maxDenials || slices.Contains(*list, text) {
			return false
		}
		*list = append(*list, text)
		return true
	}
	if once(&r.denials, function+text) && r.denied != nil {
		r.denied(function, text)
	}
	if once(&r.reports, report) {
		r.Log(report, "")
	}
	return report
}

// Fail implements abi.Host.
func (r *run) Fail(err error) { r.end(&faultError{err}) }
