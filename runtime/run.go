package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/wasi"
	"github.com/quern-project/quern/runtime/wasm"
)

// faultError is an error of the host itself. As the cause of a run it makes the outcome a HostFault.
type faultError struct{ err error }

func (e *faultError) Error() string { return e.err.Error() }

// run is what one call leaves on the host's side. All of it is dropped with the call; nothing hangs on the
// instance. It belongs to the goroutine of the call.
type run struct {
	ctx      context.Context //nolint:containedctx // the caller's
	module   *Module
	stage    abi.Stage
	limits   Limits
	plugin   string
	tenant   string
	task     string    // its ID; "" at the start of a handler
	instance *instance // nil before there is one
	stack    int64     // bytes of its call stack that the engine has counted
	output   output
	secrets  *redact.Secrets // that the guest was given: the caller's, or kept
	kept     redact.Secrets
	logs     logs
	paced    time.Time // when the guest would have logged its lines at the highest rate
	meter    meter
	wasi     wasi.System
	abi      abi.System // of a handler

	done     <-chan struct{} // of ctx
	ending   <-chan struct{} // the caller's wish
	own      bool            // the timeout is the task's own
	deadline time.Time       // zero is none
	waited   time.Duration

	denied   func(function, reason string) // the caller's
	refusals []string                      // of which it was told

	result [1]uint64 // of the guest's entry
	cause  error     // why the host has ended the guest
	exited bool      // the guest has ended itself
	code   int
}

// runs are those of calls that have ended, zeroed: to allocate one takes longer than a short call, and on many processors
// that would be the garbage collector's work more than the guests'.
var runs = sync.Pool{New: func() any { return new(run) }}

// Run runs a call in an instance that nobody has used since it was made, or made anew, and tells how it ended.
// It is safe for concurrent use, never panics, and returns when the guest has stopped: some ten thousand
// instructions after ctx has ended, whatever the guest does.
func (m *Module) Run(ctx context.Context, c Call) Outcome {
	limits, environment := c.limits(), c.environment(m.info.Kind)
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
	begun := time.Now()
	m.touch(begun)
	p, i, ended, started := m.take(ctx, &c, limits, begun)
	if ended != nil {
		return *ended
	}
	r := m.newRun(ctx, &c, limits, environment, abi.Running, begun)
	r.meter.start(started)
	i, err := p.call(r, i)
	stopped := r.meter.stop()
	m.touch(stopped)
	outcome := r.finish(err)
	if i != nil {
		outcome.Fuel += i.begun.fuel
		outcome.CPU += i.begun.cpu
	}
	outcome.WaitTime = r.waited
	outcome.GuestTime = stopped.Sub(started) - r.waited
	*r = run{}
	runs.Put(r)
	p.give(i, outcome.Kind != HostFault, stopped)
	return outcome
}

// newRun is the run of a call in a stage, whose time has begun.
func (m *Module) newRun(ctx context.Context, c *Call, limits Limits, environment []string, stage abi.Stage, begun time.Time) *run {
	r, _ := runs.Get().(*run) // nothing else is put there
	r.ctx, r.done, r.ending = ctx, ctx.Done(), c.Ending
	r.module, r.stage, r.limits, r.own = m, stage, limits, c.Timeout > 0
	r.plugin, r.tenant, r.task = c.Plugin, c.Tenant, c.TaskID
	if limits.Timeout > 0 {
		r.deadline = begun.Add(limits.Timeout)
	}
	r.output.limit = limits.Output
	r.denied = c.Denied
	r.secrets = cmp.Or(c.Secrets, &r.kept)
	r.logs.limit, r.logs.line, r.logs.progress, r.logs.secrets = limits.Log, c.Log, c.Progress, r.secrets
	r.meter.gate, r.meter.limit = m.engine.gate, int64(limits.CPU)
	system := wasi.Config{Host: r, Files: c.Files, Started: m.engine.started}
	if m.info.Kind == Handler {
		r.abi.Init(abi.Config{
			Host: r, Stage: stage, Input: c.Input, Started: m.engine.started, Task: c.task(r.deadline),
			Checkpoint: c.Checkpoint, Services: c.Services, Counters: &m.engine.counters,
		})
		system.Args, system.Env = handlerArgs, environment
	} else {
		system.Args, system.Env = []string{c.Plugin}, environment
		system.Stdin, system.Checkpoint = c.Input, c.Checkpoint
	}
	r.wasi.Init(system)
	return r
}

