package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// TestProducers runs the tests of the clients for producers on a server with tokens and a host. What they send and what
// is answered is compared with the API's own document. Each client sends every option that the document has.
func TestProducers(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	_, url, tenant, tokens := secured(t)
	redis := queuetest.Shared(t).URL()
	plugins := folder(t, map[string][]byte{"echo": echoUnlessEmpty(t)})
	newUser(t, redis).host(plugins, "--tenants", tenant)
	environment := append(os.Environ(), "PRODUCER_TOKEN="+tokens["operator"], "PRODUCER_TENANT="+tenant,
		"PRODUCER_REDIS="+redis, "PYTHONPATH="+absolute(t, "../../sdk/python/package/src"), "PYTHONDONTWRITEBYTECODE=1")
	for name, test := range map[string]struct {
		folder  string
		command []string
		passed  string
	}{
		"Python": {
			"../../sdk/python/package/producers",
			[]string{absolute(t, "../../build/venv/bin/python"), "-m", "pytest", "-p", "no:cacheprovider", "-q", "."},
			` passed`,
		},
		"JavaScript": {"../../sdk/javascript/client", []string{"node", "--test", "--test-reporter=tap", "test.mjs"}, `(?m)^# pass 16$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), test.command[0], test.command[1:]...)
			proxy := newDocumented(t, url, tokens["operator"])
			cmd.Dir, cmd.Env = test.folder, append(slices.Clone(environment), "PRODUCER_URL="+proxy.URL)
			said, err := cmd.CombinedOutput()
			if err != nil || !regexp.MustCompile(test.passed).Match(said) {
				t.Errorf("%v: run make deps if it is not installed\n%s", err, said)
			}
			proxy.check(t)
		})
	}
}

// documented is a proxy in front of a server of the API, which compares what passes with the API's document.
type documented struct {
	*httptest.Server
	server   string
	document *openapi3.T
	router   routers.Router

	mu     sync.Mutex
	sent   map[string]map[string]bool // by operation: the options that the server took; guarded by mu
	faults []string                   // guarded by mu
}

func newDocumented(t *testing.T, server, token string) *documented {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/v1/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	document, err := openapi3.NewLoader().LoadFromIoReader(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	d := &documented{server: server, document: document, sent: map[string]map[string]bool{}}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	for _, item := range document.Paths.Map() {
		for _, operation := range item.Operations() {
			for _, p := range operation.Parameters {
				if s := p.Value.Schema.Value; s.Type.Includes("array") {
					s.Type = &openapi3.Types{"array"} // not null: the validator reads no list of types in a query
				}
			}
		}
	}
	document.Servers = openapi3.Servers{{URL: d.URL}}
	if d.router, err = legacy.NewRouter(document, openapi3.DisableExamplesValidation()); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *documented) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	forward, err := http.NewRequestWithContext(r.Context(), r.Method, d.server+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	forward.Header = r.Header.Clone()
	answer, err := http.DefaultTransport.RoundTrip(forward)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return // the client has gone
	}
	if r.URL.Path != "/v1/openapi.json" {
		if err := d.compare(r, body, answer, text); err != nil {
			d.mu.Lock()
			d.faults = append(d.faults, fmt.Sprintf("%s %.300s: %d: %v", r.Method, r.URL, answer.StatusCode, err))
			d.mu.Unlock()
		}
	}
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(text)
}

// compare returns what of a request or its answer the document does not allow. A request that the server refuses may be
// anything: the tests of the clients send such requests.
func (d *documented) compare(r *http.Request, body []byte, answer *http.Response, text []byte) error {
	r.URL.Scheme, r.URL.Host = "http", r.Host
	route, parameters, err := d.router.FindRoute(r)
	if err != nil {
		return err
	}
	options := &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, SkipSettingDefaults: true,
		ExcludeRequestBody: !strings.HasSuffix(r.Header.Get("Content-Type"), "json"), MultiError: true,
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	request := &openapi3filter.RequestValidationInput{Request: r, PathParams: parameters, Route: route, Options: options}
	if answer.StatusCode < 300 {
		if err := openapi3filter.ValidateRequest(r.Context(), request); err != nil {
			return fmt.Errorf("request: %w", err)
		}
		if err := d.note(route.Operation, r, body); err != nil {
			return err
		}
	}
	response := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: request, Status: answer.StatusCode, Header: answer.Header, Options: options,
	}
	if err := openapi3filter.ValidateResponse(r.Context(), response.SetBodyBytes(text)); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

// note records the options of a request: parameters of the query, and the fields of tasks in a body.
func (d *documented) note(operation *openapi3.Operation, r *http.Request, body []byte) error {
	var batch struct {
		Tasks []map[string]json.RawMessage `json:"tasks"`
	}
	if strings.HasSuffix(r.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(body, &batch); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	sent := d.sent[operation.OperationID]
	if sent == nil {
		sent = map[string]bool{}
		d.sent[operation.OperationID] = sent
	}
	for name := range r.URL.Query() {
		if sent[name] = true; operation.Parameters.GetByInAndName("query", name) == nil {
			return fmt.Errorf("the document has no parameter %q", name)
		}
	}
	for _, task := range batch.Tasks {
		for name := range task {
			sent[name] = true
		}
	}
	return nil
}

// check fails the test if something has passed that the document does not allow, or if an option of it was never sent.
func (d *documented) check(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, fault := range d.faults {
		t.Error(fault)
	}
	options := map[string][]string{}
	for name := range d.document.Components.Schemas["TaskLine"].Value.Properties {
		options["enqueue-batch"] = append(options["enqueue-batch"], name)
	}
	for _, item := range d.document.Paths.Map() {
		for _, operation := range item.Operations() {
			if slices.Contains([]string{"enqueue-task", "publish"}, operation.OperationID) {
				for _, p := range operation.Parameters {
					if p.Value.In == "query" {
						options[operation.OperationID] = append(options[operation.OperationID], p.Value.Name)
					}
				}
			}
		}
	}
	if len(options) != 3 || len(options["enqueue-batch"]) < 20 || len(options["enqueue-task"]) < 20 {
		t.Fatalf("the document has these options: %q", options)
	}
	for operation, names := range options {
		for _, name := range names {
			if !d.sent[operation][name] {
				t.Errorf("%s: the client never sent %s", operation, name)
			}
		}
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// echoUnlessEmpty is a command that writes what it reads, and fails if that is nothing.
func echoUnlessEmpty(t *testing.T) []byte {
	t.Helper()
	return runtimetest.BuildWAT(t, `(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start") (local $any i32)
    (loop $more
      (i32.store (i32.const 0) (i32.const 65536))
      (i32.store (i32.const 4) (i32.const 65536))
      (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (if (i32.load (i32.const 8)) (then
        (local.set $any (i32.const 1))
        (i32.store (i32.const 4) (i32.load (i32.const 8)))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
        (br $more))))
    (if (i32.eqz (local.get $any)) (then unreachable))))`)
}
