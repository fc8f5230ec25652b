package schedule_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/schedule"
)

// How long tasks wait, and how many: see ahead.go.
const (
	aheadTime  = 4 * time.Millisecond
	aheadWait  = 20 * time.Millisecond
	shortTask  = time.Millisecond
	maxReserve = 128
	maxAhead   = 3 * maxReserve
	short      = 100 * time.Microsecond // how long a short task takes
)

// plugin is a fake that serves a queue, and counts how often it is retained.
type plugin struct {
	schedule.Version
	gone     bool
	pending  int64
	retained int
}

func (p *plugin) PendingSnapshot() int64 { return p.pending }
func (p *plugin) Release()               { p.retained-- }

// task is a task that a rig reserved.
type task struct {
	schedule.Slot
	plugin *plugin
}

// source is a listener that reserves whatever the test answers.
type source struct {
	closed, reserving bool
	ahead             int
}

func (s *source) State(time.Time) (available, reserving bool) { return !s.closed, s.reserving }
func (s *source) AddAhead(n int)                              { s.ahead += n }

// rig is a scheduler with the queues q0, q1, ... of one source. The test plays Redis and the tasks.
type rig struct {
	*schedule.Scheduler
	t       testing.TB
	config  schedule.Config
	source  *source
	queues  []schedule.Queue
	plugins map[string]*plugin // by queue
	running []*task
	ended   []*task
	shown   int // slots that run a task
	now     time.Time
}

// small is what a task of most plugins uses, in bytes.
const small = 3 << 20

func newRig(t testing.TB, config schedule.Config, queues int) *rig {
	t.Helper()
	r := &rig{t: t, source: new(source), plugins: make(map[string]*plugin), now: time.Unix(1_700_000_000, 0)}
	if config.Guests == 0 {
		config.Guests = 2
	}
	config.MaxReserve, config.MaxSettle, config.Account = maxReserve, 100, account.New(config.Memory)
	config.Running, config.Wake = func(n int) { r.shown = n }, func() {}
	config.Acquire = func(at schedule.Queue) *schedule.Version {
		p := r.plugins[at.Name]
		if p == nil || p.gone {
			return nil
		}
		p.retained++
		return &p.Version
	}
	r.config, r.Scheduler = config, schedule.New(config)
	for i := range queues {
		at := schedule.Queue{Tenant: "t", Name: fmt.Sprintf("q%d", i)}
		r.queues = append(r.queues, at)
		r.install("p", schedule.Version{Memory: small, MayWait: true}, at.Name)
		r.Serve(at, r.source)
	}
	t.Cleanup(r.end)
	return r
}

// install makes one plugin serve queues.
func (r *rig) install(name string, version schedule.Version, queues ...string) *plugin {
	p := &plugin{Version: version}
	p.Code, p.Plugin = p, schedule.Plugin{Name: name}
	for _, at := range queues {
		r.plugins[at] = p
	}
	return p
}

// end ends all tasks: nothing may be left.
func (r *rig) end() {
	for _, at := range r.queues {
		r.Leave(at)
	}
	r.finishAll()
	for at, p := range r.plugins {
		if p.retained != 0 {
			r.t.Errorf("the plugin of %s is retained %d times", at, p.retained)
		}
	}
	if s := r.Status(); s.InUse != 0 || s.Running != 0 || s.Ahead != 0 || s.Memory != 0 || r.shown != 0 || r.source.ahead != 0 {
		r.t.Errorf("at the end: %+v, %d slots are shown, %d tasks of the source wait", s, r.shown, r.source.ahead)
	}
}

// finishAll ends and settles everything that runs, and returns what waits.
func (r *rig) finishAll() {
	for len(r.running) > 0 {
		r.endAll(time.Hour, 0)
	}
	for _, tasks := range r.End() {
		for _, t := range tasks {
			r.giveBack(t)
		}
	}
	for _, t := range r.ended {
		r.Settled(&t.Slot)
	}
	r.ended = nil
}

