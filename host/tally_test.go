package host

import (
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// A host counts what its tasks ended as and how long they waited, for the whole fleet; also its last ones when it ends.
func TestTally(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"sleep": runtimetest.Sleep(t), "exit": runtimetest.Exit(t)}})
	n.settled("sleep", "exit")
	n.complete("sleep", n.enqueueMany("sleep", 5, "1"))
	n.enqueueMany("exit", 2, "1")
	n.count("exit", queue.Failed, 2)
	counted := func(name string) (sum manage.Minute) {
		minutes, err := manage.New(n.client).Minutes(n.ctx, name, 5)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range minutes {
			sum.Complete, sum.Failed = sum.Complete+m.Complete, sum.Failed+m.Failed
			sum.Waits.Merge(m.Waits)
		}
		return sum
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	all, sleeps, exits := counted(""), counted("sleep"), counted("exit")
	if all.Complete != 5 || all.Failed != 2 || sleeps.Complete != 5 || sleeps.Failed != 0 || exits.Failed != 2 {
		t.Errorf("all %+v, of sleep %+v, of exit %+v", all, sleeps, exits)
	}
	if wait, ok := sleeps.Waits.Quantile(1); !ok || wait > time.Hour {
		t.Errorf("the tasks waited %s at most", wait)
	}
	versions, err := manage.New(n.client).Versions(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(versions) != 2 || versions[0].Plugin != "exit" || versions[0].Failed != 2 || versions[1].Digest != digest(runtimetest.Sleep(t)) {
		t.Errorf("versions %+v", versions)
	}
}
