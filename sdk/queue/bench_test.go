package queue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// BenchmarkQuotas is what limits cost of Redis's processor: the whole way of a task, enqueued in blocks, reserved, started and
// settled in batches, in a tenant with quotas of another queue, or with quotas that bound this one, yet never refuse. A tenant
// without quotas takes turns with it on the same server; %more is the median of all turns, which other load hardly changes.
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
				free := ownWorld(b)
				bound := &world{Client: must[*queue.Client](b)(free.In(queuetest.Tenant())), rdb: free.rdb, ctx: free.ctx}
				if err := manage.SetQuotas(bound.ctx, bound.Client, quotas); err != nil {
					b.Fatal(err)
				}
				ofFree, ofBound := free.node(b, "q"), bound.node(b, "q")
				var more []float64
				spent := 0.0
				for b.Loop() {
					without := 0.0
					if len(more)%2 == 0 { // who comes second finds warmer caches, or colder ones
						without = free.way(b, ofFree, batch)
					}
					with := bound.way(b, ofBound, batch)
					if without == 0 {
						without = free.way(b, ofFree, batch)
					}
					more = append(more, 100*(with/without-1))
					spent = min(cmp.Or(spent, with), with)
				}
				slices.Sort(more)
				b.ReportMetric(more[len(more)/2], "%more")
				b.ReportMetric(spent, "µs/task")
			})
		}
	}
}

// way brings tasks from being enqueued to their end, and returns how many microseconds of Redis's processor each took.
func (w *world) way(b *testing.B, node *listen.Node, batch int) float64 {
	b.Helper()
	const tasks = 64
	before := w.processorMicros(b)
	for range tasks / batch {
		w.fill(b, "q", batch)
		w.settleMany(b, node, "q", w.start(b, node, batch), &listen.Settlement{Result: []byte("done")})
	}
	return (w.processorMicros(b) - before) / tasks
}

// start reserves n tasks, and starts them.
func (w *world) start(b *testing.B, node *listen.Node, n int) (held []listen.Claim) {
	b.Helper()
	got := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: n, Start: true, Plugin: "p", Digest: "sha256:" + strings.Repeat("0", 64)}})[0]
	if got.Err != nil || len(got.Tasks) != n {
		b.Fatal(len(got.Tasks), got.Err)
	}
	for _, task := range got.Tasks {
		held = append(held, task.Claim())
	}
	return held
}

// BenchmarkFairKeys is what a reserve takes of Redis's processor while tasks of as many fairness keys wait, two of each: the
// median of all reserves. Without keys as many tasks wait in the list.
func BenchmarkFairKeys(b *testing.B) {
	const waiting = 20_000
	for _, keys := range []int{0, 10, 10_000} {
		for _, batch := range []int{1, 32} {
			b.Run(fmt.Sprintf("keys=%d/batch=%d", keys, batch), func(b *testing.B) {
				w := ownWorld(b)
				node := w.node(b, "q")
				next := 0
				fill := func(n int) {
					specs := make([]queue.Spec, n)
					for i := range specs {
						if next++; keys > 0 {
							specs[i].FairKey = fmt.Sprint("customer-", next%keys)
						}
					}
					must[[]queue.Receipt](b)(w.Queue("q").EnqueueMany(w.ctx, specs))
				}
				fill(waiting)
				var spent []float64
				for b.Loop() {
					const reserves = 20
					before, held := w.processorMicros(b), make([][]listen.Claim, reserves)
					for i := range held {
						held[i] = w.start(b, node, batch)
					}
					spent = append(spent, (w.processorMicros(b)-before)/float64(reserves*batch))
					for _, claims := range held {
						w.settleMany(b, node, "q", claims, &listen.Settlement{Result: []byte("done")})
					}
					fill(reserves * batch)
				}
				slices.Sort(spent)
				b.ReportMetric(spent[len(spent)/2], "µs/task")
			})
		}
	}
}
