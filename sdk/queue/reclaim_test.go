package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// die ends a node's lease, as time does.
func (w *world) die(t testing.TB, node *listen.Node) {
	t.Helper()
	if n := must[int64](t)(w.rdb.ZAddArgs(w.ctx, w.Store().Keys.Nodes(), redis.ZAddArgs{
		XX: true, Ch: true, Members: []redis.Z{{Score: 1, Member: node.ID()}},
	}).Result()); n != 1 {
		t.Fatalf("%s has no lease", node.ID())
	}
}

// reclaimFrom takes the tasks of a node that died.
func (w *world) reclaimFrom(t testing.TB, node *listen.Node) listen.Reclaimed {
	t.Helper()
	w.die(t, node)
	return must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0))
}

func TestReclaimKeepsTheOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.enqueue(t, "q", "", queue.Options{ID: "first"})
		survivor := w.node(t, "q")
		before := w.names(t)
		some := 100 // 1,150 tasks are many blocks
		if embedded(t) {
			some = 10
		}
		var specs []queue.Spec
		var want []string
		for i := range 12 * some {
			want = append(want, fmt.Sprintf("id%04d", i))
			specs = append(specs, queue.Spec{Options: queue.Options{ID: want[i]}})
		}
		must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		node := w.node(t, "q")
		w.reserveMany(t, node, "q", 10*some, false)
		w.reserveMany(t, node, "q", 3*some/2, true)
		got := w.reclaimFrom(t, node)
		if got != (listen.Reclaimed{Returned: 23 * some / 2}) {
			t.Errorf("%+v", got)
		}
		if ids := w.waits(t, "q"); !slices.Equal(ids, append([]string{"first"}, want...)) {
			t.Errorf("%d tasks wait, from %v", len(ids), ids[:10])
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: int64(12*some + 1)})
		for id, crashes := range map[string]int{"first": 0, want[5*some]: 0, want[10*some]: 1} {
			task := w.task(t, id)
			if task.Status != queue.Pending || task.Crashes != crashes || task.Attempts != 0 || task.Node != "" || task.PID != 0 || !task.StartedAt.IsZero() {
				t.Errorf("%s: %+v", id, task)
			}
		}
		if nodes := must[[]listen.NodeInfo](t)(listen.NewFleet(w.Client).Nodes(w.ctx)); len(nodes) != 1 || nodes[0].ID != survivor.ID() {
			t.Errorf("%+v", nodes)
		}
		if n := must[map[string]int64](t)(w.Queues(w.ctx))["q"]; n != 1 {
			t.Errorf("%d listeners", n)
		}
		// Nothing else is left behind: not a key that was not there before, but those of the tasks.
		after := slices.DeleteFunc(w.names(t), func(key string) bool {
			return strings.HasPrefix(key, w.Store().Keys.Task("id")) || strings.HasPrefix(key, w.Store().Keys.Attempts("id"))
		})
		if !slices.Equal(before, after) {
			t.Errorf("keys\n%v, then\n%v", before, after)
		}
	})
}

func TestReclaimRefusesWhoeverLives(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		w.reserve(t, node, "q", true)
		for name, reclaim := range map[string]func() (listen.Reclaimed, error){
			"by a host": func() (listen.Reclaimed, error) { return listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0) },
			"by hand":   func() (listen.Reclaimed, error) { return manage.New(w.Client).ReclaimNode(w.ctx, node.ID(), 0) },
			"its queue": func() (listen.Reclaimed, error) { return w.reclaimQueue(w.ctx, node.ID(), "q", 3, true) },
		} {
			if got, err := reclaim(); !errors.Is(err, queue.ErrStatus) || got != (listen.Reclaimed{}) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
		if _, err := node.Renew(w.ctx, nil); err != nil {
			t.Error(err)
		}
		if _, err := manage.New(w.Client).ReclaimNode(w.ctx, "host~01234567_1", 0); !errors.Is(err, listen.ErrNoNode) {
			t.Errorf("of nobody: %v", err)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Started: 1})
	})
}

