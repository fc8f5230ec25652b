package queue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// die ends a node's lease, as time does.
func (w *world) die(t testing.TB, node *Node) {
	t.Helper()
	if n := must[int64](t)(w.rdb.ZAddArgs(w.ctx, w.store.keys.nodes(), redis.ZAddArgs{
		XX: true, Ch: true, Members: []redis.Z{{Score: 1, Member: node.id}},
	}).Result()); n != 1 {
		t.Fatalf("%s has no lease", node.id)
	}
}

// reclaimFrom takes the tasks of a node that died.
func (w *world) reclaimFrom(t testing.TB, node *Node) Reclaimed {
	t.Helper()
	w.die(t, node)
	return must[Reclaimed](t)(w.Fleet().Reclaim(w.ctx, node.id, 0))
}

func TestReclaimKeepsTheOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.enqueue(t, "q", "", Options{ID: "first"})
		survivor := w.node(t, "q")
		before := w.names(t)
		some := 100 // 1,150 tasks are many blocks
		if embedded(t) {
			some = 10
		}
		var specs []Spec
		var want []string
		for i := range 12 * some {
			want = append(want, fmt.Sprintf("id%04d", i))
			specs = append(specs, Spec{Options: Options{ID: want[i]}})
		}
		must[[]Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		node := w.node(t, "q")
		w.reserveMany(t, node, "q", 10*some, false)
		w.reserveMany(t, node, "q", 3*some/2, true)
		got := w.reclaimFrom(t, node)
		if got != (Reclaimed{Returned: 23 * some / 2}) {
			t.Errorf("%+v", got)
		}
		if ids := w.waits(t, "q"); !slices.Equal(ids, append([]string{"first"}, want...)) {
			t.Errorf("%d tasks wait, from %v", len(ids), ids[:10])
		}
		w.depth(t, "q", map[Status]int64{Pending: int64(12*some + 1)})
		for id, crashes := range map[string]int{"first": 0, want[5*some]: 0, want[10*some]: 1} {
			task := w.task(t, id)
			if task.Status != Pending || task.Crashes != crashes || task.Attempts != 0 || task.Node != "" || task.PID != 0 || !task.StartedAt.IsZero() {
				t.Errorf("%s: %+v", id, task)
			}
		}
		if nodes := must[[]NodeInfo](t)(w.Fleet().Nodes(w.ctx)); len(nodes) != 1 || nodes[0].ID != survivor.id {
			t.Errorf("%+v", nodes)
		}
		if n := must[map[string]int64](t)(w.Queues(w.ctx))["q"]; n != 1 {
			t.Errorf("%d listeners", n)
		}
		// Nothing else is left behind: not a key that was not there before, but those of the tasks.
		after := slices.DeleteFunc(w.names(t), func(key string) bool {
			return strings.HasPrefix(key, w.store.keys.task("id")) || strings.HasPrefix(key, w.store.keys.attempts("id"))
		})
		if !slices.Equal(before, after) {
			t.Errorf("keys\n%v, then\n%v", before, after)
		}
	})
}

func TestReclaimRefusesWhoeverLives(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", Options{})
		node := w.node(t, "q")
		w.reserve(t, node, "q", true)
		for name, reclaim := range map[string]func() (Reclaimed, error){
			"by a host": func() (Reclaimed, error) { return w.Fleet().Reclaim(w.ctx, node.id, 0) },
			"by hand":   func() (Reclaimed, error) { return w.Fleet().ReclaimNode(w.ctx, node.id, 0) },
			"its queue": func() (Reclaimed, error) { return w.reclaimQueue(w.ctx, node.id, "q", 3, true) },
		} {
			if got, err := reclaim(); !errors.Is(err, ErrStatus) || got != (Reclaimed{}) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
		if _, err := node.Renew(w.ctx, nil); err != nil {
			t.Error(err)
		}
		if _, err := w.Fleet().ReclaimNode(w.ctx, "host~01234567_1", 0); !errors.Is(err, ErrNoNode) {
			t.Errorf("of nobody: %v", err)
		}
		w.depth(t, "q", map[Status]int64{Started: 1})
	})
}

