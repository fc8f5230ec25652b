package host

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// How many tasks a second go through one host, with so many slots, and what each takes of a processor: commands and handlers that
// do nothing, and such that parse and write an order of 1 KB. BenchmarkHandler of the runtime is the same without a host.
func BenchmarkHost(b *testing.B) {
	order := map[string][]byte{"plugin.sample": runtimetest.JSONInput(), "plugin.yaml": []byte("warm: {input: plugin.sample}")}
	for _, guest := range []struct {
		name       string
		module     []byte
		parameters string
		files      map[string][]byte // beside the module
	}{
		{"CommandC", runtimetest.Empty(b), "", nil},
		{"CommandGo", runtimetest.EmptyGo(b), "", nil},
		{"CommandCJSON", runtimetest.C.JSONCommand(b), string(runtimetest.JSONInput()), nil},
		{"CommandGoJSON", runtimetest.Go.JSONCommand(b), string(runtimetest.JSONInput()), nil},
		{"HandlerC", runtimetest.C.Empty(b), "", nil},
		{"HandlerCJSON", runtimetest.C.JSON(b), string(runtimetest.JSONInput()), order},
		{"HandlerGoJSON", runtimetest.Go.JSON(b), string(runtimetest.JSONInput()), order},
	} {
		for _, slots := range []int{4, 32, 256} {
			b.Run(fmt.Sprintf("%s/slots=%d", guest.name, slots), func(b *testing.B) {
				n := start(b, settings{Config: Config{Poll: never, Concurrency: slots}, hclog: hclog.Info})
				for name, content := range guest.files {
					n.write(name, content)
				}
				n.install("plugin", guest.module)
				n.throughput(b, guest.parameters)
			})
		}
	}
}

// throughput reports how many tasks a second the host runs of a backlog of b.N.
func (n *node) throughput(b *testing.B, parameters string) {
	n.settled("plugin")
	n.wait(n.enqueue("plugin", parameters)) // makes the image
	n.rdb.SAdd(n.ctx, n.tenant+"_paused", "plugin")
	ids := n.enqueueMany("plugin", b.N, parameters)
	n.eventually("idle", n.idle)
	used := processorTime(b)
	b.ResetTimer()
	n.rdb.SRem(n.ctx, n.tenant+"_paused", "plugin")
	n.rdb.Publish(n.ctx, n.tenant+"_channel_plugin", "")
	n.count("plugin", queue.Complete, int64(b.N)+1)
	b.StopTimer()
	b.ReportMetric(float64((processorTime(b)-used).Nanoseconds())/1e3/float64(b.N), "cpu-µs/task")
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
	b.ReportMetric(percentile(waits, 50), "p50-µs")
	b.ReportMetric(percentile(waits, 99), "p99-µs")
}

// BenchmarkIdleQueues is what a host with many queues takes of a core, and what its Redis takes, while nothing happens for a
// minute, in which all duties have their turn. What a start leaves to do has ended before.
func BenchmarkIdleQueues(b *testing.B) {
	const startup, window = 20 * time.Second, time.Minute
	for _, queues := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(queues), func(b *testing.B) {
			s := settings{Config: Config{MaxQueues: queues}, server: queuetest.Start(b), hclog: hclog.Warn}
			var names []string
			names, s.guests, s.yaml = manyQueues(queues, runtimetest.Empty(b))
			n := start(b, s)
			n.eventually("ready", func() bool { return n.Ready() == nil })
			n.wait(n.enqueue(names[0], "")) // it serves
			<-time.After(startup)
			for b.Loop() {
				host, redis, begun := processorTime(b), n.redisTime(), time.Now()
				<-time.After(window)
				took := time.Since(begun)
				b.ReportMetric(100*float64(processorTime(b)-host)/float64(took), "host-%")
				b.ReportMetric(100*float64(n.redisTime()-redis)/float64(took), "redis-%")
			}
		})
	}
}

// processorTime is that of this process so far.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// redisTime is the processor time of Redis so far.
func (n *node) redisTime() time.Duration {
	n.t.Helper()
	info, err := n.rdb.InfoMap(n.ctx, "cpu").Result()
	if err != nil {
		n.t.Fatal(err)
	}
	var sum time.Duration
	for _, part := range []string{"used_cpu_user", "used_cpu_sys"} {
		used, err := time.ParseDuration(info["CPU"][part] + "s")
		if err != nil {
			n.t.Fatal(err)
		}
		sum += used
	}
	return sum
}
