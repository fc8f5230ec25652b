package queue_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// setupCounted is a tenant with 50 queues, on a server of its own that counts commands.
func setupCounted(t *testing.T) (w *world, server *queuetest.Server, queues []string) {
	t.Helper()
	t.Parallel()
	server = queuetest.Start(t)
	w = newWorld(t, server.URL())
	must[any](t)(nil, listen.Prepare(w.ctx, w.Client))
	for i := range 50 {
		queues = append(queues, fmt.Sprintf("q%02d", i))
	}
	return w, server, queues
}

// Whoever looks for dead listeners asks for the leases alone, however many queues there are.
func TestDeadReadsLeasesAlone(t *testing.T) {
	w, server, queues := setupCounted(t)
	w.node(t, queues...)
	calls := server.Calls(t, func() {
		if dead, _, next, err := listen.NewFleet(w.Client).Leases(w.ctx); len(dead) != 0 || next <= 0 || err != nil {
			t.Errorf("%v, %s, %v", dead, next, err)
		}
	})
	if calls["zrange"] != 1 || calls["time"] != 1 || len(calls) != 2 {
		t.Errorf("it took %v", calls)
	}
}

func TestDutyIsKept(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		a, b := listen.New(w.Client), listen.New(w.Client)
		if !must[bool](t)(a.TakeDuty(w.ctx, "purge", 10*time.Second)) || !must[bool](t)(a.KeepDuty(w.ctx, "purge", time.Hour)) {
			t.Error("a duty is not kept")
		}
		if must[bool](t)(b.KeepDuty(w.ctx, "purge", time.Second)) || must[bool](t)(b.KeepDuty(w.ctx, "nobody's", time.Second)) {
			t.Error("another's duty is kept, or nobody's")
		}
		if left := w.rdb.TTL(w.ctx, w.Store().Keys.Duty("purge")).Val(); left < time.Minute {
			t.Errorf("the duty ends in %s", left)
		}
	})
}

// Leaving takes a round trip for each thousand queues, also beside a damaged one.
func TestLeaveOfManyQueues(t *testing.T) {
	w, _, queues := setupCounted(t)
	node := w.node(t, queues...)
	var trips atomic.Int64
	w.hook(t, spy(func(...redis.Cmder) { trips.Add(1) }))
	w.rdb.Del(w.ctx, w.Store().Keys.Listeners("q07"))
	w.rdb.Set(w.ctx, w.Store().Keys.Listeners("q07"), "x", 0)
	trips.Store(0)
	if err := node.Leave(w.ctx); err == nil || !strings.Contains(err.Error(), `"q07"`) {
		t.Errorf("left a damaged queue: %v", err)
	}
	if n := trips.Load(); n != 1 {
		t.Errorf("it took %d round trips", n)
	}
	for name, n := range must[map[string]int64](t)(w.Queues(w.ctx)) {
		if n != 0 && name != "q07" {
			t.Errorf("%s has %d listeners", name, n)
		}
	}
	w.rdb.Del(w.ctx, w.Store().Keys.Listeners("q07"))
	must[any](t)(nil, node.Leave(w.ctx))
	if n := w.rdb.ZCard(w.ctx, w.Store().Keys.Nodes()).Val(); n != 0 {
		t.Errorf("%d nodes are left", n)
	}
}

// What other clients left at the old end of a list is walked once, and not again with each purge.
func TestPurgeWalksForeignTasksOnce(t *testing.T) {
	w, server, _ := setupCounted(t)
	names := make([]string, 0, 310)
	for i := range 300 {
		names = append(names, fmt.Sprintf("p%03d", i))
	}
	w.finishAs(t, "q", append(names, "c300", "c301")...)
	purge := func() (forgotten int, scripts int64) {
		t.Helper()
		calls := server.Calls(t, func() {
			forgotten = must[int](t)(manage.New(w.Client).Queue("q").Purge(w.ctx, listen.PurgeOptions{Keep: 1, Status: queue.Complete}))
		})
		return forgotten, calls["evalsha"]
	}
	if n, scripts := purge(); n != 1 || scripts < 4 {
		t.Fatalf("%d are gone, in %d scripts", n, scripts)
	}
	w.finishAs(t, "q", "c302")
	if n, scripts := purge(); n != 1 || scripts != 1 {
		t.Errorf("%d are gone, in %d scripts", n, scripts)
	}
	// Blueque deletes one of them: the others are where they were no more.
	w.rdb.Del(w.ctx, w.Store().Keys.Task("p005"))
	w.rdb.LRem(w.ctx, w.Store().Keys.Complete("q"), 1, "p005")
	w.finishAs(t, "q", "c303")
	if n, scripts := purge(); n != 1 || scripts < 4 {
		t.Errorf("%d are gone, in %d scripts", n, scripts)
	}
	// A task that is gone while its entry stays is found when the mark ends.
	w.rdb.Del(w.ctx, w.Store().Keys.Task("p007"))
	if ttl := w.rdb.TTL(w.ctx, w.Store().Keys.Purged("q")).Val(); ttl <= 0 || ttl > time.Hour {
		t.Errorf("the mark lives %s", ttl)
	}
	w.rdb.Del(w.ctx, w.Store().Keys.Purged("q"))
	purge()
	if left := w.rdb.LRange(w.ctx, w.Store().Keys.Complete("q"), 0, -1).Val(); len(left) != 299 || left[0] != "c303" || slices.Contains(left, "p007") {
		t.Errorf("%d are left, first %s", len(left), left[0])
	}
	if n := must[int](t)(manage.New(w.Client).Queue("q").Purge(w.ctx, listen.PurgeOptions{Everything: true, Foreign: true})); n != 299 {
		t.Errorf("%d are gone", n)
	}
}

