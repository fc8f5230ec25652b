package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/host/trace/tracetest"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// calling is a handler that stores, sends a request to the URL that is its input, enqueues a child, publishes and returns its own
// trace.
func calling(t testing.TB) []byte {
	t.Helper()
	return runtimetest.BuildCHandler(t, `
#include "quern.h"
static char head[1000], text[1000];
QUERN_HANDLER int32_t handle(void) {
	int64_t count;
	quern_builder b = quern_object(head, sizeof head);
	int32_t size = quern_input(text, sizeof text);
	if (size < 0 || quern_kv_increment(QUERN_TEXT("counts"), QUERN_TEXT("runs"), 1, &count) < 0) return 65;
	quern_text_member(&b, "url", text, size);
	quern_end_object(&b);
	if (quern_http(head, quern_built(&b), NULL, 0) < 0) return 65;
	if (quern_enqueue(QUERN_TEXT("child"), NULL, 0, NULL, 0) < 0) return 65;
	if (quern_enqueue(NULL, 0, NULL, 0, QUERN_TEXT("{\"topic\":\"news\",\"id\":\"one\"}")) < 0) return 65;
	size = quern_slot(quern_task_text(QUERN_TASK_TRACEPARENT), text, sizeof text);
	return size < 0 ? 65 : quern_output_write(text, size);
}`)
}

const (
	aTrace  = "0af7651916cd43dd8448eb211c80319c"
	aParent = "b7ad6b7169203331"
)

// newTracer is a tracer whose spans reach the collector when it is shut down, at the latest.
func newTracer(t testing.TB, endpoint string) *trace.Tracer {
	t.Helper()
	tracer, err := trace.New(t.Context(), trace.Config{Endpoint: endpoint, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracer.Shutdown(context.Background()) })
	return tracer
}

