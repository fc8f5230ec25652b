// Package tracetest has a collector of traces for tests. It receives spans by OTLP over HTTP and gRPC.
package tracetest

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Span is a span that the collector has received. IDs are in hexadecimal digits. Parent is "" for a root span.
type Span struct {
	Name, Trace, ID, Parent string
	Kind                    string // the name of the kind without SPAN_KIND_, such as CLIENT
	Failed                  bool
	Begin, End              time.Time
	About, Resource         map[string]any
}

// Collector receives and keeps spans.
type Collector struct {
	collector.UnimplementedTraceServiceServer
	// HTTP and GRPC are the addresses of the collector, as --otlp takes them.
	HTTP, GRPC string
	mu         sync.Mutex // guards the fields below
	spans      []Span
	changed    chan struct{} // closed when more spans come
}

// Start starts a collector, which ends with the test.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{changed: make(chan struct{})}
	web := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(web.Close)
	c.HTTP = web.URL
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })
	c.GRPC = "grpc://" + listener.Addr().String()
	return c
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unpacked
	}
	text, err := io.ReadAll(body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(text, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "no traces here", http.StatusBadRequest)
		return
	}
	c.take(&request)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(nil)
}

// Export receives spans by gRPC.
func (c *Collector) Export(
	_ context.Context, r *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	c.take(r)
	return &collector.ExportTraceServiceResponse{}, nil
}

func (c *Collector) take(r *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, Span{
					Name: s.GetName(), Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()),
					Parent: hex.EncodeToString(s.GetParentSpanId()),
					Kind:   s.GetKind().String()[len("SPAN_KIND_"):], Failed: s.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR,
					Begin: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())), //nolint:gosec // of our time
					About: values(s.GetAttributes()), Resource: values(of.GetResource().GetAttributes()),
				})
			}
		}
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func values(list []*common.KeyValue) map[string]any {
	all := make(map[string]any, len(list))
	for _, pair := range list {
		switch value := pair.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			all[pair.GetKey()] = value.StringValue
		case *common.AnyValue_IntValue:
			all[pair.GetKey()] = value.IntValue
		case *common.AnyValue_DoubleValue:
			all[pair.GetKey()] = value.DoubleValue
		default:
			all[pair.GetKey()] = value
		}
	}
	return all
}

// Spans returns the spans that have come so far.
func (c *Collector) Spans() []Span {
	spans, _ := c.now()
	return spans
}

func (c *Collector) now() ([]Span, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...), c.changed
}

// Wait waits until spans of all these names have come, and returns the spans by their names. It fails the test after a
// minute.
func (c *Collector) Wait(t testing.TB, names ...string) map[string]Span {
	t.Helper()
	late := time.After(time.Minute)
	for {
		spans, changed := c.now()
		byName := make(map[string]Span, len(spans))
		for _, span := range spans {
			byName[span.Name] = span
		}
		missing := ""
		for _, name := range names {
			if _, ok := byName[name]; !ok {
				missing = name
			}
		}
		if missing == "" {
			return byName
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("no span %q has come: %+v", missing, spans)
		}
	}
}
