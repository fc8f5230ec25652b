package host

import (
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// pending are the IDs of a queue in the order in which they will be taken.
func (n *node) pending(queueName string) []string {
	n.t.Helper()
	ids, err := n.rdb.LRange(n.ctx, n.tenant+"_pending_tasks_"+queueName, 0, -1).Result()
	if err != nil {
		n.t.Fatal(err)
	}
	slices.Reverse(ids)
	return ids
}

// returned checks that tasks are as if nobody had taken them.
func (n *node) returned(ids ...string) {
	n.t.Helper()
	for _, id := range ids {
		if task := n.task(id); task.Status != queue.Pending || task.Node != "" || task.PID != 0 || task.Attempts != 0 || !task.StartedAt.IsZero() {
			n.t.Errorf("task %s is %s, node %q, pid %d, attempts %d, started %s", id, task.Status, task.Node, task.PID, task.Attempts, task.StartedAt)
		}
	}
}

// Tasks that end within the grace period complete; nothing more is taken meanwhile.
func TestDrainLetsTasksEnd(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Concurrency: 4}, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	ids := n.enqueueMany("sleep", 4, "1500")
	n.count("sleep", queue.Started, 4)
	late := n.enqueue("sleep", "0")
	n.terminate()
	n.eventually("draining is told", func() bool { return n.Ready() != nil && n.Ready().Error() == "draining" })
	n.eventually("draining is published", func() bool {
		nodes, err := listen.NewFleet(n.client).Nodes(n.ctx)
		return err == nil && len(nodes) == 1 && nodes[0].About["draining"] == "true"
	})
	if err := n.end(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if task := n.task(id); task.Status != queue.Complete {
			t.Errorf("task is %s: %s", task.Status, task.Error)
		}
	}
	n.returned(late)
	n.gone("sleep")
}

// What does not end within the grace period goes back to the front, in its old order.
func TestDrainGivesBack(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Concurrency: 5, Grace: 50 * time.Millisecond},
		guests: map[string][]byte{"loop": runtimetest.Loop(t), "sleep": runtimetest.Sleep(t)},
	})
	n.serving("loop", "sleep")
	loops := n.enqueueMany("loop", 3, "")
	n.count("loop", queue.Started, 3)
	sleeps := n.enqueueMany("sleep", 6, "60000")
	n.count("sleep", queue.Started, 2)
	n.eventually("the guests run", func() bool { return n.log.lines("plugin says", "ready") == 5 })
	behind := n.enqueueMany("loop", 2, "")
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	for queueName, want := range map[string][]string{"loop": append(loops, behind...), "sleep": sleeps} {
		if got := n.pending(queueName); !slices.Equal(got, want) {
			t.Errorf("%s: pending %v, want %v", queueName, got, want)
		}
		n.returned(want...)
	}
	n.gone("loop", "sleep")
	if got := n.metric("quern_tasks_total", "outcome", "released"); got != 5 {
		t.Errorf("counted %v released, want 5", got)
	}
	if got := n.metric("quern_slots_in_use"); got != 0 {
		t.Errorf("%v slots are in use after the end", got)
	}
	if lines, err := manage.New(n.client).Log(n.ctx, loops[0], 0); err != nil || len(lines) != 1 || lines[0].Text != "ready" {
		t.Errorf("log of a task that was given back: %v, %v", lines, err)
	}
}

// Told twice, the host does not wait for the grace period.
func TestHurry(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Grace: time.Hour}, guests: map[string][]byte{"loop": runtimetest.Loop(t)}})
	ids := n.enqueueMany("loop", 2, "")
	n.count("loop", queue.Started, 2)
	n.terminate()
	n.eventually("draining", func() bool { return n.log.has("draining") })
	n.hurry()
	if err := n.end(); err != nil {
		t.Fatal(err)
	}
	n.returned(ids...)
	n.gone("loop")
}

// A host ends in bounded time though Redis is away or hangs; its tasks stay in its reserved list.
func TestDrainWithoutRedis(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(*queuetest.Server){"Away": (*queuetest.Server).Kill, "Hangs": (*queuetest.Server).Pause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := queuetest.Start(t)
			n := start(t, settings{
				Config: Config{Grace: time.Hour}, server: server,
				guests: map[string][]byte{"loop": runtimetest.Loop(t)},
			})
			n.enqueueMany("loop", 2, "")
			n.count("loop", queue.Started, 2)
			breakIt(server)
			n.terminate()
			n.eventually("draining", func() bool { return n.log.has("draining") })
			n.hurry()
			if err := n.end(); err == nil {
				t.Error("the host left a Redis that is not there")
			}
		})
	}
}

// Tasks whose reserve was not answered when the host was told to end are given back as well.
func TestDrainGivesBackWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	proxy := queuetest.NewProxy(t, server)
	n := start(t, settings{server: server, proxy: proxy, guests: map[string][]byte{"loop": runtimetest.Loop(t)}})
	n.serving("loop")
	n.eventually("idle", func() bool { return n.idle() })
	proxy.CutReplies(-1, n.tenant+"_pending_tasks_loop") // every reserve
	ids := n.enqueueMany("loop", 3, "")
	n.eventually("a reply is cut", func() bool { return proxy.Cuts() > 0 })
	n.terminate()
	n.hurry()
	n.eventually("draining", func() bool { return n.log.has("draining") })
	proxy.CutReplies(0, "")
	if err := n.end(); err != nil {
		t.Fatal(err)
	}
	n.returned(ids...)
	n.gone("loop")
}

// idle tells whether the host has asked for everything that there may be.
func (n *node) idle() bool {
	s := n.scheduler.Status()
	return s.Busy == 0 && s.InUse == 0 && s.Queues > 0
}