// Each queue is counted, also where listeners are so many that a script counts few queues, and one of them is damaged.
func TestStatsBesideManyListeners(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		queues := make([]string, store.StatsQueues+5)
		for i := range queues {
			queues[i] = fmt.Sprint("q", i)
			for range i % 3 {
				w.enqueue(t, queues[i], "", queue.Options{})
			}
		}
		listeners := make([]redis.Z, 900)
		for i := range listeners {
			listeners[i] = redis.Z{Score: 2e9, Member: fmt.Sprintf("host%d~01234567_8", i)}
		}
		must[int64](t)(w.rdb.ZAdd(w.ctx, w.Store().Keys.Nodes(), listeners...).Result())
		w.rdb.Set(w.ctx, w.Store().Keys.Complete("q7"), "x", 0)
		for i, s := range must[[]manage.Stats](t)(manage.New(w.Client).Stats(w.ctx, queues...)) {
			if i == 7 {
				if !strings.Contains(fmt.Sprint(s.Err), `count queue "q7": WRONGTYPE key `+w.Store().Keys.Complete("q7")) {
					t.Errorf("%v", s.Err)
				}
			} else if s.Err != nil || s.Depth[queue.Pending] != int64(i%3) {
				t.Errorf("queue %d: %+v", i, s)
			}
		}
	})
}

// One node counts for the fleet. What it wrote is bounded, and may be damaged, missing or refused.
func TestFleetStats(t *testing.T) {
	w, server, queues := setupCounted(t)
	a, b := w.node(t, queues[10:]...), w.node(t)
	high := 80
	w.enqueue(t, "q10", "", queue.Options{})
	w.enqueue(t, "q10", "", queue.Options{Priority: &high})
	w.enqueue(t, "q11", "", queue.Options{Delay: time.Hour})
	w.enqueue(t, "a", "", queue.Options{})
	w.enqueue(t, "z", "", queue.Options{})
	must[any](t)(nil, w.Queue("q11").Pause(w.ctx))
	look := func(n *listen.Node, most int, own ...string) (stats map[string]manage.Stats, scripts int64) {
		t.Helper()
		calls := server.Calls(t, func() { stats = must[map[string]manage.Stats](t)(manage.New(w.Client).FleetStats(w.ctx, n, most, own)) })
		return stats, calls["evalsha"] - 1 // one takes the duty
	}
	all, scripts := look(a, 41) // of 42: those with listeners first
	if _, has := all["a"]; len(all) != 41 || !has || scripts != 1 {
		t.Fatalf("%d queues by %d scripts", len(all), scripts)
	}
	w.rdb.PExpire(w.ctx, w.Store().Keys.Duty("sample"), store.SampleTerm) // the machine may be slow
	w.rdb.Persist(w.ctx, w.Store().Keys.Sample())
	same, scripts := look(b, 41)
	if scripts != 0 || len(same) != 41 {
		t.Errorf("%d queues by %d scripts of the next node", len(same), scripts)
	}
	for name, s := range same {
		if want := all[name]; s.Listeners != want.Listeners || s.OldestPendingAge != want.OldestPendingAge.Round(time.Microsecond) {
			t.Errorf("%s: %+v, want %+v", name, s, want)
		}
		for _, status := range queue.Statuses() {
			if s.Depth[status] != all[name].Depth[status] {
				t.Errorf("%s: %v, want %v", name, s.Depth, all[name].Depth)
			}
		}
	}
	if q := same["q10"]; q.Depth[queue.Pending] != 2 || q.OldestPendingAge <= 0 || q.Listeners != 1 || same["q11"].Depth[queue.Scheduled] != 1 || !same["q11"].Paused || q.Paused {
		t.Errorf("%+v", same)
	}
	if own, scripts := look(b, 41, "z", "q10"); scripts != 1 || own["z"].Depth[queue.Pending] != 1 {
		t.Errorf("%+v by %d scripts", own["z"], scripts)
	}
	if few, _ := look(b, 3); len(few) != 3 {
		t.Errorf("%d of 3 queues", len(few))
	}
	w.rdb.Set(w.ctx, w.Store().Keys.Sample(), "q10 1 2\n\xff 1 2 3 4 5 6 7 8 0\nq12 1 2 3 4 5 6 x 8 1 9\nq13 1 2 3 4 5 6 7 8\nq14 1 2 3 4 5 6 7 8 1 9 9\nq15 1 2 3 4 5 6 7\n"+strings.Repeat("x", 1<<20), 0)
	if damaged, scripts := look(b, 41); len(damaged) != 3 || damaged["q12"].Depth[queue.Failed] != 6 || !damaged["q12"].Paused || damaged["q12"].Blocked != 9 || damaged["q13"].Paused || !damaged["q14"].Paused || scripts != 0 {
		t.Errorf("%+v", damaged)
	}
	for name, spoil := range map[string]func(){
		"gone":            func() { w.rdb.Del(w.ctx, w.Store().Keys.Sample()) },
		"of another type": func() { w.rdb.Del(w.ctx, w.Store().Keys.Sample()); w.rdb.SAdd(w.ctx, w.Store().Keys.Sample(), "x") },
	} {
		spoil()
		if stats, scripts := look(b, 41); len(stats) != 41 || scripts != 1 {
			t.Errorf("a sample that is %s: %d queues by %d scripts", name, len(stats), scripts)
		}
	}
	w.rdb.Del(w.ctx, w.Store().Keys.Duty("sample"))
	w.rdb.ConfigSet(w.ctx, "maxmemory", "1")
	if stats, _ := look(b, 41); len(stats) != 41 {
		t.Errorf("a full Redis: %d queues", len(stats))
	}
}

