package queue

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// model is a queue of several nodes and clients as it ought to be. Random transitions are done to it
// and to Redis alike; after each the two must agree: every live task is in exactly one place, its hash
// says so, and nothing is lost or doubled.
type model struct {
	w       *world
	clients []*Client // of nodes and people alike, each with its own view
	nodes   []*modelNode
	graves  []*Node // nodes whose tasks were taken from them; they may still try something
	ghosts  []ghost // settlements whose answers were lost, perhaps; they may be repeated at any time
	now     int     // seconds after the epoch of the model

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
	*Node
	reserved []string // oldest first
	dead     bool     // its lease is over
}

// ghost is a settlement that was done.
type ghost struct {
	node       *Node
	settlement Settlement
	mark       string
}

type modelTask struct {
	status          Status
	run             int64
	hold            Claim // that of the run
	node            *Node // who holds it, or held it when it finished
	attempts        int
	crashes         int
	rejects         int
	priority        int
	maxAge, expires int // 0: none
	mark            string
	rejected        []*Node
	cancel          bool
	reason          Reason
	eta             int

	when    When
	phase   string            // open, blocked or released; "" without dependencies
	deps    []string          // in the order in which they were named
	ends    map[string]string // how those ended that have
	awaited bool
}

func (t *modelTask) held() bool    { return t.status == Reserved || t.status == Started }
func (t *modelTask) waiting() bool { return t.status == Pending || t.status == Scheduled }

// priorities are those that the model's tasks have.
var priorities = []int{100, 80, 50, 0}

func newModel(t *testing.T, shared *world) *model {
	m := &model{
		tasks: make(map[string]*modelTask), pending: make(map[int][]string), scheduled: make(map[string]int), totals: make(map[string]int64),
		waiting: make(map[string][]string), ended: make(map[string]int),
	}
	m.topics = newModelTopics()
	tenant := queuetest.Tenant()
	for range 3 {
		m.clients = append(m.clients, must[*Client](t)(NewFromRedis(shared.rdb, Config{Tenant: tenant})))
	}
	m.w = &world{Client: m.clients[0], rdb: shared.rdb, ctx: t.Context()}
	m.clock()
	for i := range 3 {
		m.join(t, i)
	}
	return m
}

// join brings a new node to the queue, with the client that has its place.
func (m *model) join(t rapid.TB, i int) {
	node := m.clients[i].Node()
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
		client.clock = fmt.Sprintf("%d.000000", 1700000000+m.now)
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
				"publish":   m.publish,
				"republish": m.republish,
				"prune":     m.prune,
			})
			failing = false
		})
	})
}

// queue is the queue as one of the clients sees it.
func (m *model) queue(r *rapid.T) *Queue {
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
func (m *model) fail(id string, reason Reason) {
	task := m.tasks[id]
	delete(m.scheduled, id)
	m.unqueue(id, task)
	task.status, task.reason, m.failed = Failed, reason, append(m.failed, id)
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
		m.fail(id, ReasonCancelled)
		return
	case delay > 0:
		task.status, m.scheduled[id] = Scheduled, m.now+delay
	case front:
		task.status, m.pending[task.priority] = Pending, append([]string{id}, m.pending[task.priority]...)
	default:
		task.status, m.pending[task.priority] = Pending, append(m.pending[task.priority], id)
	}
	task.node = nil
}

func (m *model) unhold(id string, task *modelTask) {
	node := m.nodeOf(task)
	i := slices.Index(node.reserved, id)
	node.reserved = slices.Delete(node.reserved, i, i+1)
}

// newborn is a task that is about to be enqueued.
type newborn struct {
	id   string
	task *modelTask
}

