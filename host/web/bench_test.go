package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quern-project/quern/metrics"
)

// What a scrape of 1,000 queues that run takes of the host's processor, as Prometheus asks for it, and how long its text is.
func BenchmarkScrape(b *testing.B) {
	const queues = 1000
	for name, accept := range map[string]string{"Text": "text/plain", "OpenMetrics": "application/openmetrics-text;version=1.0.0"} {
		for _, encoding := range []string{"identity", "gzip"} {
			b.Run(name+"/"+encoding, func(b *testing.B) {
				reg := prometheus.NewRegistry()
				m, err := metrics.New(reg, metrics.Config{})
				if err != nil {
					b.Fatal(err)
				}
				var samples []metrics.QueueSample
				for i := range queues {
					queue := fmt.Sprintf("queue-%d", i)
					samples = append(samples, metrics.QueueSample{
						Tenant: "acme", Queue: queue, Depth: map[string]int64{"pending": 3, "started": 1, "complete": 400}, Listeners: 1,
					})
					m.QueueServed("acme", queue, queue)
					m.Tasks("acme", queue, queue).Started("", time.Millisecond)
					m.Tasks("acme", queue, queue).Ran(time.Millisecond, 1_000_000)
					m.Tasks("acme", queue, queue).Done("complete", "", "", time.Millisecond)
				}
				m.CollectQueues(func(context.Context) ([]metrics.QueueSample, error) { return samples, nil })
				handler := scrapes(reg, nil)
				request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
				request.Header.Set("Accept", accept)
				request.Header.Set("Accept-Encoding", encoding)
				var bytes int
				b.ReportAllocs()
				begun := processorTime(b)
				for b.Loop() {
					answer := httptest.NewRecorder()
					handler.ServeHTTP(answer, request)
					bytes = answer.Body.Len()
				}
				b.ReportMetric(float64(processorTime(b)-begun)/float64(b.N), "cpu-ns/scrape")
				b.ReportMetric(float64(bytes), "B/scrape")
			})
		}
	}
}

// processorTime is that of this process so far, which other programs on the machine disturb less than the wall clock.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
