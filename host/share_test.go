package host

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// sharer is a tenant that has more work than a test can finish. Each task runs a loop of some thousand rounds. A thousand
// rounds take some microseconds.
type sharer struct {
	name           string
	weight         int
	queues, rounds int
	tasks          int // in all queues together
}

// looping computes as many thousand rounds as its parameters say.
func looping(t testing.TB) []byte {
	return runtimetest.BuildCHandler(t, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	char text[16];
	int32_t size = quern_input(text, sizeof text);
	int64_t rounds = 0;
	for (int32_t i = 0; i < size; i++) rounds = 10 * rounds + 1000 * (text[i] - '0');
	for (volatile int64_t i = 0; i < rounds; i++);
	return 0;
}`)
}

// share starts hosts for the tenants, and returns the processor time that the tasks of each got, in seconds, while all of them
// together got so much: on a busy machine that takes longer.
func share(t *testing.T, hosts int, enough float64, tenants []sharer) map[string]float64 {
	t.Helper()
	s := settings{
		server: queuetest.Start(t), hclog: hclog.Warn, answers: patience, idle: true,
		Config: Config{Concurrency: 8, Guests: 2, Grace: time.Nanosecond},
		guests: make(map[string][]byte), yaml: make(map[string]string),
	}
	s.engine.Guests = 2
	module, suffix := looping(t), queuetest.Tenant()
	for i := range tenants {
		of := &tenants[i]
		of.name += "-" + suffix
		s.tenants = append(s.tenants, of.name)
		names, guests, yaml := manyQueues(of.queues, module)
		for name := range guests {
			s.guests[of.name+"/"+name], s.yaml[of.name+"/"+name] = module, yaml[name]
		}
		client := clientAt(t, s.server, of.name)
		each := max(1, of.tasks/of.queues)
		for _, name := range names {
			for left := each; left > 0; left -= 10_000 {
				specs := make([]queue.Spec, min(left, 10_000))
				for i := range specs {
					specs[i].Parameters = fmt.Append(nil, of.rounds)
				}
				if _, err := client.Queue(name).EnqueueMany(t.Context(), specs); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.server.Client(t).HSet(t.Context(), of.name+"_quotas", "weight", of.weight).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var fleet []*node
	for range hosts {
		n := start(t, s)
		s.dir = n.dir
		fleet = append(fleet, n)
	}
	for _, n := range fleet {
		n.run()
	}
	for _, n := range fleet {
		for _, of := range tenants {
			n.eventually("tasks of "+of.name+" have ended, and its weight is known", func() bool {
				share := n.scheduler.Shares()[of.name]
				return share.Cost > 0 && share.Weight == of.weight
			})
		}
	}
	before := processorTimes(t, fleet)
	var times map[string]float64
	fleet[0].eventually("the tasks have computed enough", func() bool {
		times = processorTimes(t, fleet)
		sum := 0.0
		for name := range times {
			times[name] -= before[name]
			sum += times[name]
		}
		return sum >= enough
	})
	for _, n := range fleet {
		n.terminate()
	}
	return times
}

func clientAt(t *testing.T, server *queuetest.Server, tenant string) *queue.Client {
	t.Helper()
	client, err := queue.NewFromRedis(server.Client(t), queue.Config{Tenant: tenant})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// processorTimes returns the processor time of all tasks so far, by tenant, in seconds.
func processorTimes(t *testing.T, fleet []*node) map[string]float64 {
	t.Helper()
	times := make(map[string]float64)
	for _, n := range fleet {
		families, err := n.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() != "quern_task_cpu_seconds_total" {
				continue
			}
			for _, m := range family.GetMetric() {
				for _, label := range m.GetLabel() {
					if label.GetName() == "tenant" {
						times[label.GetValue()] += m.GetCounter().GetValue()
					}
				}
			}
		}
	}
	return times
}

// Each of eight tenants gets the processor time of its weight, whatever its work is like: one has long tasks, one tiny ones, one a
// thousand queues.
func TestTenantsShareAHost(t *testing.T) {
	enough, hosts, queues, tolerance := 20.0, []int{1, 4}, 1000, 0.1 // two processors for 10 s
	if testing.Short() {                                             // one tenant's long tasks are a large part of so little time
		enough, hosts, queues, tolerance = 5, []int{1}, 100, 0.5
	}
	for _, hosts := range hosts {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			tenants := []sharer{
				{"long", 1, 1, 10_000, 100_000},
				{"tiny", 1, 1, 40, 100_000},
				{"spread", 1, queues, 400, 20_000},
				{"a", 2, 1, 1000, 20_000},
				{"b", 1, 3, 2000, 9000},
				{"c", 3, 2, 500, 40_000},
				{"d", 1, 10, 200, 40_000},
				{"e", 1, 1, 4000, 10_000},
			}
			if hosts > 1 { // they share this machine's processors, so replies of Redis take longer than tasks; see schedule.TestTenantsGetTheirWeights
				tolerance = 0.35
			}
			times := share(t, hosts, enough, tenants)
			sum, weights := 0.0, 0
			for _, of := range tenants {
				sum, weights = sum+times[of.name], weights+of.weight
			}
			for _, of := range tenants {
				name, _, _ := strings.Cut(of.name, "-")
				part := times[of.name] / (sum * float64(of.weight) / float64(weights))
				t.Logf("%-6s weight %d: %6.3f s, %3.0f %%", name, of.weight, times[of.name], 100*part)
				if math.Abs(part-1) > tolerance {
					t.Errorf("%s got %.0f %% of its share", name, 100*part)
				}
			}
		})
	}
}
