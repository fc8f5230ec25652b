package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// model is a queue of two nodes as it ought to be. Random transitions are done to it and to Redis
// alike; after each the two must agree: every live task is in exactly one place, its hash says so,
// and nothing is lost or doubled.
type model struct {
	w     *world
	nodes [2]*Node
	now   int // seconds after the epoch of the model

	tasks     map[string]*modelTask
	pending   []string // next to run first
	scheduled map[string]int
	reserved  [2][]string // oldest first
	complete  []string    // oldest first
	failed    []string
	made      int
	deleted   []string
	totals    map[string]int64
}

type modelTask struct {
	status   Status
	run      int64
	node     int // which node holds it, or held it when it finished; -1: none
	attempts int
}

func newModel(t *testing.T, shared *world) *model {
	client := must[*Client](t)(NewFromRedis(shared.rdb, Config{Tenant: queuetest.Tenant()}))
	w := &world{Client: client, rdb: shared.rdb, ctx: t.Context()}
	m := &model{w: w, tasks: make(map[string]*modelTask), scheduled: make(map[string]int), totals: make(map[string]int64)}
	m.clock()
	for i := range m.nodes {
		m.nodes[i] = w.node(t, "q")
	}
	return m
}

func (m *model) clock() { m.w.Client.clock = fmt.Sprintf("%d.000000", 1700000000+m.now) }

func TestNothingIsLostOrDoubled(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		most, runs, failing := 100, 0, false
		if strings.HasSuffix(t.Name(), "miniredis") {
			most = 8 // it compiles each script each time
		}
		rapid.Check(t, func(r *rapid.T) {
			if runs++; runs > most && !failing {
				return
			}
			failing = true // until it is known better: what fails is run again, to be made smaller
			m := newModel(t, w)
			r.Repeat(map[string]func(*rapid.T){
				"":         m.check,
				"enqueue":  m.enqueue,
				"schedule": m.schedule,
				"due":      m.due,
				"reserve":  m.reserve,
				"adopt":    m.adopt,
				"start":    m.start,
				"settle":   m.settle,
				"stale":    m.stale,
				"release":  m.release,
				"cancel":   m.cancel,
				"delete":   m.delete,
			})
			failing = false
		})
	})
}

