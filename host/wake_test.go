package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// never is a poll that no test lives to see.
const never = time.Hour

// push enqueues without telling anybody, as Blueque's own client does.
func (n *node) push(queueName string, ids ...string) {
	n.t.Helper()
	pipeline := n.rdb.Pipeline()
	for _, id := range ids {
		pipeline.HSet(n.ctx, n.tenant+"_task_"+id, "status", "pending", "queue", queueName, "parameters", id)
		pipeline.ZIncrBy(n.ctx, n.tenant+"_queues", 0, queueName)
		pipeline.LPush(n.ctx, n.tenant+"_pending_tasks_"+queueName, id)
	}
	if _, err := pipeline.Exec(n.ctx); err != nil {
		n.t.Fatal(err)
	}
}

// settled waits until the host sleeps: it is registered, subscribed, and has looked everywhere.
func (n *node) settled(queues ...string) {
	n.t.Helper()
	n.settledAs(1, queues...)
}

// settledAs is settled of one of several hosts, all of which have subscribed.
func (n *node) settledAs(hosts int64, queues ...string) {
	n.t.Helper()
	n.serving(queues...)
	for _, name := range queues {
		channel := n.tenant + "_channel_" + name
		n.eventually("subscribed to "+name, func() bool {
			counts, err := n.rdb.PubSubNumSub(n.ctx, channel).Result()
			return err == nil && counts[channel] == hosts
		})
	}
	n.eventually("idle", n.idle)
}

func TestWakesByMessage(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Poll: never}, guests: map[string][]byte{"empty": runtimetest.Empty(t)}})
	n.settled("empty")
	var slowest time.Duration
	for range 20 {
		task := n.wait(n.enqueue("empty", ""))
		slowest = max(slowest, task.StartedAt.Sub(task.Created))
	}
	t.Logf("started after %s at most", slowest)
	if slowest > time.Second {
		t.Errorf("a task waited %s on an idle host", slowest)
	}
}

// A subscription that comes back looks once more: what lay there unannounced is found.
func TestWakesWhenTheSubscriptionComesBack(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	n := start(t, settings{Config: Config{Poll: never}, server: server, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.settled("echo")
	for name, interrupt := range map[string]func(){
		"killed":  func() { n.rdb.ClientKillByFilter(n.ctx, "TYPE", "pubsub") },
		"restart": func() { server.Restart(t) },
	} {
		n.push("echo", name)
		interrupt()
		n.eventually("the task is found after "+name, func() bool {
			task, err := n.client.Task(n.ctx, name)
			return err == nil && task.Status == queue.Complete
		})
		n.eventually("messages come again after "+name, func() bool {
			counts, err := n.rdb.PubSubNumSub(n.ctx, n.tenant+"_channel_echo").Result()
			return err == nil && counts[n.tenant+"_channel_echo"] == 1
		})
		n.wait(n.enqueue("echo", "announced"))
	}
}

// Where Pub/Sub is forbidden the poll finds what there is.
func TestWithoutPubSub(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	rdb := server.Client(t)
	if err := rdb.ACLSetUser(t.Context(), "mute", "on", ">mute", "~*", "&*", "+@all", "-publish", "-subscribe").Err(); err != nil {
		t.Fatal(err)
	}
	n := start(t, settings{server: server, user: "mute", guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.serving("echo")
	n.eventually("idle", n.idle)
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = fmt.Sprint("id", i)
	}
	n.push("echo", ids...)
	n.count("echo", queue.Complete, int64(len(ids)))
}

// pollOnce has the host poll once: when a task of a queue that nobody serves is due.
func (n *node) pollOnce() {
	n.t.Helper()
	n.wait(n.enqueueAs("timer", "", queue.Options{Delay: 100 * time.Millisecond}))
}

// Once a poll has found a task that nobody announced, the next ones need no poll; queues that are paused do not stand in the way.
func TestLookout(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Poll: never},
		guests: map[string][]byte{"echo": runtimetest.Echo(t), "other": runtimetest.Echo(t), "held": runtimetest.Echo(t), "timer": runtimetest.Empty(t)},
	})
	n.settled("echo", "other", "held", "timer")
	if err := n.client.Queue("held").Pause(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.push("held", "held")
	n.push("echo", "first")
	n.pollOnce()
	n.wait("first")
	for i := range 3 {
		id := fmt.Sprint("id", i)
		n.push([]string{"echo", "other"}[i%2], id)
		n.wait(id)
	}
	if task := n.task("held"); task.Status != queue.Pending {
		t.Errorf("the task of a paused queue is %s", task.Status)
	}
	if err := n.client.Queue("held").Resume(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.wait("held")
}

// A scheduled task starts when it is due, though the poll is far away.
func TestScheduledTasksStartInTime(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Poll: never}, guests: map[string][]byte{"empty": runtimetest.Empty(t)}})
	n.settled("empty")
	var ids []string
	for i := range 20 { // later and earlier ones in turn
		delay := 300*time.Millisecond + time.Duration(i*7%20)*50*time.Millisecond
		ids = append(ids, n.enqueueAs("empty", "", queue.Options{Delay: delay}))
	}
	var slowest time.Duration
	for _, id := range ids {
		task := n.wait(id)
		if task.StartedAt.Before(task.ETA) {
			t.Errorf("started %s before it was due", task.ETA.Sub(task.StartedAt))
		}
		slowest = max(slowest, task.StartedAt.Sub(task.ETA))
	}
	t.Logf("started %s after it was due at most", slowest)
	if slowest > 750*time.Millisecond {
		t.Errorf("a task started %s after it was due", slowest)
	}
}

// What is due is moved in every queue, also where there is no plugin; a damaged queue is no obstacle.
func TestDueTasksOfOtherQueues(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Poll: 50 * time.Millisecond}, guests: map[string][]byte{"empty": runtimetest.Empty(t)}})
	n.rdb.Set(n.ctx, n.tenant+"_pending_tasks_damaged", "not a list", 0)
	n.rdb.ZIncrBy(n.ctx, n.tenant+"_queues", 0, "damaged")
	n.rdb.ZAdd(n.ctx, n.tenant+"_scheduled_tasks_damaged", redis.Z{Score: 1, Member: "lost"})
	id := n.enqueueAs("other", "", queue.Options{Delay: 300 * time.Millisecond})
	n.eventually("the task is pending", func() bool { return n.task(id).Status == queue.Pending })
	if task := n.task(id); task.Updated.Before(task.ETA) {
		t.Errorf("moved %s before it was due", task.ETA.Sub(task.Updated))
	}
	n.eventually("the damaged queue is told of", func() bool { return n.log.has("Redis refuses a queue", "damaged") })
	n.eventually("ready, whatever a queue of others is like", func() bool { return n.Ready() == nil })
}
