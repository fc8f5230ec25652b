package host

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// clientWith is a client of the node's tenant whose listeners have another lease.
func (n *node) clientWith(lease time.Duration) *queue.Client {
	n.t.Helper()
	client, err := queue.NewFromRedis(n.rdb, queue.Config{Tenant: n.tenant, Lease: lease})
	if err != nil {
		n.t.Fatal(err)
	}
	return client
}

// deadNode is a listener that holds tasks of the queue, started as far as asked, and never renews.
func (n *node) deadNode(queueName string, started, reserved int) {
	n.t.Helper()
	dead := listen.New(n.clientWith(time.Second))
	if err := errors.Join(dead.Join(n.ctx), dead.Register(n.ctx, queueName)); err != nil {
		n.t.Fatal(err)
	}
	for _, want := range []listen.ReserveRequest{{Queue: queueName, Count: started, Start: true}, {Queue: queueName, Count: reserved}} {
		if want.Count == 0 {
			continue
		}
		batch := dead.Reserve(n.ctx, []listen.ReserveRequest{want})[0]
		if batch.Err != nil || len(batch.Tasks) != want.Count {
			n.t.Fatalf("reserved %d of %d: %v", len(batch.Tasks), want.Count, batch.Err)
		}
	}
}

func TestReclaimsFromADeadHost(t *testing.T) {
	t.Parallel()
	n := start(t, settings{lease: time.Second, idle: true, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	ids := n.enqueueMany("echo", 3, "%d")
	n.deadNode("echo", 1, 2)
	n.run()
	for i, id := range ids {
		task := n.wait(id)
		if task.Status != queue.Complete || string(task.Result) != fmt.Sprint(i) || task.Run != 2 || task.Attempts != 1 {
			t.Errorf("task is %s after run %d and attempt %d: %s", task.Status, task.Run, task.Attempts, task.Error)
		}
		if crashes := map[bool]int{true: 1, false: 0}[i == 0]; task.Crashes != crashes {
			t.Errorf("task %d lost %d hosts, want %d: only what had started crashed", i, task.Crashes, crashes)
		}
	}
	n.counted(3, "quern_tasks_reclaimed_total", "outcome", "released")
	n.eventually("the dead listener is forgotten", func() bool { return len(n.listeners()) == 1 })
	counts, err := n.client.Queues(n.ctx)
	if err != nil || counts["echo"] != 1 {
		t.Errorf("%d listeners, %v", counts["echo"], err)
	}
}

// A host looks for dead listeners as soon as it may, a lease after it came, and not when the turn comes that a look
// before that moment would have had.
func TestReclaimsAsSoonAsRenewalsAreSteady(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	tenants := make([]string, 8) // the moment of a turn is random
	for i := range tenants {
		tenants[i] = queuetest.Tenant()
	}
	n := start(t, settings{lease: lease, tenants: tenants, idle: true})
	for _, tenant := range tenants {
		dead, err := queue.NewFromRedis(n.rdb, queue.Config{Tenant: tenant, Lease: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := listen.New(dead).Join(n.ctx); err != nil {
			t.Fatal(err)
		}
	}
	n.run()
	renewals := make(map[string][]float64) // the leases' ends that were seen
	n.eventually("all dead listeners are forgotten", func() bool {
		left := 0
		for _, tenant := range tenants {
			leases, err := n.rdb.ZRangeWithScores(n.ctx, tenant+"_nodes", 0, -1).Result()
			if err != nil {
				t.Fatal(err)
			}
			if len(leases) != 1 || !n.log.has("joined", "tenant="+tenant) {
				left++
			}
			if len(leases) > 1 && !slices.Contains(renewals[tenant], leases[1].Score) {
				renewals[tenant] = append(renewals[tenant], leases[1].Score)
			}
		}
		return left == 0
	})
	for tenant, ends := range renewals { // as it joins, at once, and three a lease, the last of them maybe just before it looks
		if len(ends) > 6 {
			t.Errorf("tenant %s: the host renewed %d times until it looked, want 6 at most", tenant, len(ends))
		}
	}
}

// A queue that somebody damaged keeps nothing of two dead hosts that never served it.
func TestReclaimsFromDeadHostsBesideADamagedQueue(t *testing.T) {
	t.Parallel()
	n := start(t, settings{lease: time.Second, idle: true, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	ids := n.enqueueMany("echo", 2, "%d")
	n.deadNode("echo", 1, 0)
	n.deadNode("echo", 1, 0)
	n.enqueue("aaa", "") // the first in the order of reclaiming
	if err := n.rdb.Set(n.ctx, n.tenant+"_failed_tasks_aaa", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	n.run()
	for _, id := range ids {
		if task := n.wait(id); task.Status != queue.Complete || task.Run != 2 || task.Crashes != 1 {
			t.Errorf("task is %s after run %d and %d crashes", task.Status, task.Run, task.Crashes)
		}
	}
}

// A task that is to be tried again, and that somebody cancelled unheard, has failed.
func TestRetryOfWhatIsCancelled(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"sleep": runtimetest.Sleep(t)},
		yaml:   map[string]string{"sleep": "{limits: {timeout: 1s}, retry: {max_attempts: 3}}"},
	})
	id := n.enqueue("sleep", "60000")
	n.count("sleep", queue.Started, 1)
	if err := n.rdb.HSet(n.ctx, n.tenant+"_task_"+id, "cancel", "1").Err(); err != nil { // without a message
		t.Fatal(err)
	}
	if task := n.wait(id); task.Status != queue.Failed || task.Reason != queue.ReasonCancelled || task.Run != 1 {
		t.Errorf("task is %s for %s after run %d", task.Status, task.Reason, task.Run)
	}
	n.counted(1, "quern_tasks_total", "queue", "sleep", "outcome", "failed", "reason", "cancelled")
	if got := n.metric("quern_tasks_total", "queue", "sleep", "outcome", "retried"); got != 0 {
		t.Errorf("counted %v retried", got)
	}
}

// A handler that must not run twice fails with its host; any other fails when it has lost too many.
func TestCrashedTasksFail(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{MaxCrashes: 1}, lease: time.Second, idle: true,
		guests: map[string][]byte{"echo": runtimetest.Echo(t)},
	})
	id := n.enqueue("echo", "")
	n.deadNode("echo", 1, 0)
	n.run()
	if task := n.wait(id); task.Status != queue.Failed || task.Reason != queue.ReasonCrashed || task.Crashes != 1 {
		t.Errorf("task is %s for %s after %d crashes", task.Status, task.Reason, task.Crashes)
	}
	n.counted(1, "quern_tasks_reclaimed_total", "outcome", "failed")
}

// An outage of Redis that is longer than every lease costs nobody anything: guests run on, and their
// hosts stay who they are.
func TestOutageReclaimsNothing(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	common := settings{
		Config: Config{Concurrency: 2}, server: server, lease: time.Second, tenants: []string{queuetest.Tenant()},
		guests: map[string][]byte{"sleep": runtimetest.Sleep(t)},
	}
	a, b := start(t, common), start(t, common)
	a.settledAs(2, "sleep")
	b.settledAs(2, "sleep")
	ids := a.enqueueMany("sleep", 4, "6000")
	a.count("sleep", queue.Started, 4)
	before := a.listeners()
	server.Pause()
	outage := time.NewTimer(4 * time.Second)
	<-outage.C // what is tested is the length of it
	server.Resume()
	a.complete("sleep", ids)
	for _, id := range ids {
		if task := a.task(id); task.Run != 1 || task.Crashes != 0 {
			t.Errorf("task ran %d times and lost %d hosts", task.Run, task.Crashes)
		}
	}
	if after := a.listeners(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("listeners were %v, are %v", before, after)
	}
	for _, n := range []*node{a, b} {
		if n.log.lines("reclaimed from a dead listener") != 0 || n.log.lines("lease lost") != 0 {
			t.Error("somebody was taken for dead")
		}
	}
}

// A host that was cut off for longer than its lease finds its tasks taken, and says so.
func TestCutOffHostIsFenced(t *testing.T) {
	t.Parallel()
	server := queuetest.Shared(t)
	proxy := queuetest.NewProxy(t, server)
	common := settings{
		Config: Config{Concurrency: 1}, server: server, lease: time.Second, tenants: []string{queuetest.Tenant()},
		guests: map[string][]byte{"sleep": runtimetest.Sleep(t)},
	}
	behind := common
	behind.proxy = proxy
	cut := start(t, behind)
	cut.settled("sleep")
	id := cut.enqueue("sleep", "10000") // longer than the other host takes to start on a busy machine
	cut.count("sleep", queue.Started, 1)
	other := start(t, common)
	other.settledAs(2, "sleep")
	proxy.Block()
	other.eventually("the task runs elsewhere", func() bool { task := other.task(id); return task.Run == 2 && task.Status == queue.Started })
	proxy.Pass()
	cut.eventually("the lease is found lost", func() bool { return cut.log.has("lease lost") })
	if task := other.wait(id); task.Status != queue.Complete || task.Run != 2 || task.Crashes != 1 || task.Node != other.nodeID() {
		t.Errorf("task is %s after run %d on %s", task.Status, task.Run, task.Node)
	}
	cut.eventually("the result is refused", func() bool { return cut.metric("quern_results_refused_total") == 1 })
	// It goes on under a new ID.
	cut.eventually("ready again", func() bool { return cut.Ready() == nil })
}

// nodeID is the listener ID of this very host.
func (n *node) nodeID() string { return n.current().access.listener.ID() }

// What is long runs on: nothing times out but what was set, however many leases it takes and however
// busy the guest is.
func TestLongTaskKeepsItsLease(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Concurrency: 2}, lease: time.Second, guests: map[string][]byte{"loop": runtimetest.Loop(t)},
		yaml: map[string]string{"loop": "limits: {timeout: 4s}"},
	})
	ids := n.enqueueMany("loop", 2, "")
	for _, id := range ids {
		task := n.wait(id)
		if task.Reason != queue.ReasonTimeout || task.Run != 1 || task.Crashes != 0 || task.FinishedAt.Sub(task.StartedAt) < 3*time.Second {
			t.Errorf("task is %s for %s after %s, run %d", task.Status, task.Reason, task.FinishedAt.Sub(task.StartedAt), task.Run)
		}
	}
}