// some draws an ID that satisfies the condition, or gives the action up.
func (m *model) some(r *rapid.T, which func(*modelTask) bool) (string, *modelTask) {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(m.tasks)) {
		if which(m.tasks[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		r.Skip("there is none")
	}
	id := rapid.SampledFrom(ids).Draw(r, "id")
	return id, m.tasks[id]
}

func (t *modelTask) held() bool { return t.status == Reserved || t.status == Started }

func (m *model) newID() string {
	m.made++
	return fmt.Sprintf("task%03d", m.made)
}

// enqueue makes up to three tasks, of which some may exist already.
func (m *model) enqueue(r *rapid.T) {
	var specs []Spec
	var existed []bool
	for range rapid.IntRange(1, 3).Draw(r, "tasks") {
		if len(m.tasks) > 0 && rapid.IntRange(0, 4).Draw(r, "again") == 0 {
			id, _ := m.some(r, func(*modelTask) bool { return true })
			specs, existed = append(specs, Spec{Options: Options{ID: id}}), append(existed, true)
			continue
		}
		id := m.newID()
		if len(m.deleted) > 0 && rapid.Bool().Draw(r, "the ID of a deleted task") {
			id, m.deleted = m.deleted[0], m.deleted[1:]
		}
		m.tasks[id] = &modelTask{status: Pending, node: -1}
		m.pending = append(m.pending, id)
		m.totals["enqueued"]++
		specs, existed = append(specs, Spec{Options: Options{ID: id}}), append(existed, false)
	}
	receipts, err := m.w.Queue("q").EnqueueMany(m.w.ctx, specs)
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
	id, delay := m.newID(), rapid.IntRange(1, 10).Draw(r, "delay")
	if _, err := m.w.Queue("q").Enqueue(m.w.ctx, nil, Options{ID: id, Delay: time.Duration(delay) * time.Second}); err != nil {
		r.Fatal(err)
	}
	m.tasks[id] = &modelTask{status: Scheduled, node: -1}
	m.scheduled[id] = m.now + delay
	m.totals["enqueued"]++
}

// due lets time pass and moves what is due.
func (m *model) due(r *rapid.T) {
	m.now += rapid.IntRange(0, 8).Draw(r, "seconds")
	m.clock()
	var due []string
	for id, eta := range m.scheduled {
		if eta <= m.now {
			due = append(due, id)
		}
	}
	slices.SortFunc(due, func(a, b string) int {
		if m.scheduled[a] != m.scheduled[b] {
			return m.scheduled[a] - m.scheduled[b]
		}
		return strings.Compare(a, b) // as Redis orders a sorted set
	})
	for _, id := range due {
		delete(m.scheduled, id)
		m.tasks[id].status = Pending
		m.pending = append(m.pending, id)
	}
	n, err := m.w.Queue("q").EnqueueDue(m.w.ctx)
	if err != nil || n != len(due) {
		r.Fatalf("moved %d, %v, want %v", n, err, due)
	}
}

func (m *model) reserve(r *rapid.T) {
	node, count := rapid.IntRange(0, 1).Draw(r, "node"), rapid.IntRange(1, 4).Draw(r, "count")
	start := rapid.Bool().Draw(r, "start")
	batch := m.nodes[node].Reserve(m.w.ctx, []Want{{Queue: "q", Count: count, Start: start}})[0]
	taken := m.pending[:min(count, len(m.pending))]
	if batch.Err != nil || len(batch.Tasks) != len(taken) || batch.Dropped != 0 {
		r.Fatalf("reserved %+v, want %v", batch, taken)
	}
	for i, id := range taken {
		task := m.tasks[id]
		task.run++
		task.node, task.status = node, Reserved
		if start {
			task.status = Started
		}
		if got := batch.Tasks[i]; got.ID != id || got.Run != task.run || got.Attempts != task.attempts {
			r.Fatalf("reserved %+v, want %s, run %d", got, id, task.run)
		}
	}
	m.reserved[node] = append(m.reserved[node], taken...)
	m.pending = slices.Clone(m.pending[len(taken):])
}

// adopt asks again for what a node holds, as after a lost reply; it changes nothing.
func (m *model) adopt(r *rapid.T) {
	node := rapid.IntRange(0, 1).Draw(r, "node")
	ids, err := m.nodes[node].Held(m.w.ctx, "q")
	if err != nil {
		r.Fatal(err)
	}
	batch := m.nodes[node].Adopt(m.w.ctx, Want{Queue: "q"}, ids)
	if batch.Err != nil || len(batch.Tasks) != len(m.reserved[node]) || batch.Dropped != 0 {
		r.Fatalf("adopted %+v, want %v", batch, m.reserved[node])
	}
}

func (m *model) start(r *rapid.T) {
	id, task := m.some(r, func(task *modelTask) bool { return task.status == Reserved })
	if err := m.nodes[task.node].Start(m.w.ctx, "q", Hold{ID: id, Run: task.run}); err != nil {
		r.Fatal(err)
	}
	task.status = Started
}

// settle completes or fails what is held; or says again what was said, and nothing changes.
func (m *model) settle(r *rapid.T) {
	id, task := m.some(r, func(task *modelTask) bool { return task.held() || task.status.Finished() && task.node >= 0 })
	settlement := Settlement{Hold: Hold{ID: id, Run: task.run}}
	if rapid.Bool().Draw(r, "fails") {
		settlement.Failure = &Failure{Reason: ReasonTrap}
	}
	errs, err := m.nodes[task.node].Settle(m.w.ctx, "q", []Settlement{settlement})
	if err := errors.Join(append(errs, err)...); err != nil {
		r.Fatal(err)
	}
	if !task.held() {
		return
	}
	m.unhold(id, task)
	task.attempts++
	if settlement.Failure == nil {
		task.status, m.complete = Complete, append(m.complete, id)
		m.totals["complete"]++
	} else {
		task.status, m.failed = Failed, append(m.failed, id)
		m.totals["failed"]++
		m.totals["failed:trap"]++
	}
}

func (m *model) unhold(id string, task *modelTask) {
	list := m.reserved[task.node]
	i := slices.Index(list, id)
	m.reserved[task.node] = slices.Delete(list, i, i+1)
}

// stale tries everything with a hold that is none: another node's, or of another run.
func (m *model) stale(r *rapid.T) {
	id, task := m.some(r, func(*modelTask) bool { return true })
	node, run := rapid.IntRange(0, 1).Draw(r, "node"), task.run+rapid.Int64Range(-1, 1).Draw(r, "run")
	if node == task.node && run == task.run {
		r.Skip("that is the holder")
	}
	hold := Hold{ID: id, Run: run}
	settled, err := m.nodes[node].Settle(m.w.ctx, "q", []Settlement{{Hold: hold, Result: []byte("stolen")}})
	if err != nil || !errors.Is(settled[0], ErrLost) {
		r.Fatal(settled, err)
	}
	released, err := m.nodes[node].Release(m.w.ctx, "q", []Hold{hold})
	if err != nil || !errors.Is(released[0], ErrLost) {
		r.Fatal(released, err)
	}
	if err := m.nodes[node].Start(m.w.ctx, "q", hold); !errors.Is(err, ErrLost) {
		r.Fatal(err)
	}
}

// release gives back some of what a node holds, newest first.
func (m *model) release(r *rapid.T) {
	node := rapid.IntRange(0, 1).Draw(r, "node")
	if len(m.reserved[node]) == 0 {
		r.Skip("it holds nothing")
	}
	var holds []Hold
	for range rapid.IntRange(1, len(m.reserved[node])).Draw(r, "count") {
		id := m.reserved[node][len(m.reserved[node])-1]
		task := m.tasks[id]
		holds = append(holds, Hold{ID: id, Run: task.run})
		m.unhold(id, task)
		task.status, task.node = Pending, -1
		m.pending = append([]string{id}, m.pending...)
	}
	errs, err := m.nodes[node].Release(m.w.ctx, "q", holds)
	if err := errors.Join(append(errs, err)...); err != nil {
		r.Fatal(err)
	}
}

func (m *model) cancel(r *rapid.T) {
	id, task := m.some(r, func(*modelTask) bool { return true })
	err := m.w.Queue("q").Cancel(m.w.ctx, id)
	if task.status != Pending && task.status != Scheduled {
		if !errors.Is(err, ErrStatus) {
			r.Fatalf("cancelled %s: %v", task.status, err)
		}
		return
	}
	if err != nil {
		r.Fatal(err)
	}
	delete(m.scheduled, id)
	m.pending = slices.DeleteFunc(m.pending, func(other string) bool { return other == id })
	task.status, m.failed = Failed, append(m.failed, id)
	m.totals["failed"]++
	m.totals["failed:cancelled"]++
}

func (m *model) delete(r *rapid.T) {
	id, task := m.some(r, func(*modelTask) bool { return true })
	err := m.w.Queue("q").Delete(m.w.ctx, id)
	if !task.status.Finished() {
		if !errors.Is(err, ErrStatus) {
			r.Fatalf("deleted %s: %v", task.status, err)
		}
		return
	}
	if err != nil {
		r.Fatal(err)
	}
	delete(m.tasks, id)
	m.deleted = append(m.deleted, id)
	is := func(other string) bool { return other == id }
	m.complete, m.failed = slices.DeleteFunc(m.complete, is), slices.DeleteFunc(m.failed, is)
}

// check compares Redis with the model.
func (m *model) check(r *rapid.T) {
	ctx, k := m.w.ctx, m.w.keys
	var (
		lists                                [5]*redis.StringSliceCmd
		scheduled, index, started            *redis.StringSliceCmd
		totals                               *redis.MapStringStringCmd
		hashes                               = make(map[string]*redis.SliceCmd)
		deleted                              []*redis.IntCmd
		pending, first, second, done, failed = 0, 1, 2, 3, 4
	)
	_, err := m.w.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range []string{
			k.pending("q"), k.reserved("q", m.nodes[0].id), k.reserved("q", m.nodes[1].id), k.complete("q"), k.failed("q"),
		} {
			lists[i] = p.LRange(ctx, key, 0, -1)
		}
		scheduled, index = p.ZRange(ctx, k.scheduled("q"), 0, -1), p.ZRange(ctx, k.index("q"), 0, -1)
		started, totals = p.SMembers(ctx, k.started("q")), p.HGetAll(ctx, k.stats("q"))
		for id := range m.tasks {
			hashes[id] = p.HMGet(ctx, k.task(id), "status", "run", "node", "attempts")
		}
		for _, id := range m.deleted {
			deleted = append(deleted, p.Exists(ctx, k.task(id), k.bytes(id), k.log(id), k.attempts(id)))
		}
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	// Redis's lists have the newest at the head.
	same := func(what string, got, want []string) {
		if !slices.Equal(got, want) {
			r.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
	reversed := func(list []string) []string { list = slices.Clone(list); slices.Reverse(list); return list }
	same("pending", lists[pending].Val(), reversed(m.pending))
	same("reserved by the first", lists[first].Val(), reversed(m.reserved[0]))
	same("reserved by the second", lists[second].Val(), reversed(m.reserved[1]))
	same("complete", lists[done].Val(), reversed(m.complete))
	same("failed", lists[failed].Val(), reversed(m.failed))
	same("scheduled", slices.Sorted(slices.Values(scheduled.Val())), slices.Sorted(maps.Keys(m.scheduled)))
	same("index", slices.Sorted(slices.Values(index.Val())), slices.Sorted(maps.Keys(m.tasks)))
	var running []string
	for id, task := range m.tasks {
		node, attempts := any(nil), any(nil)
		if task.node >= 0 {
			node = m.nodes[task.node].id
		}
		if task.attempts > 0 {
			attempts = strconv.Itoa(task.attempts)
		}
		want := []any{string(task.status), fmt.Sprint(task.run), node, attempts}
		if got := hashes[id].Val(); !slices.Equal(got, want) {
			r.Fatalf("hash of %s: %v, want %v", id, got, want)
		}
		if task.status == Started {
			running = append(running, fmt.Sprintf("%s %d %s", m.nodes[task.node].id, m.nodes[task.node].pid, id))
		}
	}
	same("started", slices.Sorted(slices.Values(started.Val())), slices.Sorted(slices.Values(running)))
	for i, exists := range deleted {
		if exists.Val() != 0 {
			r.Fatalf("something of %s is left", m.deleted[i])
		}
	}
	for name, want := range m.totals {
		if got := totals.Val()[name]; got != fmt.Sprint(want) {
			r.Fatalf("counted %s %s, want %d", got, name, want)
		}
	}
}
