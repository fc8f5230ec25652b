package host

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
)

// How many tasks a second go through one host, for guests that do nothing.
func BenchmarkHostEmptyC(b *testing.B)  { benchmarkHost(b, runtimetest.Empty(b)) }
func BenchmarkHostEmptyGo(b *testing.B) { benchmarkHost(b, runtimetest.EmptyGo(b)) }

func benchmarkHost(b *testing.B, guest []byte) {
	n := start(b, settings{Config: Config{Poll: never}, guests: map[string][]byte{"empty": guest}, hclog: hclog.Info})
	n.settled("empty")
	n.rdb.SAdd(n.ctx, n.tenant+"_paused", "empty")
	ids := n.enqueueMany("empty", b.N, "")
	n.eventually("idle", n.idle)
	b.ResetTimer()
	n.rdb.SRem(n.ctx, n.tenant+"_paused", "empty")
	n.rdb.Publish(n.ctx, n.tenant+"_channel_empty", "")
	n.count("empty", queue.Complete, int64(b.N))
	b.StopTimer()
	// By Redis's clock, without the look for the last one.
	begun, ended := n.task(ids[0]).StartedAt, time.Time{}
	for _, id := range ids {
		if finished := n.task(id).FinishedAt; finished.After(ended) {
			ended = finished
		}
	}
	b.ReportMetric(float64(b.N)/ended.Sub(begun).Seconds(), "tasks/s")
}

// How long a task waits on an idle host, from its enqueueing to its start, by Redis's clock.
func BenchmarkIdleLatency(b *testing.B) {
	n := start(b, settings{guests: map[string][]byte{"empty": runtimetest.Empty(b)}, hclog: hclog.Info})
	n.settled("empty")
	var waits []time.Duration
	for b.Loop() {
		task := n.wait(n.enqueue("empty", ""))
		waits = append(waits, task.StartedAt.Sub(task.Created))
		n.eventually("idle again", n.idle)
	}
	slices.Sort(waits)
	percentile := func(p int) float64 { return float64(waits[(len(waits)-1)*p/100].Microseconds()) }
	b.ReportMetric(percentile(50), "p50-µs")
	b.ReportMetric(percentile(99), "p99-µs")
}