// Listener b_c_1 of queue a has the key of reserved tasks that c_1 has of queue a_b: nobody takes the tasks of one for the other's.
func TestReclaimOfASplicedName(t *testing.T) {
	w := setup(t)
	w.enqueue(t, "a", "", Options{})
	id := w.enqueue(t, "a_b", "", Options{})
	w.rdb.SAdd(w.ctx, w.store.keys.listeners("a_b"), "c_1")
	w.rdb.LMove(w.ctx, w.store.keys.pending("a_b"), w.store.keys.reserved("a_b", "c_1"), "right", "left")
	w.rdb.HSet(w.ctx, w.store.keys.task(id), "status", "reserved", "node", "c_1")
	if got, err := w.Fleet().ReclaimNode(w.ctx, "b_c_1", 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("by a name that nobody has: %+v, %v", got, err)
	}
	if _, err := w.Fleet().ReclaimNode(w.ctx, "z_c_1", 0); !errors.Is(err, ErrNoNode) {
		t.Errorf("by a name that splices to no queue: %v", err)
	}
	w.depth(t, "a", map[Status]int64{Pending: 1})
	w.depth(t, "a_b", map[Status]int64{Reserved: 1})
	w.rdb.SAdd(w.ctx, w.store.keys.listeners("a"), "b_c_1")
	if got, err := w.Fleet().ReclaimNode(w.ctx, "c_1", 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("while the other lives: %+v, %v", got, err)
	}
	w.rdb.SRem(w.ctx, w.store.keys.listeners("a"), "b_c_1")
	if got := must[Reclaimed](t)(w.Fleet().ReclaimNode(w.ctx, "c_1", 0)); got.Returned != 1 {
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
		for _, queue := range queues {
			w.enqueue(t, queue, "", Options{ID: queue + "-ran"})
			w.enqueue(t, queue, "", Options{ID: queue + "-reserved"})
			w.reserve(t, node, queue, true)
			w.reserve(t, node, queue, false)
		}
		w.die(t, node)
		if _, err := w.store.eval(w.ctx, call{script: allScripts["condemn"], keys: []string{w.store.keys.nodes()}, args: []any{"", node.id}}); err != nil {
			t.Fatal(err)
		}
		for _, queue := range queues[:half] {
			must[Reclaimed](t)(w.reclaimQueue(w.ctx, node.id, queue, 3, false))
		}
		var group sync.WaitGroup
		var mu sync.Mutex
		var total Reclaimed
		for range 3 {
			other := must[*Client](t)(NewFromRedis(w.rdb, w.config))
			group.Go(func() {
				got, err := other.Fleet().Reclaim(w.ctx, node.id, 0)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				total = Reclaimed{
					total.Returned + got.Returned, total.Scheduled + got.Scheduled, total.Failed + got.Failed,
					total.Dropped + got.Dropped, total.DeadError + got.DeadError,
				}
			})
		}
		group.Wait()
		if total != (Reclaimed{Returned: 2 * (len(queues) - half)}) {
			t.Errorf("%+v", total)
		}
		for _, queue := range queues {
			if ids := w.waits(t, queue); !slices.Equal(ids, []string{queue + "-ran", queue + "-reserved"}) {
				t.Errorf("%s: %v", queue, ids)
			}
			if crashes := w.task(t, queue+"-ran").Crashes; crashes != 1 {
				t.Errorf("%s: %d crashes", queue, crashes)
			}
			if n := w.rdb.ZScore(w.ctx, w.store.keys.queues(), queue).Val(); n != 1 {
				t.Errorf("%s has %v listeners", queue, n)
			}
		}
		for _, key := range w.names(t) {
			if strings.Contains(key, node.id) || strings.HasPrefix(key, w.store.keys.started("")) {
				t.Errorf("%s is left", key)
			}
		}
		if err := w.rdb.ZScore(w.ctx, w.store.keys.nodes(), node.id).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("its lease is left: %v", err)
		}
	})
}

