package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// A queue with one task waits for no backlog: it starts within two lengths of the tasks before it,
// told by how many of those have started meanwhile.
func TestOneTaskBesideABacklog(t *testing.T) {
	t.Parallel()
	sleep := runtimetest.Sleep(t)
	for _, slots := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			t.Parallel()
			n := start(t, settings{
				Config: Config{Concurrency: slots, Grace: time.Nanosecond}, hclog: hclog.Info, idle: true,
				guests: map[string][]byte{"a": sleep, "b": sleep},
			})
			n.enqueueMany("a", 100_000, "50")
			n.run()
			n.eventually("the backlog runs", func() bool { return n.stats("a").Depth[queue.Complete] >= int64(slots) })

			b := n.wait(n.enqueue("b", "50"))
			started := 0
			for _, status := range []queue.Status{queue.Started, queue.Complete} {
				tasks, err := manage.New(n.client).Queue("a").List(n.ctx, manage.ListOptions{Status: status, Limit: 1000})
				if err != nil {
					t.Fatal(err)
				}
				for _, a := range tasks {
					if a.StartedAt.After(b.Created) && a.StartedAt.Before(b.StartedAt) {
						started++
					}
				}
			}
			t.Logf("b waited %s, in which %d tasks of a started", b.StartedAt.Sub(b.Created), started)
			if started > 2*slots {
				t.Errorf("%d tasks of a started before the one of b, on %d slots", started, slots)
			}
		})
	}
}

// The memory that running tasks may take bounds how many run, and all of them run in the end.
func TestMemoryBound(t *testing.T) {
	t.Parallel()
	sleep := runtimetest.Sleep(t)
	n := start(t, settings{
		Config: Config{Concurrency: 16, Memory: 40 << 20}, idle: true,
		guests: map[string][]byte{"small": sleep, "big": sleep, "huge": sleep},
		yaml: map[string]string{
			"small": "limits: {memory: 2MiB, input: 1MiB, output: 1MiB}", // 4 MiB
			"big":   "limits: {memory: 30MiB, input: 1MiB, output: 1MiB}",
			"huge":  "limits: {memory: 60MiB}", // more than there is: refused at load
		},
	})
	small := n.enqueueMany("small", 60, "20")
	big := n.enqueueMany("big", 5, "20")
	huge := n.enqueue("huge", "20")
	n.run()
	var most int64
	n.eventually("all that fit have run", func() bool {
		most = max(most, n.booked())
		return n.stats("small").Depth[queue.Complete] == int64(len(small)) && n.stats("big").Depth[queue.Complete] == int64(len(big))
	})
	if most > 40<<20 || most < 32<<20 {
		t.Errorf("at most %d bytes were in use, want those of a big task and no more than 40 MiB", most)
	}
	if status := n.task(huge).Status; status != queue.Pending {
		t.Errorf("a task that can never fit is %s", status)
	}
	n.eventually("nothing is in use", func() bool { return n.booked() == 0 && n.scheduler.Status().InUse == 0 })
}

// booked is the memory of all shares.
func (n *node) booked() int64 { return n.scheduler.Status().Memory }
