package host

import (
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/worker"
)

func TestRedisAwayAtStart(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	server.Kill()
	n := start(t, settings{server: server, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.eventually("it is told", func() bool { return n.log.has("[WARN]", "cannot reach Redis; retrying", "op=join") })
	n.eventually("plugins are loaded, Redis alone is missing", func() bool {
		err := n.Ready()
		return err != nil && strings.Contains(err.Error(), n.tenant)
	})
	server.Restart(t)
	if task := n.wait(n.enqueue("echo", "back")); string(task.Result) != "back" {
		t.Errorf("%+v", task)
	}
	n.eventually("ready", func() bool { return n.Ready() == nil })
	if n.log.lines("[WARN]", "cannot reach Redis") != 1 || n.log.lines("[INFO]", "Redis answers again") != 1 {
		t.Error("the outage is not told once and ended once")
	}
}

// A key of the tenant that somebody damaged while Redis was away is told, though the outage was told before.
func TestOutageHidesNoRefusal(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	proxy := queuetest.NewProxy(t, server)
	n := start(t, settings{server: server, proxy: proxy, lease: time.Second, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.settled("echo")
	proxy.Refuse()
	n.eventually("the lease is not renewed", func() bool { return n.metric("quern_redis_errors_total", "op", "renew") > 0 })
	n.rdb.Rename(n.ctx, n.tenant+"_nodes", n.tenant+"_aside")
	n.rdb.Set(n.ctx, n.tenant+"_nodes", "x", 0)
	proxy.Pass()
	n.eventually("the refusal is told", func() bool { return n.log.has("[ERROR]", "Redis refuses the tenant", n.tenant+"_nodes") })
	n.rdb.Rename(n.ctx, n.tenant+"_aside", n.tenant+"_nodes")
	n.wait(n.enqueue("echo", ""))
	n.eventually("both are over", func() bool { return n.log.lines("[INFO]", "Redis answers again") == 1 })
	if told := n.log.lines("cannot reach Redis"); told != 1 {
		t.Errorf("the outage is told %d times", told)
	}
}

func TestEndsBeforeRedisIsThere(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	server.Kill()
	n := start(t, settings{server: server})
	n.eventually("joining is tried", func() bool { return n.metric("quern_redis_errors_total") > 0 })
	if err := n.stop(); err != nil {
		t.Errorf("there was nothing to leave: %v", err)
	}
}

// Redis dies and comes back, twice, while tasks run: every one of them completes, none is stuck.
func TestRedisDiesUnderLoad(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	n := start(t, settings{Config: Config{Concurrency: 16}, server: server, lease: 2 * time.Second, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	n.settled("sleep")
	ids := n.enqueueMany("sleep", 500, "20")
	for _, enough := range []int64{100, 300} {
		n.eventually("tasks complete", func() bool {
			count, err := manage.New(n.client).Queue("sleep").Count(n.ctx, queue.Complete)
			return err == nil && count >= enough
		})
		server.Kill()
		n.eventually("the host knows", func() bool { return n.Ready() != nil })
		server.Restart(t)
	}
	n.complete("sleep", ids)
	n.wait(n.enqueue("sleep", "0"))
	n.eventually("ready", func() bool { return n.Ready() == nil })
	if errs := n.metric("quern_redis_errors_total"); errs == 0 {
		t.Error("no error of Redis was counted")
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	n.gone("sleep")
}

// complete waits until all tasks are, and checks that each is so once and nothing else is left.
func (n *node) complete(queueName string, ids []string) {
	n.t.Helper()
	n.count(queueName, queue.Complete, int64(len(ids)))
	finished, err := n.rdb.LRange(n.ctx, n.tenant+"_complete_tasks_"+queueName, 0, -1).Result()
	if err != nil {
		n.t.Fatal(err)
	}
	times := make(map[string]int)
	for _, id := range finished {
		times[id]++
	}
	for _, id := range ids {
		if times[id] != 1 {
			n.t.Errorf("task %s is in the list of complete ones %d times", id, times[id])
		}
		if task := n.task(id); task.Status != queue.Complete {
			n.t.Errorf("task %s is %s", id, task.Status)
		}
	}
	n.eventually("nothing is left", func() bool { return len(n.depth(queueName)) == 1 })
}

// A full Redis: what runs is settled, nothing is taken, nothing is lost; with room it goes on.
func TestRedisIsFull(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	n := start(t, settings{Config: Config{Concurrency: 2}, server: server, lease: time.Second, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	n.settled("sleep")
	ids := n.enqueueMany("sleep", 6, "1500")
	n.count("sleep", queue.Started, 2)
	n.rdb.ConfigSet(n.ctx, "maxmemory", "1") // full for every command that needs memory
	n.count("sleep", queue.Complete, 2)
	n.eventually("it is told", func() bool { return n.log.has("[WARN]", "Redis cannot serve now", "op=reserve", "OOM") })
	n.eventually("not ready", func() bool { return n.Ready() != nil })
	if id := n.listener(); id == "" {
		t.Error("the lease is gone")
	}
	if got := n.depth("sleep"); got[queue.Pending] != 4 || got[queue.Started] != 0 {
		t.Errorf("the queue holds %v", got)
	}
	n.rdb.ConfigSet(n.ctx, "maxmemory", "0")
	n.complete("sleep", ids)
	n.eventually("ready", func() bool { return n.Ready() == nil })
	// The heartbeat, which succeeds, must not take the trouble for over.
	if told := n.log.lines("Redis cannot serve now"); told > 2 {
		t.Errorf("one full Redis is told %d times", told)
	}
}

// A reserve that was done but not answered: its tasks are taken on, and run once. What is settled while the list is
// read is none of them.
func TestReserveReplyIsCut(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	proxy := queuetest.NewProxy(t, server)
	n := start(t, settings{
		Config: Config{Concurrency: 4, Poll: never}, server: server, proxy: proxy, answers: patience, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)},
	})
	n.settled("sleep")
	ids := n.enqueueMany("sleep", 3, "700")
	n.count("sleep", queue.Started, 3)
	proxy.HoldReplies("lrange")
	proxy.CutReplies(1, n.tenant+"_pending_tasks_sleep")
	ids = append(ids, n.enqueue("sleep", "0"))
	n.eventually("the list is read", func() bool { return proxy.Cuts() == 1 && proxy.Held() > 0 })
	n.count("sleep", queue.Complete, 3)
	proxy.Pass()
	n.complete("sleep", ids)
	if n.log.has("gave back tasks") {
		t.Error("tasks were given back")
	}
	proxy.CutReplies(-1, n.tenant+"_pending_tasks_sleep") // every reserve
	ids = append(ids, n.enqueueMany("sleep", 12, "10")...)
	n.eventually("replies are cut", func() bool { return proxy.Cuts() >= 3 })
	proxy.CutReplies(0, "")
	n.complete("sleep", ids)
	if !n.log.has("took on tasks whose reserve was not answered") {
		t.Error("the log tells of no task that was taken on")
	}
	for _, id := range ids {
		if run := n.task(id).Run; run != 1 {
			t.Errorf("task %s ran %d times", id, run)
		}
	}
}

// A reserve that hangs on its way and gets to Redis after the host has compared its list: the tasks
// are found all the same.
func TestReserveArrivesLate(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	proxy := queuetest.NewProxy(t, server)
	n := start(t, settings{Config: Config{Concurrency: 4, Poll: never}, server: server, proxy: proxy, lease: time.Second, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	n.settled("sleep")
	for range 3 {
		proxy.Block()
		ids := n.enqueueMany("sleep", 4, "10")
		n.scheduler.Announced(schedule.Queue{Tenant: n.tenant, Name: "sleep"})
		n.eventually("the host has given up", func() bool { return n.Ready() != nil })
		proxy.Pass()
		for _, id := range ids {
			if task := n.wait(id); task.Status != queue.Complete || task.Run != 1 {
				t.Errorf("task is %s after %d runs", task.Status, task.Run)
			}
		}
		n.eventually("ready", func() bool { return n.Ready() == nil })
	}
}

// A settle that was done but not answered is repeated, and counts once.
func TestSettleReplyIsCut(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	proxy := queuetest.NewProxy(t, server)
	n := start(t, settings{Config: Config{Concurrency: 4}, server: server, proxy: proxy, guests: map[string][]byte{"echo": runtimetest.Echo(t), "exit": runtimetest.Exit(t)}})
	n.settled("echo", "exit")
	proxy.CutReplies(3, "\r\ncomplete\r\n")
	echoes, exits := n.enqueueMany("echo", 20, "%d"), n.enqueueMany("exit", 5, "1")
	n.complete("echo", echoes)
	n.count("exit", queue.Failed, int64(len(exits)))
	n.eventually("the replies are cut", func() bool { return proxy.Cuts() == 3 })
	n.eventually("all are counted", func() bool {
		return n.metric("quern_tasks_total", "outcome", "complete") == 20 && n.metric("quern_tasks_total", "outcome", "failed") == 5
	})
	if lost := n.metric("quern_tasks_total", "outcome", "lost"); lost != 0 {
		t.Errorf("counted %v lost", lost)
	}
	if totals := n.stats("echo").Totals; totals["complete"] != 20 {
		t.Errorf("Redis counted %d complete", totals["complete"])
	}
}

// Results that Redis refuses for one queue alone are kept until it takes them; the host goes on with
// the other queues, and takes no more tasks of this one.
func TestSettleIsRefused(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Concurrency: 2}, guests: map[string][]byte{"bad": runtimetest.Echo(t), "good": runtimetest.Echo(t)}})
	n.settled("bad", "good")
	list := n.tenant + "_complete_tasks_bad"
	n.rdb.Set(n.ctx, list, "not a list", 0)
	ids := n.enqueueMany("bad", 1000, "%d")
	n.eventually("it is told", func() bool { return n.log.has("[ERROR]", "Redis refuses a queue", "op=settle", "queue=bad") })
	n.wait(n.enqueue("good", "fine")) // by a later reserve than any that was on its way
	left := len(n.pending("bad"))
	if left == 0 {
		t.Fatal("all tasks were taken before the refusal was known")
	}
	for range 10 {
		n.wait(n.enqueue("good", "fine"))
	}
	if now := len(n.pending("bad")); now < left { // those without a slot may go back
		t.Errorf("tasks are taken although nothing can be settled: %d are left, %d before", now, left)
	}
	n.rdb.Del(n.ctx, list)
	n.complete("bad", ids)
	n.counted(float64(len(ids)), "quern_tasks_total", "queue", "bad", "outcome", "complete")
	if lost := n.metric("quern_tasks_total", "outcome", "lost"); lost != 0 {
		t.Errorf("counted %v lost", lost)
	}
}

// A queue whose keys are damaged does not keep the host from serving the others, and does not fill
// its log; mended, it is served.
func TestQueueIsDamaged(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"Register": "listeners_bad", "Reserve": "pending_tasks_bad"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, settings{idle: true, Config: Config{Poll: 100 * time.Millisecond}, guests: map[string][]byte{"bad": runtimetest.Echo(t), "good": runtimetest.Echo(t)}})
			key := n.tenant + "_" + key
			n.rdb.Set(n.ctx, key, "not what it should be", 0)
			n.run()
			n.eventually("it is told", func() bool { return n.log.has("[ERROR]", "Redis refuses a queue", "queue=bad") })
			for range 20 {
				n.wait(n.enqueue("good", "fine"))
			}
			n.eventually("ready, whatever one queue is like", func() bool { return n.Ready() == nil })
			if got := n.metric("quern_queue_depth", "queue", "good", "state", "complete"); got != 20 {
				t.Errorf("the metrics show %v complete tasks of another queue, want 20", got)
			}
			n.rdb.Del(n.ctx, key)
			n.wait(n.enqueue("bad", "mended"))
			if told := n.log.lines("Redis refuses a queue", "[ERROR]"); told > 2 || n.log.has("cannot reach Redis") || n.log.has("Redis cannot serve now") {
				t.Errorf("one damaged queue is told %d times", told)
			}
		})
	}
}

// A queue that is left and desired again while Redis is away is served when it is back.
func TestQueueComesBackDuringAnOutage(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	proxy := queuetest.NewProxy(t, server)
	echo := runtimetest.Echo(t)
	n := start(t, settings{server: server, proxy: proxy, guests: map[string][]byte{"echo": echo, "other": echo}})
	n.settled("echo", "other")
	proxy.Refuse()
	n.remove("echo")
	n.eventually("the plugin is gone", func() bool { return len(n.catalog.directory.Bindings()) == 1 })
	n.eventually("leaving is tried", func() bool { return n.log.has("not serve", "op=register") })
	n.install("echo", echo)
	n.eventually("the plugin is back", func() bool { return len(n.catalog.directory.Bindings()) == 2 })
	proxy.Pass()
	n.wait(n.enqueue("echo", "back"))
	n.wait(n.enqueue("other", "still here"))
	n.eventually("the host is ready", func() bool { return n.Ready() == nil })
}

// Housekeeping that fails for want of Redis is tried again with the backoff of all else: the host is ready soon after
// an outage.
func TestHousekeepingDuringAnOutage(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	proxy := queuetest.NewProxy(t, server)
	n := start(t, settings{server: server, proxy: proxy, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.settled("echo")
	housework := n.current().upkeep.Housekeeper
	if _, wait, err := housework.RunOnce(n.ctx); err != nil || wait < 15*time.Second {
		t.Errorf("again after %s, %v", wait, err)
	}
	proxy.Refuse()
	if pause, wait, err := housework.RunOnce(n.ctx); !queue.IsUnavailable(err) || pause != 0 || wait != 0 {
		t.Errorf("again after %s, at least %s: %v", wait, pause, err)
	}
	proxy.Pass()
}

// A host whose lease is gone stops what it runs, drops the results, and serves on under a new name;
// it does not touch what others hold.
func TestLeaseIsLost(t *testing.T) {
	t.Parallel()
	n := start(t, settings{lease: time.Second, guests: map[string][]byte{"loop": runtimetest.Loop(t), "echo": runtimetest.Echo(t)}})
	n.settled("loop", "echo")
	id := n.enqueue("loop", "")
	n.count("loop", queue.Started, 1)
	// Another listener holds a task, too.
	listener, err := worker.NewListener(n.ctx, n.client, "theirs")
	if err != nil {
		t.Fatal(err)
	}
	theirs := n.enqueue("theirs", "")
	if _, err := listener.TryListen(n.ctx); err != nil {
		t.Fatal(err)
	}
	before := n.task(id)
	n.rdb.ZRem(n.ctx, n.tenant+"_nodes", before.Node)
	n.eventually("the guest is stopped", func() bool { return n.metric("quern_tasks_total", "queue", "loop", "outcome", "lost") == 1 })

	if after := n.task(id); after.Status != queue.Started || after.Node != before.Node || !after.Updated.Equal(before.Updated) {
		t.Errorf("the lost task was written: %+v", after)
	}
	task := n.wait(n.enqueue("echo", "again"))
	if task.Node == before.Node {
		t.Error("the host goes on under its old name")
	}
	if got := n.task(theirs); got.Status != queue.Reserved || got.Node != listener.ID() {
		t.Errorf("another's task is %s, held by %s", got.Status, got.Node)
	}
	if !n.log.has("[ERROR]", "lease lost") {
		t.Error("the log does not tell")
	}
	n.eventually("no slot is in use", func() bool { return n.idle() && n.metric("quern_slots_in_use") == 0 })
}

// The result of a task that another has taken is dropped and counted.
func TestResultIsRefused(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	id := n.enqueue("sleep", "300")
	n.count("sleep", queue.Started, 1)
	n.rdb.HIncrBy(n.ctx, n.tenant+"_task_"+id, "run", 1)
	n.eventually("the result is refused", func() bool { return n.metric("quern_results_refused_total") == 1 })
	if task := n.task(id); task.Status != queue.Started || task.Result != nil {
		t.Errorf("a stale holder wrote: %s %q", task.Status, task.Result)
	}
	n.counted(1, "quern_tasks_total", "outcome", "lost")
}

// Redis away with a task due does not make the host spin.
func TestNothingSpinsWithoutRedis(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	n := start(t, settings{Config: Config{Poll: 50 * time.Millisecond}, server: server, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.settled("echo")
	n.enqueueAs("echo", "", queue.Options{Delay: 300 * time.Millisecond})
	enqueued := time.Now()
	n.eventually("a poll knows the eta", func() bool { return time.Since(enqueued) > 200*time.Millisecond })
	server.Kill()
	n.eventually("the host knows", func() bool { return n.Ready() != nil })
	begun, before := time.Now(), n.metric("quern_redis_errors_total")
	n.eventually("some more errors", func() bool { return n.metric("quern_redis_errors_total") > before+8 })
	n.eventually("two seconds", func() bool { return time.Since(begun) > 2*time.Second })
	// Five things are tried, each at most 7 times in 2 s: after 50, 100, 200, ... ms.
	if errs := n.metric("quern_redis_errors_total") - before; errs > 60 {
		t.Errorf("%v errors in %s", errs, time.Since(begun))
	}
	server.Restart(t)
	n.wait(n.enqueue("echo", "back"))
}
