package trace_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/host/trace/tracetest"
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

// failing answers a call of the store with the error that is its bucket's name.
type failing struct {
	service.KV
	errs map[string]error
}

func (f failing) Get(_ context.Context, bucket, _ string) ([]byte, error) {
	return nil, fmt.Errorf("get: %w", f.errs[bucket])
}

// Calls tell in one word why they fail, have no name of the guest's that nobody granted, and are bounded. Reserved flags of a
// traceparent are ignored.
func TestCalls(t *testing.T) {
	errs := map[string]error{
		"invalid": service.ErrInvalid, "denied": service.ErrDenied, "too_big": service.ErrTooBig, "quota": service.ErrQuota, "lost": service.ErrLost,
		"unavailable": service.ErrUnavailable, "limit": service.ErrLimit, "cancelled": context.Canceled, "timeout": context.DeadlineExceeded,
		"_OTHER": errors.New("others"),
	}
	collector := tracetest.Start(t)
	tracer, err := trace.New(t.Context(), trace.Config{Endpoint: collector.HTTP})
	if err != nil {
		t.Fatal(err)
	}
	span, headers := tracer.Begin(trace.Task{Queue: "mail", Plugin: "mail", Headers: map[string]string{"traceparent": traceparent[:len(traceparent)-1] + "ff"}})
	services := span.Services(service.Services{KV: failing{errs: errs}})
	want := map[string]string{} // the error types, by bucket
	for word := range errs {
		_, _ = services.KV.Get(t.Context(), word, "key")
		want[word] = word
	}
	errs["conflict"], errs["not found"] = service.ErrConflict, service.ErrNotFound
	want["conflict"], want["not found"] = "", ""
	const calls = 140
	for i := range calls - len(errs) + 2 {
		_, _ = services.KV.Get(t.Context(), []string{"conflict", "not found"}[i%2], "key")
	}
	span.Ran("", time.Millisecond, 1)
	span.Settled("complete", "")
	if err := tracer.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, all := map[string]string{}, 0
	for _, span := range collector.Spans() {
		if bucket, ok := span.About["db.collection.name"].(string); ok {
			got[bucket], _ = span.About["error.type"].(string)
			if name := "get " + bucket; span.Name != name && (span.Name != "get" || bucket != "denied" && bucket != "invalid") {
				t.Errorf("%+v", span)
			}
			all++
		}
	}
	run := collector.Wait(t, "run mail")["run mail"]
	if !maps.Equal(got, want) || all != 128 || run.About["quern.untraced_calls"] != int64(calls-128) {
		t.Errorf("%d spans of calls have the errors %v; %+v", all, got, run)
	}
	if id := trace.SampledID(headers["traceparent"]); id == "" || id != run.Trace || !strings.HasPrefix(traceparent, "00-"+id) {
		t.Errorf("the trace is %v", headers)
	}
}

// failingSQL answers statements on the database away with an error.
type failingSQL struct{ service.SQL }

func (failingSQL) Query(_ context.Context, database, _ string, _ []service.SQLValue) ([]byte, error) {
	if database == "away" {
		return nil, service.ErrUnavailable
	}
	return nil, nil
}

func (failingSQL) Commit(context.Context, string, string, []byte) ([]byte, error) { return nil, nil }

// Statements and commits have spans, which do not show the statement.
func TestStatements(t *testing.T) {
	collector := tracetest.Start(t)
	tracer, err := trace.New(t.Context(), trace.Config{Endpoint: collector.HTTP})
	if err != nil {
		t.Fatal(err)
	}
	span, _ := tracer.Begin(trace.Task{Queue: "buy", Plugin: "buy", Headers: map[string]string{"traceparent": traceparent + "1"}})
	services := span.Services(service.Services{SQL: failingSQL{}})
	for _, database := range []string{"shop", "away"} {
		_, _ = services.SQL.Query(t.Context(), database, "SELECT 'secret'", nil)
	}
	_, _ = services.SQL.Commit(t.Context(), "shop", "", nil)
	span.Ran("", time.Millisecond, 1)
	span.Settled("complete", "")
	if err := tracer.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	spans := collector.Wait(t, "query shop", "query away", "commit shop")
	for name, failure := range map[string]any{"query shop": nil, "query away": "unavailable", "commit shop": nil} {
		s := spans[name]
		if s.About["db.system.name"] != "postgresql" || s.About["error.type"] != failure || strings.Contains(fmt.Sprint(s), "secret") {
			t.Errorf("%s: %+v", name, s)
		}
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