// startTraced starts a host of that handler, with its child, and a server that it may ask, through a proxy if it is to.
func startTraced(t *testing.T, tracer *trace.Tracer, proxied bool) (n *node, address string, asked chan http.Header) {
	t.Helper()
	asked = make(chan http.Header, 10)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(web.Close)
	outside := egress.Config{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	if proxied {
		proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.Header.Set("X-Proxied", "yes") }})
		t.Cleanup(proxy.Close)
		outside.Proxy, _ = url.Parse(proxy.URL)
	}
	client := egress.New(outside)
	t.Cleanup(client.Close)
	server, tenant := queuetest.Shared(t), queuetest.Tenant()
	n = start(t, settings{
		server: server, tenants: []string{tenant},
		Config: Config{Tracer: tracer, Services: guest.Config{HTTP: client, KV: map[string]*kv.Store{tenant: kv.New(server.Client(t), tenant)}}},
		guests: map[string][]byte{"calling": calling(t), "child": runtimetest.BuildCHandler(t, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) { quern_say(QUERN_INFO, "plain"); return quern_fail(65, "no"); }`)},
		yaml: map[string]string{"calling": fmt.Sprintf(`
version: "7"
capabilities:
  http: [{host: %q, methods: [GET]}]
  kv: [{bucket: counts, access: rw}]
  enqueue: {queues: [child]}
  publish: {topics: [news]}`, web.URL)},
	})
	if _, err := n.client.Subscribe(n.ctx, queue.Subscription{ID: "reader", Topic: "news", Queue: "readers"}); err != nil {
		t.Fatal(err)
	}
	return n, web.URL + "/secret-path?token=secret", asked
}

// One trace leads from the producer over the task and what it calls to its child, by HTTP and by gRPC.
func TestTrace(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]func(*tracetest.Collector) string{
		"http": func(c *tracetest.Collector) string { return c.HTTP }, "grpc": func(c *tracetest.Collector) string { return c.GRPC },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			collector := tracetest.Start(t)
			tracer := newTracer(t, endpoint(collector))
			n, url, asked := startTraced(t, tracer, name == "grpc")
			id := n.enqueueAs("calling", url, queue.Options{Headers: map[string]string{"traceparent": "00-" + aTrace + "-" + aParent + "-01", "tracestate": "a=1"}})
			task := n.wait(id)
			if task.Status != queue.Complete {
				t.Fatalf("%+v", task.Failure())
			}
			child := n.waitForChild("child")
			n.eventually("what was published has its task", func() bool { return len(n.list("readers")) == 1 })
			if err := errors.Join(n.stop(), tracer.Shutdown(n.ctx)); err != nil {
				t.Fatal(err)
			}
			sent := <-asked
			checkTrace(t, collector, task, child, sent)
			read := n.list("readers")[0]
			if spans := collector.Wait(t, "publish news"); spans["publish news"].Parent != spans["run calling"].ID ||
				read.Traceparent != "00-"+aTrace+"-"+spans["publish news"].ID+"-01" || read.Headers["tracestate"] != "a=1" {
				t.Errorf("%+v, and the task has %v", spans["publish news"], read.Headers)
			}
			if (sent.Get("X-Proxied") != "") != (name == "grpc") {
				t.Errorf("the request had %v", sent)
			}
			for _, id := range []string{task.ID, child.ID} {
				all, traced := n.log.lines("task_id="+id), n.log.lines("task_id="+id, "trace_id="+aTrace)
				if all < 2 || traced != all {
					t.Errorf("%d of %d lines about %s have the trace:\n%s", traced, all, id, n.log)
				}
			}
			if !n.log.has("plugin says", "task_id="+child.ID, "line=plain", "trace_id="+aTrace) {
				t.Error("a line of the handler lacks the trace")
			}
		})
	}
}

// Without a tracer all that a task sends has the task's own trace.
func TestTraceWithoutTracer(t *testing.T) {
	t.Parallel()
	n, url, asked := startTraced(t, nil, false)
	const trace = "00-" + aTrace + "-" + aParent + "-01"
	n.wait(n.enqueueAs("calling", url, queue.Options{Headers: map[string]string{"traceparent": trace, "tracestate": "a=1"}}))
	child := n.waitForChild("child")
	n.eventually("what was published has its task", func() bool { return len(n.list("readers")) == 1 })
	for _, task := range []*queue.Task{child, n.list("readers")[0]} {
		if task.Traceparent != trace || task.Headers["tracestate"] != "a=1" {
			t.Errorf("%s has %v", task.ID, task.Headers)
		}
	}
	if sent := <-asked; sent.Get("Traceparent") != trace || sent.Get("Tracestate") != "a=1" {
		t.Errorf("the request had %v", sent)
	}
}

// waitForChild waits for the one task of a queue, which no producer of the test has enqueued.
func (n *node) waitForChild(name string) *queue.Task {
	n.t.Helper()
	list := n.list(name)
	if len(list) != 1 {
		n.t.Fatalf("%d tasks of %s", len(list), name)
	}
	return n.wait(list[0].ID)
}

func (n *node) list(name string) []*queue.Task {
	n.t.Helper()
	list, err := manage.New(n.client).Queue(name).List(n.ctx, manage.ListOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	return list
}

func checkTrace(t *testing.T, collector *tracetest.Collector, task, child *queue.Task, sent http.Header) {
	t.Helper()
	spans, byName := collector.Spans(), make(map[string]tracetest.Span)
	for _, span := range spans {
		byName[span.Name] = span
	}
	parents := map[string]string{
		"process calling": "receive calling", "run calling": "process calling", "settle calling": "process calling",
		"increment counts": "run calling", "GET": "run calling", "send child": "run calling",
		"receive child": "send child", "process child": "receive child", "run child": "process child", "settle child": "process child",
	}
	kinds := map[string]string{
		"receive": "CLIENT", "process": "CONSUMER", "run": "INTERNAL", "settle": "CLIENT", "increment": "CLIENT", "GET": "CLIENT", "send": "PRODUCER",
	}
	if first := byName["receive calling"]; first.Trace != aTrace || first.Parent != aParent {
		t.Errorf("the first span is %+v", first)
	}
	for name, parent := range parents {
		span, of := byName[name], byName[parent]
		verb, _, _ := strings.Cut(name, " ")
		if span.Trace != aTrace || span.Parent == "" || span.Parent != of.ID || span.Kind != kinds[verb] || span.End.Before(span.Begin) {
			t.Errorf("%s is %+v, not a span of %s %+v", name, span, parent, of)
		}
	}
	if string(task.Result) != "00-"+aTrace+"-"+byName["run calling"].ID+"-01" {
		t.Errorf("the guest found the trace %s", task.Result)
	}
	if sent.Get("Traceparent") != "00-"+aTrace+"-"+byName["GET"].ID+"-01" || sent.Get("Tracestate") != "a=1" {
		t.Errorf("the request had %v", sent)
	}
	if child.Traceparent != "00-"+aTrace+"-"+byName["send child"].ID+"-01" || child.Headers["tracestate"] != "a=1" {
		t.Errorf("the child has %v", child.Headers)
	}
	if span := byName["process child"]; !span.Failed || span.About["error.type"] != "error" || span.About["quern.outcome"] != "failed" {
		t.Errorf("%+v", span)
	}
	process, get := byName["process calling"], byName["GET"]
	if process.Failed || process.About["messaging.system"] != "quern" || process.About["messaging.destination.name"] != "calling" ||
		process.About["quern.outcome"] != "complete" || process.Resource["service.name"] != "quern" || process.Resource["service.version"] != "test" {
		t.Errorf("%+v", process)
	}
	if get.About["http.response.status_code"] != int64(418) || get.About["server.address"] != "127.0.0.1" || !get.Failed {
		t.Errorf("%+v", get)
	}
	for _, span := range spans {
		if text := fmt.Sprint(span); strings.Contains(text, "secret") {
			t.Errorf("a span tells %s", text)
		}
	}
}

// A task of an unsampled trace has no spans, but what it sends belongs to the trace, and says that it is not sampled.
func TestUnsampledTrace(t *testing.T) {
	t.Parallel()
	collector := tracetest.Start(t)
	tracer := newTracer(t, collector.HTTP)
	n, url, asked := startTraced(t, tracer, false)
	task := n.wait(n.enqueueAs("calling", url, queue.Options{Traceparent: "00-" + aTrace + "-" + aParent + "-00"}))
	child := n.waitForChild("child")
	sampled := n.wait(n.enqueue("calling", url)) // without a trace of its own it begins one
	if err := errors.Join(n.stop(), tracer.Shutdown(n.ctx)); err != nil {
		t.Fatal(err)
	}
	for _, span := range collector.Spans() {
		if span.Trace == aTrace {
			t.Errorf("%+v", span)
		}
	}
	for what, text := range map[string]string{"the guest": string(task.Result), "the child": child.Traceparent, "the request": (<-asked).Get("Traceparent")} {
		if !strings.HasPrefix(text, "00-"+aTrace+"-") || !strings.HasSuffix(text, "-00") {
			t.Errorf("%s has the trace %s", what, text)
		}
	}
	if spans := collector.Wait(t, "process calling"); spans["receive calling"].Parent != "" || spans["process calling"].About["messaging.message.id"] != sampled.ID {
		t.Errorf("%+v", spans)
	}
}

// No task waits for a collector that is away or does not answer, and the log tells of it once, and how many spans are lost.
func TestCollectorAway(t *testing.T) {
	t.Parallel()
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(hung.Close)
	for name, endpoint := range map[string]string{"refused": "http://127.0.0.1:1", "hung": hung.URL, "grpc": "grpc://127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logBuffer
			tracer, err := trace.New(t.Context(), trace.Config{Endpoint: endpoint, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
			if err != nil {
				t.Fatal(err)
			}
			n := start(t, settings{Config: Config{Tracer: tracer}, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
			n.enqueueMany("echo", 3000, "x") // more spans than wait for an export
			n.count("echo", queue.Complete, 3000)
			if err := n.stop(); err != nil {
				t.Fatal(err)
			}
			over, cancel := context.WithTimeout(n.ctx, 100*time.Millisecond)
			defer cancel()
			if err := tracer.Shutdown(over); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			lost := 0
			for _, match := range regexp.MustCompile(`lost_spans=(\d+)`).FindAllStringSubmatch(log.String(), -1) {
				spans, _ := strconv.Atoi(match[1])
				lost += spans
			}
			if log.lines("[WARN]", "collector takes no traces") != 1 || lost != 4*3000 {
				t.Errorf("the log tells of %d lost spans:\n%s", lost, log.String())
			}
		})
	}
}

// A run that its host stops has not failed: the task goes back to its queue.
func TestTraceOfAStoppedRun(t *testing.T) {
	t.Parallel()
	collector := tracetest.Start(t)
	tracer := newTracer(t, collector.HTTP)
	n := start(t, settings{Config: Config{Tracer: tracer, Grace: time.Nanosecond}, guests: map[string][]byte{"sleep": runtimetest.Sleep(t)}})
	id := n.enqueue("sleep", "600000")
	n.eventually("it runs", func() bool { return n.log.has("plugin says", "task_id="+id) })
	if err := errors.Join(n.stop(), tracer.Shutdown(n.ctx)); err != nil {
		t.Fatal(err)
	}
	spans := collector.Wait(t, "run sleep", "process sleep")
	if spans["run sleep"].Failed || spans["process sleep"].Failed || spans["process sleep"].About["quern.outcome"] != "released" {
		t.Errorf("%+v", spans)
	}
}
