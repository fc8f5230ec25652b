package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// The benchmarks of this file show that what is done to lists of millions does not block Redis: run
// them with -benchtime=1x. They take minutes, and a few gigabytes.

// ownWorld is a tenant on a redis-server of the benchmark's own, which notes what takes it 10 ms.
func ownWorld(b *testing.B) *world {
	b.Helper()
	server := queuetest.Start(b, "--slowlog-log-slower-than", "10000", "--slowlog-max-len", "1000")
	client := must[*queue.Client](b)(queue.New(server.URL()+"?read_timeout=60s", queue.Config{Tenant: queuetest.Tenant()}))
	b.Cleanup(func() { _ = client.Close() })
	if err := listen.Prepare(b.Context(), client); err != nil {
		b.Fatal(err)
	}
	return &world{Client: client, rdb: client.Store().RDB.(*redis.Client), ctx: b.Context()}
}

// finish brings n tasks of the queue to their end, a quarter of them to failure.
func (w *world) finish(b *testing.B, name string, n int) {
	b.Helper()
	node := w.node(b, name)
	for done := 0; done < n; {
		batch := node.Reserve(w.ctx, []listen.ReserveRequest{{
			Queue: name, Count: 500, Start: true, Plugin: "p", Digest: "sha256:" + strings.Repeat("0", 64),
		}})[0]
		if batch.Err != nil || len(batch.Tasks) == 0 {
			b.Fatal(len(batch.Tasks), batch.Err)
		}
		settlements := make([]listen.Settlement, len(batch.Tasks))
		for i, task := range batch.Tasks {
			settlements[i] = listen.Settlement{Claim: listen.Claim{ID: task.ID, Run: task.Run}, Result: []byte("done")}
			if i%4 == 0 {
				settlements[i].Failure = &queue.Failure{Reason: queue.ReasonError, Message: "exit status 1"}
			}
		}
		if _, err := node.Settle(w.ctx, name, settlements); err != nil {
			b.Fatal(err)
		}
		done += len(batch.Tasks)
	}
}

// probe pings Redis on a connection of its own for as long as do runs, and reports the longest answer
// and what Redis itself noted as slow.
func (w *world) probe(b *testing.B, do func()) {
	b.Helper()
	rdb := redis.NewClient(w.rdb.Options())
	defer rdb.Close()
	w.rdb.SlowLogReset(w.ctx)
	stop, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		var worst time.Duration
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				longest <- worst
				return
			case <-ticker.C:
			}
			begun := time.Now()
			rdb.Ping(context.WithoutCancel(w.ctx))
			worst = max(worst, time.Since(begun))
		}
	}()
	do()
	close(stop)
	b.ReportMetric(float64((<-longest).Microseconds())/1000, "ms/longest-ping")
	slow := must[[]redis.SlowLog](b)(w.rdb.SlowLogGet(w.ctx, 1000).Result())
	b.ReportMetric(float64(len(slow)), "slow-commands")
	for _, command := range slow {
		b.Logf("slow: %s %.60q", command.Duration, strings.Join(command.Args, " "))
	}
}

func BenchmarkPurgeMillion(b *testing.B) {
	const tasks = 1_000_000
	for b.Loop() {
		b.StopTimer()
		w := ownWorld(b)
		for range tasks / 10_000 {
			w.fill(b, "q", 10_000)
			w.finish(b, "q", 10_000)
		}
		b.StartTimer()
		w.probe(b, func() {
			if n := must[int](b)(manage.New(w.Client).Queue("q").Purge(w.ctx, listen.PurgeOptions{Everything: true})); n != tasks {
				b.Fatalf("purged %d", n)
			}
		})
		tasksPerSecond(b, tasks)
	}
}

// BenchmarkChangeOneOfMillions deletes and retries tasks out of a million finished ones, and cancels
// and expires tasks out of a backlog of five millions.
func BenchmarkChangeOneOfMillions(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := ownWorld(b)
		q := w.Queue("q")
		mark := func(at string) []string {
			specs := make([]queue.Spec, 200)
			for i := range specs {
				specs[i].ID = fmt.Sprintf("%s-%d", at, i)
				if at == "expire" {
					specs[i].Retry.MaxAge = time.Second
				}
			}
			receipts := must[[]queue.Receipt](b)(q.EnqueueMany(w.ctx, specs))
			ids := make([]string, len(receipts))
			for i, receipt := range receipts {
				ids[i] = receipt.ID
			}
			return ids
		}
		finished := mark("finished")
		w.finish(b, "q", len(finished))
		for range 100 {
			w.fill(b, "q", 10_000)
			w.finish(b, "q", 10_000)
		}
		for range 250 {
			w.fill(b, "q", 10_000)
		}
		waiting := mark("waiting")
		mark("expire")
		for range 250 {
			w.fill(b, "q", 10_000)
		}
		b.StartTimer()
		w.probe(b, func() {
			for i, id := range finished {
				var err error
				if task := w.task(b, id); task.Status == queue.Failed && i%8 == 0 {
					err = q.Retry(w.ctx, id)
				} else {
					err = q.Delete(w.ctx, id)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			for _, id := range waiting {
				if done, err := q.Cancel(w.ctx, id); err != nil || !done {
					b.Fatal(done, err)
				}
			}
			if n := must[int](b)(expire(w.ctx, q, 0, "")); n != 200 {
				b.Fatalf("%d expired", n)
			}
		})
	}
}

// BenchmarkMemory reports what a task takes of Redis's memory, pending and finished: with parameters that Redis keeps in its
// compact form, with longer ones, and with a setting that keeps these in it too.
func BenchmarkMemory(b *testing.B) {
	const tasks = 100_000
	used := func(w *world) (bytes float64) {
		_, rest, _ := strings.Cut(must[string](b)(w.rdb.Info(w.ctx, "memory").Result()), "used_memory:")
		if _, err := fmt.Sscanf(rest, "%f", &bytes); err != nil {
			b.Fatal(err)
		}
		return bytes
	}
	for _, of := range []struct{ parameters, compact int }{{64, 64}, {100, 64}, {100, 1024}} {
		b.Run(fmt.Sprintf("parameters=%d/hash-max-listpack-value=%d", of.parameters, of.compact), func(b *testing.B) {
			for b.Loop() {
				w := ownWorld(b)
				must[string](b)(w.rdb.ConfigSet(w.ctx, "hash-max-listpack-value", fmt.Sprint(of.compact)).Result())
				empty := used(w)
				specs := slices.Repeat([]queue.Spec{{Parameters: []byte(strings.Repeat("x", of.parameters))}}, tasks)
				must[[]queue.Receipt](b)(w.Queue("q").EnqueueMany(w.ctx, specs))
				b.ReportMetric((used(w)-empty)/tasks, "B/pending")
				w.finish(b, "q", tasks)
				b.ReportMetric((used(w)-empty)/tasks, "B/finished")
			}
		})
	}
}