// bearAll enqueues tasks together. Those without options of their own come into the list last.
func (m *model) bearAll(born []newborn) {
	for _, n := range born {
		if n.task.priority != DefaultPriority || n.task.phase != "" {
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
		n.task.status, m.scheduled[n.id] = Scheduled, due
		return
	}
	n.task.status, m.pending[n.task.priority] = Pending, append(m.pending[n.task.priority], n.id)
}

func (t *modelTask) bornAt(moment int) {
	if t.maxAge > 0 {
		t.expires = moment + t.maxAge
	}
}

// children draws what a task has enqueued, whatever becomes of it.
func (m *model) children(r *rapid.T, s *Settlement) (born []newborn) {
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(r, "children") {
		task, options := m.newTask(r)
		s.Children = append(s.Children, Child{"q", Spec{Options: options}})
		born = append(born, newborn{options.ID, task})
	}
	return born
}

// newTask draws a task and says what its producer asks for.
func (m *model) newTask(r *rapid.T) (*modelTask, Options) {
	task := &modelTask{priority: rapid.SampledFrom(append(priorities, DefaultPriority, DefaultPriority)).Draw(r, "priority")}
	options := Options{Priority: &task.priority}
	if rapid.IntRange(0, 3).Draw(r, "expires") == 0 {
		task.maxAge = rapid.IntRange(1, 20).Draw(r, "max age")
		options.Retry.MaxAge = time.Duration(task.maxAge) * time.Second
	}
	if may := m.awaitable(); len(may) > 0 && rapid.IntRange(0, 2).Draw(r, "waits") == 0 {
		task.phase, task.ends = "blocked", make(map[string]string)
		if options.Open = rapid.IntRange(0, 3).Draw(r, "open") == 0; options.Open {
			task.phase = "open"
		}
		task.when = rapid.SampledFrom(whens).Draw(r, "when")
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
	var specs []Spec
	var existed []bool
	var born []newborn
	for range rapid.IntRange(1, 3).Draw(r, "tasks") {
		if len(m.tasks) > 0 && rapid.IntRange(0, 4).Draw(r, "again") == 0 {
			id, _ := m.some(r, func(*modelTask) bool { return true })
			specs, existed = append(specs, Spec{Options: Options{ID: id}}), append(existed, true)
			continue
		}
		task, options := m.newTask(r)
		if len(m.deleted) > 0 && rapid.Bool().Draw(r, "the ID of a deleted task") {
			options.ID, m.deleted = m.deleted[0], m.deleted[1:]
			m.advance(r, 1)
		}
		born = append(born, newborn{options.ID, task})
		specs, existed = append(specs, Spec{Options: options}), append(existed, false)
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
	definition := Schedule{ID: "s", Queue: "q", Cron: "* * * * * *", Overlap: OverlapSkip, Parameters: []byte(rapid.SampledFrom([]string{"a", "b"}).Draw(r, "parameters"))}
	if _, err := client.PutSchedule(m.w.ctx, definition, rapid.Bool().Draw(r, "only if it is missing")); err != nil {
		r.Fatal(err)
	}
	read := func(c *Client) *Schedule {
		s, err := c.Schedule(m.w.ctx, "s")
		if err != nil {
			r.Fatal(err)
		}
		return s
	}
	late := read(other)
	fire := time.Unix(int64(1700000000+m.now), 0)
	end, err := client.Fleet().Tick(m.w.ctx, read(client), fire, 0, fire.Add(time.Second))
	want := TickFired
	if last := m.tasks[m.tickID]; last != nil && !last.status.Finished() {
		want = TickSkipped
	} else {
		m.tickID = TickID("s", fire)
		m.bear(newborn{m.tickID, &modelTask{priority: DefaultPriority}}, m.now)
	}
	m.ticked = m.now
	if err != nil || end != want {
		r.Fatalf("tick: %s, %v, want %s", end, err, want)
	}
	if end, err := other.Fleet().Tick(m.w.ctx, late, fire, 0, fire.Add(time.Second)); err != nil || end != TickChanged {
		r.Fatalf("the same tick of another host: %s, %v", end, err)
	}
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
		m.fail(id, ReasonExpired)
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

func (m *model) reserve(r *rapid.T) {
	node, count := m.someNode(r), rapid.IntRange(1, 4).Draw(r, "count")
	start := rapid.Bool().Draw(r, "start")
	batch := node.Reserve(m.w.ctx, []ReserveRequest{{Queue: "q", Count: count, Start: start}})[0]
	if batch.Err != nil || batch.Dropped != 0 {
		r.Fatalf("reserved %+v", batch)
	}
	var taken []string
	passed := 0
	for _, priority := range priorities {
		for len(taken) < count && len(m.pending[priority]) > 0 {
			id := m.pending[priority][0]
			task := m.tasks[id]
			m.unqueue(id, task)
			switch {
			case task.expires > 0 && task.expires < m.now:
				m.fail(id, ReasonExpired)
				passed++
			case slices.Contains(task.rejected, node.Node) && m.othersMay(task):
				m.back(id, 1, false)
				passed++
			default:
				task.run++
				task.node, task.status = node.Node, Reserved
				if start {
					task.status = Started
				}
				taken = append(taken, id)
			}
		}
	}
	node.reserved = append(node.reserved, taken...)
	if len(batch.Tasks) != len(taken) || batch.Passed != passed {
		r.Fatalf("reserved %+v, want %v and %d passed over", batch, taken, passed)
	}
	for i, id := range taken {
		task := m.tasks[id]
		got := batch.Tasks[i]
		task.hold = got.Claim()
		if got.ID != id || got.Run != task.run || got.Attempts != task.attempts || got.Rejects != task.rejects {
			r.Fatalf("reserved %+v, want %s, run %d", got, id, task.run)
		}
	}
}

// adopt asks again for what a node holds, as after a lost reply; it changes nothing.
func (m *model) adopt(r *rapid.T) {
	node := m.someNode(r)
	ids, err := node.Held(m.w.ctx, "q")
	if err != nil {
		r.Fatal(err)
	}
	batch := node.Adopt(m.w.ctx, ReserveRequest{Queue: "q"}, ids)
	if batch.Err != nil || len(batch.Tasks) != len(node.reserved) || batch.Dropped != 0 {
		r.Fatalf("adopted %+v, want %v", batch, node.reserved)
	}
}

func (m *model) start(r *rapid.T) {
	_, task := m.some(r, func(task *modelTask) bool { return task.status == Reserved })
	if err := task.node.Start(m.w.ctx, "q", task.hold); err != nil {
		r.Fatal(err)
	}
	task.status = Started
}

// settle ends the run of what is held: for good, or to be tried again.
func (m *model) settle(r *rapid.T) {
	id, task := m.some(r, (*modelTask).held)
	settlement := Settlement{Claim: task.hold}
	action := rapid.SampledFrom([]Requeue{"complete", "fail", RequeueRetry, RequeueReschedule, RequeueReject}).Draw(r, "action")
	delay := rapid.IntRange(0, 3).Draw(r, "delay")
	if action != "complete" {
		settlement.Failure = &Failure{Reason: ReasonTrap}
	}
	if action != "complete" && action != "fail" {
		settlement.Requeue, settlement.Delay = action, time.Duration(delay)*time.Second
	}
	children := m.children(r, &settlement)
	m.publications(r, &settlement)
	node := task.node
	for repeat := range 2 { // it finds its own mark
		errs, err := node.Settle(m.w.ctx, "q", []Settlement{settlement})
		err = errors.Join(append(errs, err)...)
		cancelled := task.cancel && settlement.Requeue != "" && repeat == 0
		if cancelled != errors.Is(err, ErrCancelled) || err != nil && !cancelled {
			r.Fatal(err)
		}
	}
	m.unhold(id, task)
	switch action {
	case "complete":
		task.attempts++
		task.status = Complete
		m.totals["complete"]++
		m.note(id, 2)
		m.bearAll(children)
		for _, p := range settlement.Publications {
			m.accept(p)
		}
		m.complete = append(m.complete, id)
	case "fail":
		task.attempts++
		m.fail(id, ReasonTrap)
	case RequeueRetry:
		task.attempts++
		m.back(id, delay, false)
	case RequeueReject:
		task.rejects++
		task.rejected = append(task.rejected, node)
		m.back(id, delay, false)
	default:
		m.back(id, delay, false)
	}
	task.mark = node.id + " " + task.hold.proof()
	m.ghosts = append(m.ghosts, ghost{node, settlement, task.mark})
}

// repeat says once more what became of a run: nothing comes of it, also if there is another task of that ID by now.
func (m *model) repeat(r *rapid.T) {
	if len(m.ghosts) == 0 {
		r.Skip("nothing was settled")
	}
	old := rapid.SampledFrom(m.ghosts).Draw(r, "settlement")
	errs, err := old.node.Settle(m.w.ctx, "q", []Settlement{old.settlement})
	want := ErrLost
	if task := m.tasks[old.settlement.ID]; task == nil {
		want = ErrNoTask
	} else if task.mark == old.mark {
		want = nil
	}
	if err != nil || !errors.Is(errs[0], want) {
		r.Fatalf("repeated %+v: %v, %v, want %v", old, errs, err, want)
	}
}

// stale tries everything with a hold that is none: another node's, one of another run, or of a node
// whose tasks were taken from it.
func (m *model) stale(r *rapid.T) {
	id, task := m.some(r, func(*modelTask) bool { return true })
	nodes := slices.Clone(m.graves)
	for _, node := range m.nodes {
		nodes = append(nodes, node.Node)
	}
	node, run := rapid.SampledFrom(nodes).Draw(r, "node"), task.run+rapid.Int64Range(-1, 1).Draw(r, "run")
	if task.held() && node == task.node && run == task.run {
		r.Skip("that is the holder")
	}
	hold := Claim{ID: id, Run: run, born: task.hold.born}
	settled, err := node.Settle(m.w.ctx, "q", []Settlement{{Claim: hold, Result: []byte("stolen")}})
	done := task.mark == node.id+" "+hold.proof() // it was settled by just that one
	if err != nil || done && settled[0] != nil || !done && !errors.Is(settled[0], ErrLost) {
		r.Fatal(settled, err)
	}
	released, err := node.Release(m.w.ctx, "q", []Claim{hold})
	if err != nil || !errors.Is(released[0], ErrLost) {
		r.Fatal(released, err)
	}
	if err := node.Start(m.w.ctx, "q", hold); !errors.Is(err, ErrLost) {
		r.Fatal(err)
	}
	if errs := node.Progress(m.w.ctx, []ProgressReport{{Claim: hold, Queue: "q"}}); !errors.Is(errs[0], ErrLost) {
		r.Fatal(errs)
	}
	if err := node.Checkpoint(m.w.ctx, "q", hold, []byte("stolen")); !errors.Is(err, ErrLost) {
		r.Fatal(err)
	}
}

// release gives back some of what a node holds, newest first.
func (m *model) release(r *rapid.T) {
	node := m.someNode(r)
	if len(node.reserved) == 0 {
		r.Skip("it holds nothing")
	}
	var holds []Claim
	var cancelled []bool
	for range rapid.IntRange(1, len(node.reserved)).Draw(r, "count") {
		id := node.reserved[len(node.reserved)-1]
		task := m.tasks[id]
		holds, cancelled = append(holds, task.hold), append(cancelled, task.cancel)
		m.unhold(id, task)
		m.back(id, 0, true)
	}
	errs, err := node.Release(m.w.ctx, "q", holds)
	if err != nil {
		r.Fatal(err)
	}
	for i, err := range errs {
		if cancelled[i] != errors.Is(err, ErrCancelled) || err != nil && !cancelled[i] {
			r.Fatal(err)
		}
	}
}

// kill ends a node's lease. What it holds it may still settle until somebody comes for it.
func (m *model) kill(r *rapid.T) {
	node := m.someNode(r)
	if _, err := rapid.SampledFrom(m.clients).Draw(r, "client").Fleet().Reclaim(m.w.ctx, node.id, 0); !node.dead && !errors.Is(err, ErrStatus) {
		r.Fatalf("reclaimed from a node that lives: %v", err)
	} else if node.dead {
		m.reclaimed(r, node)
		return
	}
	node.dead = true
	if err := m.w.rdb.ZAddXX(m.w.ctx, m.w.keys.nodes(), redis.Z{Score: 1, Member: node.id}).Err(); err != nil {
		r.Fatal(err)
	}
}

// reclaim takes the tasks from a node that is dead; another one comes in its place.
func (m *model) reclaim(r *rapid.T) {
	node := m.someNode(r)
	if !node.dead {
		r.Skip("it lives")
	}
	client := rapid.SampledFrom(m.clients).Draw(r, "client")
	dead, _, err := client.Fleet().Dead(m.w.ctx)
	if err != nil || !slices.Contains(dead, node.id) {
		r.Fatalf("dead are %v, %v", dead, err)
	}
	got, err := client.Fleet().Reclaim(m.w.ctx, node.id, 0)
	if err != nil || got.Sum() != len(node.reserved) || got.Dropped != 0 {
		r.Fatalf("%+v, %v, want %v", got, err, node.reserved)
	}
	m.reclaimed(r, node)
}

func (m *model) reclaimed(r *rapid.T, node *modelNode) {
	for len(node.reserved) > 0 {
		id := node.reserved[len(node.reserved)-1]
		task := m.tasks[id]
		m.unhold(id, task)
		if task.status != Started {
			m.back(id, 0, true)
			continue
		}
		task.crashes++
		switch {
		case task.crashes >= DefaultMaxCrashes && !task.cancel:
			m.fail(id, ReasonCrashed)
		case task.crashes == 1:
			m.back(id, 0, true)
		default:
			m.back(id, 1<<(task.crashes-2), true)
		}
	}
	m.graves = append(m.graves, node.Node)
	if _, err := node.Renew(m.w.ctx, nil); !errors.Is(err, ErrLeaseLost) {
		r.Fatal(err)
	}
	if batch := node.Reserve(m.w.ctx, []ReserveRequest{{Queue: "q", Count: 1}})[0]; !errors.Is(batch.Err, ErrLeaseLost) {
		r.Fatalf("%+v", batch)
	}
	m.join(r, slices.Index(m.nodes, node))
}

func (m *model) cancel(r *rapid.T) {
	id, task := m.some(r, func(*modelTask) bool { return true })
	done, err := m.queue(r).Cancel(m.w.ctx, id)
	switch {
	case task.waiting():
		if !done || err != nil {
			r.Fatalf("cancelled %s: %v, %v", task.status, done, err)
		}
		m.fail(id, ReasonCancelled)
	case task.held():
		if done || err != nil {
			r.Fatalf("cancelled %s: %v, %v", task.status, done, err)
		}
		task.cancel = true
	case !errors.Is(err, ErrStatus):
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
	if task.status != Failed || task.phase == "blocked" && task.decide() == "fail" {
		if !errors.Is(err, ErrStatus) {
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
		task.status, task.expires, task.eta = Scheduled, 0, 0
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
		if !errors.Is(err, ErrStatus) {
			r.Fatalf("deleted %s: %v", task.status, err)
		}
		return
	}
	if err != nil {
		r.Fatal(err)
	}
	m.forget(id)
}

func (m *model) forget(id string) {
	if !m.tasks[id].awaited {
		delete(m.waiting, id) // they came when it had ended
	} else if _, noted := m.ended[id]; !noted {
		m.note(id, map[Status]int{Complete: 2, Failed: 1}[m.tasks[id].status])
	}
	delete(m.tasks, id)
	m.deleted = append(m.deleted, id)
	is := func(other string) bool { return other == id }
	m.complete, m.failed = slices.DeleteFunc(m.complete, is), slices.DeleteFunc(m.failed, is)
}

// purge forgets what is finished, but for some.
func (m *model) purge(r *rapid.T) {
	keep := rapid.IntRange(1, 12).Draw(r, "keep")
	n, err := m.queue(r).Purge(m.w.ctx, PurgeOptions{Keep: int64(keep)})
	gone := slices.Clone(m.complete[:max(0, len(m.complete)-keep)])
	gone = append(gone, m.failed[:max(0, len(m.failed)-keep)]...)
	if err != nil || n != len(gone) {
		r.Fatalf("forgot %d, %v, want %v", n, err, gone)
	}
	for _, id := range gone {
		m.forget(id)
	}
}

// check compares Redis with the model.
func (m *model) check(r *rapid.T) {
	m.checkTopics(r)
	ctx, k := m.w.ctx, m.w.keys
	lists := make(map[string]*redis.StringSliceCmd)
	want := map[string][]string{k.complete("q"): m.complete, k.failed("q"): m.failed} // oldest first
	for _, priority := range priorities {
		want[m.pendingKey(priority)] = m.pending[priority]
	}
	var nodes []string
	for _, node := range m.nodes {
		want[k.reserved("q", node.id)] = node.reserved
		nodes = append(nodes, node.id)
	}
	for _, node := range m.graves {
		want[k.reserved("q", node.id)] = nil
	}
	hashes := make(map[string]*redis.SliceCmd)
	var (
		scheduled, index, started, leases, listeners, expiry *redis.StringSliceCmd
		blocked, ended                                       *redis.StringSliceCmd
		totals                                               *redis.MapStringStringCmd
		serving                                              *redis.FloatCmd
		deleted                                              []*redis.IntCmd
	)
	_, err := m.w.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for key := range want {
			lists[key] = p.LRange(ctx, key, 0, -1)
		}
		scheduled, index = p.ZRange(ctx, k.scheduled("q"), 0, -1), p.ZRange(ctx, k.index("q"), 0, -1)
		leases, expiry = p.ZRange(ctx, k.nodes(), 0, -1), p.ZRange(ctx, k.expiry("q"), 0, -1)
		blocked, ended = p.ZRange(ctx, k.blocked("q"), 0, -1), p.ZRange(ctx, k.ended(), 0, -1)
		started, listeners = p.SMembers(ctx, k.started("q")), p.SMembers(ctx, k.listeners("q"))
		totals, serving = p.HGetAll(ctx, k.stats("q")), p.ZScore(ctx, k.queues(), "q")
		for id := range m.tasks {
			hashes[id] = p.HMGet(ctx, k.task(id), "status", "run", "node", "attempts", "crashes", "rejects", "settled", "cancel", "after", "created")
		}
		for _, id := range m.deleted {
			deleted = append(deleted, p.Exists(ctx, k.task(id), k.bytes(id), k.log(id), k.attempts(id), k.after(id)))
		}
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	same := func(what string, got, want []string) {
		if !slices.Equal(got, want) {
			r.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
	for key, oldest := range want {
		newest := slices.Clone(oldest) // at the head of Redis's lists
		slices.Reverse(newest)
		same(key, lists[key].Val(), newest)
	}
	same("scheduled", sorted(scheduled.Val()), slices.Sorted(maps.Keys(m.scheduled)))
	same("blocked", sorted(blocked.Val()), m.blocked())
	same("ended", sorted(ended.Val()), slices.Sorted(maps.Keys(m.ended)))
	same("index", sorted(index.Val()), slices.Sorted(maps.Keys(m.tasks)))
	same("leases", sorted(leases.Val()), sorted(nodes))
	same("listeners", sorted(listeners.Val()), sorted(nodes))
	if serving.Val() != float64(len(nodes)) {
		r.Fatalf("counted %v listeners, want %d", serving.Val(), len(nodes))
	}
	var running []string
	for id, task := range m.tasks {
		m.checkHash(r, id, task, hashes[id].Val())
		if task.status == Started {
			running = append(running, fmt.Sprintf("%s %d %s", task.node.id, task.node.pid, id))
		}
		expires := slices.Contains(expiry.Val(), id)
		if task.waiting() && expires != (task.expires > 0) || task.status.Finished() && expires {
			r.Fatalf("%s of %s, which is %s and expires at %d: %v", k.expiry("q"), id, task.status, task.expires, expires)
		}
	}
	same("started", sorted(started.Val()), sorted(running))
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

func (m *model) checkHash(r *rapid.T, id string, task *modelTask, hash []any) {
	node := ""
	if task.node != nil {
		node = task.node.id
	}
	want := []string{
		string(task.status), fmt.Sprint(task.run), node, fmt.Sprint(task.attempts), fmt.Sprint(task.crashes), fmt.Sprint(task.rejects),
		task.mark, fmt.Sprint(task.cancel), task.after(),
	}
	created := asString(hash[len(hash)-1])
	hash = hash[:len(hash)-1]
	got := make([]string, len(hash))
	for i, value := range hash {
		got[i] = asString(value)
		if i >= 3 && i <= 5 && got[i] == "" {
			got[i] = "0"
		}
	}
	if task.status.Finished() && got[6] == got[1] { // short for the run that the hash names
		got[6] = got[2] + " " + got[1] + "@" + created
	}
	if got[1] == "00" { // 0, of a task with no further fields
		got[1] = "0"
	}
	got[7] = fmt.Sprint(hash[7] != nil)
	if !slices.Equal(got, want) {
		r.Fatalf("hash of %s: %q, want %q", id, got, want)
	}
}

func (m *model) pendingKey(priority int) string {
	if priority == DefaultPriority {
		return m.w.keys.pending("q")
	}
	return m.w.keys.level(fmt.Sprintf("%03d", priority), "q")
}
