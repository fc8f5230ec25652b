package queue_test

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

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// lanes is a queue whose tasks have concurrency keys and fairness keys, as it ought to be. Random transitions are done
// to it and to Redis alike. After each, the same tasks hold places, and the same wait in line, in the same order.
type lanes struct {
	w     *world
	nodes []*listen.Node
	now   int
	made  int
	tasks map[string]*laneTask
	max   map[string]int      // by key, as the last task asked for it
	held  map[string][]string // by key, the tasks that have a place, sorted
	line  map[string][]string // by key, in order
}

type laneTask struct {
	key     string // "" for none
	max     int
	fair    bool
	status  queue.Status
	node    *listen.Node
	claim   listen.Claim
	eta     int
	expires int // 0: never
}

func newLanes(t *testing.T, shared *world) *lanes {
	l := &lanes{
		tasks: make(map[string]*laneTask), max: make(map[string]int), held: make(map[string][]string), line: make(map[string][]string),
	}
	client := must[*queue.Client](t)(queue.NewFromRedis(shared.Store().Pool(), queue.Config{Tenant: shared.newTenant()}))
	l.w = &world{Client: client, rdb: client.Store().RDB.(*redis.Client), ctx: t.Context()}
	l.w.at(0)
	for range 3 {
		l.nodes = append(l.nodes, l.w.node(t, "q"))
	}
	return l
}

func (l *lanes) queue() *queue.Queue { return l.w.Queue("q") }

// push makes a task pending: it takes a place, or waits in line.
func (l *lanes) push(id string) {
	task := l.tasks[id]
	task.status, task.node = queue.Pending, nil
	if task.key == "" || slices.Contains(l.held[task.key], id) {
		return
	}
	l.max[task.key] = task.max
	l.line[task.key] = append(l.line[task.key], id)
	l.letIn(task.key)
}

func (l *lanes) letIn(key string) {
	for len(l.line[key]) > 0 && len(l.held[key]) < l.max[key] {
		l.held[key], l.line[key] = append(l.held[key], l.line[key][0]), l.line[key][1:]
		slices.Sort(l.held[key])
	}
}

// end ends a task for good.
func (l *lanes) end(id string, status queue.Status) {
	task := l.tasks[id]
	task.status, task.node = status, nil
	l.leave(id)
}

func (l *lanes) leave(id string) {
	is := func(other string) bool { return other == id }
	key := l.tasks[id].key
	l.held[key], l.line[key] = slices.DeleteFunc(l.held[key], is), slices.DeleteFunc(l.line[key], is)
	l.letIn(key)
}

// inLine reports whether a task waits for a place.
func (l *lanes) inLine(id string) bool { return slices.Contains(l.line[l.tasks[id].key], id) }