// handlerArgs are the arguments of every handler: what it does at its start is done for many tasks, and maybe
// for several plugins.
var handlerArgs = []string{"handler"}

// InputExceeded is what Run answers to an input of so many bytes that is over the limit, for who knows
// its size before having it.
func InputExceeded(limits Limits, size int64) Outcome {
	return limitOutcome(inputExceeded(limits.WithDefaults().Input, size))
}

// call runs the guest's entry in an instance: the one that it is given, or a new one if that is nil. It returns
// the instance that was used, nil if none could be made. When it returns, nothing of the guest runs and nothing
// reads its memory any more.
func (p *pool) call(r *run, i *instance) (*instance, error) {
	m := p.module
	if i == nil {
		var err error
		if i, err = p.make(); err != nil {
			return nil, err
		}
		if m.lasting {
			r.meter.burned += m.price
		}
	}
	r.enter(i)
	defer r.leave(i)
	i.calls++
	if m.info.Kind == Command && m.start {
		if err := i.callExport(wasm.StartExport); err != nil {
			return i, err
		}
	}
	code, err := i.callEntry(m.info.Kind)
	if err == nil {
		r.code = code
	}
	return i, err
}

// enter makes the instance the one that the run uses.
func (r *run) enter(i *instance) {
	i.run, r.instance = r, i
	i.memory.refused = false
	i.crash.Name(r.plugin, r.tenant, r.task)
	r.meter.attach(i.counter, i.crash)
}

// leave ends the use of the instance.
func (r *run) leave(i *instance) {
	i.run, i.running = nil, nil
	r.module.engine.stacks.Add(-r.stack)
	r.stack = 0
}

// countStack notes what the guest's call stack takes.
func (r *run) countStack() {
	size := int64(stackOf(r.instance.running))
	r.module.engine.stacks.Add(size - r.stack)
	r.stack = size
}

// begin runs what a handler runs before its first task. It is a run of its own: where a handler begins once for many
// tasks, none of them pays for it, logs it, or has the files open that it opened.
func (r *run) begin(i *instance) error {
	for _, name := range r.module.startup {
		if err := i.callExport(name); err != nil {
			return err
		}
	}
	return nil
}

// callExport calls a function that is called once.
func (i *instance) callExport(name string) error {
	f, err := i.function(name)
	if err == nil {
		i.running = f
		err = f.CallWithStack(i.ctx, nil)
	}
	return err
}

// callEntry calls what the kind is called by, and returns its result, which is 0 for a command.
func (i *instance) callEntry(kind Kind) (code int, err error) {
	if i.entry == nil {
		if i.entry, err = i.function(entryPoints[kind]); err != nil {
			return 0, err
		}
	}
	i.running = i.entry
	err = i.entry.CallWithStack(i.ctx, i.run.result[:])
	if err != nil || stackOf(i.entry) > maxKeptStack {
		i.entry = nil // its call stack may be large, and is given back with it
	}
	return int(int32(uint32(i.run.result[0]))), err
}

// finish is the outcome of a run whose guest has returned.
func (r *run) finish(err error) Outcome {
	if wrong := r.logs.flush(); wrong != nil {
		r.blame(wrong)
	}
	outcome := r.judge(err)
	if r.stage == abi.Initializing {
		outcome = unbegun(r.module.info.Kind, outcome)
	}
	if outcome.Kind == HostFault {
		if words := []byte(outcome.Err.Error()); r.secrets.In(words) { // some may be the guest's
			outcome.Err = errors.New(r.secrets.Text(words))
		}
	}
	outcome.Stderr = r.logs.end()
	outcome.Fuel, outcome.CPU = r.meter.burned, r.meter.cpu
	return outcome
}

// unbegun is the outcome of a run in which a plugin of that kind did not come to its task.
func unbegun(kind Kind, outcome Outcome) Outcome {
	switch outcome.Kind {
	case Complete, Retry, Fatal:
		outcome = Outcome{Kind: Failed, Code: outcome.Code, Message: fmt.Sprintf("the handler exited with status %d: let it return", outcome.Code)}
	case Cancelled, HostFault:
		return outcome
	}
	where := initialize
	if kind == Command {
		where = "start section"
	}
	outcome.Message = "before its first task (" + where + "): " + outcome.Message
	return outcome
}

// maxKeptStack is the largest call stack in bytes that an instance keeps between calls. A guest that recurses
// makes it grow up to 84 MB.
const maxKeptStack = 64 << 10
