package runtime

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// faultError is an error of the host itself. As the cause of a call's context it makes the outcome
// a HostFault.
type faultError struct{ err error }

func (e *faultError) Error() string { return e.err.Error() }

// run is what one call leaves on the host's side. All of it is dropped with the call; nothing hangs
// on the module.
type run struct {
	module *Module
	limits Limits
	memory memory
	output output
	logs   logs
}

// Run makes an instance, calls _start, and tells how it ended. It is safe for concurrent use, never
// panics, and returns when the guest has stopped: after ctx has ended, at its next loop or wait.
func (m *Module) Run(ctx context.Context, c Call) Outcome {
	limits := c.Limits.WithDefaults()
	expired := timeoutExceeded(limits.Timeout)
	if c.Timeout > 0 {
		limits.Timeout, expired = c.Timeout, taskTimeoutExceeded(c.Timeout)
	}
	if size := int64(len(c.Input)); size > limits.Input {
		return InputExceeded(limits, size)
	}
	if m.info.MemoryMin > limits.Memory {
		return limitOutcome(memoryExceeded(limits.Memory))
	}
	if ctx.Err() != nil {
		return cancelledOutcome(context.Cause(ctx))
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if limits.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limits.Timeout, expired)
		defer cancel()
	}
	r := &run{
		module: m,
		limits: limits,
		memory: memory{limit: uint64(limits.Memory)},
		output: output{limit: limits.Output, stop: stop},
		logs:   logs{limit: limits.Log, line: c.Log, progress: c.Progress, stop: stop},
	}
	started := time.Now()
	err := r.call(ctx, m.engine.moduleConfig(r, c))
	elapsed := time.Since(started)
	r.logs.flush()
	outcome := r.judge(context.Cause(ctx), err)
	outcome.Stderr = r.logs.end()
	outcome.GuestTime = elapsed
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
func (r *run) call(ctx context.Context, config wazero.ModuleConfig) (err error) {
	instance, err := r.instantiate(ctx, config)
	if err != nil {
		return err
	}
	// Close does nothing if the guest has called proc_exit or was stopped.
	defer func() { err = errors.Join(err, instance.Close(context.WithoutCancel(ctx))) }()
	_, err = instance.ExportedFunction(entryPoint).Call(ctx)
	return err
}

// instantiate makes an instance on the memory of the run. wazero panics if it gets no memory, and
// recovers what is below a call only.
func (r *run) instantiate(ctx context.Context, config wazero.ModuleConfig) (instance api.Module, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &faultError{fmt.Errorf("panic while instantiating a guest: %v\n%s", p, debug.Stack())}
		}
	}()
	ctx = experimental.WithMemoryAllocator(ctx, &r.memory)
	return r.module.backend.runtime.InstantiateModule(ctx, r.module.compiled, config)
}
