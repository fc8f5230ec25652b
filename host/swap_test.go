package host

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

func digest(module []byte) string {
	sum := sha256.Sum256(module)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Under a load of short tasks, with the plugin replaced every 200 ms, every task completes, on
// exactly one version, and the digest on the task is that of the version that wrote its result.
func TestSwapUnderLoad(t *testing.T) {
	t.Parallel()
	const versions, swaps, tasks = 6, 15, 1000
	modules := make([][]byte, versions)
	digests := make(map[string]string) // by what the version writes
	for i := range modules {
		name := fmt.Sprint("version ", i)
		modules[i] = runtimetest.Version(t, name)
		digests[name] = digest(modules[i])
	}
	n := start(t, settings{guests: map[string][]byte{"version": modules[0]}})
	n.settled("version")
	var ids []string
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for swap := range swaps {
		n.install("version", modules[swap%versions])
		ids = append(ids, n.enqueueMany("version", (tasks+swaps-1)/swaps, "")...)
		<-ticker.C
	}
	n.complete("version", ids)
	ran := make(map[string]int)
	for _, id := range ids {
		task := n.task(id)
		want, known := digests[string(task.Result)]
		if !known || task.Digest != want || task.Plugin != "version" {
			t.Errorf("%q was written by %s %s, want %s", task.Result, task.Plugin, task.Digest, want)
		}
		ran[string(task.Result)]++
	}
	if len(ran) < 3 {
		t.Errorf("only %v ran: the plugin was hardly replaced", ran)
	}
	t.Logf("%d tasks ran on %v", len(ids), ran)
}

// A queue whose plugin is gone keeps its tasks; with a plugin again they run.
func TestPluginIsRemoved(t *testing.T) {
	t.Parallel()
	echo := runtimetest.Echo(t)
	n := start(t, settings{guests: map[string][]byte{"echo": echo, "stays": echo}})
	n.settled("echo", "stays")
	n.wait(n.enqueue("echo", "before"))
	n.remove("echo")
	n.eventually("the queue is left", func() bool { return n.log.has("left queue", "queue=echo") })
	ids := n.enqueueMany("echo", 20, "%d")
	n.wait(n.enqueue("stays", "meanwhile"))
	if got := n.stats("echo"); got.Depth[queue.Pending] != 20 || got.Listeners != 0 {
		t.Errorf("%d tasks are pending, %d listeners", got.Depth[queue.Pending], got.Listeners)
	}
	n.install("echo", echo)
	for _, id := range ids {
		n.wait(id)
	}
}

// The first plugin of a queue that has a backlog starts it, without a restart.
func TestFirstPlugin(t *testing.T) {
	t.Parallel()
	n := start(t, settings{lease: time.Hour}) // nothing is published for being renewed
	ids := n.enqueueMany("echo", 20, "%d")
	n.eventually("ready", func() bool { return n.Ready() == nil })
	installed, err := n.client.Clock(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	n.install("echo", runtimetest.Echo(t))
	first := n.wait(ids[0])
	if took := first.StartedAt.Sub(installed); took > patience/2 {
		t.Errorf("the backlog began after %s", took)
	}
	n.complete("echo", ids)
	n.eventually("the host publishes what it serves", func() bool {
		nodes, err := listen.NewFleet(n.client).Nodes(n.ctx)
		return err == nil && len(nodes) == 1 && nodes[0].About["queues"] == `["echo"]`
	})
}
