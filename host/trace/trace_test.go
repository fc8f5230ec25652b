package trace_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/runtime/service"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"

// settle does for a task what a host does of tracing.
func settle(tracer *trace.Tracer, task trace.Task) {
	var span *trace.Span
	if tracer != nil {
		span, _ = tracer.Begin(task)
	}
	span.Services(service.Services{})
	span.Ran("", time.Millisecond, 1)
	span.Settled("complete", "")
}

// Without a tracer nothing is allocated, for tasks or requests.
func TestOffAllocatesNothing(t *testing.T) {
	header := http.Header{}
	if n := testing.AllocsPerRun(100, func() {
		settle(nil, trace.Task{})
		(*trace.Tracer)(nil).Request(header, http.MethodPost, "/", "acme")(http.StatusOK)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := (*trace.Tracer)(nil).Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// BenchmarkTask is what tracing adds to a task: off, of a trace that is not sampled, and of one that is.
func BenchmarkTask(b *testing.B) {
	on, err := trace.New(b.Context(), trace.Config{Endpoint: "http://127.0.0.1:1"}) // spans are made, and dropped
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = on.Shutdown(over)
	})
	for _, c := range []struct {
		name   string
		tracer *trace.Tracer
		flag   string
	}{{"off", nil, "1"}, {"unsampled", on, "0"}, {"sampled", on, "1"}} {
		task := trace.Task{
			Tenant: "acme", Queue: "mail", ID: "0af76519-16cd-43dd-8448-eb211c80319c", Plugin: "mail", Attempt: 1,
			Headers: map[string]string{"traceparent": traceparent + c.flag}, Since: time.Now(),
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				settle(c.tracer, task)
			}
		})
	}
}
