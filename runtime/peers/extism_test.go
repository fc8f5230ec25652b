package peers

import (
	"bytes"
	"context"
	encoding "encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	extism "github.com/extism/go-sdk"

	"github.com/quern-project/quern/plugins/manifest"
	quern "github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/service"
)

// extismModules are those that come with Extism's SDK for Go, and how they are called.
var extismModules = []struct {
	name   string
	entry  string // that Extism is told
	config map[string]string
	inputs []string
	fails  bool
}{
	{name: "alloc", entry: "run_test"},
	{name: "config", entry: "run_test", config: map[string]string{"thing": "a value"}},
	{name: "count_vowels", entry: "count_vowels", inputs: []string{"", "Hello, World!", strings.Repeat("aeiou ", 50_000)}},
	{name: "count_vowels", entry: "count_vowels", config: map[string]string{"vowels": "xyz"}, inputs: []string{"x and y"}},
	{name: "count_vowels_std", entry: "_start", inputs: []string{"", "Hello, World!"}},
	{name: "exit", entry: "_start", fails: true},
	{name: "exit", entry: "_start", config: map[string]string{"code": "0"}},
	{name: "exit", entry: "_start", config: map[string]string{"code": "3"}, fails: true},
	{name: "fail", entry: "run_test", fails: true},
	{name: "hello", entry: "run_test"},
	{name: "hello_haskell", entry: "testing", config: map[string]string{"greeting": "Howdy"}, inputs: []string{"John", ""}},
	{name: "http", entry: "run_test"},
	{name: "http_headers", entry: "http_get", inputs: []string{`{"url": "https://extism.org", "headers": {"X-One": "1"}}`}},
	{name: "input_offset", entry: "input_offset_length", inputs: []string{"", "hello world"}},
	{name: "log", entry: "run_test"},
	{name: "noop", entry: "run_test"},
	{name: "println", entry: "_start", inputs: []string{"John"}},
	{name: "replace", entry: "run_test", inputs: []string{"Greetings, \"Bob\"! \\ \x01", strings.Repeat("x", 5000)}},
	{name: "sleep", entry: "run_test", config: map[string]string{"duration": "0"}},
	{name: "std_command", entry: "_start", inputs: []string{"John"}},
	{name: "var", entry: "run_test"},
}

// answer is what the HTTP of both hosts answers.
var answer = service.Response{Status: 201, Headers: map[string][]string{"X-Two": {"a", "b"}, "Content-Type": {"text/plain"}}, Body: []byte("the body")}

// stub answers all requests of a host.
type stub struct{}

// Do implements service.HTTP.
func (stub) Do(context.Context, service.Request) (service.Response, error) { return answer, nil }

// RoundTrip implements http.RoundTripper.
func (stub) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: answer.Status, Header: answer.Headers, Body: io.NopCloser(bytes.NewReader(answer.Body)), Request: request,
	}, nil
}

// TestExtism: modules that come with Extism's SDK for Go do here what they do there.
func TestExtism(t *testing.T) {
	http.DefaultClient.Transport = stub{} // Extism uses no other
	defer func() { http.DefaultClient.Transport = nil }()
	engine, err := quern.New(t.Context(), quern.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(context.WithoutCancel(t.Context()))
	for _, test := range extismModules {
		t.Run(test.name, func(t *testing.T) {
			binary := extismModule(t, test.name)
			module, err := engine.Load(t.Context(), binary)
			if err != nil {
				t.Fatal(err)
			}
			defer module.Close(context.WithoutCancel(t.Context()))
			m := manifest.Default(test.name)
			if err := m.CheckModule("", module.Info()); err != nil {
				t.Fatal(err)
			}
			pool := module.Bind(quern.Profile{Tenant: "acme", Config: test.config})
			inputs := test.inputs
			if inputs == nil {
				inputs = []string{""}
			}
			for _, input := range inputs {
				code, want, said := inExtism(t, binary, test.entry, test.config, input)
				for range 3 {
					got := pool.Run(t.Context(), quern.Call{Input: []byte(input), Services: service.Services{HTTP: stub{}}})
					if failed := got.Kind != quern.Complete; failed != test.fails || failed != (code != 0) || got.Code != code || !alike(got.Output, want) {
						t.Errorf("%.40q: %+v\nExtism: %d %q", input, got, code, want)
					}
					if !strings.Contains(got.Message, said) {
						t.Errorf("%.40q: %q, want %q in it", input, got.Message, said)
					}
				}
			}
		})
	}
}

// alike compares results, whose JSON may have another order.
func alike(a, b []byte) bool {
	var one, other any
	if encoding.Unmarshal(a, &one) == nil && encoding.Unmarshal(b, &other) == nil {
		a, _ = encoding.Marshal(one)
		b, _ = encoding.Marshal(other)
	}
	return bytes.Equal(a, b)
}

// extismModule reads a module from the source of Extism's SDK.
func extismModule(t *testing.T, name string) []byte {
	t.Helper()
	return read(t, filepath.Join(sdkFolder(), "wasm", name+".wasm"))
}

// sdkFolder is where the Go command keeps the source of Extism's SDK.
var sdkFolder = sync.OnceValue(func() string {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/extism/go-sdk").Output()
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(dir))
})

// inExtism calls a module in Extism's own host, and returns its exit status, output and error.
func inExtism(t *testing.T, binary []byte, entry string, config map[string]string, input string) (code int, output []byte, said string) {
	t.Helper()
	plugin, err := extism.NewPlugin(t.Context(), extism.Manifest{
		Wasm: []extism.Wasm{extism.WasmData{Data: binary}}, AllowedHosts: []string{"*"}, Config: config,
	}, extism.PluginConfig{EnableWasi: true, EnableHttpResponseHeaders: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer plugin.CloseWithContext(t.Context()) //nolint:errcheck // the test ends with it
	status, output, err := plugin.CallWithContext(t.Context(), entry, []byte(input))
	if err != nil && status == 0 {
		t.Fatal(err)
	}
	return int(int32(status)), output, plugin.GetError()
}
