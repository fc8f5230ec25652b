package host

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A version over whose task three hosts died runs nowhere any more, until it is released or there is another one.
func TestQuarantinedPluginsWait(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]func(n *node, digest string){
		"released": func(n *node, digest string) {
			if err := manage.New(n.client).EndQuarantine(n.ctx, "echo", digest); err != nil {
				n.t.Fatal(err)
			}
		},
		"replaced": func(n *node, _ string) { n.install("echo", runtimetest.Version(n.t, "2")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, settings{
				Config: Config{Poll: 100 * time.Millisecond}, idle: true,
				guests: map[string][]byte{"echo": runtimetest.Echo(t), "other": runtimetest.Echo(t)},
			})
			digest := fmt.Sprintf("sha256:%x", sha256.Sum256(runtimetest.Echo(t)))
			crashes := "4102444800 a~00000001_1 1.0 b~00000002_1 2.0 c~00000003_1 3.0" // until 2100
			if err := n.rdb.HSet(n.ctx, n.tenant+"_crashes", "echo "+digest, crashes).Err(); err != nil {
				t.Fatal(err)
			}
			id := n.enqueue("echo", "")
			n.run()
			n.eventually("it is logged", func() bool { return n.log.has("plugin is quarantined", "queue=echo") })
			if task := n.task(id); task.Status != queue.Pending {
				t.Errorf("the task is %s", task.Status)
			}
			if got := n.metric("quern_queue_quarantined", "queue", "echo"); got != 1 {
				t.Errorf("quern_queue_quarantined is %v", got)
			}
			if got := n.metric("quern_queue_quarantined", "queue", "other"); got != 0 {
				t.Errorf("of another plugin it is %v", got)
			}
			if n.wait(n.enqueue("other", "")).Status != queue.Complete {
				t.Error("another plugin does not run")
			}
			if err := n.Ready(); err != nil {
				t.Errorf("not ready: %v", err)
			}
			release(n, digest)
			if task := n.wait(id); task.Status != queue.Complete {
				t.Errorf("after that the task is %s: %s", task.Status, task.Error)
			}
		})
	}
}

// A key of quarantines that somebody damaged takes no queue of any tenant out of the metrics.
func TestMetricsWithDamagedQuarantines(t *testing.T) {
	t.Parallel()
	n := start(t, settings{tenants: []string{queuetest.Tenant(), queuetest.Tenant()}, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.complete("echo", []string{n.enqueue("echo", "")})
	n.rdb.Set(n.ctx, n.tenant+"_crashes", "damaged", 0)
	if got := n.metric("quern_queue_depth", "tenant", n.tenant, "queue", "echo", "state", "complete"); got != 1 {
		t.Errorf("the metrics show %v complete tasks, want 1", got)
	}
	if got := n.metric("quern_queue_quarantined", "tenant", n.tenant, "queue", "echo"); got != 0 {
		t.Errorf("quern_queue_quarantined is %v", got)
	}
	if !n.log.has("quarantines cannot be read", n.tenant+"_crashes: WRONGTYPE") {
		t.Error("the host's log does not name the damaged key")
	}
}
