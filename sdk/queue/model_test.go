package queue_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// model is a queue of several nodes and clients as it ought to be. Random transitions are done to it
// and to Redis alike; after each the two must agree: every live task is in exactly one place, its hash
// says so, and nothing is lost or doubled.
type model struct {
	w       *world
	clients []*queue.Client // of nodes and people alike, each with its own view
	nodes   []*modelNode
	graves  []*listen.Node // nodes whose tasks were taken from them; they may still try something
	ghosts  []ghost        // settlements whose answers were lost, perhaps; they may be repeated at any time
	now     int            // seconds after the epoch of the model

	tasks     map[string]*modelTask
	waiting   map[string][]string // by task, those that were to wait for it, in order
	ended     map[string]int      // tasks of which an end, or a retry, is still to be told, with the code of the script ended
	pending   map[int][]string    // by priority, next to run first
	scheduled map[string]int
	complete  []string // oldest first
	failed    []string
	made      int
	deleted   []string
	totals    map[string]int64
	topics    modelTopics
	ticked    int    // the second of the schedule's last tick
	tickID    string // and its task, "" before the first one
}

type modelNode struct {
	*listen.Node
	reserved []string // oldest first
	dead     bool     // its lease is over
}

// ghost is a settlement that was done.
type ghost struct {
	node       *listen.Node
	settlement listen.Settlement
	mark       string
}

type modelTask struct {
	status          queue.Status
	run             int64
	hold            listen.Claim // that of the run
	node            *listen.Node // who holds it, or held it when it finished
	attempts        int
	crashes         int
	rejects         int
	priority        int
	maxAge, expires int // 0: none
	mark            string
	rejected        []*listen.Node
	cancel          bool
	reason          queue.Reason
	eta             int
	again           bool // a run of it ended with a retry, reschedule or reject

	when    queue.When
	phase   string            // open, blocked or released; "" without dependencies
	deps    []string          // in the order in which they were named
	ends    map[string]string // how those ended that have
	awaited bool
}

func (t *modelTask) held() bool { return t.status == queue.Reserved || t.status == queue.Started }

// settledBy tells whether the run with this mark settled the task, and it did not run since.
func (t *modelTask) settledBy(mark string) bool {
	return mark == t.mark || t.status == queue.Complete && t.node != nil && mark == settler(t.node.ID(), t.hold)
}

// settler is the mark of a run as scripts write it.
func settler(listener string, claim listen.Claim) string {
	run, times, _ := strings.Cut(fmt.Sprint(claim.Run)+claim.Born, "@")
	created, started, ok := strings.Cut(times, "@")
	if !ok {
		started = created
	}
	return listener + " " + run + "@" + started
}

func (t *modelTask) waiting() bool { return t.status == queue.Pending || t.status == queue.Scheduled }

// priorities are those that the model's tasks have.
var priorities = []int{100, 80, 50, 0}

func newModel(t *testing.T, shared *world) *model {
	m := &model{
		tasks: make(map[string]*modelTask), pending: make(map[int][]string), scheduled: make(map[string]int), totals: make(map[string]int64),
		waiting: make(map[string][]string), ended: make(map[string]int),
	}
	m.topics = newModelTopics()
	tenant := shared.newTenant()
	for range 3 {
		m.clients = append(m.clients, must[*queue.Client](t)(queue.NewFromRedis(shared.Store().Pool(), queue.Config{Tenant: tenant})))
	}
	m.w = &world{Client: m.clients[0], rdb: m.clients[0].Store().RDB.(*redis.Client), ctx: t.Context()}
	m.clock()
	for i := range 3 {
		m.join(t, i)
	}
	return m
}

// join brings a new node to the queue, with the client that has its place.
func (m *model) join(t rapid.TB, i int) {
	node := listen.New(m.clients[i])
	if err := errors.Join(node.Join(m.w.ctx), node.Register(m.w.ctx, "q")); err != nil {
		t.Fatal(err)
	}
	if i == len(m.nodes) {
		m.nodes = append(m.nodes, nil)
	}
	m.nodes[i] = &modelNode{Node: node}
}

func (m *model) clock() {
	for _, client := range m.clients {
		client.Store().Clock = fmt.Sprintf("%d.000000", 1700000000+m.now)
	}
}

