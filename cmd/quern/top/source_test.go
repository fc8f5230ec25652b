package top

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(queuetest.Main(m))
}

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
	for i := range maxQueues + 20 {
		of := specs[:1]
		if i == 0 { // of those with equally many listeners, Redis has this one last
			of = specs
		}
		if _, err := client.Queue(fmt.Sprint("q", i)).EnqueueMany(t.Context(), of); err != nil {
			t.Fatal(err)
		}
	}
	s := &source{client: client}
	for range maxHosts + 10 {
		if err := listen.New(client.Client).Join(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if look, err := s.look(t.Context(), place{view: Hosts}, nil); err != nil || len(look.Hosts) != maxHosts || look.All != maxHosts+1 {
		t.Errorf("%d of %d hosts, %v", len(look.Hosts), look.All, err)
	}
	look, err := s.look(t.Context(), place{}, nil)
	if err != nil || len(look.Queues) != maxQueues || look.All != maxQueues+20 {
		t.Errorf("%d of %d queues, %v", len(look.Queues), look.All, err)
	}
	if !slices.ContainsFunc(look.Queues, func(q admin.Queue) bool { return q.Queue == "q0" && q.Pending == 300 }) {
		t.Error("the queue with the most pending tasks is not shown")
	}
	if look, err := s.look(t.Context(), place{queue: "q0"}, nil); err != nil || len(look.Tasks) != maxTasks {
		t.Errorf("%d tasks, %v", len(look.Tasks), err)
	}
}