// Whatever the hashes say, the list is the truth, and nothing stays in it.
func TestReclaimOfDamagedTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		node, other := w.node(t, "q"), w.node(t, "q")
		hash := func(id string, fields ...any) { w.rdb.HSet(w.ctx, w.store.keys.task(id), fields...) }
		for _, c := range []struct {
			id     string
			damage func(id string)
			want   Status // "" if there is no task left to look at
			kind   Reclaimed
		}{
			{"whole", func(string) {}, Pending, Reclaimed{Returned: 1}},
			{"missing", func(id string) { w.rdb.Del(w.ctx, w.store.keys.task(id)) }, "", Reclaimed{Dropped: 1}},
			{"no-hash", func(id string) {
				w.rdb.Del(w.ctx, w.store.keys.task(id))
				w.rdb.Set(w.ctx, w.store.keys.task(id), "x", 0)
			}, "", Reclaimed{Dropped: 1}},
			{"still-pending", func(id string) { hash(id, "status", "pending") }, Pending, Reclaimed{Returned: 1}},
			{"no-status", func(id string) { w.rdb.HDel(w.ctx, w.store.keys.task(id), "status", "node", "pid", "run") }, Pending, Reclaimed{Returned: 1}},
			{"strange-status", func(id string) { hash(id, "status", "running") }, Pending, Reclaimed{Returned: 1}},
			{"finished", func(id string) { hash(id, "status", "complete") }, Complete, Reclaimed{Dropped: 1}},
			{"anothers", func(id string) {
				hash(id, "node", other.id, "run", 7)
				w.rdb.LPush(w.ctx, w.store.keys.reserved("q", other.id), id)
			}, Started, Reclaimed{Dropped: 1}},
			{"nobodys", func(id string) { hash(id, "node", "gone_1") }, Pending, Reclaimed{Returned: 1}},
			{"scheduled", func(id string) {
				hash(id, "status", "scheduled")
				w.rdb.ZAdd(w.ctx, w.store.keys.scheduled("q"), redis.Z{Score: 1800000000, Member: id})
			}, Scheduled, Reclaimed{Dropped: 1}},
			{"half-scheduled", func(id string) { hash(id, "status", "scheduled") }, Pending, Reclaimed{Returned: 1}},
			{"no-crashes", func(id string) { hash(id, "crashes", "many") }, Pending, Reclaimed{Returned: 1}},
			{"no-limit", func(id string) { hash(id, "max_crashes", "nan", "on_crash", "?") }, Pending, Reclaimed{Returned: 1}},
			{"cancelled", func(id string) { hash(id, "cancel", "1") }, Failed, Reclaimed{Failed: 1}},
			{"cancelled-at-the-limit", func(id string) { hash(id, "cancel", "1", "crashes", "9", "dead", "morgue") }, Failed, Reclaimed{Failed: 1}},
			{"no-attempts", func(id string) { w.rdb.Set(w.ctx, w.store.keys.attempts(id), "x", 0) }, Pending, Reclaimed{Returned: 1}},
		} {
			w.enqueue(t, "q", "", Options{ID: c.id})
			w.reserve(t, node, "q", true)
			c.damage(c.id)
			got := must[Reclaimed](t)(func() (Reclaimed, error) {
				w.rdb.ZAdd(w.ctx, w.store.keys.nodes(), redis.Z{Score: 1, Member: node.id})
				return w.Fleet().Reclaim(w.ctx, node.id, 0)
			}())
			if got != c.kind {
				t.Errorf("%s: %+v, want %+v", c.id, got, c.kind)
			}
			if held := must[[]string](t)(node.Held(w.ctx, "q")); len(held) != 0 {
				t.Errorf("%s: %v stay in the list", c.id, held)
			}
			status := Status(w.rdb.HGet(w.ctx, w.store.keys.task(c.id), "status").Val())
			if status != c.want {
				t.Errorf("%s is %s, want %s", c.id, status, c.want)
			}
			if places := len(w.waits(t, "q")); places != c.kind.Returned {
				t.Errorf("%s: %d entries wait", c.id, places)
			}
			if c.want == Failed && w.task(t, c.id).Reason != ReasonCancelled {
				t.Errorf("%s: %+v", c.id, w.task(t, c.id))
			}
			if n := w.rdb.SCard(w.ctx, w.store.keys.started("q")).Val(); n != 0 {
				t.Errorf("%s: %d entries of what is started", c.id, n)
			}
			w.rdb.Del(w.ctx, w.store.keys.pending("q"), w.store.keys.scheduled("q"), w.store.keys.reserved("q", other.id))
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
		for _, queue := range []string{"a", "b", "c"} {
			w.enqueue(t, queue, "", Options{})
			w.reserve(t, node, queue, true)
		}
		w.rdb.Set(w.ctx, w.store.keys.failed("b"), "x", 0)
		w.die(t, node)
		got, err := w.Fleet().Reclaim(w.ctx, node.id, 0)
		if err == nil || !strings.Contains(err.Error(), w.store.keys.failed("b")) || got.Returned != 2 {
			t.Errorf("%+v, %v", got, err)
		}
		if dead, _, _, err := w.Fleet().Leases(w.ctx); err != nil || len(dead) != 1 {
			t.Errorf("%v, %v: nobody comes again", dead, err)
		}
		w.rdb.Del(w.ctx, w.store.keys.failed("b"))
		if got := must[Reclaimed](t)(w.Fleet().Reclaim(w.ctx, node.id, 0)); got.Returned != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// What a Python listener holds nobody takes by himself.
func TestReclaimOfAPythonListener(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const python = "some.host_4711"
		for _, id := range []string{"ran", "reserved"} {
			w.rdb.HSet(w.ctx, w.store.keys.task(id), "queue", "q", "parameters", "x", "status", "pending")
			w.rdb.LPush(w.ctx, w.store.keys.reserved("q", python), id)
		}
		w.rdb.SAdd(w.ctx, w.store.keys.listeners("q"), python)
		w.rdb.ZIncrBy(w.ctx, w.store.keys.queues(), 1, "q")
		w.rdb.SAdd(w.ctx, w.store.keys.started("q"), python+" 12 ran")
		w.rdb.HSet(w.ctx, w.store.keys.task("ran"), "status", "started", "node", python, "pid", 12, "reclaimed_node", "x")

		if dead, err := w.Fleet().Unleased(w.ctx); err != nil || len(dead) != 0 {
			t.Errorf("dead are %v, %v", dead, err)
		}
		if _, err := w.Fleet().Reclaim(w.ctx, python, 0); !errors.Is(err, ErrStatus) {
			t.Errorf("by a host: %v", err)
		}
		if w.rdb.LLen(w.ctx, w.store.keys.reserved("q", python)).Val() != 2 {
			t.Error("a host took its tasks")
		}
		if got := must[Reclaimed](t)(w.Fleet().ReclaimNode(w.ctx, python, 0)); got != (Reclaimed{Returned: 2}) {
			t.Errorf("by hand: %+v", got)
		}
		if ids := w.waits(t, "q"); !slices.Equal(ids, []string{"ran", "reserved"}) {
			t.Errorf("%v wait", ids)
		}
		if task := w.task(t, "ran"); task.Crashes != 1 || task.Status != Pending || task.Node != "" {
			t.Errorf("%+v", task)
		}
		w.depth(t, "q", map[Status]int64{Pending: 2})
		if n := must[map[string]int64](t)(w.Queues(w.ctx))["q"]; n != 0 {
			t.Errorf("%d listeners", n)
		}
		if _, err := w.Fleet().ReclaimNode(w.ctx, python, 0); !errors.Is(err, ErrNoNode) {
			t.Errorf("once more: %v", err)
		}
	})
}

func TestReclaimAnnouncesTheTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", Options{})
		node := w.node(t, "q")
		w.reserve(t, node, "q", true)
		tasks := w.listening(t, w.ctx, w.listener(t, "q"))
		w.subscribed(t, w.store.keys.channel("q"))
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
	w.enqueue(t, "q", "", Options{})
	w.reserve(t, node, "q", true)
	w.die(t, node)
	if err := w.rdb.ConfigSet(w.ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := w.Fleet().Reclaim(w.ctx, node.id, 0); err != nil || got.Returned != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	w.depth(t, "q", map[Status]int64{Pending: 1})
}

// The replies of a reclaim are lost: the repeat counts no crash twice.
func TestReclaimAfterALostReply(t *testing.T) {
	w, past, proxy := setupBehind(t, "")
	node := past.node(t, "q")
	past.enqueue(t, "q", "", Options{ID: "id"})
	past.reserve(t, node, "q", true)
	past.die(t, node)
	for cut := 1; ; cut++ {
		proxy.CutReplies(1, w.store.keys.reserved("q", node.id))
		_, err := w.Fleet().Reclaim(w.ctx, node.id, 0)
		proxy.Pass()
		if cut > 1 && proxy.Cuts() < cut {
			break // nothing is left to do with its list
		}
		if !IsUnavailable(err) || cut > 3 {
			t.Fatalf("%v after %d cuts", err, proxy.Cuts())
		}
		if cut == 2 {
			break
		}
	}
	must[Reclaimed](t)(w.Fleet().Reclaim(w.ctx, node.id, 0))
	if task := past.task(t, "id"); task.Crashes != 1 || task.Status != Pending {
		t.Errorf("%+v", task)
	}
	past.depth(t, "q", map[Status]int64{Pending: 1})
}

