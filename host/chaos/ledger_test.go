package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// keptRuns is how many runs before the last Redis keeps of a task.
const keptRuns = 20

// ledger is what became of the tasks, read from Redis and held against the journal.
type ledger struct {
	fleet  *fleet
	ctx    context.Context
	orders map[string]order
	wrong  []string // what breaks the promise

	ended    map[queue.Status]int
	reasons  map[string]int
	crashes  int          // runs that a reclaim has counted as crashed
	runs     int          // that have begun
	retried  int          // those after which the task ran again by its own policy
	repeated map[kind]int // those after which it did by a fault
	idle     int          // reserved, and given back or lost before they began
}

// settled waits until so many tasks are finished, of the plugin's queues and these.
func (f *fleet) settled(count int, more ...string) {
	f.t.Helper()
	names := slices.Concat(queues, more)
	ctx, cancel := context.WithTimeout(f.ctx, f.patience/3) // an audit tells more than a time-out
	defer cancel()
	var last []manage.Stats
	done := until(ctx, func() bool {
		stats, err := manage.New(f.client).Stats(ctx, names...)
		if err != nil {
			return false
		}
		last = stats
		finished := int64(0)
		for _, s := range stats {
			finished += s.Depth[queue.Complete] + s.Depth[queue.Failed]
		}
		return finished >= int64(count)
	})
	if !done {
		for i, s := range last {
			f.t.Logf("%s: %v", names[i], s.Depth)
		}
		f.t.Error("not all tasks were settled")
	}
}

// audit reads the books, and holds each task's runs against them. It may be called when all is settled and the hosts still live.
func (f *fleet) audit(orders []order) *ledger {
	f.t.Helper()
	l := f.books(orders)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l.ctx = ctx
	l.tasks()
	return l
}

// books tells of what is left and of what is not finished, or more than once.
func (f *fleet) books(orders []order) *ledger {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := &ledger{
		fleet: f, ctx: ctx, orders: make(map[string]order), ended: make(map[queue.Status]int),
		reasons: make(map[string]int), repeated: make(map[kind]int),
	}
	for _, o := range orders {
		l.orders[o.id] = o
	}
	l.wrong = f.strangers(ctx)
	l.nothingLeft()
	l.lists()
	for _, h := range f.hosts {
		h.mu.Lock()
		for _, p := range h.all {
			if err := p.check(); err != nil {
				l.blame("%s: %v", h.name, err)
			}
		}
		h.mu.Unlock()
	}
	f.journal.mu.Lock()
	l.wrong = append(l.wrong, f.journal.wrong...)
	f.journal.mu.Unlock()
	return l
}