// Listener b_c_1 of queue a has the key of reserved tasks that c_1 has of queue a_b: nobody takes the tasks of one for the other's.
func TestReclaimOfASplicedName(t *testing.T) {
	w := setup(t)
	w.enqueue(t, "a", "", queue.Options{})
	id := w.enqueue(t, "a_b", "", queue.Options{})
	w.rdb.SAdd(w.ctx, w.Store().Keys.Listeners("a_b"), "c_1")
	w.rdb.LMove(w.ctx, w.Store().Keys.Pending("a_b"), w.Store().Keys.Reserved("a_b", "c_1"), "right", "left")
	w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "status", "reserved", "node", "c_1")
	if got, err := manage.New(w.Client).ReclaimNode(w.ctx, "b_c_1", 0); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("by a name that nobody has: %+v, %v", got, err)
	}
	if _, err := manage.New(w.Client).ReclaimNode(w.ctx, "z_c_1", 0); !errors.Is(err, listen.ErrNoNode) {
		t.Errorf("by a name that splices to no queue: %v", err)
	}
	w.depth(t, "a", map[queue.Status]int64{queue.Pending: 1})
	w.depth(t, "a_b", map[queue.Status]int64{queue.Reserved: 1})
	w.rdb.SAdd(w.ctx, w.Store().Keys.Listeners("a"), "b_c_1")
	if got, err := manage.New(w.Client).ReclaimNode(w.ctx, "c_1", 0); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("while the other lives: %+v, %v", got, err)
	}
	w.rdb.SRem(w.ctx, w.Store().Keys.Listeners("a"), "b_c_1")
	if got := must[listen.Reclaimed](t)(manage.New(w.Client).ReclaimNode(w.ctx, "c_1", 0)); got.Returned != 1 {
		t.Errorf("%+v", got)
	}
}

// A listener with 50 queues; whoever reclaims dies half-way, and several go on at once.
func TestReclaimersThatDie(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var queues []string
		for i := range 50 {
			queues = append(queues, fmt.Sprintf("q%02d", i))
		}
		if embedded(t) {
			queues = queues[:8]
		}
		half := len(queues) / 2
		node := w.node(t, queues...)
		w.node(t, queues...) // lives
		for _, name := range queues {
			w.enqueue(t, name, "", queue.Options{ID: name + "-ran"})
			w.enqueue(t, name, "", queue.Options{ID: name + "-reserved"})
			w.reserve(t, node, name, true)
			w.reserve(t, node, name, false)
		}
		w.die(t, node)
		if _, err := w.Store().Eval(w.ctx, store.Call{Script: store.AllScripts["condemn"], Keys: []string{w.Store().Keys.Nodes()}, Args: []any{"", node.ID()}}); err != nil {
			t.Fatal(err)
		}
		for _, queue := range queues[:half] {
			must[listen.Reclaimed](t)(w.reclaimQueue(w.ctx, node.ID(), queue, 3, false))
		}
		var group sync.WaitGroup
		var mu sync.Mutex
		var total listen.Reclaimed
		for range 3 {
			other := must[*queue.Client](t)(queue.NewFromRedis(w.rdb, *w.Config()))
			group.Go(func() {
				got, err := listen.NewFleet(other).Reclaim(w.ctx, node.ID(), 0)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				total = listen.Reclaimed{
					Returned: total.Returned + got.Returned, Scheduled: total.Scheduled + got.Scheduled, Failed: total.Failed + got.Failed,
					Dropped: total.Dropped + got.Dropped, DeadError: total.DeadError + got.DeadError,
				}
			})
		}
		group.Wait()
		if total != (listen.Reclaimed{Returned: 2 * (len(queues) - half)}) {
			t.Errorf("%+v", total)
		}
		for _, queue := range queues {
			if ids := w.waits(t, queue); !slices.Equal(ids, []string{queue + "-ran", queue + "-reserved"}) {
				t.Errorf("%s: %v", queue, ids)
			}
			if crashes := w.task(t, queue+"-ran").Crashes; crashes != 1 {
				t.Errorf("%s: %d crashes", queue, crashes)
			}
			if n := w.rdb.ZScore(w.ctx, w.Store().Keys.Queues(), queue).Val(); n != 1 {
				t.Errorf("%s has %v listeners", queue, n)
			}
		}
		for _, key := range w.names(t) {
			if strings.Contains(key, node.ID()) || strings.HasPrefix(key, w.Store().Keys.Started("")) {
				t.Errorf("%s is left", key)
			}
		}
		if err := w.rdb.ZScore(w.ctx, w.Store().Keys.Nodes(), node.ID()).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("its lease is left: %v", err)
		}
	})
}

