package host

import (
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// However many hosts and plugins there are, no more tasks of a tenant run than its quota says; and each end makes room for
// the next task at once, without a poll.
func TestRunningTasksOfATenant(t *testing.T) {
	t.Parallel()
	common := settings{
		Config: Config{Concurrency: 4, Poll: time.Hour}, tenants: []string{queuetest.Tenant()},
		guests: map[string][]byte{"sleep": runtimetest.Sleep(t), "nap": runtimetest.Sleep(t)},
	}
	hosts := []*node{start(t, common), start(t, common)}
	for _, n := range hosts {
		n.settledAs(2, "sleep", "nap")
	}
	n := hosts[0]
	if err := manage.SetQuotas(n.ctx, n.clientOf(n.tenant), manage.Quotas{"running": "3"}); err != nil {
		t.Fatal(err)
	}
	n.runsAtMostThree()
}

// Tasks over a rate wait without a slot, and begin when there is a token, without a poll.
func TestRateOfATenant(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Concurrency: 4, Poll: time.Hour}, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)},
	})
	n.settledAs(1, "sleep")
	if err := manage.SetQuotas(n.ctx, n.clientOf(n.tenant), manage.Quotas{"rate:sleep": "20/s burst 5"}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	ids := n.enqueueMany("sleep", 25, "0")
	n.complete("sleep", ids)
	if took := time.Since(begin); took < 900*time.Millisecond {
		t.Errorf("25 tasks at 20/s with a burst of 5 took %s, want 1s", took)
	}
}
