package host

import (
	"fmt"
	"testing"

	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// What a look at 1,000 idle queues costs, and for comparison a poll: in Redis, and in the host.
func BenchmarkLook(b *testing.B) {
	server := queuetest.Start(b)
	n := &node{t: b, ctx: b.Context(), rdb: server.Client(b), tenant: queuetest.Tenant()}
	client := n.clientOf(n.tenant)
	queues := make([]string, 1000)
	for i := range queues {
		queues[i] = fmt.Sprintf("queue-%04d", i)
		n.rdb.ZIncrBy(n.ctx, n.tenant+"_queues", 1, queues[i])
	}
	if err := listen.Prepare(n.ctx, client); err != nil {
		b.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"Look": func() error { _, err := listen.NewFleet(client).Changed(n.ctx, queues, nil); return err },
		"Poll": func() error { _, err := listen.NewFleet(client).Backlogs(n.ctx, queues); return err },
	} {
		b.Run(name, func(b *testing.B) {
			redis, own := n.redisTime(), processorTime(b)
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((n.redisTime()-redis).Microseconds())/float64(b.N), "redis-us/op")
			b.ReportMetric(float64((processorTime(b)-own).Microseconds())/float64(b.N), "host-us/op")
		})
	}
}