// Whatever the hashes say, the list is the truth, and nothing stays in it.
func TestReclaimOfDamagedTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		node, other := w.node(t, "q"), w.node(t, "q")
		hash := func(id string, fields ...any) { w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), fields...) }
		for _, c := range []struct {
			id     string
			damage func(id string)
			want   queue.Status // "" if there is no task left to look at
			kind   listen.Reclaimed
		}{
			{"whole", func(string) {}, queue.Pending, listen.Reclaimed{Returned: 1}},
			{"missing", func(id string) { w.rdb.Del(w.ctx, w.Store().Keys.Task(id)) }, "", listen.Reclaimed{Dropped: 1}},
			{"no-hash", func(id string) {
				w.rdb.Del(w.ctx, w.Store().Keys.Task(id))
				w.rdb.Set(w.ctx, w.Store().Keys.Task(id), "x", 0)
			}, "", listen.Reclaimed{Dropped: 1}},
			{"still-pending", func(id string) { hash(id, "status", "pending") }, queue.Pending, listen.Reclaimed{Returned: 1}},
			{"no-status", func(id string) { w.rdb.HDel(w.ctx, w.Store().Keys.Task(id), "status", "node", "pid", "run") }, queue.Pending, listen.Reclaimed{Returned: 1}},
			{"strange-status", func(id string) { hash(id, "status", "running") }, queue.Pending, listen.Reclaimed{Returned: 1}},
			{"finished", func(id string) { hash(id, "status", "complete") }, queue.Complete, listen.Reclaimed{Dropped: 1}},
			{"anothers", func(id string) {
				hash(id, "node", other.ID(), "run", 7)
				w.rdb.LPush(w.ctx, w.Store().Keys.Reserved("q", other.ID()), id)
			}, queue.Started, listen.Reclaimed{Dropped: 1}},
			{"nobodys", func(id string) { hash(id, "node", "gone_1") }, queue.Pending, listen.Reclaimed{Returned: 1}},
			{"scheduled", func(id string) {
				hash(id, "status", "scheduled")
				w.rdb.ZAdd(w.ctx, w.Store().Keys.Scheduled("q"), redis.Z{Score: 1800000000, Member: id})
			}, queue.Scheduled, listen.Reclaimed{Dropped: 1}},
			{"half-scheduled", func(id string) { hash(id, "status", "scheduled") }, queue.Pending, listen.Reclaimed{Returned: 1}},
			{"no-crashes", func(id string) { hash(id, "crashes", "many") }, queue.Pending, listen.Reclaimed{Returned: 1}},
			{"no-limit", func(id string) { hash(id, "max_crashes", "nan", "on_crash", "?") }, queue.Pending, listen.Reclaimed{Returned: 1}},
			{"cancelled", func(id string) { hash(id, "cancel", "1") }, queue.Failed, listen.Reclaimed{Failed: 1}},
			{"cancelled-at-the-limit", func(id string) { hash(id, "cancel", "1", "crashes", "9", "dead", "morgue") }, queue.Failed, listen.Reclaimed{Failed: 1}},
			{"no-attempts", func(id string) { w.rdb.Set(w.ctx, w.Store().Keys.Attempts(id), "x", 0) }, queue.Pending, listen.Reclaimed{Returned: 1}},
		} {
			w.enqueue(t, "q", "", queue.Options{ID: c.id})
			w.reserve(t, node, "q", true)
			c.damage(c.id)
			got := must[listen.Reclaimed](t)(func() (listen.Reclaimed, error) {
				w.rdb.ZAdd(w.ctx, w.Store().Keys.Nodes(), redis.Z{Score: 1, Member: node.ID()})
				return listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0)
			}())
			if got != c.kind {
				t.Errorf("%s: %+v, want %+v", c.id, got, c.kind)
			}
			if held := must[[]string](t)(node.Held(w.ctx, "q")); len(held) != 0 {
				t.Errorf("%s: %v stay in the list", c.id, held)
			}
			status := queue.Status(w.rdb.HGet(w.ctx, w.Store().Keys.Task(c.id), "status").Val())
			if status != c.want {
				t.Errorf("%s is %s, want %s", c.id, status, c.want)
			}
			if places := len(w.waits(t, "q")); places != c.kind.Returned {
				t.Errorf("%s: %d entries wait", c.id, places)
			}
			if c.want == queue.Failed && w.task(t, c.id).Reason != queue.ReasonCancelled {
				t.Errorf("%s: %+v", c.id, w.task(t, c.id))
			}
			if n := w.rdb.SCard(w.ctx, w.Store().Keys.Started("q")).Val(); n != 0 {
				t.Errorf("%s: %d entries of what is started", c.id, n)
			}
			w.rdb.Del(w.ctx, w.Store().Keys.Pending("q"), w.Store().Keys.Scheduled("q"), w.Store().Keys.Reserved("q", other.ID()))
			if err := errors.Join(node.Join(w.ctx), node.Register(w.ctx, "q")); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(w.waits(t, "morgue")); n != 0 {
			t.Error("a cancelled task has a dead letter")
		}
	})
}