// A Redis that is full keeps nobody from a duty.
func TestDutyAtMaxmemory(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		a, b := listen.New(w.Client), listen.New(w.Client)
		must[any](t)(nil, listen.Prepare(w.ctx, w.Client))
		must[string](t)(w.rdb.ConfigSet(w.ctx, "maxmemory", "1").Result())
		if _, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{}); !queue.IsUnavailable(err) {
			t.Fatalf("Redis is not full: %v", err)
		}
		if !must[bool](t)(a.TakeDuty(w.ctx, "purge", time.Minute)) || must[bool](t)(b.TakeDuty(w.ctx, "purge", time.Minute)) {
			t.Error("the duty is not taken once")
		}
		if !must[bool](t)(a.KeepDuty(w.ctx, "purge", time.Minute)) {
			t.Error("the duty is not kept")
		}
		must[any](t)(nil, a.YieldDuty(w.ctx, "purge"))
		if !must[bool](t)(b.TakeDuty(w.ctx, "purge", time.Minute)) {
			t.Error("the duty is not given back")
		}
	})
}

// A duty that is kept for less than a second is not given away by that.
func TestDutyIsKeptForLessThanASecond(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		a, b := listen.New(w.Client), listen.New(w.Client)
		eventually(t, "the duty kept for less than a second", func() bool { // which may be over before the look
			if _, err := a.TakeDuty(w.ctx, "purge", time.Second); err != nil || !must[bool](t)(a.KeepDuty(w.ctx, "purge", 999*time.Millisecond)) {
				return false
			}
			return !must[bool](t)(b.TakeDuty(w.ctx, "purge", time.Second))
		})
	})
}

// What a reserve that is late takes for a node that leaves is not lost, and nothing is taken once the node is gone.
func TestLeaveWhileAReserveIsLate(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		other := w.anew(t)
		late := &meanwhile{left: -1}
		w.hook(t, spy(late.count))
		for nth := range 20 { // before each command of a leave
			name := fmt.Sprint("q", nth)
			w.enqueue(t, name, "", queue.Options{ID: name})
			node := w.node(t, name)
			same := listen.NodeAs(other, node.ID(), os.Getpid())
			var batch listen.ReserveReply
			late.left, late.act = nth, func() { batch = same.Reserve(w.ctx, []listen.ReserveRequest{{Queue: name, Count: 1, Start: true}})[0] }
			if err := node.Leave(w.ctx); err != nil {
				t.Fatal(err)
			}
			if late.left >= 0 {
				late.left = -1
				if nth < 3 {
					t.Errorf("a leave took %d commands", nth)
				}
				return
			}
			if batch.Err != nil && !errors.Is(batch.Err, listen.ErrLeaseLost) {
				t.Error(batch.Err)
			}
			if w.rdb.ZScore(w.ctx, w.Store().Keys.Nodes(), node.ID()).Err() == nil {
				w.reclaimFrom(t, node)
			}
			if task := w.task(t, name); task.Status != queue.Pending {
				t.Errorf("the task is %s after a reserve before command %d", task.Status, nth)
			}
		}
	})
}

// meanwhile acts before one of the commands that a client sends.
type meanwhile struct {
	left int // commands until then; below 0 when it is done
	act  func()
}

func (l *meanwhile) count(...redis.Cmder) {
	if l.left--; l.left == -1 {
		l.act()
	}
}

func TestDuty(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		a, b := listen.New(w.Client), listen.New(w.Client)
		take := func(n *listen.Node) bool { return must[bool](t)(n.TakeDuty(w.ctx, "due", time.Minute)) }
		if !take(a) || take(b) {
			t.Error("a duty was taken twice, or not at all")
		}
		if err := b.YieldDuty(w.ctx, "due"); err != nil || take(b) {
			t.Error("another's duty was given back", err)
		}
		if err := a.YieldDuty(w.ctx, "due"); err != nil || !take(b) {
			t.Error("a duty that was given back cannot be taken", err)
		}
	})
}
