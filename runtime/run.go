package runtime

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/quern-project/quern/runtime/wasi"
	"github.com/quern-project/quern/runtime/wasm"
)

// faultError is an error of the host itself. As the cause of a run it makes the outcome a HostFault.
type faultError struct{ err error }

func (e *faultError) Error() string { return e.err.Error() }

// run is what one call leaves on the host's side. All of it is dropped with the call; nothing hangs on the
// module. It belongs to the goroutine of the call.
type run struct {
	module *Module
	limits Limits
	memory memory
	output output
	logs   logs
	meter  meter
	system *wasi.System

	done     <-chan struct{} // the caller's context
	over     func() error    // and why it has ended
	deadline time.Time       // zero is none
	late     error           // what ends the guest then
	hostTime time.Duration

	cause  error // why the host has ended the guest
	exited bool  // the guest has ended itself
	code   int
}

// Run makes an instance, calls what the module runs at its start and _start, and tells how it ended. It is
// safe for concurrent use, never panics, and returns when the guest has stopped: some ten thousand
// instructions after ctx has ended, whatever the guest does.
func (m *Module) Run(ctx context.Context, c Call) Outcome {
	limits, late := c.limits()
	environment := c.environment()
	switch {
	case int64(len(c.Input)) > limits.Input:
		return InputExceeded(limits, int64(len(c.Input)))
	case m.info.MemoryMin > limits.Memory:
		return limitOutcome(memoryExceeded(limits.Memory))
	case slices.ContainsFunc(environment, func(v string) bool { return strings.ContainsRune(v, 0) }):
		return faultOutcome(errors.New("a variable of the environment holds a zero byte"))
	case ctx.Err() != nil:
		return cancelledOutcome(context.Cause(ctx))
	}
	r := &run{
		module: m, limits: limits, late: late,
		memory: memory{limit: uint64(limits.Memory), declared: m.declared},
		output: output{limit: limits.Output},
		logs:   logs{limit: limits.Log, line: c.Log, progress: c.Progress},
		meter:  meter{gate: m.engine.gate, limit: int64(limits.CPU), burned: m.price},
		done:   ctx.Done(), over: func() error { return context.Cause(ctx) },
	}
	started := time.Now()
	if limits.Timeout > 0 {
		r.deadline = started.Add(limits.Timeout)
	}
	r.system = wasi.New(wasi.Config{
		Host: r, Stdin: c.Input, Args: []string{c.Plugin}, Env: environment,
		Files: c.Files, Checkpoint: c.Checkpoint, Started: m.engine.started,
	})
	err := r.call(ctx)
	elapsed := time.Since(started)
	if wrong := r.logs.flush(); wrong != nil {
		r.blame(wrong)
	}
	outcome := r.judge(err)
	outcome.Stderr = r.logs.end()
	outcome.Fuel, outcome.CPU = r.meter.burned, r.meter.cpu
	outcome.GuestTime, outcome.HostTime = elapsed-r.hostTime, r.hostTime
	if err := r.memory.release(); err != nil {
		m.engine.logger.Error("guest memory was not released", "plugin", c.Plugin, "error", err)
	}
	return outcome
}

// InputExceeded is what Run answers to an input of so many bytes that is over the limit, for who knows
// its size before having it.
func InputExceeded(limits Limits, size int64) Outcome {
	return limitOutcome(inputExceeded(limits.WithDefaults().Input, size))
}

// call makes the instance and runs it to its end. When it returns, nothing of the guest runs and
// nothing reads its memory any more.
func (r *run) call(ctx context.Context) (err error) {
	ctx = context.WithValue(ctx, runKey{}, r)
	r.meter.start()
	defer r.meter.stop()
	instance, err := r.instantiate(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, instance.Close(context.WithoutCancel(ctx))) }()
	counter, ok := instance.ExportedGlobal(wasm.FuelExport).(api.MutableGlobal)
	if !ok {
		return &faultError{fmt.Errorf("the instance has no global %s", wasm.FuelExport)}
	}
	r.meter.counter = counter
	if r.module.start {
		if _, err := instance.ExportedFunction(wasm.StartExport).Call(ctx); err != nil {
			return err
		}
	}
	_, err = instance.ExportedFunction(entryPoint).Call(ctx)
	return err
}

// instanceConfig is that of every instance: it has no name, so that there may be any number, and nothing of
// it runs when it is made.
var instanceConfig = wazero.NewModuleConfig().WithName("").WithStartFunctions()

// instantiate makes an instance on the memory of the run. wazero panics if it gets no memory, and
// recovers what is below a call only.
func (r *run) instantiate(ctx context.Context) (instance api.Module, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &faultError{fmt.Errorf("panic while instantiating a guest: %v\n%s", p, debug.Stack())}
		}
	}()
	ctx = experimental.WithMemoryAllocator(ctx, &r.memory)
	return r.module.backend.runtime.InstantiateModule(ctx, r.module.compiled, instanceConfig)
}