// plan plans, begins what waited for a slot, and gives back what waited too long. It returns the allocations.
func (r *rig) plan() (round schedule.Round, allocations []*schedule.Allocation) {
	round = r.Plan(r.now)
	for _, a := range round.Idle {
		a.Release()
	}
	for _, work := range round.Work {
		for _, t := range work.Begin {
			r.running = append(r.running, t.(*task))
		}
		for _, t := range work.Return {
			r.giveBack(t)
		}
		allocations = append(allocations, work.Allocations...)
	}
	return round, allocations
}

// giveBack releases a task that waited for a slot.
func (r *rig) giveBack(t schedule.Task) {
	own := t.(*task)
	own.plugin.Release()
	r.ended = append(r.ended, own)
}

// answer plays Redis for one allocation: it brings count tasks.
func (r *rig) answer(a *schedule.Allocation, count int, reply schedule.Reply) (begun int) {
	tasks := make([]schedule.Task, count)
	for i := range tasks {
		p := a.Version.Code.(*plugin)
		p.retained++
		tasks[i] = &task{Slot: a.Slot(r.now), plugin: p}
	}
	for _, t := range r.Reserved(a, tasks, reply, r.now) {
		begun++
		r.running = append(r.running, t.(*task))
	}
	return begun
}

// fill plays Redis with a backlog for one plan, and returns how many tasks began in each queue.
func (r *rig) fill() map[string]int {
	before := len(r.running)
	_, allocations := r.plan()
	for _, a := range allocations {
		r.answer(a, a.Tasks(), schedule.Reply{})
	}
	begun := make(map[string]int)
	for _, t := range r.running[before:] {
		begun[t.Queue.Name]++
	}
	return begun
}

// ask returns the one allocation of a plan, which has so many slots, and tasks ahead or not.
func (r *rig) ask(slots int, ahead bool) *schedule.Allocation {
	r.t.Helper()
	_, all := r.plan()
	if len(all) != 1 || all[0].Slots() != slots || all[0].Tasks() > slots != ahead {
		for _, a := range all {
			r.t.Errorf("%d slots, %d tasks of %s", a.Slots(), a.Tasks(), a.Queue.Name)
		}
		r.t.Fatalf("%d allocations, want one of %d slots, and tasks ahead: %t", len(all), slots, ahead)
	}
	return all[0]
}

// endTask ends a running task. A task that gets its slot at once runs then.
func (r *rig) endTask(t *task, took, waited time.Duration) {
	if next := r.Ended(&t.Slot, run(took, waited), r.now); next != nil {
		r.running = append(r.running, next.(*task))
	}
	t.plugin.Release()
}

// finish ends one running task and settles it.
func (r *rig) finish(i int) {
	t := r.running[i]
	r.running = append(r.running[:i], r.running[i+1:]...)
	r.endTask(t, time.Hour, 0)
	r.Settled(&t.Slot)
}

// endAll ends and settles what runs now.
func (r *rig) endAll(took, waited time.Duration) {
	running := r.running
	r.running = nil
	for _, t := range running {
		r.endTask(t, took, waited)
		r.Settled(&t.Slot)
	}
}

// learn lets the queue's first tasks run for so long, on all slots, and reserves again: with tasks ahead if they are
// short.
func (r *rig) learn(took, waited time.Duration, slots int) *schedule.Allocation {
	r.t.Helper()
	r.answer(r.ask(r.config.Slots, false), r.config.Slots, schedule.Reply{})
	r.endAll(took, waited)
	return r.ask(slots, true)
}

// planOnly plans, and sends no reserve.
func (r *rig) planOnly() schedule.Round {
	round, allocations := r.plan()
	for _, a := range allocations {
		r.Cancel(a)
	}
	return round
}

// fixed is a cache that always holds as much.
type fixed int64

func (f fixed) Held() int64                          { return int64(f) }
func (f fixed) Relieve(context.Context, int64) int64 { return 0 }

// run is a run of a guest that computed while it did not wait.
func run(took, waited time.Duration) schedule.Run {
	return schedule.Run{Took: took, Waited: waited, Computed: max(0, took-waited)}
}