func (l *ledger) blame(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// key is a key of the tenant.
func key(parts ...string) string { return tenant + "_" + strings.Join(parts, "_") }

// complain fails the test with what is wrong, as far as anybody would read it.
func (l *ledger) complain() {
	l.fleet.t.Helper()
	const most = 30
	for _, text := range l.wrong[:min(most, len(l.wrong))] {
		l.fleet.t.Error(text)
	}
	if more := len(l.wrong) - most; more > 0 {
		l.fleet.t.Errorf("... and %d more", more)
	}
}

// read is an answer of Redis; without it there is nothing to audit.
func (l *ledger) read(cmd *redis.StringSliceCmd) []string {
	l.fleet.t.Helper()
	found, err := cmd.Result()
	if err != nil {
		l.fleet.t.Fatalf("read the books: %v", err)
	}
	return found
}

// strangers compares what Redis knows of listeners with the processes that live, until they agree: the dead ones go when their
// lease has ended.
func (f *fleet) strangers(ctx context.Context) (differences []string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // what registers after it was taken for dead is found in one
	defer cancel()
	until(ctx, func() bool {
		var live, delivering []string
		for _, h := range f.hosts {
			id, webhooks := h.process().ids()
			live = append(live, id)
			if webhooks != "" {
				delivering = append(delivering, webhooks)
			}
		}
		differences = nil
		compare := func(what string, found, want []string, err error) {
			slices.Sort(found)
			if slices.Sort(want); err != nil || !slices.Equal(found, want) {
				differences = append(differences, fmt.Sprintf("%s: %v, want %v (%v)", what, found, want, err))
			}
		}
		nodes, err := f.rdb.ZRange(ctx, key("nodes"), 0, -1).Result()
		compare("nodes", nodes, slices.Concat(live, delivering), err)
		served := map[string][]string{hooking: delivering}
		for _, name := range queues {
			served[name] = live
		}
		for name, want := range served {
			listeners, err := f.rdb.SMembers(ctx, key("listeners", name)).Result()
			compare("listeners of "+name, listeners, slices.Clone(want), err)
			count, err := f.rdb.ZScore(ctx, key("queues"), name).Result()
			if err != nil && len(want) > 0 || int(count) != len(want) {
				differences = append(differences, fmt.Sprintf("%s counts %v listeners, want %d (%v)", name, count, len(want), err))
			}
		}
		return len(differences) == 0
	})
	return differences
}

// nothingLeft: no task is held, waits, or is due.
func (l *ledger) nothingLeft() {
	f := l.fleet
	for _, state := range []string{"pending", "reserved", "started", "scheduled"} {
		found := l.read(f.rdb.Keys(l.ctx, key(state, "tasks", "*")))
		if len(found) > 0 {
			l.blame("keys are left: %v", found)
		}
	}
	if found := append(l.read(f.rdb.Keys(l.ctx, key("blocked", "*"))), l.read(f.rdb.ZRange(l.ctx, key("ended"), 0, -1))...); len(found) > 0 {
		l.blame("tasks wait for ever, or ends are not told: %v", found)
	}
}

// lists: every task is in one list of what is finished, once.
func (l *ledger) lists() {
	f := l.fleet
	seen := make(map[string]int)
	for _, name := range append(slices.Clone(queues), laned) {
		for _, status := range []queue.Status{queue.Complete, queue.Failed} {
			for _, id := range l.read(f.rdb.LRange(l.ctx, key(string(status), "tasks", name), 0, -1)) {
				seen[id]++
				switch o, known := l.orders[id]; {
				case !known:
					l.blame("task %s is %s, but nobody ordered it", id, status)
				case o.queue != name:
					l.blame("task %s of %s is in a list of %s", id, o.queue, name)
				case manners[o.manner].status != status:
					l.blame("task %s (%s) is in the list of what is %s", id, o.manner, status)
				}
			}
		}
	}
	for id := range l.orders {
		if seen[id] != 1 {
			l.blame("task %s is in %d lists of finished tasks, want 1", id, seen[id])
		}
	}
}

// tasks holds each hash against its order and against the journal.
func (l *ledger) tasks() {
	f := l.fleet
	for part := range slices.Chunk(slices.Sorted(maps.Keys(l.orders)), 1000) {
		hashes := make([]*redis.MapStringStringCmd, len(part))
		pipe := f.rdb.Pipeline()
		for i, id := range part {
			hashes[i] = pipe.HGetAll(l.ctx, key("task", id))
		}
		if _, err := pipe.Exec(l.ctx); err != nil {
			f.t.Fatalf("read the books: %v", err)
		}
		for i, id := range part {
			known := len(l.wrong)
			l.task(l.orders[id], hashes[i].Val())
			if run := hashes[i].Val()["run"]; run != "1" && run != "0" && l.orders[id].manner != cancelled {
				l.history(id)
			}
			if len(l.wrong) > known {
				l.blame("task %s: %v; %v", id, f.journal.of(id), hashes[i].Val())
			}
		}
	}
}

func (l *ledger) task(o order, hash map[string]string) {
	want := manners[o.manner]
	l.ended[queue.Status(hash["status"])]++
	if hash["reason"] != "" {
		l.reasons[hash["reason"]]++
	}
	attempts, err := strconv.Atoi(hash["attempts"])
	if run, _ := strconv.Atoi(hash["run"]); err != nil && run > 0 && hash["status"] == string(queue.Complete) {
		attempts = 1
	}
	reschedules, _ := strconv.Atoi(hash["reschedules"])
	crashes, _ := strconv.Atoi(hash["crashes"])
	l.crashes += crashes
	switch {
	case hash["status"] != string(want.status):
		l.blame("task %s (%s) is %q, want %s", o.id, o.manner, hash["status"], want.status)
	case o.manner == cancelled: // what waits for one that is cancelled may have failed for that, if the call was cut in the middle
		if reason := queue.Reason(hash["reason"]); reason != queue.ReasonCancelled && (len(o.after) == 0 || reason != queue.ReasonDependency) {
			l.blame("task %s was to be cancelled, and failed as %s", o.id, reason)
		}
		if runs := l.fleet.journal.of(o.id); len(o.after) > 0 && len(runs) > 0 {
			l.blame("task %s was to be cancelled before it ran: %v", o.id, runs)
		}
		return
	case want.status == queue.Complete && hash["result"] != o.id && o.manner != skipped:
		l.blame("task %s has the result %q of another", o.id, hash["result"])
	case attempts != want.attempts || reschedules != want.reschedules:
		l.blame("task %s (%s) counts %d attempts and %d reschedules, want %d and %d", o.id, o.manner, attempts, reschedules, want.attempts, want.reschedules)
	}
	if o.manner == unmet || o.manner == skipped {
		if runs := l.fleet.journal.of(o.id); len(runs) > 0 || hash["run"] != "0" || o.manner == unmet && hash["reason"] != string(queue.ReasonDependency) {
			l.blame("task %s (%s) is %v, after %v", o.id, o.manner, hash, runs)
		}
		return
	}
	if _, run, _ := strings.Cut(hash["settled"], " "); hash["status"] == string(queue.Failed) && hash["settled"] != hash["run"] && run != hash["run"]+"@"+hash["created"] {
		l.blame("task %s was settled as %q, but was created at %s and had %s runs", o.id, hash["settled"], hash["created"], hash["run"])
	}
	l.ran(o, hash)
}

// ran explains each run but the last.
func (l *ledger) ran(o order, hash map[string]string) {
	runs := l.fleet.journal.of(o.id)
	reserved, _ := strconv.Atoi(hash["run"])
	l.runs += len(runs)
	l.idle += reserved - len(runs)
	if len(runs) == 0 || runs[len(runs)-1].run > int64(reserved) {
		l.blame("task %s: its hash says %d runs, the logs something else", o.id, reserved)
		return
	}
	settled := 0
	for i, e := range runs {
		if e.outcome == "complete" || e.outcome == "failed" {
			settled++
		}
		if i == len(runs)-1 {
			break
		}
		switch e.outcome {
		case "complete", "failed":
			l.blame("task %s: run %d %s, and run %d began", o.id, e.run, e.outcome, runs[i+1].run)
		case "retried", "rescheduled", "rejected":
			l.retried++
		default:
			// A host that hears nothing gives up its sockets after 5 s, and its session a lease later.
			cause := l.fleet.journal.cause(e, runs[i+1], 2*l.fleet.lease+5*time.Second)
			if cause == "" {
				l.blame("task %s: nothing hit run %d, and run %d began", o.id, e.run, runs[i+1].run)
			}
			l.repeated[cause]++
		}
	}
	if settled > 1 {
		l.blame("task %s was settled %d times", o.id, settled)
	}
}

// history: what Redis keeps of a task's runs agrees with what it counts.
func (l *ledger) history(id string) {
	task, err := l.fleet.client.Task(l.ctx, id)
	if err != nil {
		l.blame("task %s: %v", id, err)
		return
	}
	kept, err := manage.New(l.fleet.client).History(l.ctx, task)
	if err != nil {
		l.blame("task %s: %v", id, err)
		return
	}
	outcomes := make(map[string]int)
	for _, attempt := range kept {
		outcomes[attempt.Outcome]++
	}
	retried, put, crashed := outcomes["retry"], outcomes["reschedule"], outcomes["crashed"]
	if retried+put+crashed < keptRuns && (retried != task.Attempts-1 || put != task.Reschedules || crashed != task.Crashes) {
		l.blame("task %s: it counts %d attempts, %d reschedules and %d crashes, its history %v",
			id, task.Attempts, task.Reschedules, task.Crashes, outcomes)
	}
}

// report is for people.
func (l *ledger) report(seed uint64, p *producers, took time.Duration) string {
	var text strings.Builder
	faults := make(map[kind]int)
	for _, h := range l.fleet.journal.faults {
		faults[h.kind]++
	}
	repeated := 0
	for _, n := range l.repeated {
		repeated += n
	}
	fmt.Fprintf(&text, "seed      %d, %s\n", seed, took.Round(100*time.Millisecond))
	fmt.Fprintf(&text, "tasks     %d: %d complete, %d failed %v\n", len(l.orders), l.ended[queue.Complete], l.ended[queue.Failed], l.reasons)
	fmt.Fprintf(&text, "enqueued  with %d calls repeated, of which %d had been done\n", p.repeats.Load(), p.done.Load())
	fmt.Fprintf(&text, "runs      %d: %d after a retry by policy, %d after a fault; %d more were reserved and never began\n",
		l.runs, l.retried, repeated, l.idle)
	fmt.Fprintf(&text, "reclaimed %d that ran\n", l.crashes)
	for _, k := range slices.Concat(hostFaults, redisFaults, []kind{clockSet}, databaseFaults) {
		fmt.Fprintf(&text, "  %-24s %3d times, %4d tasks ran again\n", k, faults[k], l.repeated[k])
	}
	return text.String()
}
