package relay

import (
	"testing"
	"time"
)

// BenchmarkNsj runs a backlog of rows to their end: claimed, run by workers and written back.
func BenchmarkNsj(b *testing.B) {
	const rows = 30_000
	var total time.Duration
	for range b.N {
		n := setupNsj(b, setup(b))
		n.exec("INSERT INTO fila (processo, payload) SELECT 'p', repeat('x', 100) FROM generate_series(1, $1)", rows)
		stop := n.host("p")
		began := time.Now()
		end := n.nsjRelay(nil)
		ticker := time.NewTicker(200 * time.Millisecond) // a count is not free
		for n.value("SELECT EXISTS (SELECT FROM fila WHERE status IN ('pendente', 'processando'))") == "t" {
			<-ticker.C
		}
		ticker.Stop()
		total += time.Since(began)
		end()
		stop()
	}
	b.ReportMetric(float64(rows)*float64(b.N)/total.Seconds(), "rows/s")
}