// One queue that somebody damaged keeps no tasks of the others, and the listener is not forgotten.
func TestReclaimBesideADamagedQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "a", "b", "c")
		for _, name := range []string{"a", "b", "c"} {
			w.enqueue(t, name, "", queue.Options{})
			w.reserve(t, node, name, true)
		}
		w.rdb.Set(w.ctx, w.Store().Keys.Failed("b"), "x", 0)
		w.die(t, node)
		got, err := listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0)
		if err == nil || !strings.Contains(err.Error(), w.Store().Keys.Failed("b")) || got.Returned != 2 {
			t.Errorf("%+v, %v", got, err)
		}
		if dead, _, _, err := listen.NewFleet(w.Client).Leases(w.ctx); err != nil || len(dead) != 1 {
			t.Errorf("%v, %v: nobody comes again", dead, err)
		}
		w.rdb.Del(w.ctx, w.Store().Keys.Failed("b"))
		if got := must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0)); got.Returned != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// What a Python listener holds nobody takes by himself.
func TestReclaimOfAPythonListener(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const python = "some.host_4711"
		for _, id := range []string{"ran", "reserved"} {
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "queue", "q", "parameters", "x", "status", "pending")
			w.rdb.LPush(w.ctx, w.Store().Keys.Reserved("q", python), id)
		}
		w.rdb.SAdd(w.ctx, w.Store().Keys.Listeners("q"), python)
		w.rdb.ZIncrBy(w.ctx, w.Store().Keys.Queues(), 1, "q")
		w.rdb.SAdd(w.ctx, w.Store().Keys.Started("q"), python+" 12 ran")
		w.rdb.HSet(w.ctx, w.Store().Keys.Task("ran"), "status", "started", "node", python, "pid", 12, "reclaimed_node", "x")

		if dead, err := listen.NewFleet(w.Client).Unleased(w.ctx); err != nil || len(dead) != 0 {
			t.Errorf("dead are %v, %v", dead, err)
		}
		if _, err := listen.NewFleet(w.Client).Reclaim(w.ctx, python, 0); !errors.Is(err, queue.ErrStatus) {
			t.Errorf("by a host: %v", err)
		}
		if w.rdb.LLen(w.ctx, w.Store().Keys.Reserved("q", python)).Val() != 2 {
			t.Error("a host took its tasks")
		}
		if got := must[listen.Reclaimed](t)(manage.New(w.Client).ReclaimNode(w.ctx, python, 0)); got != (listen.Reclaimed{Returned: 2}) {
			t.Errorf("by hand: %+v", got)
		}
		if ids := w.waits(t, "q"); !slices.Equal(ids, []string{"ran", "reserved"}) {
			t.Errorf("%v wait", ids)
		}
		if task := w.task(t, "ran"); task.Crashes != 1 || task.Status != queue.Pending || task.Node != "" {
			t.Errorf("%+v", task)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 2})
		if n := must[map[string]int64](t)(w.Queues(w.ctx))["q"]; n != 0 {
			t.Errorf("%d listeners", n)
		}
		if _, err := manage.New(w.Client).ReclaimNode(w.ctx, python, 0); !errors.Is(err, listen.ErrNoNode) {
			t.Errorf("once more: %v", err)
		}
	})
}

func TestReclaimAnnouncesTheTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", queue.Options{})
		node := w.node(t, "q")
		w.reserve(t, node, "q", true)
		tasks := w.listening(t, w.ctx, w.listener(t, "q"))
		w.subscribed(t, w.Store().Keys.Channel("q"))
		w.reclaimFrom(t, node)
		if task := receive(t, "the task", tasks); task == nil {
			t.Error("no task")
		}
	})
}

// At maxmemory, too: who reclaims begins with what Redis does not refuse.
func TestReclaimAtMaxmemory(t *testing.T) {
	t.Parallel()
	w := setupOwn(t, "--maxmemory-policy", "noeviction")
	node := w.node(t, "q")
	w.enqueue(t, "q", "", queue.Options{})
	w.reserve(t, node, "q", true)
	w.die(t, node)
	if err := w.rdb.ConfigSet(w.ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0); err != nil || got.Returned != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
}

// The replies of a reclaim are lost: the repeat counts no crash twice.
func TestReclaimAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	node := past.node(t, "q")
	past.enqueue(t, "q", "", queue.Options{ID: "id"})
	past.reserve(t, node, "q", true)
	past.die(t, node)
	for cut := 1; ; cut++ {
		proxy.CutReplies(1, w.Store().Keys.Reserved("q", node.ID()))
		_, err := listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0)
		proxy.Pass()
		if cut > 1 && proxy.Cuts() < cut {
			break // nothing is left to do with its list
		}
		if !queue.IsUnavailable(err) || cut > 3 {
			t.Fatalf("%v after %d cuts", err, proxy.Cuts())
		}
		if cut == 2 {
			break
		}
	}
	must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0))
	if task := past.task(t, "id"); task.Crashes != 1 || task.Status != queue.Pending {
		t.Errorf("%+v", task)
	}
	past.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
}

// Blueque's claim_orphan leaves the task in the list of the dead, which no queue's set names any more:
// if the claimer dies as well somebody still can move it.
func TestReclaimOfATaskThatBluequeClaimed(t *testing.T) {
	w, python := setupBlueque(t)
	own := python.Register("q")
	orphan := own[:strings.LastIndex(own, "_")] + "_999999"
	id := w.enqueue(t, "q", "", queue.Options{})
	w.rdb.SAdd(w.ctx, w.Store().Keys.Listeners("q"), orphan)
	w.rdb.LMove(w.ctx, w.Store().Keys.Pending("q"), w.Store().Keys.Reserved("q", orphan), "right", "left")
	w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "status", "reserved", "node", orphan)
	if task := python.ClaimOrphan("q"); task == nil || task.ID != id {
		t.Fatalf("claimed %+v", task)
	}
	if dead, _, _, err := listen.NewFleet(w.Client).Leases(w.ctx); err != nil || len(dead) != 0 {
		t.Errorf("dead are %v, %v", dead, err)
	}
	if got := must[listen.Reclaimed](t)(manage.New(w.Client).ReclaimNode(w.ctx, orphan, 0)); got.Returned != 1 {
		t.Errorf("%+v", got)
	}
	if claimed := w.rdb.HExists(w.ctx, w.Store().Keys.Task(id), "reclaimed_node").Val(); claimed {
		t.Error("the claim is left")
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
}

// Reclaim works on a tenant that is a hash tag as on any other.
func TestReclaimOfATenantInBraces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, queuetest.Mini(t))
	w.Store().Keys, w.Config().Tenant = store.Keys{Tenant: "{acme}"}, "{acme}"
	w.enqueue(t, "q", "", queue.Options{})
	node := w.node(t, "q")
	w.reserve(t, node, "q", true)
	if got := w.reclaimFrom(t, node); got.Returned != 1 {
		t.Errorf("%+v", got)
	}
}
