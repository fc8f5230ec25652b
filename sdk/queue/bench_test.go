package queue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func benchWorld(b *testing.B) *world {
	b.Helper()
	client := must[*queue.Client](b)(queue.New(queuetest.Shared(b).URL(), queue.Config{Tenant: queuetest.Tenant()}))
	b.Cleanup(func() { _ = client.Close() })
	if err := listen.Prepare(b.Context(), client); err != nil {
		b.Fatal(err)
	}
	return &world{Client: client, ctx: b.Context()}
}

func (w *world) fill(b *testing.B, name string, n int) {
	b.Helper()
	w.fillAt(b, name, n, queue.DefaultPriority)
}

func (w *world) fillAt(b *testing.B, name string, n, priority int) {
	b.Helper()
	specs := make([]queue.Spec, n)
	for i := range specs {
		specs[i].Parameters = fmt.Appendf(nil, "%0100d", i)
		specs[i].Priority = &priority
	}
	must[[]queue.Receipt](b)(w.Queue(name).EnqueueMany(w.ctx, specs))
}

func tasksPerSecond(b *testing.B, tasks int) {
	b.Helper()
	b.ReportMetric(float64(tasks)/b.Elapsed().Seconds(), "tasks/s")
}

// BenchmarkEnqueue enqueues tasks of 100 bytes: one by one from producers that share a client, and in bulk.
func BenchmarkEnqueue(b *testing.B) {
	for _, producers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("producers=%d", producers), func(b *testing.B) {
			w := benchWorld(b)
			b.ReportAllocs()
			var next atomic.Int64
			var running sync.WaitGroup
			b.ResetTimer()
			for range producers {
				running.Go(func() {
					for i := next.Add(1); i <= int64(b.N) && !b.Failed(); i = next.Add(1) {
						if _, err := w.Queue("q").Enqueue(w.ctx, fmt.Appendf(nil, "%0100d", i), queue.Options{}); err != nil {
							b.Error(err)
						}
					}
				})
			}
			running.Wait()
			tasksPerSecond(b, b.N)
		})
	}
	b.Run("bulk", func(b *testing.B) {
		w := benchWorld(b)
		b.ReportAllocs()
		rounds := 0
		for b.Loop() {
			w.fill(b, "q", 5000)
			rounds++
		}
		tasksPerSecond(b, rounds*5000)
	})
}

// BenchmarkRedis reports what each transition takes of Redis's processor, in microseconds for each task of 100 bytes, in batches
// of several sizes: the least of all rounds, because other load on the machine only adds to it.
func BenchmarkRedis(b *testing.B) {
	const tasks = 960
	ends := map[string]*listen.Settlement{
		"complete": {Result: []byte("done")},
		"fail":     {Failure: &queue.Failure{Message: "exit status 1"}},
		"retry":    {Failure: &queue.Failure{Message: "exit status 1"}, Requeue: listen.RequeueRetry, Delay: time.Hour},
		"release":  nil,
	}
	for _, batch := range []int{1, 5, 32, store.BlockTasks, listen.MaxReserve} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			w := ownWorld(b)
			node := w.node(b, "q")
			spent := make(map[string]float64)
			each := func(transition string, times int, do func(i int)) {
				before := w.processorMicros(b)
				for i := range times {
					do(i)
				}
				micros := (w.processorMicros(b) - before) / float64(times*batch)
				spent[transition] = min(cmp.Or(spent[transition], micros), micros)
			}
			reserve := func(int) (held []listen.Claim) {
				got := node.Reserve(w.ctx, []listen.ReserveRequest{{
					Queue: "q", Count: batch, Start: true, Plugin: "p", Digest: "sha256:" + strings.Repeat("0", 64),
				}})[0]
				if got.Err != nil {
					b.Fatal(got.Err)
				}
				for _, task := range got.Tasks {
					held = append(held, task.Claim())
				}
				return held
			}
			for b.Loop() {
				for transition, settlement := range ends {
					held := make([][]listen.Claim, tasks/batch)
					each("enqueue", len(held), func(int) { w.fill(b, "q", batch) })
					each("reserve", len(held), func(i int) { held[i] = reserve(i) })
					each(transition, len(held), func(i int) { w.settleMany(b, node, "q", held[i], settlement) })
					for i := 0; settlement == nil && i < len(held); i++ {
						w.settleMany(b, node, "q", reserve(i), ends["complete"])
					}
				}
			}
			for transition, micros := range spent {
				if batch > store.BlockTasks && (transition == "enqueue" || transition == "release") {
					continue // these go in blocks
				}
				b.ReportMetric(micros, "µs/"+transition)
			}
		})
	}
}

