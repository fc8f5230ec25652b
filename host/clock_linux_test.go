package host

import (
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// Clocks that are five minutes apart, either way, make no task early or late, and no host dead: only
// Redis's counts.
func TestClocksAreApart(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"hosts behind": 5 * time.Minute, "hosts ahead": -5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			common := settings{
				server: queuetest.StartAhead(t, ahead), lease: time.Second, tenants: []string{queuetest.Tenant()},
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
			history, err := a.client.History(a.ctx, a.wait(retried))
			if err != nil || len(history) != 2 || history[1].Started.Sub(history[0].Ended) < 500*time.Millisecond {
				t.Errorf("history %+v, %v", history, err)
			}
			if task := a.wait(expired); task.Reason != queue.ReasonExpired || task.FinishedAt.Sub(task.Created) < time.Second {
				t.Errorf("task failed for %s after %s", task.Reason, task.FinishedAt.Sub(task.Created))
			}
			for _, n := range []*node{a, b} {
				if n.log.lines("reclaimed from a listener")+n.log.lines("lease lost") != 0 {
					t.Error("somebody was taken for dead")
				}
			}
		})
	}
}