func TestNothingIsLostOrDoubled(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		most, runs, failing := 100, 0, false
		if embedded(t) {
			most = 6
		}
		rapid.Check(t, func(r *rapid.T) {
			if runs++; runs > most && !failing {
				return
			}
			failing = true // until it is known better: what fails is run again, to be made smaller
			m := newModel(t, w)
			r.Repeat(map[string]func(*rapid.T){
				"":          m.check,
				"enqueue":   m.enqueue,
				"schedule":  m.schedule,
				"due":       m.due,
				"expire":    m.expire,
				"reserve":   m.reserve,
				"reserve2":  m.reserve, // more often than others: what follows needs it
				"adopt":     m.adopt,
				"start":     m.start,
				"settle":    m.settle,
				"settle2":   m.settle,
				"stale":     m.stale,
				"repeat":    m.repeat,
				"release":   m.release,
				"kill":      m.kill,
				"reclaim":   m.reclaim,
				"cancel":    m.cancel,
				"flow":      m.cancelFlow,
				"retry":     m.retry,
				"delete":    m.delete,
				"purge":     m.purge,
				"tick":      m.tick,
				"advance":   m.advanceAll,
				"await":     m.await,
				"close":     m.close,
				"recheck":   m.recheck,
				"recount":   m.recount,
				"subscribe": m.subscribe,
				"reuse":     m.reuse,
				"publish":   m.publish,
				"republish": m.republish,
				"prune":     m.prune,
			})
			failing = false
		})
	})
}