// processorMicros is how many microseconds of a processor Redis has used.
func (w *world) processorMicros(b *testing.B) (sum float64) {
	b.Helper()
	for line := range strings.Lines(must[string](b)(w.rdb.Info(w.ctx, "cpu").Result())) {
		var seconds float64
		if name, text, _ := strings.Cut(line, ":"); name == "used_cpu_user_main_thread" || name == "used_cpu_sys_main_thread" {
			_, _ = fmt.Sscanf(text, "%f", &seconds)
		}
		sum += seconds * 1e6
	}
	return sum
}

// settleMany ends the runs in the same way, or releases the tasks if it is nil.
func (w *world) settleMany(b *testing.B, node *listen.Node, queue string, held []listen.Claim, how *listen.Settlement) {
	b.Helper()
	var errs []error
	var err error
	if how == nil {
		errs, err = node.Release(w.ctx, queue, held)
	} else {
		settlements := make([]listen.Settlement, len(held))
		for i := range held {
			settlements[i] = *how
			settlements[i].Claim = held[i]
		}
		errs, err = node.Settle(w.ctx, queue, settlements)
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkReserveSettle is what a host does for a task: reserve and start, run (nothing), settle. Two
// round trips bring a whole batch through.
func BenchmarkReserveSettle(b *testing.B) {
	for _, batch := range []int{1, 8, 32, 128} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) { benchmarkReserveSettle(b, batch, queue.DefaultPriority) })
	}
	b.Run("batch=1/priority=75", func(b *testing.B) { benchmarkReserveSettle(b, 1, 75) })
	b.Run("batch=32/priority=75", func(b *testing.B) { benchmarkReserveSettle(b, 32, 75) })
}

func benchmarkReserveSettle(b *testing.B, batch, priority int) {
	b.Helper()
	w := benchWorld(b)
	node := w.node(b, "q")
	b.Cleanup(func() { _ = node.Leave(context.WithoutCancel(w.ctx)) })
	settlements := make([]listen.Settlement, batch)
	result := []byte("done")
	left, rounds := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		if left < batch {
			b.StopTimer()
			w.fillAt(b, "q", 50*batch, priority)
			left = 50 * batch
			b.StartTimer()
		}
		got := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: batch, Start: true, Plugin: "p", Digest: "sha256:" + strings.Repeat("0", 64)}})[0]
		if got.Err != nil || len(got.Tasks) != batch {
			b.Fatal(len(got.Tasks), got.Err)
		}
		for i, task := range got.Tasks {
			settlements[i] = listen.Settlement{Claim: task.Claim(), Result: result}
		}
		errs, err := node.Settle(w.ctx, "q", settlements)
		if err != nil {
			b.Fatal(err)
		}
		for _, err := range errs {
			if err != nil {
				b.Fatal(err)
			}
		}
		left -= batch
		rounds++
	}
	tasksPerSecond(b, rounds*batch)
}

// BenchmarkQuotas is what limits cost: the whole way of a task, enqueued in blocks, reserved, started and settled in batches,
// in a tenant without quotas, with quotas of another queue, and with quotas that bound this one, yet never refuse.
func BenchmarkQuotas(b *testing.B) {
	for name, quotas := range map[string]manage.Quotas{
		"none": nil, "other": {"rate:other": "1/s"},
		"rate": {"rate:q": "100000/s burst 1000000"}, "running": {"running": "100000"},
		"waiting": {"tasks_waiting": "100000000"},
		"all": {
			"rate:q": "100000/s burst 1000000", "rate": "100000/s burst 1000000", "limit:x": "100000/s burst 1000000 q", "running": "100000",
			"tasks_waiting": "100000000", "enqueue_rate": "100000/s burst 1000000",
		},
	} {
		for _, batch := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/batch=%d", name, batch), func(b *testing.B) {
				w := ownWorld(b)
				node := w.node(b, "q")
				if err := manage.SetQuotas(w.ctx, w.Client, quotas); err != nil {
					b.Fatal(err)
				}
				const tasks = 320
				spent := 0.0
				for b.Loop() {
					before := w.processorMicros(b)
					for range tasks / batch {
						w.fill(b, "q", batch)
						got := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: batch, Start: true, Plugin: "p", Digest: "sha256:" + strings.Repeat("0", 64)}})[0]
						if len(got.Tasks) != batch {
							b.Fatal(len(got.Tasks), got.Err)
						}
						held := make([]listen.Claim, batch)
						for i, task := range got.Tasks {
							held[i] = task.Claim()
						}
						w.settleMany(b, node, "q", held, &listen.Settlement{Result: []byte("done")})
					}
					micros := (w.processorMicros(b) - before) / tasks
					spent = min(cmp.Or(spent, micros), micros)
				}
				b.ReportMetric(spent, "µs/task")
			})
		}
	}
}
