package relay

import (
	"fmt"
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
		n.eventually(fmt.Sprint(rows), func() string { return n.value("SELECT count(*) FROM fila WHERE status = 'sucesso'") })
		total += time.Since(began)
		end()
		stop()
	}
	b.ReportMetric(float64(rows)*float64(b.N)/total.Seconds(), "rows/s")
}