// queue is the queue as one of the clients sees it.
func (m *model) queue(r *rapid.T) *queue.Queue {
	return rapid.SampledFrom(m.clients).Draw(r, "client").Queue("q")
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

func (m *model) someNode(r *rapid.T) *modelNode { return rapid.SampledFrom(m.nodes).Draw(r, "node") }

// nodeOf is the node that holds a task.
func (m *model) nodeOf(task *modelTask) *modelNode {
	return m.nodes[slices.IndexFunc(m.nodes, func(n *modelNode) bool { return n.Node == task.node })]
}

// fail makes a task fail that nobody holds.
func (m *model) fail(id string, reason queue.Reason) {
	task := m.tasks[id]
	delete(m.scheduled, id)
	m.unqueue(id, task)
	task.status, task.reason, m.failed = queue.Failed, reason, append(m.failed, id)
	m.note(id, 1)
	m.totals["failed"]++
	m.totals["failed:"+string(reason)]++
}

func (m *model) unqueue(id string, task *modelTask) {
	m.pending[task.priority] = slices.DeleteFunc(m.pending[task.priority], func(other string) bool { return other == id })
}

// back makes a task wait again that nobody holds any more: for a time, or in the list, at its front or
// its end. One that was to be cancelled fails.
func (m *model) back(id string, delay int, front bool) {
	task := m.tasks[id]
	switch {
	case task.cancel:
		m.fail(id, queue.ReasonCancelled)
		return
	case delay > 0:
		task.status, m.scheduled[id] = queue.Scheduled, m.now+delay
	case front:
		task.status, m.pending[task.priority] = queue.Pending, append([]string{id}, m.pending[task.priority]...)
	default:
		task.status, m.pending[task.priority] = queue.Pending, append(m.pending[task.priority], id)
	}
	task.node = nil
}

func (m *model) unhold(id string, task *modelTask) {
	node := m.nodeOf(task)
	i := slices.Index(node.reserved, id)
	node.reserved = slices.Delete(node.reserved, i, i+1)
}

// pass lets time pass; the nodes that live renew their leases meanwhile.
func (m *model) pass(r *rapid.T) {
	m.advance(r, rapid.IntRange(0, 8).Draw(r, "seconds"))
}

func (m *model) advance(r *rapid.T, seconds int) {
	m.now += seconds
	m.clock()
	for _, node := range m.nodes {
		if node.dead {
			continue
		}
		if _, err := node.Renew(m.w.ctx, nil); err != nil {
			r.Fatal(err)
		}
	}
}

// due lets time pass and moves what is due.
func (m *model) due(r *rapid.T) {
	m.pass(r)
	var due []string
	for id, eta := range m.scheduled {
		if eta <= m.now {
			due = append(due, id)
		}
	}
	slices.SortFunc(due, func(a, b string) int { // as Redis orders a sorted set
		return cmp.Or(m.scheduled[a]-m.scheduled[b], strings.Compare(a, b))
	})
	for _, id := range due {
		delete(m.scheduled, id)
		m.back(id, 0, false)
	}
	n, err := enqueueDue(m.w.ctx, m.queue(r))
	if err != nil || n != len(due) {
		r.Fatalf("moved %d, %v, want %v", n, err, due)
	}
}

// expire lets time pass and fails what waits past its time.
func (m *model) expire(r *rapid.T) {
	m.pass(r)
	var over []string
	for id, task := range m.tasks {
		if task.waiting() && task.expires > 0 && task.expires <= m.now {
			over = append(over, id)
		}
	}
	slices.SortFunc(over, func(a, b string) int {
		return cmp.Or(m.tasks[a].expires-m.tasks[b].expires, strings.Compare(a, b))
	})
	for _, id := range over {
		m.fail(id, queue.ReasonExpired)
	}
	n, err := expire(m.w.ctx, m.queue(r), 0, "")
	if err != nil || n != len(over) {
		r.Fatalf("expired %d, %v, want %v", n, err, over)
	}
}

// othersMay tells whether there is a live node that did not reject the task.
func (m *model) othersMay(task *modelTask) bool {
	return slices.ContainsFunc(m.nodes, func(n *modelNode) bool { return !n.dead && !slices.Contains(task.rejected, n.Node) })
}

func (m *model) cancel(r *rapid.T) {
	id, task := m.some(r, func(*modelTask) bool { return true })
	done, err := m.queue(r).Cancel(m.w.ctx, id)
	switch {
	case task.waiting():
		if !done || err != nil {
			r.Fatalf("cancelled %s: %v, %v", task.status, done, err)
		}
		m.fail(id, queue.ReasonCancelled)
	case task.held():
		if done || err != nil {
			r.Fatalf("cancelled %s: %v, %v", task.status, done, err)
		}
		task.cancel = true
	case !errors.Is(err, queue.ErrStatus):
		r.Fatalf("cancelled %s: %v, %v", task.status, done, err)
	}
}

// recount finds everything in order, and a queue that has listeners.
func (m *model) recount(r *rapid.T) {
	if forgotten, err := recount(m.w.ctx, m.queue(r)); forgotten || err != nil {
		r.Fatal(forgotten, err)
	}
}

// retry tries again by hand what has failed.
func (m *model) retry(r *rapid.T) {
	id, task := m.some(r, func(*modelTask) bool { return true })
	err := m.queue(r).Retry(m.w.ctx, id)
	if _, scheduled := m.scheduled[id]; scheduled && task.again {
		if err != nil {
			r.Fatalf("retried at once: %v", err)
		}
		delete(m.scheduled, id)
		m.back(id, 0, false)
		return
	}
	if task.status == queue.Failed && task.phase == "blocked" && task.decide() == "fail" {
		m.lookAgain(id, task)
	}
	if task.status != queue.Failed || task.phase == "blocked" && task.decide() == "fail" {
		if !errors.Is(err, queue.ErrStatus) {
			r.Fatalf("retried %s: %v", task.status, err)
		}
		return
	}
	if err != nil {
		r.Fatal(err)
	}
	m.failed = slices.DeleteFunc(m.failed, func(other string) bool { return other == id })
	task.attempts, task.crashes, task.rejects, task.rejected, task.cancel, task.mark = 0, 0, 0, nil, false, ""
	m.note(id, 3)
	if task.phase == "blocked" || task.phase == "open" {
		task.status, task.expires, task.eta = queue.Scheduled, 0, 0
		m.resolve(id, task)
		return
	}
	task.bornAt(m.now)
	m.back(id, 0, false)
}

func (m *model) delete(r *rapid.T) {
	id, task := m.some(r, func(*modelTask) bool { return true })
	err := m.queue(r).Delete(m.w.ctx, id)
	if !task.status.Finished() {
		if !errors.Is(err, queue.ErrStatus) {
			r.Fatalf("deleted %s: %v", task.status, err)
		}
		return
	}
	if err != nil {
		r.Fatal(err)
	}
	m.tellFirst([]string{id})
	m.forget(id)
}

// tellFirst tells all dependents of ended tasks, if those of one of ids have not been told, and returns whether it did.
func (m *model) tellFirst(ids []string) bool {
	if !slices.ContainsFunc(ids, func(id string) bool { return m.ended[id] != 0 }) {
		return false
	}
	m.advanceModel()
	return true
}

func (m *model) forget(id string) {
	delete(m.waiting, id)
	delete(m.tasks, id)
	m.deleted = append(m.deleted, id)
	is := func(other string) bool { return other == id }
	m.complete, m.failed = slices.DeleteFunc(m.complete, is), slices.DeleteFunc(m.failed, is)
}

// purge forgets what is finished, but for some.
func (m *model) purge(r *rapid.T) {
	keep := rapid.IntRange(1, 12).Draw(r, "keep")
	n, err := manage.QueueOf(m.queue(r)).Purge(m.w.ctx, listen.PurgeOptions{Keep: int64(keep)})
	forgot := 0
	for _, list := range []*[]string{&m.complete, &m.failed} {
		over := func() []string { return slices.Clone((*list)[:max(0, len(*list)-keep)]) }
		for m.tellFirst(over()) { // then there may be more
		}
		for _, id := range over() {
			m.forget(id)
			forgot++
		}
	}
	if err != nil || n != forgot {
		r.Fatalf("forgot %d, %v, want %d", n, err, forgot)
	}
}
