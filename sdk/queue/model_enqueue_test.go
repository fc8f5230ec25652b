package queue_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// newborn is a task that is about to be enqueued.
type newborn struct {
	id   string
	task *modelTask
}

// bearAll enqueues tasks together. Those without options of their own come into the list last.
func (m *model) bearAll(born []newborn) {
	for _, n := range born {
		if n.task.priority != queue.DefaultPriority || n.task.phase != "" {
			m.bear(n, m.now)
		} else {
			m.tasks[n.id] = n.task
		}
	}
	for _, n := range born {
		if n.task.status == "" {
			m.bear(n, m.now)
		}
	}
}

// bear enqueues a task that is due at a moment.
func (m *model) bear(n newborn, due int) {
	m.tasks[n.id] = n.task
	m.totals["enqueued"]++
	n.task.eta = due
	if n.task.phase != "" {
		m.block(n.id, n.task)
		return
	}
	n.task.bornAt(due)
	if due > m.now {
		n.task.status, m.scheduled[n.id] = queue.Scheduled, due
		return
	}
	n.task.status, m.pending[n.task.priority] = queue.Pending, append(m.pending[n.task.priority], n.id)
}

func (t *modelTask) bornAt(moment int) {
	if t.maxAge > 0 {
		t.expires = moment + t.maxAge
	}
}

// children draws what a task has enqueued, whatever becomes of it.
func (m *model) children(r *rapid.T, s *listen.Settlement) (born []newborn) {
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(r, "children") {
		task, options := m.newTask(r)
		s.Children = append(s.Children, listen.Child{Queue: "q", Spec: queue.Spec{Options: options}})
		born = append(born, newborn{options.ID, task})
	}
	return born
}

// newTask draws a task and says what its producer asks for.
func (m *model) newTask(r *rapid.T) (*modelTask, queue.Options) {
	task := &modelTask{priority: rapid.SampledFrom(append(priorities, queue.DefaultPriority, queue.DefaultPriority)).Draw(r, "priority")}
	options := queue.Options{Priority: &task.priority}
	if rapid.IntRange(0, 3).Draw(r, "expires") == 0 {
		task.maxAge = rapid.IntRange(1, 20).Draw(r, "max age")
		options.Retry.MaxAge = time.Duration(task.maxAge) * time.Second
	}
	if may := m.awaitable(); len(may) > 0 && rapid.IntRange(0, 2).Draw(r, "waits") == 0 {
		task.phase, task.ends = "blocked", make(map[string]string)
		if options.Open = rapid.IntRange(0, 3).Draw(r, "open") == 0; options.Open {
			task.phase = "open"
		}
		task.when = rapid.SampledFrom(queue.Whens).Draw(r, "when")
		for range rapid.IntRange(1, 3).Draw(r, "dependencies") {
			if id := rapid.SampledFrom(may).Draw(r, "dependency"); !slices.Contains(task.deps, id) {
				task.deps = append(task.deps, id)
			}
		}
		options.After, options.When = task.deps, task.when
	}
	m.made++
	options.ID = fmt.Sprintf("task%03d", m.made)
	return task, options
}

// enqueue makes up to three tasks, of which some may exist already.
func (m *model) enqueue(r *rapid.T) {
	var specs []queue.Spec
	var existed []bool
	var born []newborn
	for range rapid.IntRange(1, 3).Draw(r, "tasks") {
		if len(m.tasks) > 0 && rapid.IntRange(0, 4).Draw(r, "again") == 0 {
			id, _ := m.some(r, func(*modelTask) bool { return true })
			if queue.ReservedID.MatchString(id) { // see TestReserved
				continue
			}
			specs, existed = append(specs, queue.Spec{Options: queue.Options{ID: id}}), append(existed, true)
			continue
		}
		task, options := m.newTask(r)
		m.deleted = slices.DeleteFunc(m.deleted, queue.ReservedID.MatchString)
		if len(m.deleted) > 0 && rapid.Bool().Draw(r, "the ID of a deleted task") {
			options.ID, m.deleted = m.deleted[0], m.deleted[1:]
			m.advance(r, 1)
		}
		born = append(born, newborn{options.ID, task})
		specs, existed = append(specs, queue.Spec{Options: options}), append(existed, false)
	}
	m.bearAll(born) // all of them now, though time may have passed meanwhile
	receipts, err := m.queue(r).EnqueueMany(m.w.ctx, specs)
	if err != nil {
		r.Fatal(err)
	}
	for i, receipt := range receipts {
		if receipt.Existed != existed[i] {
			r.Fatalf("%+v, existed %v", receipt, existed[i])
		}
	}
}

func (m *model) schedule(r *rapid.T) {
	task, options := m.newTask(r)
	delay := rapid.IntRange(1, 10).Draw(r, "delay")
	options.Delay = time.Duration(delay) * time.Second
	if _, err := m.queue(r).Enqueue(m.w.ctx, nil, options); err != nil {
		r.Fatal(err)
	}
	m.bear(newborn{options.ID, task}, m.now+delay)
}

// tick ends a tick of a schedule. Another host that read the schedule before, too, is late.
func (m *model) tick(r *rapid.T) {
	if m.tickID == "" || m.ticked == m.now {
		m.advance(r, 1)
	}
	client, other := rapid.SampledFrom(m.clients).Draw(r, "client"), rapid.SampledFrom(m.clients).Draw(r, "other")
	definition := queue.Schedule{ID: "s", Queue: "q", Cron: "* * * * * *", Overlap: queue.OverlapSkip, Parameters: []byte(rapid.SampledFrom([]string{"a", "b"}).Draw(r, "parameters"))}
	if _, err := client.PutSchedule(m.w.ctx, definition, rapid.Bool().Draw(r, "only if it is missing")); err != nil {
		r.Fatal(err)
	}
	read := func(c *queue.Client) *queue.Schedule {
		s, err := c.Schedule(m.w.ctx, "s")
		if err != nil {
			r.Fatal(err)
		}
		return s
	}
	late := read(other)
	fire := time.Unix(int64(1700000000+m.now), 0)
	end, err := listen.NewFleet(client).Tick(m.w.ctx, read(client), fire, listen.PassedTicks{}, fire.Add(time.Second))
	want := listen.TickFired
	if last := m.tasks[m.tickID]; last != nil && !last.status.Finished() {
		want = listen.TickSkipped
	} else {
		m.tickID = listen.TickID("s", fire)
		m.bear(newborn{m.tickID, &modelTask{priority: queue.DefaultPriority}}, m.now)
	}
	m.ticked = m.now
	if err != nil || end != want {
		r.Fatalf("tick: %s, %v, want %s", end, err, want)
	}
	if end, err := listen.NewFleet(other).Tick(m.w.ctx, late, fire, listen.PassedTicks{}, fire.Add(time.Second)); err != nil || end != listen.TickChanged {
		r.Fatalf("the same tick of another host: %s, %v", end, err)
	}
}
