package host

import (
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Two hosts share a queue: none of its tasks is lost, none runs twice, both take part.
func TestTwoHostsShareAQueue(t *testing.T) {
	t.Parallel()
	one := start(t, settings{Config: Config{Concurrency: 4}, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	other := start(t, settings{Config: Config{Concurrency: 4}, tenants: []string{one.tenant}, dir: one.dir})
	one.settledAs(2, "sleep")
	other.serving("sleep")
	ids := one.enqueueMany("sleep", 500, "5")
	one.complete("sleep", ids)
	by := make(map[string]int)
	for _, id := range ids {
		task := one.task(id)
		if task.Attempts != 1 {
			t.Errorf("task had %d attempts", task.Attempts)
		}
		by[task.Node]++
	}
	one.ranOnce(ids, other)
	if len(by) != 2 {
		t.Errorf("one host did it all: %v", by)
	}
	if got := one.stats("sleep").Listeners; got != 2 {
		t.Errorf("%d listeners, want 2", got)
	}
	if err := other.stop(); err != nil {
		t.Fatal(err)
	}
	if got := one.stats("sleep").Listeners; got != 1 {
		t.Errorf("%d listeners after one has left, want 1", got)
	}
}

// Two hosts and a client that does the same move what is due: every task once.
func TestTwoHostsMoveWhatIsDue(t *testing.T) {
	t.Parallel()
	one := start(t, settings{Config: Config{Poll: 100 * time.Millisecond}, guests: map[string][]byte{"empty": runtimetest.Empty(t)}})
	other := start(t, settings{Config: Config{Poll: 100 * time.Millisecond}, tenants: []string{one.tenant}, dir: one.dir})
	one.settledAs(2, "empty")
	other.serving("empty")
	specs := make([]queue.Spec, 300)
	for i := range specs {
		specs[i].Delay = time.Duration(1+i) * 5 * time.Millisecond
	}
	receipts, err := one.client.Queue("empty").EnqueueMany(one.ctx, specs)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, len(receipts))
	for i, receipt := range receipts {
		ids[i] = receipt.ID
	}
	one.eventually("all have been due", func() bool {
		if _, err := listen.NewFleet(one.client).EnqueueDue(one.ctx, "empty"); err != nil {
			t.Fatal(err)
		}
		return one.stats("empty").Depth[queue.Scheduled] == 0
	})
	one.complete("empty", ids)
	var slowest time.Duration
	for _, id := range ids {
		task := one.task(id)
		slowest = max(slowest, task.StartedAt.Sub(task.ETA))
	}
	one.ranOnce(ids, other)
	t.Logf("started %s after it was due at most", slowest)
}
