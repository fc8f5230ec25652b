package host

import (
	"errors"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// Clocks that are five minutes apart, either way, make no task early or late, and no host dead: only
// Redis's counts.
func TestClocksAreApart(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"hosts behind": 5 * time.Minute, "hosts ahead": -5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, _ := queuetest.StartAhead(t, ahead)
			common := settings{
				server: server, lease: time.Second, tenants: []string{queuetest.Tenant()},
				guests: map[string][]byte{"sleep": runtimetest.Sleep(t), "exit": runtimetest.Exit(t)},
				yaml:   map[string]string{"exit": "retry: {max_attempts: 2, base: 500ms, min: 500ms, jitter: false}"},
			}
			a, b := start(t, common), start(t, common)
			a.settledAs(2, "sleep", "exit")
			b.settledAs(2, "sleep", "exit")
			clock, err := a.client.Clock(a.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if apart := time.Until(clock); (apart - ahead).Abs() > 30*time.Second {
				t.Fatalf("Redis's clock is %s ahead, want %s", apart, ahead)
			}
			long := a.enqueue("sleep", "3500") // past three leases
			delayed := a.enqueueAs("sleep", "0", queue.Options{Delay: time.Second})
			retried := a.enqueue("exit", "1")
			kept := a.enqueueAs("sleep", "0", queue.Options{Deadline: clock.Add(30 * time.Second), Retry: queue.Retry{MaxAge: 30 * time.Second}})
			expired := a.enqueueAs("nobody", "", queue.Options{Retry: queue.Retry{MaxAge: time.Second}})
			for id, waits := range map[string]time.Duration{long: 0, delayed: time.Second, kept: 0} {
				task := a.wait(id)
				waited := task.StartedAt.Sub(task.Created)
				if task.Status != queue.Complete || task.Run != 1 || waited < waits || waited > waits+10*time.Second {
					t.Errorf("task is %s (%s) after run %d, begun after %s, want %s", task.Status, task.Reason, task.Run, waited, waits)
				}
			}
			history, err := manage.New(a.client).History(a.ctx, a.wait(retried))
			if err != nil || len(history) != 2 || history[1].Started.Sub(history[0].Ended) < 500*time.Millisecond {
				t.Errorf("history %+v, %v", history, err)
			}
			if task := a.wait(expired); task.Reason != queue.ReasonExpired || task.FinishedAt.Sub(task.Created) < time.Second {
				t.Errorf("task failed for %s after %s", task.Reason, task.FinishedAt.Sub(task.Created))
			}
			for _, n := range []*node{a, b} {
				if n.log.lines("reclaimed from a dead listener")+n.log.lines("lease lost") != 0 {
					t.Error("somebody was taken for dead")
				}
			}
		})
	}
}

// Redis's clock is set back by an hour: the tasks of a host that died before that run elsewhere soon, also if the host
// that finds them begins after it, and hosts that live stay who they are.
func TestDeadHostWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	server, clock := queuetest.StartAhead(t, 0)
	common := settings{
		server: server, lease: time.Second, tenants: []string{queuetest.Tenant()}, guests: map[string][]byte{"echo": runtimetest.Echo(t)},
		idle: true,
	}
	a := start(t, common)
	dead := listen.New(a.clientWith(time.Second))
	if err := errors.Join(dead.Join(a.ctx), dead.Register(a.ctx, "echo")); err != nil {
		t.Fatal(err)
	}
	if _, err := dead.Renew(a.ctx, nil); err != nil {
		t.Fatal(err)
	}
	id := a.enqueue("echo", "x")
	if batch := dead.Reserve(a.ctx, []listen.ReserveRequest{{Queue: "echo", Count: 1, Start: true}})[0]; len(batch.Tasks) != 1 {
		t.Fatalf("%+v", batch)
	}
	duty := a.tenant + "_duty_reclaim" // of one that died with it
	if err := a.rdb.Set(a.ctx, duty, dead.ID(), 10*time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	clock.Set(t, -time.Hour)
	if left := a.rdb.PTTL(a.ctx, duty).Val(); left < time.Hour {
		t.Fatalf("the duty lives for %s: the clock was not set back", left)
	}
	a.run()
	b := start(t, common)
	b.run()
	if task := a.wait(id); task.Status != queue.Complete || task.Run != 2 || task.Crashes != 1 {
		t.Errorf("task is %s after run %d and %d crashes", task.Status, task.Run, task.Crashes)
	}
	for _, n := range []*node{a, b} {
		if n.log.lines("lease lost") != 0 {
			t.Error("a host that lives was taken for dead")
		}
	}
	if a.log.lines("did not renew its lease since the clock of redis was set back")+b.log.lines("did not renew its lease since the clock of redis was set back") != 1 {
		t.Error("no host's log tells why, or both do")
	}
}

// Redis's clock is set forward by an hour between the start of a host and its first look for dead ones: a listener
// that had no time yet to renew its lease is not taken for dead.
func TestClockIsSetForwardBeforeTheFirstLook(t *testing.T) {
	t.Parallel()
	server, clock := queuetest.StartAhead(t, 0)
	n := start(t, settings{server: server, lease: 3 * time.Second, guests: map[string][]byte{"echo": runtimetest.Echo(t)}, idle: true})
	live := listen.New(n.clientWith(time.Minute))
	if err := live.Join(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.run()
	n.serving("echo")
	clock.Set(t, time.Hour)
	n.eventually("the host sees the jump", func() bool { return n.log.has("the clock of redis was set") })
	if _, err := live.Renew(n.ctx, nil); err != nil {
		t.Error(err)
	}
}
