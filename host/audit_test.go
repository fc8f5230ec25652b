package host

import (
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// hold moves the next task of a queue into the reserved list of the host, as a reserve does whose answer never comes.
func (n *node) hold(queueName, id string) {
	n.t.Helper()
	listener := n.listener()
	from, to := n.tenant+"_pending_tasks_"+queueName, n.tenant+"_reserved_tasks_"+queueName+"_"+listener
	if got, err := n.rdb.LMove(n.ctx, from, to, "RIGHT", "LEFT").Result(); err != nil || got != id {
		n.t.Fatalf("moved %q, %v", got, err)
	}
	if err := n.rdb.HSet(n.ctx, n.tenant+"_task_"+id, "status", "reserved", "node", listener, "run", "1").Err(); err != nil {
		n.t.Fatal(err)
	}
}

// What was reserved unknown does not wait for slots of its host while another one has some.
func TestWhatHasNoSlotGoesBack(t *testing.T) {
	t.Parallel()
	common := settings{
		tenants: []string{queuetest.Tenant()}, lease: time.Second, Config: Config{Concurrency: 2},
		guests: map[string][]byte{"sleep": runtimetest.Sleep(t), "echo": runtimetest.Echo(t)},
	}
	full := start(t, common)
	full.settled("sleep", "echo")
	full.enqueueMany("sleep", 2, "60000")
	full.count("sleep", queue.Started, 2)
	id := full.enqueue("echo", "")
	full.hold("echo", id)
	common.Queues = []string{"echo"}
	start(t, common)
	if task := full.wait(id); task.Status != queue.Complete {
		t.Errorf("the task is %s on %s", task.Status, task.Node)
	}
	if got := full.depth("sleep"); got[queue.Started] != 2 {
		t.Errorf("the slots came free: %v", got)
	}
}

// So does what was reserved unknown from a queue that the host does not serve any more, before or after it left.
func TestWhatIsHeldOfAQueueThatWasLeftGoesBack(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"before": time.Minute, "after": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, settings{lease: lease, guests: map[string][]byte{"echo": runtimetest.Echo(t), "cat": runtimetest.Cat(t)}})
			n.settled("echo", "cat")
			if err := n.client.Queue("echo").Pause(n.ctx); err != nil {
				t.Fatal(err)
			}
			id := n.enqueue("echo", "")
			if name == "before" { // and before the next audit, which is a lease later
				n.hold("echo", id)
			}
			n.remove("echo")
			n.eventually("the queue is left", func() bool { return n.log.has("left queue", "queue=echo") })
			if name == "after" {
				n.hold("echo", id)
			}
			n.count("echo", queue.Pending, 1)
			if task := n.task(id); task.Status != queue.Pending || task.Node != "" {
				t.Errorf("the task is %s on %s", task.Status, task.Node)
			}
		})
	}
}

// A look at such a queue that fails is no lasting trouble, though no reserve follows that would end it.
func TestFailedLookAtAQueueThatWasLeft(t *testing.T) {
	t.Parallel()
	proxy := queuetest.NewProxy(t, queuetest.Shared(t))
	n := start(t, settings{proxy: proxy, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.settled("echo")
	if err := n.client.Queue("echo").Pause(n.ctx); err != nil {
		t.Fatal(err)
	}
	id := n.enqueue("echo", "")
	n.hold("echo", id)
	proxy.CutReplies(2, "lrange") // the next looks
	n.remove("echo")
	n.count("echo", queue.Pending, 1)
	if cuts := proxy.Cuts(); cuts != 2 {
		t.Errorf("%d replies were cut, want 2", cuts)
	}
	n.eventually("ready", func() bool { return n.Ready() == nil })
}

// A host that Redis does not know when it reserves starts anew, long before its next renewal.
func TestLeaseIsLostWhereverItIsTold(t *testing.T) {
	t.Parallel()
	n := start(t, settings{lease: time.Hour, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.settled("echo")
	before := n.listener()
	if err := n.rdb.ZRem(n.ctx, n.tenant+"_nodes", before).Err(); err != nil {
		t.Fatal(err)
	}
	if task := n.wait(n.enqueue("echo", "")); task.Status != queue.Complete || task.Node == before {
		t.Errorf("the task is %s on %s, which was %s", task.Status, task.Node, before)
	}
}

// After a failover to a replica that has not heard of a settle, the task runs once more, though nothing else happens in
// its queue.
func TestFailoverToAnOlderState(t *testing.T) {
	t.Parallel()
	n := start(t, settings{lease: time.Second, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	n.settled("sleep")
	id := n.enqueue("sleep", "2000")
	n.count("sleep", queue.Started, 1)
	keys := []string{"_task_" + id, "_reserved_tasks_sleep_" + n.listener(), "_started_tasks_sleep"}
	older := make(map[string]string)
	for _, key := range keys {
		value, err := n.rdb.Dump(n.ctx, n.tenant+key).Result()
		if err != nil {
			t.Fatal(err)
		}
		older[key] = value
	}
	n.wait(id)
	n.eventually("the host is done with it", func() bool { return n.metric("quern_tasks_total", "outcome", "complete") == 1 })
	settled := time.Now()
	n.eventually("two audits find everything in order", func() bool { return time.Since(settled) > 2*time.Second })
	for key, value := range older {
		if err := n.rdb.RestoreReplace(n.ctx, n.tenant+key, 0, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	n.rdb.Del(n.ctx, n.tenant+"_complete_tasks_sleep")
	if task := n.wait(id); task.Status != queue.Complete {
		t.Errorf("the task is %s", task.Status)
	}
	n.count("sleep", queue.Complete, 1)
	n.count("sleep", queue.Started, 0)
}
