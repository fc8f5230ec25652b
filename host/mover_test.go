package host

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// However many tasks of one queue are due, those of another wait for a block of them, and the host goes on polling.
func TestManyDueTasksOfOneQueue(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000")
	n := start(t, settings{
		Config: Config{Poll: 20 * time.Millisecond}, server: server, idle: true, guests: map[string][]byte{"echo": runtimetest.Echo(t)},
	})
	const blocks = 300
	many := n.tenant + "_scheduled_tasks_big"
	for i := range blocks {
		entries := make([]redis.Z, 350)
		for j := range entries {
			entries[j] = redis.Z{Score: 1, Member: fmt.Sprintf("%d-%d", i, j)}
		}
		if err := n.rdb.ZAdd(n.ctx, many, entries...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	n.rdb.ZAdd(n.ctx, n.tenant+"_queues", redis.Z{Member: "big"})
	id := n.enqueueAs("echo", "", queue.Options{Delay: time.Millisecond})
	eta := n.task(id).ETA
	n.eventually("the task is due", func() bool {
		clock, err := n.client.Clock(n.ctx)
		return err == nil && clock.After(eta)
	})
	n.run()
	if task := n.wait(id); task.Status != queue.Complete {
		t.Errorf("task is %s", task.Status)
	}
	n.eventually("all are moved", func() bool { return n.rdb.ZCard(n.ctx, many).Val() == 0 })

	log, err := n.rdb.WithTimeout(patience).SlowLogGet(n.ctx, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(log, func(a, b redis.SlowLog) int { return int(a.ID - b.ID) })
	moved, before, polls, polled := 0, -1, 0, 0
	for _, entry := range log {
		if len(entry.Args) < 5 {
			continue
		}
		switch key := entry.Args[3]; {
		case key == many:
			moved++
			polls = polled // until now
		case key == n.tenant+"_scheduled_tasks_echo" && before < 0:
			before = moved
		case moved > 0 && key == n.tenant+"_nodes" && slices.Contains(entry.Args, "big"):
			polled++
		}
	}
	t.Logf("%d blocks of the other queue, %d before the task's, %d polls meanwhile", moved, before, polls)
	if moved < blocks || before < 0 || before > 2 {
		t.Errorf("%d blocks of %d of the other queue were moved before the task, want 2 at most", before, moved)
	}
	if polls == 0 {
		t.Error("the host did not poll while it moved")
	}
}
