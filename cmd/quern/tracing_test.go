package main

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/quern-project/quern/host/trace/tracetest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// echoes starts a host with the plugin echo as a process of its own, since the SDK reads the variables of its process, and waits
// until it serves.
func (u *user) echoes(flags ...string) *child {
	u.t.Helper()
	c := u.spawn(append([]string{"serve", "--plugins", folder(u.t, map[string][]byte{"echo": runtimetest.Echo(u.t)}), "--http", "127.0.0.1:0"}, flags...)...)
	c.stderr.await(u.t, regexp.MustCompile(`serving queue: .*queue=(echo)`))
	return c
}

// end tells the process to end, which it must do without an error.
func (c *child) end(t *testing.T) {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if state := c.wait(t); state.ExitCode() != 0 {
		t.Fatal(state)
	}
}

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
			collector := tracetest.Start(t)
			flags, variables := settings(collector)
			u := newUser(t, queuetest.Start(t).URL()).with(variables)
			c := u.echoes(flags...)
			u.must("enqueue", "echo", "untraced", "--wait")
			u.with(map[string]string{"TRACEPARENT": "00-" + trace + "-" + parent + "-01", "TRACESTATE": "a=1"}).must("enqueue", "echo", "x", "--id", "one", "--wait")
			u.with(map[string]string{"TRACEPARENT": "nonsense"}).must("enqueue", "echo", "y")
			if shown := u.must("task", "show", "one"); !strings.Contains(shown, "00-"+trace+"-"+parent+"-01") || !strings.Contains(shown, "tracestate") {
				t.Errorf("%s", shown)
			}
			c.end(t)
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

// A server of the API has spans too, beside a host or alone: one trace leads from the command line by it to the host's spans.
func TestServersSendTraces(t *testing.T) {
	t.Parallel()
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, beside := range []bool{false, true} {
		t.Run(fmt.Sprint(beside), func(t *testing.T) {
			t.Parallel()
			collector := tracetest.Start(t)
			u := newUser(t, queuetest.Start(t).URL())
			servers := []*child{u.echoes("--otlp", collector.HTTP, "--admin", "127.0.0.1:0")}
			if !beside {
				servers = append(servers, u.spawn("admin", "--admin", "127.0.0.1:0", "--otlp", collector.GRPC))
			}
			u.server = "http://" + servers[len(servers)-1].stderr.await(t, adminListening)
			u.with(map[string]string{"TRACEPARENT": "00-" + trace + "-" + parent + "-01"}).must("enqueue", "echo", "x", "--wait")
			for _, c := range servers {
				c.end(t)
			}
			const enqueue = "POST /v1/tenants/{tenant}/queues/{queue}/tasks/batch"
			spans := collector.Wait(t, enqueue, "receive echo", "process echo")
			if span := spans[enqueue]; span.Trace != trace || span.Parent != parent || spans["receive echo"].Parent != span.ID {
				t.Errorf("%+v", spans)
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
		"http://:4318":                "http://localhost:4318 or grpc://localhost:4317",
		"http://localhost:99999":      "http://localhost:4318 or grpc://localhost:4317",
		"grpc://localhost:4317/path":  "leave it out",
		"http://ada:s3cret@localhost": "OTEL_EXPORTER_OTLP_HEADERS",
	} {
		if r := u.run("serve", "--check", "--otlp", value); r.status != exitUsage || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, "--otlp") || strings.Contains(r.stderr, "s3cret") {
			t.Errorf("%s: %+v", value, r)
		}
	}
	for name, value := range map[string]string{
		"OTEL_BSP_MAX_QUEUE_SIZE": "-1", "OTEL_BSP_SCHEDULE_DELAY": "0", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "99999999999999999999",
		"OTEL_EXPORTER_OTLP_TIMEOUT": "-1", "OTEL_EXPORTER_OTLP_COMPRESSION": "zip",
		"OTEL_BSP_EXPORT_TIMEOUT": "1s", "OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://u:s3cret word@h",
	} {
		if r := u.with(map[string]string{name: value}).run("serve", "--check"); r.status != exitUsage || !strings.Contains(r.stderr, name) || strings.Contains(r.stderr, "s3cret") {
			t.Errorf("%s=%s: %+v", name, value, r)
		}
	}
	for name, c := range map[string][2]string{
		"OTEL_EXPORTER_OTLP_PROTOCOL": {"http/json", `OTEL_EXPORTER_OTLP_PROTOCOL "http/json": use http/protobuf or grpc`},
		"OTEL_TRACES_EXPORTER":        {"console", `OTEL_TRACES_EXPORTER "console": use otlp or none`},
	} {
		r := u.with(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", name: c[0]}).run("serve", "--check")
		if r.status != exitUsage || !strings.Contains(r.stderr, c[1]) {
			t.Errorf("%+v", r)
		}
	}
}
