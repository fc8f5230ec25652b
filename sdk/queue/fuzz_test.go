package queue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// damages are keys of a queue q, a task x and a listener, at which somebody may write anything.
func (w *world) damages(listener string) []string {
	k := w.Store().Keys
	return []string{
		k.Pending("q"), k.Level("080", "q"), k.Priorities("q"), k.Reserved("q", listener), k.Started("q"), k.Complete("q"), k.Failed("q"),
		k.Scheduled("q"), k.Listeners("q"), k.Index("q"), k.Stats("q"), k.Expiry("q"), k.Keyed("q"), k.Limits(), k.Task("x"), k.Bytes("x"),
		k.Log("x"), k.Attempts("x"), k.Pending("dead"), k.Stats("dead"), k.Priorities("dead"), k.Unique("q", (&queue.Unique{}).Hash("q", []byte("x"))),
	}
}

// damage writes text where it does not belong: as a key of another type, or as a part of one.
func (w *world) damage(t testing.TB, listener string, where, kind uint8, field, text string) {
	t.Helper()
	key := w.damages(listener)[int(where)%len(w.damages(listener))]
	var err error
	switch kind % 6 {
	case 0: // a field of the task
		err = w.rdb.HSet(w.ctx, w.Store().Keys.Task("x"), field, text).Err()
	case 1:
		err = w.rdb.Set(w.ctx, key, text, 0).Err()
	case 2:
		err = w.rdb.LPush(w.ctx, key, text).Err()
	case 3:
		err = w.rdb.SAdd(w.ctx, key, text).Err()
	case 4:
		err = w.rdb.ZAdd(w.ctx, key, redis.Z{Score: float64(where), Member: text}).Err()
	case 5:
		err = w.rdb.HSet(w.ctx, key, field, text).Err()
	}
	if err != nil && !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		t.Fatal(err)
	}
}

