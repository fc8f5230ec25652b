package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/host/trace/tracetest"
)

// Headers of a task come from the query, from the lines of a batch, and from the trace of the request itself.
func TestTaskHeaders(t *testing.T) {
	w := setup(t)
	const trace, other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-ffffffffffffffffffffffffffffffff-b7ad6b7169203331-01"
	traced := map[string]string{"Traceparent": trace, "Tracestate": "a=1"}
	for path, c := range map[string]struct {
		header map[string]string
		want   map[string]string
	}{
		"":                                        {nil, nil},
		"?header=x-id=7&header=x-eq=a%3Db":        {nil, map[string]string{"x-id": "7", "x-eq": "a=b"}},
		"?header=x-id=8":                          {traced, map[string]string{"x-id": "8", "traceparent": trace, "tracestate": "a=1"}},
		"?header=x-id=9&traceparent=" + other:     {traced, map[string]string{"x-id": "9", "traceparent": other}},
		"?header=traceparent=" + other:            {traced, map[string]string{"traceparent": other}},
		"?header=x-id=10":                         {map[string]string{"Traceparent": "nonsense"}, map[string]string{"x-id": "10"}},
		"?header=tracestate=b=2&header=x-id=here": {traced, map[string]string{"traceparent": trace, "tracestate": "a=1", "x-id": "here"}},
		"?header=x-id=11":                         {map[string]string{"Traceparent": trace, "Tracestate": "a=\u2028"}, map[string]string{"traceparent": trace, "x-id": "11"}},
	} {
		a := w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks" + path, header: c.header})
		id := decode[api.Receipt](t, a, http.StatusOK).ID
		if got := get[admin.Task](t, w, "/tasks/"+id); !maps.Equal(got.Headers, c.want) || got.Traceparent != c.want["traceparent"] {
			t.Errorf("%s: %v, want %v", path, got.Headers, c.want)
		}
	}
	for path, want := range map[string]string{
		"?header=x-id": "NAME=VALUE", "?header=X-Id=7": "lower case: x-id", "?header=a=%0A": "printable", "?header=a=1&header=a=2": "two headers",
		"?header=traceparent=" + other + "&traceparent=" + trace: "give one of them", "?" + strings.Repeat("header=a=b&", 34): "",
	} {
		a := w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks" + path})
		if a.status < 400 || a.status >= 500 || !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	a := w.do(t, request{
		method: http.MethodPost, path: "/queues/b/tasks/batch", header: map[string]string{"Traceparent": trace, "Content-Type": "application/json"},
		body: []byte(`{"tasks": [{"id": "one", "headers": {"x-id": "1"}}, {"id": "two", "traceparent": "` + other + `"}]}`),
	})
	decode[api.List[api.Receipt]](t, a, http.StatusOK)
	for id, want := range map[string]map[string]string{"one": {"x-id": "1", "traceparent": trace}, "two": {"traceparent": other}} {
		if task, err := w.Task(w.ctx, id); err != nil || !maps.Equal(task.Headers, want) {
			t.Errorf("%s: %+v, %v", id, task, err)
		}
	}
}

// Attributes of an event are headers of its task, whatever their JSON type. A traceparent that is none is no reason to refuse the event.
func TestEventsWithOddAttributes(t *testing.T) {
	w := setup(t)
	body := `{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "number": 7, "yes": true, "nothing": null, "tracestate": "a=1", "traceparent": "nonsense", "data": {"a": 1}}`
	a := w.do(t, request{method: http.MethodPost, path: "/queues/q/events", body: []byte(body), header: map[string]string{
		"Content-Type": "application/cloudevents+json", "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate": "b=2",
	}})
	id := decode[api.List[api.Receipt]](t, a, http.StatusOK).Items[0].ID
	task, err := w.Task(w.ctx, id)
	must(t, err)
	want := map[string]string{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t", "ce-number": "7", "ce-yes": "true", "tracestate": "b=2", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	if !maps.Equal(task.Headers, want) || string(task.Parameters) != body {
		t.Errorf("%v of %s", task.Headers, task.Parameters)
	}
}

// A request that changes something has a span, and its tasks belong to it; one that looks has a span in a trace alone.
func TestRequestTrace(t *testing.T) {
	collector := tracetest.Start(t)
	tracer, err := trace.New(t.Context(), trace.Config{Endpoint: collector.HTTP})
	must(t, err)
	w := setup(t, func(c *api.Config) { c.Tracer = tracer })
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	traced := map[string]string{"Traceparent": "00-" + id + "-" + parent + "-01", "Tracestate": "a=1"}
	enqueue := func(header map[string]string) admin.Task {
		a := w.do(t, request{method: http.MethodPost, path: "/queues/mail/tasks?key=secret", header: header})
		return get[admin.Task](t, w, "/tasks/"+decode[api.Receipt](t, a, http.StatusOK).ID)
	}
	in, unsampled, own := enqueue(traced), enqueue(map[string]string{"Traceparent": "00-" + strings.Repeat("a", 32) + "-" + parent + "-00"}), enqueue(nil)
	w.do(t, request{method: http.MethodPost, path: "/topics/news/publications?id=one", header: traced})
	if p, err := w.Publication(w.ctx, "one"); err != nil || trace.ID(p.Traceparent) != id || p.Tracestate != "a=1" {
		t.Errorf("%+v, %v", p, err)
	}
	w.do(t, request{method: http.MethodGet, path: "/queues/mail", header: traced})
	refused(t, w.do(t, request{method: http.MethodPost, path: "/tasks/none/cancel"}), http.StatusNotFound, "")
	must(t, tracer.Shutdown(w.ctx))
	const route = "/v1/tenants/{tenant}/queues/{queue}"
	spans := make(map[string]tracetest.Span)
	for _, span := range collector.Spans() {
		spans[span.Trace+" "+span.Name] = span
		if span.Kind != "SERVER" || span.Failed || strings.Contains(fmt.Sprint(span), "secret") {
			t.Errorf("%+v", span)
		}
	}
	span := spans[id+" POST "+route+"/tasks"]
	if span.Parent != parent || in.Traceparent != "00-"+id+"-"+span.ID+"-01" || in.Headers["tracestate"] != "a=1" ||
		span.About["http.response.status_code"] != int64(200) || span.About["quern.tenant"] != w.Tenant() {
		t.Errorf("%+v, and the task has %v", span, in.Headers)
	}
	if !strings.HasPrefix(unsampled.Traceparent, "00-"+strings.Repeat("a", 32)) || !strings.HasSuffix(unsampled.Traceparent, "-00") {
		t.Errorf("an unsampled task has %v", unsampled.Headers)
	}
	if span := spans[trace.ID(own.Traceparent)+" POST "+route+"/tasks"]; span.Parent != "" || trace.SampledID(own.Traceparent) != span.Trace {
		t.Errorf("%+v, and the task has %v", span, own.Headers)
	}
	if spans[id+" GET "+route].Parent != parent || len(spans) != 5 {
		t.Errorf("%+v", spans)
	}
}
