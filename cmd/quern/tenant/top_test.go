package tenant

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/quern-project/quern/cmd/quern/top"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A look reads no more of a tenant with many queues and tasks.
func TestTopIsBounded(t *testing.T) {
	t.Parallel()
	c, err := queue.NewFromRedis(queuetest.Shared(t).Client(t), queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		t.Fatal(err)
	}
	client := admin.NewDirect(c, nil)
	defer client.Close()
	specs := make([]queue.Spec, 300)
	for i := range topQueues + 20 {
		of := specs[:1]
		if i == 0 { // of those with equally many listeners, Redis has this one last
			of = specs
		}
		if _, err := client.Queue(fmt.Sprint("q", i)).EnqueueMany(t.Context(), of); err != nil {
			t.Fatal(err)
		}
	}
	s := &topSource{client: client}
	for range topHosts + 10 {
		if err := listen.New(client.Client).Join(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if look, err := s.Look(t.Context(), top.Want{View: top.Hosts}); err != nil || len(look.Hosts) != topHosts || look.All != topHosts+1 {
		t.Errorf("%d of %d hosts, %v", len(look.Hosts), look.All, err)
	}
	look, err := s.Look(t.Context(), top.Want{})
	if err != nil || len(look.Queues) != topQueues || look.All != topQueues+20 {
		t.Errorf("%d of %d queues, %v", len(look.Queues), look.All, err)
	}
	if !slices.ContainsFunc(look.Queues, func(q admin.Queue) bool { return q.Queue == "q0" && q.Pending == 300 }) {
		t.Error("the queue with the most pending tasks is not shown")
	}
	if look, err := s.Look(t.Context(), top.Want{Queue: "q0"}); err != nil || len(look.Tasks) != topTasks {
		t.Errorf("%d tasks, %v", len(look.Tasks), err)
	}
}