// FuzzDamaged damages what there is of a task in some state, and then does everything to it. Redis may
// say that a key is of the wrong type; nothing else goes wrong, nothing hangs, and nobody gets a task
// that another one has.
func FuzzDamaged(f *testing.F) {
	for i, field := range []string{
		"status", "queue", "node", "run", "pid", "priority", "crashes", "max_crashes", "expires", "max_age", "created", "eta", "deadline",
		"rejected_by", "settled", "cancel", "dead", "live_id", "dead_id", "stale", "key", "unique", "checkpoint", "parameters", "retry",
		"labels", "progress", "attempts", "retried_at", "reclaimed_node", "on_crash", "foreign", "updated",
	} {
		f.Add(uint8(i), uint8(i), uint8(0), field, []string{"", "nan", "-1", "1e400", "x y", "9223372036854775807", "x", "dead", "quern:bytes:1:a"}[i%9])
	}
	for where := range uint8(22) {
		f.Add(where/2, where, 1+where%5, "failed", []string{"x", "", "nan", "050"}[where%4])
	}
	url := queuetest.Mini(f)
	f.Fuzz(func(t *testing.T, state, where, kind uint8, field, text string) {
		if len(field)+len(text) > 1000 {
			t.Skip()
		}
		w := newWorld(t, url)
		w.at(0)
		node, other := w.node(t, "q"), w.node(t, "q")
		high := 80
		spec := queue.Spec{[]byte("x"), queue.Options{ID: "x", Priority: &high, Key: "k", Unique: &queue.Unique{}, Retry: queue.Retry{MaxAge: time.Hour}}}
		if state%6 == 1 {
			spec.Delay = time.Second
		}
		must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, []queue.Spec{spec}))
		hold := listen.Claim{ID: "x", Run: 1}
		if state%6 >= 2 {
			node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1, Start: state%6 != 2, FailurePolicy: listen.FailurePolicy{Dead: "dead"}}})
		}
		if state%6 >= 4 {
			s := listen.Settlement{Claim: hold, Result: []byte("\xff")}
			if state%6 == 5 {
				s.Failure = &queue.Failure{}
			}
			w.settle(t, node, "q", s)
		}
		w.damage(t, node.ID(), where, kind, field, text)

		ok := func(what string, err error) {
			t.Helper()
			if err == nil {
				return
			}
			for _, known := range []error{queue.ErrLost, queue.ErrNoTask, queue.ErrStatus, listen.ErrLeaseLost, queue.ErrInvalid, listen.ErrNoNode, queue.ErrQueueFull} {
				if errors.Is(err, known) {
					return
				}
			}
			if strings.Contains(err.Error(), "WRONGTYPE") {
				return
			}
			t.Errorf("%s: %v", what, err)
		}
		q := w.Queue("q")
		_, err := q.EnqueueMany(w.ctx, []queue.Spec{{[]byte("y"), queue.Options{ID: "y", Unique: &queue.Unique{}}}, spec})
		ok("enqueue", err)
		_, err = manage.QueueOf(q).Stats(w.ctx)
		ok("stats", err)
		_, err = listen.NewFleet(w.Client).Backlogs(w.ctx, []string{"q"})
		ok("poll", err)
		if ids, err := node.Held(w.ctx, "q"); err == nil && len(ids) > 0 {
			ok("adopt", node.Adopt(w.ctx, listen.ReserveRequest{Queue: "q"}, ids).Err)
		}
		ok("start", second(node.Start(w.ctx, "q", hold)))
		ok("progress", node.Progress(w.ctx, []listen.ProgressReport{{Claim: hold, Queue: "q"}})[0])
		ok("checkpoint", node.Checkpoint(w.ctx, "q", hold, []byte("x")))
		ok("log", node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: hold, Lines: []string{"x"}}})[0])
		has := make(map[string]*listen.Node)
		take := func(n *listen.Node) {
			t.Helper()
			batch := n.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 9, Start: true, MaxAge: time.Hour, MaxRunning: 50, FailurePolicy: listen.FailurePolicy{Dead: "dead"}}})[0]
			ok("reserve", batch.Err)
			for _, task := range batch.Tasks {
				if first := has[task.ID]; first != nil && first != n {
					t.Errorf("%s is taken twice", task.ID)
				}
				has[task.ID] = n
				hold = listen.Claim{ID: task.ID, Run: task.Run}
			}
		}
		take(other)
		take(node)
		for _, again := range []listen.Requeue{listen.RequeueRetry, listen.RequeueReject, ""} {
			errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: hold, Failure: &queue.Failure{}, Requeue: again, Delay: time.Second}})
			ok("settle", err)
			for _, err := range errs {
				ok("settle", err)
			}
		}
		_, err = q.Cancel(w.ctx, "x")
		ok("cancel", err)
		w.at(10)
		_, err = enqueueDue(w.ctx, q)
		ok("due", err)
		_, err = node.Release(w.ctx, "q", []listen.Claim{hold})
		ok("release", err)
		ok("retry", q.Retry(w.ctx, "x"))
		w.at(7000)
		_, err = expire(w.ctx, q, time.Minute, "")
		ok("expire", err)
		for _, dead := range []*listen.Node{node, other} {
			_, err = listen.NewFleet(w.Client).Reclaim(w.ctx, dead.ID(), 0)
			ok("reclaim", err)
		}
		_, err = listen.NewFleet(w.Client).Nodes(w.ctx)
		ok("nodes", err)
		for _, status := range append(queue.Statuses(), "") {
			_, err = manage.QueueOf(q).List(w.ctx, manage.ListOptions{Status: status})
			ok("list", err)
		}
		_, err = manage.QueueOf(q).List(w.ctx, manage.ListOptions{Key: "k"})
		ok("list by key", err)
		if task, err := w.Task(w.ctx, "x"); err == nil {
			_, err = manage.New(w.Client).History(w.ctx, task)
			ok("history", err)
		}
		ok("delete", q.Delete(w.ctx, "x"))
		_, err = manage.QueueOf(q).Purge(w.ctx, listen.PurgeOptions{Everything: true, Foreign: true})
		ok("purge", err)
		_, err = recount(w.ctx, q)
		ok("recount", err)
	})
}