func TestDrainByCommand(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Concurrency: 1}, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	id := n.enqueue("sleep", "500")
	n.count("sleep", queue.Started, 1)
	late := n.enqueue("sleep", "0")
	if err := manage.New(n.client).Drain(n.ctx, n.listener()); err != nil {
		t.Fatal(err)
	}
	if err := n.end(); err != nil {
		t.Fatal(err)
	}
	if task := n.task(id); task.Status != queue.Complete {
		t.Errorf("the running task is %s", task.Status)
	}
	if task := n.task(late); task.Status != queue.Pending {
		t.Errorf("the later task is %s", task.Status)
	}
	n.gone("sleep")
}

// Housekeeping forgets what is too old or too much, and sets wrong counts of listeners right.
func TestHousekeeping(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{KeepTasks: 5}, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.complete("echo", n.enqueueMany("echo", 20, ""))
	n.rdb.ZIncrBy(n.ctx, n.tenant+"_queues", 3, "echo")
	if _, _, err := n.current().upkeep.Housekeeper.RunOnce(n.ctx); err != nil {
		t.Fatal(err)
	}
	if depth := n.depth("echo"); depth[queue.Complete] != 5 {
		t.Errorf("%v tasks are kept, want 5", depth)
	}
	if counts, err := n.client.Queues(n.ctx); err != nil || counts["echo"] != 1 {
		t.Errorf("%d listeners are counted, want 1; %v", counts["echo"], err)
	}
}

// A queue of which one key is damaged does not keep its finished tasks for that.
func TestHousekeepingOfADamagedQueue(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{KeepTasks: 5}, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.complete("echo", n.enqueueMany("echo", 20, ""))
	n.rdb.Set(n.ctx, n.tenant+"_started_tasks_echo", "damaged", 0)
	if _, _, err := n.current().upkeep.Housekeeper.RunOnce(n.ctx); err != nil {
		t.Fatal(err)
	}
	if kept := n.rdb.LLen(n.ctx, n.tenant+"_complete_tasks_echo").Val(); kept != 5 {
		t.Errorf("%d tasks are kept, want 5", kept)
	}
	if !n.log.has("Redis refuses a queue", "queue=echo", "op=purge", "started_tasks_echo is a string") {
		t.Error("the host's log does not name the damaged key")
	}
}
