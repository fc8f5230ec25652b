package relay

import (
	"testing"
	"time"
)

// BenchmarkRaquel runs the rows of a backlog of Raquel's table in a host, until their ends are written.
func BenchmarkRaquel(b *testing.B) {
	const rows = 40_000
	for name, ended := range map[string]int{"new": 0, "history": 200_000} {
		b.Run(name, func(b *testing.B) {
			var total time.Duration
			for range b.N {
				r := setupRaquel(b)
				if err := InitRaquel(b.Context(), r.db, "jobs"); err != nil {
					b.Fatal(err)
				}
				insert := `INSERT INTO jobs (id, queue, payload, status, enqueued_at, scheduled_at, attempts)
					SELECT gen_random_uuid(), 'q', '0', $1, t, t, 0
					FROM (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - n AS t FROM generate_series(1, $2) n) s`
				r.exec(insert, "success", ended)
				r.exec(insert, "queued", rows)
				r.exec("ANALYZE jobs")
				r.host("q")
				began := time.Now()
				stop := r.relayRaquel(nil)
				ticker := time.NewTicker(200 * time.Millisecond)
				for r.value("SELECT EXISTS (SELECT FROM jobs WHERE status IN ('queued', 'claimed'))") == "t" {
					<-ticker.C
				}
				ticker.Stop()
				total += time.Since(began)
				stop()
			}
			b.ReportMetric(float64(rows)*float64(b.N)/total.Seconds(), "rows/s")
		})
	}
}
