package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// journal is what the hosts' logs tell of runs, and the test of faults. Redis has no part in it.
type journal struct {
	mu     sync.Mutex
	tasks  map[string][]*execution // their runs by their IDs; guarded by mu
	faults []happened              // guarded by mu
	wrong  []string                // what can not be; guarded by mu
	again  bool                    // IDs and the numbers of runs come again: Redis has forgotten some
	// returned counts tasks that were given back before they began; guarded by mu.
	returned int
}

// execution is one run of a task by one process.
type execution struct {
	process *process
	run     int64
	release int // of its plugin; 0 for none
	started time.Time
	ended   time.Time // when it was settled; zero if nobody has heard of an end
	took    time.Duration
	outcome string
}

// happened is a fault and when it was.
type happened struct {
	fault
	began, healed time.Time
}

func newJournal() *journal { return &journal{tasks: make(map[string][]*execution)} }

func (j *journal) started(p *process, line logLine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.again && j.find(line.TaskID, line.Run) != nil {
		j.wrong = append(j.wrong, fmt.Sprintf("task %s: run %d began twice", line.TaskID, line.Run))
	}
	j.tasks[line.TaskID] = append(j.tasks[line.TaskID], &execution{process: p, run: line.Run, release: line.Release, started: line.Time})
}

func (j *journal) ended(line logLine, p *process) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.find(line.TaskID, line.Run)
	if j.again { // the first one that began, for a process runs one after the other
		i := slices.IndexFunc(j.tasks[line.TaskID], func(one *execution) bool {
			return one.process == p && one.run == line.Run && one.outcome == ""
		})
		if e = nil; i >= 0 {
			e = j.tasks[line.TaskID][i]
		}
	}
	if e == nil && line.Outcome == "released" {
		j.returned++
		return
	}
	if e == nil || e.process != p || e.outcome != "" {
		j.wrong = append(j.wrong, fmt.Sprintf("task %s: run %d ended as %s without having begun", line.TaskID, line.Run, line.Outcome))
		return
	}
	e.ended, e.outcome, e.took = line.Time, line.Outcome, time.Duration(line.Took*float64(time.Second))
}

func (j *journal) find(id string, run int64) *execution {
	for _, e := range j.tasks[id] {
		if e.run == run {
			return e
		}
	}
	return nil
}

// twice are the runs of a task that began in a process before the one before them was over there.
func (j *journal) twice() (wrong []string) {
	const logged = 50 * time.Millisecond // by how much lines of the log may be late
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, runs := range j.tasks {
		last := make(map[*process]*execution)
		for _, e := range runs { // in the order in which they began, in each process
			before := last[e.process]
			if before != nil && before.outcome != "" && e.started.Add(logged).Before(before.started.Add(before.took)) {
				wrong = append(wrong, fmt.Sprintf("task %s: %s began while %s went on for %s", id, e, before, before.took))
			}
			last[e.process] = e
		}
	}
	return wrong
}

// count is how many runs have begun.
func (j *journal) count() (runs int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, all := range j.tasks {
		runs += len(all)
	}
	return runs
}

func (j *journal) happened(h happened) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults = append(j.faults, h)
}

// of are the runs of a task, in their order.
func (j *journal) of(id string) []execution {
	j.mu.Lock()
	defer j.mu.Unlock()
	var runs []execution
	for _, e := range j.tasks[id] {
		runs = append(runs, *e)
	}
	slices.SortFunc(runs, func(a, b execution) int { return cmp.Compare(a.run, b.run) })
	return runs
}

// latest is the last run of a task that has begun.
func (j *journal) latest(id string) (execution, bool) {
	runs := j.of(id)
	if len(runs) == 0 {
		return execution{}, false
	}
	return runs[len(runs)-1], true
}

// running tells whether a process runs a task whose ID begins so.
func (j *journal) running(p *process, prefix string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, runs := range j.tasks {
		for _, e := range runs {
			if e.process == p && e.outcome == "" && strings.HasPrefix(id, prefix) {
				return true
			}
		}
	}
	return false
}

// cause is the kind of fault that explains why a run was not the task's last one; "" if none does. Only
// what hit the run's own host can: an outage of Redis hits all hosts alike, and costs no lease. The
// aftermath of a fault is as long as it takes a host to notice that its lease is lost.
func (j *journal) cause(e, next execution, aftermath time.Duration) kind {
	j.mu.Lock()
	defer j.mu.Unlock()
	end := e.ended
	if end.IsZero() {
		end = next.started
	}
	var found happened
	for _, h := range j.faults {
		concerns := h.victim == e.process.host.name
		overlaps := h.began.Before(end) && h.healed.Add(aftermath).After(e.started)
		if concerns && overlaps && e.mayEndBy(h.kind) && h.began.After(found.began) {
			found = h
		}
	}
	return found.kind
}

// mayEndBy tells whether a fault of that kind may have ended the run as it ended: only who ends in good
// order gives a task back, and only who is killed, then or before it has noticed what it lost, says
// nothing of it.
func (e execution) mayEndBy(k kind) bool {
	switch e.outcome {
	case "":
		return e.process.killed()
	case "released":
		return k == restarted
	}
	return k != killed
}

func (e execution) String() string {
	end := "no end"
	if !e.ended.IsZero() {
		end = e.outcome + " " + e.ended.Format(time.StampMilli)
	}
	return fmt.Sprintf("run %d on %s (process %d): %s to %s", e.run, e.process.host.name, e.process.pid, e.started.Format(time.StampMilli), end)
}