func (l *lanes) some(r *rapid.T, which func(id string, task *laneTask) bool) (string, *laneTask) {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(l.tasks)) {
		if which(id, l.tasks[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		r.Skip("there is none")
	}
	id := rapid.SampledFrom(ids).Draw(r, "id")
	return id, l.tasks[id]
}

func (l *lanes) enqueue(r *rapid.T) {
	var specs []queue.Spec
	for range rapid.IntRange(1, 4).Draw(r, "tasks") {
		l.made++
		task := &laneTask{key: rapid.SampledFrom([]string{"", "a", "a", "b"}).Draw(r, "key"), fair: rapid.Bool().Draw(r, "fair")}
		options := queue.Options{ID: fmt.Sprintf("task%04d", l.made), ConcurrencyKey: task.key}
		if task.key != "" {
			task.max = rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(r, "max")
			options.MaxConcurrent = task.max
		}
		if task.fair {
			options.FairKey = rapid.SampledFrom([]string{"x", "y"}).Draw(r, "fair key")
		}
		if rapid.IntRange(0, 3).Draw(r, "with a priority") == 0 {
			priority := 80
			options.Priority = &priority
		}
		if rapid.IntRange(0, 5).Draw(r, "expires") == 0 {
			options.Retry.MaxAge = 10 * time.Second
			task.expires = l.now + 10
		}
		l.tasks[options.ID] = task
		if rapid.IntRange(0, 4).Draw(r, "later") == 0 {
			options.Delay = 2 * time.Second
			task.status, task.eta = queue.Scheduled, l.now+2
			if task.expires > 0 {
				task.expires += 2
			}
		} else {
			l.push(options.ID)
		}
		specs = append(specs, queue.Spec{Options: options})
	}
	if _, err := l.queue().EnqueueMany(l.w.ctx, specs); err != nil {
		r.Fatal(err)
	}
}

func (l *lanes) due(r *rapid.T) {
	l.now += rapid.IntRange(0, 3).Draw(r, "seconds")
	l.w.at(float64(l.now))
	for _, node := range l.nodes {
		if _, err := node.Renew(l.w.ctx, nil); err != nil {
			r.Fatal(err)
		}
	}
	var due []string
	for id, task := range l.tasks {
		if task.status == queue.Scheduled && task.eta <= l.now {
			due = append(due, id)
		}
	}
	slices.SortFunc(due, func(a, b string) int { return cmp.Or(l.tasks[a].eta-l.tasks[b].eta, strings.Compare(a, b)) })
	for _, id := range due {
		l.push(id)
	}
	if n, err := enqueueDue(l.w.ctx, l.queue()); err != nil || n != len(due) {
		r.Fatalf("moved %d, %v, want %v", n, err, due)
	}
}

func (l *lanes) expire(r *rapid.T) {
	var over []string
	for id, task := range l.tasks {
		if (task.status == queue.Pending || task.status == queue.Scheduled) && task.expires > 0 && task.expires <= l.now {
			over = append(over, id)
		}
	}
	for _, id := range over {
		l.end(id, queue.Failed)
	}
	if n, err := expire(l.w.ctx, l.queue(), 0, ""); err != nil || n != len(over) {
		r.Fatalf("expired %d, %v, want %v", n, err, over)
	}
}

// reserve takes tasks that have a place. The order among keys is not checked here.
func (l *lanes) reserve(r *rapid.T) {
	l.expire(r) // so that reserve meets no expired task
	node := rapid.SampledFrom(l.nodes).Draw(r, "node")
	batch := node.Reserve(l.w.ctx, []listen.ReserveRequest{{Queue: "q", Count: rapid.IntRange(1, 3).Draw(r, "count"), Start: true}})[0]
	if batch.Err != nil || batch.Dropped != 0 || batch.Passed != 0 {
		r.Fatalf("%+v", batch)
	}
	for _, got := range batch.Tasks {
		task := l.tasks[got.ID]
		if task.status != queue.Pending || l.inLine(got.ID) {
			r.Fatalf("reserved %s, which is %s, and in line: %v", got.ID, task.status, l.line)
		}
		task.status, task.node, task.claim = queue.Started, node, got.Claim()
	}
}

func isHeld(_ string, task *laneTask) bool { return task.status == queue.Started }

func (l *lanes) settle(r *rapid.T) {
	id, task := l.some(r, isHeld)
	s := listen.Settlement{Claim: task.claim}
	action := rapid.SampledFrom([]string{"complete", "fail", "retry"}).Draw(r, "action")
	delay := rapid.IntRange(0, 2).Draw(r, "delay")
	if action != "complete" {
		s.Failure = &queue.Failure{Reason: queue.ReasonTrap}
	}
	if action == "retry" {
		s.Requeue, s.Delay = listen.RequeueRetry, time.Duration(delay)*time.Second
	}
	errs, err := task.node.Settle(l.w.ctx, "q", []listen.Settlement{s})
	if err := errors.Join(append(errs, err)...); err != nil {
		r.Fatal(err)
	}
	switch {
	case action == "complete":
		l.end(id, queue.Complete)
	case action == "fail":
		l.end(id, queue.Failed)
	case delay > 0:
		task.status, task.node, task.eta = queue.Scheduled, nil, l.now+delay
	default:
		l.push(id)
	}
}

func (l *lanes) release(r *rapid.T) {
	id, task := l.some(r, isHeld)
	if errs, err := task.node.Release(l.w.ctx, "q", []listen.Claim{task.claim}); err != nil || errs[0] != nil {
		r.Fatal(errs, err)
	}
	l.push(id)
}

// crash ends the lease of a node and gives its tasks back.
func (l *lanes) crash(r *rapid.T) {
	i := rapid.IntRange(0, len(l.nodes)-1).Draw(r, "node")
	node := l.nodes[i]
	l.w.rdb.ZAddXX(l.w.ctx, l.w.Store().Keys.Nodes(), redis.Z{Score: 1, Member: node.ID()})
	if _, err := listen.NewFleet(l.w.Client).Reclaim(l.w.ctx, node.ID(), 3); err != nil {
		r.Fatal(err)
	}
	for id, task := range l.tasks {
		if task.node == node {
			task.node, task.status = nil, queue.Status(l.w.rdb.HGet(l.w.ctx, l.w.Store().Keys.Task(id), "status").Val())
			switch task.status {
			case queue.Failed: // its third crash
				l.leave(id)
			case queue.Scheduled: // its second crash
				task.eta = l.now + 1
			}
		}
	}
	next := listen.New(l.w.Client)
	if err := errors.Join(next.Join(l.w.ctx), next.Register(l.w.ctx, "q")); err != nil {
		r.Fatal(err)
	}
	l.nodes[i] = next
}

func (l *lanes) cancel(r *rapid.T) {
	id, _ := l.some(r, func(_ string, task *laneTask) bool {
		return task.status == queue.Pending || task.status == queue.Scheduled
	})
	if done, err := l.queue().Cancel(l.w.ctx, id); !done || err != nil {
		r.Fatal(done, err)
	}
	l.end(id, queue.Failed)
}

func (l *lanes) retry(r *rapid.T) {
	id, task := l.some(r, func(_ string, task *laneTask) bool { return task.status == queue.Failed })
	if err := l.queue().Retry(l.w.ctx, id); err != nil {
		r.Fatal(err)
	}
	if task.expires > 0 {
		task.expires = l.now + 10
	}
	l.push(id)
}

func (l *lanes) delete(r *rapid.T) {
	id, _ := l.some(r, func(_ string, task *laneTask) bool { return task.status.Finished() })
	if err := l.queue().Delete(l.w.ctx, id); err != nil {
		r.Fatal(err)
	}
	delete(l.tasks, id)
}

func (l *lanes) purge(r *rapid.T) {
	if _, err := manage.QueueOf(l.queue()).Purge(l.w.ctx, listen.PurgeOptions{Everything: true}); err != nil {
		r.Fatal(err)
	}
	maps.DeleteFunc(l.tasks, func(_ string, task *laneTask) bool { return task.status.Finished() })
}

// python completes a task as Blueque does, which lets nobody in; the check of lanes does.
func (l *lanes) python(r *rapid.T) {
	id, task := l.some(r, isHeld)
	k := l.w.Store().Keys
	l.w.rdb.HSet(l.w.ctx, k.Task(id), "status", "complete")
	l.w.rdb.LRem(l.w.ctx, k.Reserved("q", task.node.ID()), 1, id)
	l.w.rdb.LPush(l.w.ctx, k.Complete("q"), id)
	if forgotten, err := recount(l.w.ctx, l.queue()); forgotten || err != nil {
		r.Fatal(forgotten, err)
	}
	lane := l.line[task.key]
	task.status, task.node = queue.Complete, nil
	if len(lane) > 0 || task.key == "" {
		l.leave(id)
		return
	}
	if err := l.queue().Delete(l.w.ctx, id); err != nil { // nobody waits, so nobody looked; with the task goes its place
		r.Fatal(err)
	}
	l.leave(id)
	delete(l.tasks, id)
}

// check compares the members of the sets, and where each pending task is.
func (l *lanes) check(r *rapid.T) {
	ctx, k := l.w.ctx, l.w.Store().Keys
	last := func(members []string) (ids []string) {
		for _, member := range members {
			if !strings.Contains(member, "=") {
				ids = append(ids, member[strings.LastIndex(member, " ")+1:])
			}
		}
		slices.Sort(ids)
		return ids
	}
	line := l.w.rdb.ZRange(ctx, k.Line("q"), 0, -1).Val()
	if got, want := last(l.w.rdb.ZRange(ctx, k.Lanes("q"), 0, -1).Val()), slices.Sorted(slices.Values(slices.Concat(l.held["a"], l.held["b"]))); !slices.Equal(got, want) {
		r.Fatalf("places are held by %v, want %v", got, want)
	}
	for _, key := range []string{"a", "b"} {
		var got []string
		for _, member := range line { // sorted by key and number
			if id := member[strings.LastIndex(member, " ")+1:]; l.tasks[id] != nil && l.tasks[id].key == key {
				got = append(got, id)
			}
		}
		if !slices.Equal(got, l.line[key]) {
			r.Fatalf("line %s: %v, want %v", key, got, l.line[key])
		}
	}
	if len(line) != len(l.line["a"])+len(l.line["b"]) {
		r.Fatalf("line %v, want %v", line, l.line)
	}
	var want, fair, got, gotFair []string
	for id, task := range l.tasks {
		if task.status == queue.Pending && !l.inLine(id) {
			if task.fair {
				fair = append(fair, id)
			} else {
				want = append(want, id)
			}
		}
	}
	for _, list := range []string{k.Pending("q"), k.Level("080", "q")} {
		got = append(got, l.w.rdb.LRange(ctx, list, 0, -1).Val()...)
	}
	for _, set := range []string{k.Fair("050", "q"), k.Fair("080", "q")} {
		gotFair = append(gotFair, l.w.rdb.ZRange(ctx, set, 0, -1).Val()...)
	}
	for _, ids := range [][]string{want, fair, got, gotFair} {
		slices.Sort(ids)
	}
	if !slices.Equal(got, want) || !slices.Equal(gotFair, fair) {
		r.Fatalf("pending are %v and with a fair key %v, want %v and %v", got, gotFair, want, fair)
	}
	stats, err := manage.New(l.w.Client).Queue("q").Stats(ctx)
	listed, listErr := manage.QueueOf(l.queue()).List(ctx, manage.ListOptions{Status: queue.Pending, Limit: 1000})
	if pending := len(want) + len(fair) + len(line); err != nil || listErr != nil || stats.Depth[queue.Pending] != int64(pending) || len(listed) != pending {
		r.Fatalf("counted %v, listed %d, want %d pending: %v, %v", stats.Depth, len(listed), pending, err, listErr)
	}
}

// drain completes what is left. Then nothing of lanes and turns is left either.
func (l *lanes) drain(r *rapid.T) {
	for range 4 * (len(l.tasks) + 1) {
		l.due(r)
		l.reserve(r)
		for _, id := range slices.Sorted(maps.Keys(l.tasks)) {
			if task := l.tasks[id]; task.status == queue.Started {
				if errs, err := task.node.Settle(l.w.ctx, "q", []listen.Settlement{{Claim: task.claim}}); err != nil || errs[0] != nil {
					r.Fatal(errs, err)
				}
				l.end(id, queue.Complete)
			}
		}
		l.check(r)
		if !slices.ContainsFunc(slices.Collect(maps.Values(l.tasks)), func(task *laneTask) bool { return !task.status.Finished() }) {
			break
		}
	}
	l.reserve(r) // finds nothing, and forgets the turns
	k := l.w.Store().Keys
	if n := l.w.rdb.Exists(l.w.ctx, k.Lanes("q"), k.Line("q"), k.Turns("050", "q"), k.Turns("080", "q"), k.Priorities("q")).Val(); n != 0 {
		r.Fatalf("%d keys are left, lanes %v", n, l.w.rdb.ZRange(l.w.ctx, k.Lanes("q"), 0, -1).Val())
	}
}

func TestLanesInAnyOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		most, runs, failing := 60, 0, false
		if embedded(t) {
			most = 4
		}
		rapid.Check(t, func(r *rapid.T) {
			if runs++; runs > most && !failing {
				return
			}
			failing = true
			l := newLanes(t, w)
			r.Repeat(map[string]func(*rapid.T){
				"": l.check, "enqueue": l.enqueue, "enqueue2": l.enqueue, "due": l.due, "expire": l.expire, "reserve": l.reserve,
				"reserve2": l.reserve, "settle": l.settle, "settle2": l.settle, "release": l.release, "crash": l.crash,
				"cancel": l.cancel, "retry": l.retry, "delete": l.delete, "purge": l.purge, "python": l.python,
			})
			l.drain(r)
			failing = false
		})
	})
}
