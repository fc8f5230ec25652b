package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
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

// feed keeps a mover busy until ctx ends.
func feed(ctx context.Context, m *mover) {
	for ctx.Err() == nil {
		for i := range 5000 {
			m.add(fmt.Sprint("busy", i), moves{due: true})
		}
		listen.Sleep(ctx, 20*time.Millisecond)
	}
}

// With more to do than one host can, others get the duty as well.
func TestMoversTakeTurns(t *testing.T) {
	t.Parallel()
	n, _, sessions := fleet(t, Config{})
	ctx, cancel := context.WithCancel(n.ctx)
	var movers sync.WaitGroup
	defer func() { cancel(); movers.Wait() }()
	for _, s := range sessions[:2] {
		m := s.poller.mover
		stop := m.start(ctx, untilAsked, m.runOnce)
		movers.Go(func() { feed(ctx, m); stop() })
	}
	for _, s := range sessions[:2] {
		n.eventually("each has the duty", func() bool { return n.rdb.Get(n.ctx, n.tenant+"_duty_due").Val() == s.access.node.ID() })
	}
}

// Redis serves again when it answers that another host has the duty.
func TestMoverRecoversWhileAnotherHasTheDuty(t *testing.T) {
	t.Parallel()
	n, server, _ := fleet(t, Config{})
	user := func(rule string) {
		t.Helper()
		if err := n.rdb.Do(n.ctx, "ACL", "SETUSER", "mover", "on", ">mover", "~*", "&*", "+@all", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	user("-pttl")
	s := n.sessionAs(server, "mover")
	m := s.poller.mover
	ctx, cancel := context.WithCancel(n.ctx)
	stop := m.start(ctx, untilAsked, m.runOnce)
	defer func() { cancel(); stop() }()
	m.add("q00", moves{due: true})
	n.eventually("trouble", func() bool { return !s.health.healthy() })
	other := func() bool {
		return n.rdb.Set(n.ctx, n.tenant+"_duty_due", "another", moveTerm).Err() == nil
	}
	other()
	user("+pttl")
	n.eventually("the end of the trouble", func() bool { return other() && s.health.healthy() })
}

// sessionAs is a session of a Redis user whose password is the name.
func (n *node) sessionAs(server *queuetest.Server, user string) *session {
	n.t.Helper()
	client, err := queue.NewFromRedis((&settings{server: server, user: user}).connect(n.t), queue.Config{Tenant: n.tenant})
	if err != nil {
		n.t.Fatal(err)
	}
	return n.session(client)
}
