package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
)

// Of a tenant with more queues than it may have, which only others than Quern's clients make, a poll looks at a bounded number, and
// tasks of each of them are moved all the same when they are due: also of one that a poll has seen before.
func TestPollOfManyQueues(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Poll: 10 * time.Millisecond, MaxQueues: 1}})
	names := make([]redis.Z, 5*minPolled)
	for i := range names {
		names[i].Member = fmt.Sprintf("idle%04d", i)
	}
	if err := n.rdb.ZAdd(n.ctx, n.tenant+"_queues", names...).Err(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"idle0000", "idle2500", "idle4999"} {
		for _, delay := range []time.Duration{time.Millisecond, 500 * time.Millisecond} {
			if _, err := n.client.Queue(name).Enqueue(n.ctx, nil, queue.Options{Delay: delay}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"idle0000", "idle2500", "idle4999"} {
		n.count(name, queue.Pending, 2)
	}
	for _, duty := range n.current().duties {
		if p, ok := duty.(*poller); ok && p.most != minPolled+1 {
			t.Errorf("a poll looks at %d queues, want %d", p.most, minPolled+1)
		}
	}
}
