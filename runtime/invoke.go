package runtime

import (
	"cmp"
	"context"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/wasi"
)

// environment lists the variables of a call, each as NAME=VALUE. A handler gets only the profile's variables.
func (p *Pool) environment(c *Call) []string {
	if p.module.info.Kind != Command {
		return p.granted
	}
	return append(c.variables(p.profile.Tenant), p.granted...)
}

// handlerArgs are the arguments of every handler. They do not name the plugin: a handler starts once for many tasks,
// perhaps of several plugins.
var handlerArgs = []string{"handler"}

// newRun returns the run of a call that began at the time begun.
func (p *Pool) newRun(ctx context.Context, c *Call, limits Limits, environment []string, stage abi.Stage,
	begun time.Time,
) *run {
	m := p.module
	r, _ := runs.Get().(*run)
	if r == nil {
		r = new(run)
	}
	r.ctx, r.done = ctx, ctx.Done()
	r.module, r.stage, r.limits, r.taskTimeout = m, stage, limits, c.Timeout
	if limits.Timeout > 0 {
		r.deadline = begun.Add(limits.Timeout)
	}
	r.output.limit = limits.Output
	r.denied = c.Denied
	r.secrets = cmp.Or(c.Secrets, &r.own)
	if r.tape = c.Tape; r.tape != nil {
		if c.Secrets == nil {
			r.secrets = new(redact.Secrets) // the tape needs them after the run
		}
		r.tape.End, r.tape.Secrets = r.end, r.secrets
	}
	r.logs.limit, r.logs.remedies = limits.Log, limits.Remedies
	r.logs.line, r.logs.progress, r.logs.secrets = c.Log, c.Progress, r.secrets
	r.meter.gate, r.meter.limit = m.host.gate, int64(limits.CPU)
	system := wasi.Config{Host: r, Files: p.profile.Files, Started: m.host.started, Tape: r.tape}
	if m.info.Kind != Command {
		services := r.tape.Services(c.Services)
		services.Config = p.profile.Config
		r.abi.Init(abi.Config{
			Host: r, Reporter: r, Ending: c.Ending, Stage: stage, Input: c.Input, Started: m.host.started,
			Task:       c.task(p.profile.Tenant, r.deadline),
			Checkpoint: c.Checkpoint, Services: services, Counters: &m.host.counters, Tape: r.tape,
		})
		system.Args, system.Env = handlerArgs, environment
	} else {
		system.Args, system.Env = []string{c.Plugin}, environment
		system.Stdin, system.Checkpoint = c.Input, c.Checkpoint
	}
	r.wasi.Init(system)
	return r
}

// invoke runs the function calls in the instance i, or in a new instance if i is nil. It returns the instance, nil if
// none could be made, and the time at which the guest stopped. When invoke returns, the guest does not run, and nothing
// reads the guest's memory. The caller must have a place at the gate.
func (p *Pool) invoke(r *run, c *Call, i *instance, now time.Time,
	calls func(*instance) error,
) (_ *instance, stopped time.Time, err error) {
	r.meter.begin(now)
	if i == nil {
		if i, err = p.newInstance(); err != nil {
			return nil, r.meter.stop(), err
		}
		if p.module.perTask {
			r.meter.burned += p.module.price
		}
	}
	i.run, r.instance = r, i
	for _, memory := range i.memories {
		memory.refused = 0
	}
	i.crash.Begin(c.Plugin, p.profile.Tenant, c.TaskID)
	r.meter.counter, r.meter.crash = i.counter, i.crash
	i.counter.Set(uint64(uint32(r.meter.refill())))
	fits := true
	if i.blocks != nil {
		r.meter.burned += int64(len(r.abi.Input))
		if fits, err = r.abi.SetBlocks(i.blocks); err != nil {
			err = &faultError{err}
		} else if !fits {
			r.blame(r.limits.Remedies.memoryExceeded(r.limits.Memory, 0))
		}
	}
	if fits && err == nil {
		err = calls(i)
		r.askWhere(i, err)
	}
	i.run, i.running = nil, nil
	p.module.host.stacks.Add(-r.stack)
	return i, r.meter.stop(), err
}