// Blueque's claim_orphan leaves the task in the list of the dead, which no queue's set names any more:
// if the claimer dies as well somebody still can move it.
func TestReclaimOfATaskThatBluequeClaimed(t *testing.T) {
	w, python := setupBlueque(t)
	own := python.Register("q")
	orphan := own[:strings.LastIndex(own, "_")] + "_999999"
	id := w.enqueue(t, "q", "", Options{})
	w.rdb.SAdd(w.ctx, w.store.keys.listeners("q"), orphan)
	w.rdb.LMove(w.ctx, w.store.keys.pending("q"), w.store.keys.reserved("q", orphan), "right", "left")
	w.rdb.HSet(w.ctx, w.store.keys.task(id), "status", "reserved", "node", orphan)
	if task := python.ClaimOrphan("q"); task == nil || task.ID != id {
		t.Fatalf("claimed %+v", task)
	}
	if dead, _, _, err := w.Fleet().Leases(w.ctx); err != nil || len(dead) != 0 {
		t.Errorf("dead are %v, %v", dead, err)
	}
	if got := must[Reclaimed](t)(w.Fleet().ReclaimNode(w.ctx, orphan, 0)); got.Returned != 1 {
		t.Errorf("%+v", got)
	}
	if claimed := w.rdb.HExists(w.ctx, w.store.keys.task(id), "reclaimed_node").Val(); claimed {
		t.Error("the claim is left")
	}
	w.depth(t, "q", map[Status]int64{Pending: 1})
}

// Reclaim works on a tenant that is a hash tag as on any other.
func TestReclaimOfATenantInBraces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, queuetest.Mini(t))
	w.store.keys, w.config.Tenant = keys{"{acme}"}, "{acme}"
	w.enqueue(t, "q", "", Options{})
	node := w.node(t, "q")
	w.reserve(t, node, "q", true)
	if got := w.reclaimFrom(t, node); got.Returned != 1 {
		t.Errorf("%+v", got)
	}
}
