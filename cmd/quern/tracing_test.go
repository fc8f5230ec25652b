package main

import (
	"strings"
	"testing"

	"github.com/quern-project/quern/host/trace/tracetest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A host sends its spans when it is told to end, at the latest; the command line takes the trace of its environment.
func TestServeSendsTraces(t *testing.T) {
	t.Parallel()
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for name, settings := range map[string]func(*tracetest.Collector) (flags []string, variables map[string]string){
		"flag": func(c *tracetest.Collector) ([]string, map[string]string) { return []string{"--otlp", c.GRPC}, nil },
		"environment": func(c *tracetest.Collector) ([]string, map[string]string) {
			return nil, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.HTTP, "OTEL_SERVICE_NAME": "pictures", "OTEL_TRACES_SAMPLER": "parentbased_always_off"}
		},
		"off": func(c *tracetest.Collector) ([]string, map[string]string) {
			return nil, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.HTTP, "OTEL_SDK_DISABLED": "true"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if raced && name == "environment" {
				t.Skip("the SDK reads the variables of its process, and the race detector sees hosts within the test's") // other names run
			}
			collector := tracetest.Start(t)
			flags, variables := settings(collector)
			u := newUser(t, queuetest.Start(t).URL()).with(variables)
			c, _ := u.host(folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}), flags...)
			u.must("enqueue", "echo", "untraced", "--wait")
			u.with(map[string]string{"TRACEPARENT": "00-" + trace + "-" + parent + "-01", "TRACESTATE": "a=1"}).must("enqueue", "echo", "x", "--id", "one", "--wait")
			u.with(map[string]string{"TRACEPARENT": "nonsense"}).must("enqueue", "echo", "y")
			if shown := u.must("task", "show", "one"); !strings.Contains(shown, "00-"+trace+"-"+parent+"-01") || !strings.Contains(shown, "tracestate") {
				t.Errorf("%s", shown)
			}
			c.stop()
			if status := c.wait(); status != 0 {
				t.Fatalf("exit %d", status)
			}
			if name == "off" {
				if spans := collector.Spans(); len(spans) > 0 {
					t.Errorf("%+v", spans)
				}
				return
			}
			service, own := "quern", 0
			if name == "environment" {
				service = "pictures"
			}
			for _, span := range collector.Spans() {
				if span.Trace != trace {
					own++
				}
				if span.Resource["service.name"] != service {
					t.Errorf("%+v", span)
				}
			}
			if spans := collector.Wait(t, "receive echo", "process echo", "run echo", "settle echo"); name == "environment" && (own > 0 || spans["receive echo"].Parent != parent) {
				t.Errorf("%d spans of traces that nobody samples; %+v", own, spans)
			}
		})
	}
}

// What is no collector is refused at once, with the remedy and without a password.
func TestRefusedCollectors(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Shared(t).URL())
	for value, want := range map[string]string{
		"localhost:4317":              "use one like http://localhost:4318 or grpc://localhost:4317",
		"ftp://localhost":             `scheme "ftp": use http`,
		"http://":                     "http://localhost:4318 or grpc://localhost:4317",
		"grpc://localhost:4317/path":  "leave it out",
		"http://ada:s3cret@localhost": "OTEL_EXPORTER_OTLP_HEADERS",
	} {
		if r := u.run("serve", "--check", "--otlp", value); r.status != exitUsage || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, "--otlp") || strings.Contains(r.stderr, "s3cret") {
			t.Errorf("%s: %+v", value, r)
		}
	}
	r := u.with(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}).run("serve", "--check")
	if r.status != exitUsage || !strings.Contains(r.stderr, `OTEL_EXPORTER_OTLP_PROTOCOL "http/json": use http/protobuf or grpc`) {
		t.Errorf("%+v", r)
	}
}
