package host

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// What is reserved ahead does not wait for a long task: another host may have it.
func TestNothingWaitsBehindALongTask(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{Concurrency: 1, Grace: time.Nanosecond, Poll: never}, hclog: hclog.Info, idle: true,
		guests: map[string][]byte{"a": runtimetest.Sleep(t)},
	})
	const short = 200 // then a long one in the middle of the last batch
	n.enqueueMany("a", short, "0")
	long := n.enqueue("a", "3600000")
	behind := n.enqueueMany("a", 50, "0")
	n.run()
	n.eventually("the long one runs", func() bool { return n.log.has("plugin says", "task_id="+long, "line=ready") })
	n.eventually("the others are complete or wait in Redis", func() bool {
		depth := n.depth("a")
		return depth[queue.Pending]+depth[queue.Complete] == int64(short+len(behind)) && depth[queue.Started] == 1
	})
	pending := n.pending("a") // a short one may be among them that the machine held up for long
	pending = slices.DeleteFunc(pending, func(id string) bool { return !slices.Contains(behind, id) })
	if !slices.Equal(pending, behind) {
		t.Errorf("the tasks behind it wait in the order %q, want %q", pending, behind)
	}
}

// What a host gave back it takes again when a slot is free, though no message tells it: Pub/Sub is forbidden, and the
// poll far.
func TestTakesAgainWhatItGaveBack(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	if err := server.Client(t).ACLSetUser(t.Context(), "mute", "on", ">mute", "~*", "&*", "+@all", "-publish", "-subscribe").Err(); err != nil {
		t.Fatal(err)
	}
	n := start(t, settings{
		Config: Config{Concurrency: 1, Poll: never}, server: server, user: "mute", hclog: hclog.Info, idle: true,
		guests: map[string][]byte{"a": runtimetest.Sleep(t)},
	})
	const short = 200 // then one that is longer than others may wait, in the middle of the last batch
	n.enqueueMany("a", short, "0")
	n.enqueue("a", "200")
	n.enqueueMany("a", 5, "0")
	n.run()
	n.count("a", queue.Complete, short+6)
}

// No task is reserved ahead where it would take a place of the fleet, or must not be started twice.
func TestWhatMayWait(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]bool{"": true, "max_running: 5": false, "on_crash: fail": false, "max_crashes: 1": false, "concurrency: 1": true} {
		n := start(t, settings{idle: true, guests: map[string][]byte{"echo": runtimetest.Echo(t)}, yaml: map[string]string{"echo": "{" + rule + "}"}})
		n.run()
		var version *plugins.TenantVersion
		n.eventually("loaded", func() bool { version = n.catalog.directory.Acquire(n.tenant, "echo"); return version != nil })
		if got := mayWait(version); got != want {
			t.Errorf("%q: may wait: %t, want %t", rule, got, want)
		}
		version.Release()
	}
}
