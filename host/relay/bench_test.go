package relay

import (
	"context"
	"fmt"
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
