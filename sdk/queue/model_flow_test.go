package queue_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// The part of the model that knows tasks which wait for others.

// note keeps that what waits for a task is to be told of it.
func (m *model) note(id string, code int) {
	if m.tasks[id].awaited {
		m.ended[id] = code
	}
}

// blocked lists the tasks that wait for others.
func (m *model) blocked() (ids []string) {
	for id, task := range m.tasks {
		if (task.phase == "blocked" || task.phase == "open") && task.status == queue.Scheduled {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// awaitable lists the tasks for which others may wait.
func (m *model) awaitable() (ids []string) {
	for id, task := range m.tasks {
		if task.phase != "open" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// block makes a new task wait for its dependencies, of which those count that have ended.
func (m *model) block(id string, task *modelTask) {
	task.status = queue.Scheduled
	m.depend(id, task, task.deps)
	m.resolve(id, task)
}

func (m *model) depend(id string, task *modelTask, deps []string) {
	for _, dep := range deps {
		m.waiting[dep] = append(m.waiting[dep], id)
		if other := m.tasks[dep]; other.status.Finished() {
			task.ends[dep] = string(other.status)
		} else {
			other.awaited = true
		}
	}
}

// await adds dependencies to an open task, of which it may have some; not if it has been cancelled.
func (m *model) await(r *rapid.T) {
	id, task := m.some(r, func(t *modelTask) bool { return t.phase == "open" })
	may := m.awaitable()
	if len(may) == 0 {
		r.Skip("nothing may be waited for")
	}
	named := rapid.SliceOfNDistinct(rapid.SampledFrom(may), 1, min(3, len(may)), rapid.ID).Draw(r, "dependencies")
	fresh := slices.DeleteFunc(slices.Clone(named), func(dep string) bool { return slices.Contains(task.deps, dep) })
	err := m.queue(r).Await(m.w.ctx, id, named...)
	switch {
	case task.status != queue.Scheduled && len(fresh) > 0:
		if !errors.Is(err, queue.ErrStatus) {
			r.Fatalf("what is %s awaits %v: %v", task.status, fresh, err)
		}
	case err != nil:
		r.Fatal(err)
	case task.status == queue.Scheduled:
		task.deps = append(task.deps, fresh...)
		m.depend(id, task, fresh)
	}
}

// close ends the dependencies of an open task; of one that has been cancelled it changes nothing.
func (m *model) close(r *rapid.T) {
	id, task := m.some(r, func(t *modelTask) bool { return t.phase == "open" })
	if err := m.queue(r).Close(m.w.ctx, id); err != nil {
		r.Fatal(err)
	}
	if task.status == queue.Scheduled {
		task.phase = "blocked"
		m.resolve(id, task)
	}
}

func (t *modelTask) failures() (n int) {
	for _, end := range t.ends {
		if end != "complete" {
			n++
		}
	}
	return n
}

// decide is what becomes of a task that waits for others.
func (t *modelTask) decide() string {
	if t.phase == "open" {
		return "wait"
	}
	failures := t.failures()
	all, some := len(t.ends) == len(t.deps), len(t.ends) > failures
	switch {
	case t.when == queue.WhenComplete && failures > 0, t.when == queue.WhenAny && all && !some:
		return "fail"
	case t.when == queue.WhenFailed && all && failures == 0:
		return "skip"
	case t.when == queue.WhenFailed && failures > 0, t.when == queue.WhenAny && some, (t.when == queue.WhenComplete || t.when == queue.WhenEnded) && all:
		return "run"
	}
	return "wait"
}

func (m *model) resolve(id string, task *modelTask) {
	switch task.decide() {
	case "fail":
		m.fail(id, queue.ReasonDependency)
	case "skip":
		task.status, m.complete = queue.Complete, append(m.complete, id)
		m.totals["complete"]++
		m.note(id, 2)
	case "run":
		if len(task.deps) == 1 && task.ends[task.deps[0]] == "complete" {
			if other := m.tasks[task.deps[0]]; other == nil || other.status != queue.Complete { // its result was to be the parameters
				m.fail(id, queue.ReasonDependency)
				return
			}
		}
		task.phase = "released"
		task.bornAt(max(m.now, task.eta))
		if task.eta > m.now {
			m.scheduled[id] = task.eta
		} else {
			m.back(id, 0, false)
		}
	}
}

// lookAgain looks at what a task waited for, and that did not end well.
func (m *model) lookAgain(id string, task *modelTask) {
	for _, dep := range task.deps {
		if is := task.ends[dep]; is == "" || is == "complete" {
			continue
		}
		switch other := m.tasks[dep]; {
		case other == nil:
			task.ends[dep] = "gone"
		case other.status.Finished():
			task.ends[dep] = string(other.status)
		default:
			delete(task.ends, dep)
			m.waiting[dep], other.awaited = append(m.waiting[dep], id), true
		}
	}
}

// tell tells a task how one ended that it waits for; "": it is to end again.
func (m *model) tell(id, dep, end string) {
	task := m.tasks[id]
	if task == nil || !slices.Contains(task.deps, dep) || task.ends[dep] == end {
		return
	}
	if task.ends[dep] = end; end == "" {
		delete(task.ends, dep)
	}
	switch {
	case task.phase == "released":
	case task.status == queue.Scheduled:
		m.resolve(id, task)
	case task.status == queue.Failed && task.reason == queue.ReasonDependency && task.decide() != "fail":
		m.failed = slices.DeleteFunc(m.failed, func(other string) bool { return other == id })
		task.status, task.expires = queue.Scheduled, 0
		m.note(id, 3)
		m.resolve(id, task)
	}
}

// advance tells all that is to be told: what is to be looked at first, then what is complete, then what failed.
func (m *model) advanceModel() {
	for len(m.ended) > 0 {
		var first string
		for id, code := range m.ended {
			if first == "" || cmp.Or(m.ended[first]-code, strings.Compare(id, first)) < 0 {
				first = id
			}
		}
		end := map[int]string{1: "failed", 2: "complete"}[m.ended[first]]
		if task := m.tasks[first]; m.ended[first] == 3 {
			if task == nil {
				end = "gone"
			} else if task.status.Finished() {
				end = string(task.status)
			}
		}
		delete(m.ended, first)
		for _, id := range slices.Clone(m.waiting[first]) {
			m.tell(id, first, end)
		}
		if m.tasks[first] == nil {
			delete(m.waiting, first)
		}
	}
}

// advanceAll tells what is to be told.
func (m *model) advanceAll(r *rapid.T) {
	if err := advance(m.w.ctx, rapid.SampledFrom(m.clients).Draw(r, "client")); err != nil {
		r.Fatal(err)
	}
	m.advanceModel()
}

// recheck finds nothing that nobody was told.
func (m *model) recheck(r *rapid.T) {
	m.advanceAll(r)
	m.advance(r, int(listen.RecheckAge.Seconds())+1)
	if _, err := listen.NewFleet(m.w.Client).Recheck(m.w.ctx, m.queue(r).Name()); err != nil {
		r.Fatal(err)
	}
}

// after is the field of that name.
func (t *modelTask) after() string {
	if t.phase == "" {
		return ""
	}
	return fmt.Sprintf("%s %s %d %d %d", t.phase, t.when, len(t.deps), len(t.ends), t.failures())
}
