package queue_test

import (
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

func (m *model) reserve(r *rapid.T) {
	node, count := m.someNode(r), rapid.IntRange(1, 4).Draw(r, "count")
	start := rapid.Bool().Draw(r, "start")
	batch := node.Reserve(m.w.ctx, []listen.ReserveRequest{{Queue: "q", Count: count, Start: start}})[0]
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
				m.fail(id, queue.ReasonExpired)
				passed++
			case slices.Contains(task.rejected, node.Node) && m.othersMay(task):
				m.back(id, 1, false)
				passed++
			default:
				task.run++
				task.node, task.status = node.Node, queue.Reserved
				if start {
					task.status = queue.Started
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
	batch := node.Adopt(m.w.ctx, listen.ReserveRequest{Queue: "q"}, ids)
	if batch.Err != nil || len(batch.Tasks) != len(node.reserved) || batch.Dropped != 0 {
		r.Fatalf("adopted %+v, want %v", batch, node.reserved)
	}
}

func (m *model) start(r *rapid.T) {
	_, task := m.some(r, func(task *modelTask) bool { return task.status == queue.Reserved })
	var err error
	if task.hold, err = task.node.Start(m.w.ctx, "q", task.hold); err != nil {
		r.Fatal(err)
	}
	task.status = queue.Started
}

// settle ends the run of what is held: for good, or to be tried again.
func (m *model) settle(r *rapid.T) {
	id, task := m.some(r, (*modelTask).held)
	settlement := listen.Settlement{Claim: task.hold}
	action := rapid.SampledFrom([]listen.Requeue{"complete", "fail", listen.RequeueRetry, listen.RequeueReschedule, listen.RequeueReject}).Draw(r, "action")
	delay := rapid.IntRange(0, 3).Draw(r, "delay")
	if action != "complete" {
		settlement.Failure = &queue.Failure{Reason: queue.ReasonTrap}
	}
	if action != "complete" && action != "fail" {
		settlement.Requeue, settlement.Delay = action, time.Duration(delay)*time.Second
	}
	children := m.children(r, &settlement)
	m.publications(r, &settlement)
	node := task.node
	for repeat := range 2 { // it finds its own mark
		errs, err := node.Settle(m.w.ctx, "q", []listen.Settlement{settlement})
		err = errors.Join(append(errs, err)...)
		cancelled := task.cancel && settlement.Requeue != "" && repeat == 0
		if cancelled != errors.Is(err, queue.ErrCancelled) || err != nil && !cancelled {
			r.Fatal(err)
		}
	}
	m.unhold(id, task)
	task.again = task.again || settlement.Requeue != "" && !task.cancel
	switch action {
	case "complete":
		task.attempts++
		task.status = queue.Complete
		m.totals["complete"]++
		m.note(id, 2)
		m.bearAll(children)
		for _, p := range settlement.Publications {
			m.accept(p)
		}
		m.complete = append(m.complete, id)
	case "fail":
		task.attempts++
		m.fail(id, queue.ReasonTrap)
	case listen.RequeueRetry:
		task.attempts++
		m.back(id, delay, false)
	case listen.RequeueReject:
		task.rejects++
		task.rejected = append(task.rejected, node)
		m.back(id, delay, false)
	default:
		m.back(id, delay, false)
	}
	mark := settler(node.ID(), task.hold)
	if task.status != queue.Complete { // whose own fields say which run it was
		task.mark = mark
	}
	m.ghosts = append(m.ghosts, ghost{node, settlement, mark})
}

// repeat says once more what became of a run: nothing comes of it, also if there is another task of that ID by now.
func (m *model) repeat(r *rapid.T) {
	if len(m.ghosts) == 0 {
		r.Skip("nothing was settled")
	}
	old := rapid.SampledFrom(m.ghosts).Draw(r, "settlement")
	errs, err := old.node.Settle(m.w.ctx, "q", []listen.Settlement{old.settlement})
	want := queue.ErrLost
	if task := m.tasks[old.settlement.ID]; task == nil {
		want = queue.ErrNoTask
	} else if task.settledBy(old.mark) {
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
	hold := listen.Claim{ID: id, Run: run, Born: task.hold.Born}
	settled, err := node.Settle(m.w.ctx, "q", []listen.Settlement{{Claim: hold, Result: []byte("stolen")}})
	done := task.settledBy(settler(node.ID(), hold))
	if err != nil || done && settled[0] != nil || !done && !errors.Is(settled[0], queue.ErrLost) {
		r.Fatal(settled, err)
	}
	released, err := node.Release(m.w.ctx, "q", []listen.Claim{hold})
	if err != nil || !errors.Is(released[0], queue.ErrLost) {
		r.Fatal(released, err)
	}
	if _, err := node.Start(m.w.ctx, "q", hold); !errors.Is(err, queue.ErrLost) {
		r.Fatal(err)
	}
	if errs := node.Progress(m.w.ctx, []listen.ProgressReport{{Claim: hold, Queue: "q"}}); !errors.Is(errs[0], queue.ErrLost) {
		r.Fatal(errs)
	}
	if err := node.Checkpoint(m.w.ctx, "q", hold, []byte("stolen")); !errors.Is(err, queue.ErrLost) {
		r.Fatal(err)
	}
}

// release gives back some of what a node holds, newest first.
func (m *model) release(r *rapid.T) {
	node := m.someNode(r)
	if len(node.reserved) == 0 {
		r.Skip("it holds nothing")
	}
	var holds []listen.Claim
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
		if cancelled[i] != errors.Is(err, queue.ErrCancelled) || err != nil && !cancelled[i] {
			r.Fatal(err)
		}
	}
}

// kill ends a node's lease. What it holds it may still settle until somebody comes for it.
func (m *model) kill(r *rapid.T) {
	node := m.someNode(r)
	if _, err := listen.NewFleet(rapid.SampledFrom(m.clients).Draw(r, "client")).Reclaim(m.w.ctx, node.ID(), 0); !node.dead && !errors.Is(err, queue.ErrStatus) {
		r.Fatalf("reclaimed from a node that lives: %v", err)
	} else if node.dead {
		m.reclaimed(r, node)
		return
	}
	node.dead = true
	if err := m.w.rdb.ZAddXX(m.w.ctx, m.w.Store().Keys.Nodes(), redis.Z{Score: 1, Member: node.ID()}).Err(); err != nil {
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
	dead, _, _, err := listen.NewFleet(client).Leases(m.w.ctx)
	if err != nil || !slices.Contains(dead, node.ID()) {
		r.Fatalf("dead are %v, %v", dead, err)
	}
	got, err := listen.NewFleet(client).Reclaim(m.w.ctx, node.ID(), 0)
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
		if task.status != queue.Started {
			m.back(id, 0, true)
			continue
		}
		task.crashes++
		switch {
		case task.crashes >= listen.DefaultMaxCrashes && !task.cancel:
			m.fail(id, queue.ReasonCrashed)
		case task.crashes == 1:
			m.back(id, 0, true)
		default:
			m.back(id, 1<<(task.crashes-2), true)
		}
	}
	m.graves = append(m.graves, node.Node)
	if _, err := node.Renew(m.w.ctx, nil); !errors.Is(err, listen.ErrLeaseLost) {
		r.Fatal(err)
	}
	if batch := node.Reserve(m.w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]; !errors.Is(batch.Err, listen.ErrLeaseLost) {
		r.Fatalf("%+v", batch)
	}
	m.join(r, slices.Index(m.nodes, node))
}
