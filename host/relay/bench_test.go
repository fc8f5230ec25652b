package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// BenchmarkBacklog relays a backlog of rows of 100 bytes.
func BenchmarkBacklog(b *testing.B) {
	for _, held := range []bool{false, true} {
		b.Run(fmt.Sprintf("held=%t", held), func(b *testing.B) {
			const rows = 100_000
			var total time.Duration
			for range b.N {
				w := setup(b)
				w.exec(`INSERT INTO quern.outbox (queue, parameters) SELECT 'q', decode(repeat('61', 100), 'hex') FROM generate_series(1, $1)`, rows)
				if held {
					snapshot := w.server.Connect(b, w.url)
					for _, statement := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM quern.outbox"} {
						if _, err := snapshot.Exec(context.Background(), statement); err != nil {
							b.Fatal(err)
						}
					}
				}
				began := time.Now()
				stop := w.relay(nil)
				w.eventually(fmt.Sprint(rows), func() string { return fmt.Sprint(w.depth("q", queue.Pending)) })
				total += time.Since(began)
				stop()
			}
			b.ReportMetric(float64(rows)*float64(b.N)/total.Seconds(), "rows/s")
		})
	}
}

// BenchmarkInserts measures the commits of 16 writers, of two rows each, while a relay keeps up: without the trigger and
// with it, in turns.
func BenchmarkInserts(b *testing.B) {
	const writers, round = 16, 2 * time.Second
	commits := map[bool]int64{}
	for i := range 2 * max(b.N, 3) {
		triggered := i%2 == 1
		w := setup(b)
		stop := w.relay(nil)
		w.exec("INSERT INTO quern.outbox (queue) VALUES ('q')") // wakes it
		w.eventually("0", w.waiting)
		if !triggered {
			w.exec("ALTER TABLE quern.outbox DISABLE TRIGGER wake")
		}
		ctx, cancel := context.WithTimeout(context.Background(), round)
		var count atomic.Int64
		var writing sync.WaitGroup
		for range writers {
			db := w.server.Connect(b, w.url)
			writing.Go(func() {
				for {
					if _, err := db.Exec(ctx, "INSERT INTO quern.outbox (queue, parameters) VALUES ('q', 'a'), ('q', 'b')"); err != nil {
						return
					}
					count.Add(1)
				}
			})
		}
		writing.Wait()
		cancel()
		stop()
		commits[triggered] += count.Load()
	}
	b.ReportMetric(float64(commits[false])/float64(max(b.N, 3))/round.Seconds(), "commits/s")
	b.ReportMetric(float64(commits[true])/float64(commits[false]), "with-trigger")
}

// BenchmarkLatency measures the time from the insert of a row, with its commit, until its task is announced to hosts,
// while the relay sleeps.
func BenchmarkLatency(b *testing.B) {
	w := setup(b)
	w.relay(nil)
	rdb := w.redis.Client(b)
	announced := rdb.Subscribe(context.Background(), w.client.Tenant()+"_channel_q")
	defer announced.Close()
	if _, err := announced.Receive(context.Background()); err != nil {
		b.Fatal(err)
	}
	w.exec("INSERT INTO quern.outbox (queue) VALUES ('q')")
	<-announced.Channel()
	var took []time.Duration
	ticker := time.NewTicker(awakeFor + idleInterval/2) // long enough for the relay to sleep
	defer ticker.Stop()
	for b.Loop() {
		<-ticker.C
		began := time.Now()
		w.exec("INSERT INTO quern.outbox (queue) VALUES ('q')")
		<-announced.Channel()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
