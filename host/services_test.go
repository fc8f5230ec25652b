package host

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// serving is a handler that uses each service once, and writes what it was answered.
func serving(t testing.TB) []byte {
	t.Helper()
	return runtimetest.BuildCHandler(t, `
#include "quern.h"
static char text[100];
static int32_t write_slot(int32_t size) {
	if (size < 0) return size;
	quern_result_read(0, text, sizeof text);
	quern_output_write(text, size);
	return quern_output_write("|", 1);
}
QUERN_HANDLER int32_t handle(void) {
	int64_t count;
	int32_t answer = quern_kv_increment("counts", 6, "runs", 4, 1, &count);
	if (answer) return answer;
	if ((answer = write_slot(quern_kv_get("counts", 6, "runs", 4)))) return answer;
	if ((answer = write_slot(quern_config_get("size", 4)))) return answer;
	if ((answer = write_slot(quern_secret_get("api_key", 7)))) return answer;
	quern_log(3, "mind the gap", 12, "{\"a\":1}", 7);
	quern_progress(0.5, "half", 4);
	char digit = '0' - quern_kv_get("others", 6, "runs", 4);
	return quern_output_write(&digit, 1);
}`)
}

const servingManifest = `
config: {size: 200x200}
capabilities:
  kv: [{bucket: counts, access: rw}]
  secrets: [api_key]
`

func TestServicesOfATask(t *testing.T) {
	t.Parallel()
	server := queuetest.Shared(t)
	rdb := server.Client(t)
	tenants := []string{queuetest.Tenant(), queuetest.Tenant()}
	secrets := t.TempDir()
	stores := map[string]*kv.Store{}
	for _, tenant := range tenants {
		stores[tenant] = kv.New(rdb, tenant)
		if err := os.Mkdir(filepath.Join(secrets, tenant), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(secrets, tenant, "api_key"), []byte("key of "+tenant+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := start(t, settings{
		server: server, tenants: tenants, Config: Config{Services: guest.Config{KV: stores, Secrets: secrets}},
		guests: map[string][]byte{"serving": serving(t)}, yaml: map[string]string{"serving": servingManifest},
	})
	for _, tenant := range tenants {
		client := n.clientOf(tenant)
		for run := 1; run <= 2; run++ {
			id, err := client.Queue("serving").Enqueue(n.ctx, nil, queue.Options{})
			if err != nil {
				t.Fatal(err)
			}
			task, err := client.Wait(n.ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("%d|200x200|key of %s|3", run, tenant); string(task.Result) != want {
				t.Errorf("run %d of %s: %q, want %q: %+v", run, tenant, task.Result, want, task.Failure())
			}
			lines, err := manage.New(client).Log(n.ctx, id, 0)
			if err != nil || len(lines) != 2 || lines[0].Text != `warning: mind the gap {"a":1}` ||
				!strings.HasPrefix(lines[1].Text, `quern_v1.kv_get: denied: `) || !strings.Contains(lines[1].Text, `bucket: "others"`) {
				t.Errorf("log %+v, %v", lines, err)
			}
			if task.Progress != 0.5 || task.Message != "half" {
				t.Errorf("progress %v %q", task.Progress, task.Message)
			}
		}
	}
	if !n.log.has("[WARN]", "a host function was refused", "plugin=serving", "function=kv_get", "others") {
		t.Error("the host's log does not have the refusal")
	}
	if n.log.has("plugin says", "quern_v1.kv_get") || !n.log.has("plugin says", "mind the gap") {
		t.Error("the host's log has the refusal twice, or not what the plugin says")
	}
}

// TestVariablesOfExtism: a variable lasts as long as its bucket, without it as long as its task.
func TestVariablesOfExtism(t *testing.T) {
	t.Parallel()
	module := runtimetest.BuildWAT(t, `(module
		(import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
		(import "extism:host/env" "length" (func $length (param i64) (result i64)))
		(import "extism:host/env" "store_u8" (func $store_u8 (param i64 i32)))
		(import "extism:host/env" "input_offset" (func $input (result i64)))
		(import "extism:host/env" "output_set" (func $output_set (param i64 i64)))
		(import "extism:host/env" "var_get" (func $var_get (param i64) (result i64)))
		(import "extism:host/env" "var_set" (func $var_set (param i64 i64)))
		(func $name (result i64) (local $b i64)
			(local.set $b (call $alloc (i64.const 1)))
			(call $store_u8 (local.get $b) (i32.const 118))
			(local.get $b))
		(func (export "swap") (result i32) (local $b i64)
			(local.set $b (call $var_get (call $name)))
			(call $output_set (local.get $b) (call $length (local.get $b)))
			(call $var_set (call $name) (call $input))
			(i64.eqz (call $var_get (call $name)))))`)
	const asks = "retry: {max_attempts: 1}\ncapabilities: {kv: [{bucket: vars, access: %s}]}"
	server, tenant := queuetest.Shared(t), queuetest.Tenant()
	store := kv.New(server.Client(t), tenant)
	n := start(t, settings{
		server: server, tenants: []string{tenant}, Config: Config{Services: guest.Config{KV: map[string]*kv.Store{tenant: store}}},
		guests: map[string][]byte{"lasting": module, "reading": module, "passing": module},
		yaml:   map[string]string{"lasting": fmt.Sprintf(asks, "rw"), "reading": fmt.Sprintf(asks, "r")},
	})
	for _, test := range []struct{ plugin, input, want, failure string }{
		{"lasting", "one", "", ""},
		{"lasting", "two", "one", ""},
		{"passing", "three", "", ""},
		{"passing", "four", "", ""},
		{"reading", "five", "", `var_set: denied: bucket "vars" is granted for reading only`},
		{"lasting", "", "two", "exit status 1"}, // no bytes are no block, and no block deletes
		{"lasting", "six", "", ""},
	} {
		task := n.wait(n.enqueue(test.plugin, test.input))
		if string(task.Result) != test.want && test.failure == "" || !strings.Contains(fmt.Sprint(task.Failure()), test.failure) {
			t.Errorf("%s(%s) = %q, %v, want %q, %q", test.plugin, test.input, task.Result, task.Failure(), test.want, test.failure)
		}
	}
	if value, err := store.Get(n.ctx, "vars", "v"); string(value) != "six" {
		t.Errorf("the bucket has %q, %v", value, err)
	}
}

// What a handler keeps is what its next attempt begins with.
func TestHandlerKeepsACheckpoint(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"keeping": runtimetest.BuildCHandler(t, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	static char text[10];
	int32_t size = quern_checkpoint_load();
	if (size >= 0) {
		quern_result_read(0, text, sizeof text);
		return quern_output_write(text, size);
	}
	int32_t answer = quern_checkpoint_save("step 1", 6);
	if (answer) return answer;
	__builtin_trap();
}`)},
		yaml: map[string]string{"keeping": "retry: {max_attempts: 2, base: 10ms, min: 10ms}"},
	})
	task := n.wait(n.enqueue("keeping", ""))
	if string(task.Result) != "step 1" || task.Attempts != 2 {
		t.Errorf("result %q after %d attempts: %+v", task.Result, task.Attempts, task.Failure())
	}
}

// The Go SDK's words for all of it, on real Redis.
func TestServicesInGo(t *testing.T) {
	t.Parallel()
	server := queuetest.Shared(t)
	tenant, secrets := queuetest.Tenant(), t.TempDir()
	if err := os.Mkdir(filepath.Join(secrets, tenant), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secrets, tenant, "api_key"), []byte("xyz"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "services.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", file, "../sdk/testdata/services")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-trimpath")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	built, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, settings{
		server: server, tenants: []string{tenant},
		Config: Config{Services: guest.Config{KV: map[string]*kv.Store{tenant: kv.New(server.Client(t), tenant)}, Secrets: secrets}},
		guests: map[string][]byte{"go": built},
		yaml: map[string]string{"go": `
limits: {timeout: 10m}
config: {size: 200x200}
warm: {input: go.yaml}
capabilities:
  kv: [{bucket: counts, access: rw}, {bucket: seen}, {bucket: small, access: rw, quota: 100B}]
  secrets: [api_key, lost]
`},
	})
	task := n.wait(n.enqueueAs("go", "", queue.Options{Parent: "p", Key: "k"}))
	const want = `config: 200x200 true false
secret: xyz <nil> true secret other: denied: secret "other" is not granted: add "other" to capabilities.secrets
get nothing: kv get counts/k: not found
increment: 40 <nil>
increment: 42 <nil>
set: <nil> <nil>
increment a text: kv increment counts/k: the present value is not the expected one
get: value <nil>
get nothing in it: 0 <nil>
swap: value kv swap counts/k: the present value is not the expected one
swap:  <nil>
swap: new kv swap counts/k: the present value is not the expected one
swap: true kv swap counts/absent: the present value is not the expected one
swap: true <nil>
list: [absent k n short] <nil>
list: [n] <nil>
list none: kv list counts/*: invalid: a limit of 0 keys: use 1 to 1000
delete: true <nil>
delete: false <nil>
quota: kv set small/k: set key "k" of bucket "small": over the quota: the bucket holds 0 bytes and may hold 100
read only: kv set seen/k: denied: bucket "seen" is granted for reading only: add access: rw to bucket "seen" in capabilities.kv
checkpoint: false <nil>
save: <nil> save checkpoint: it is larger than the plugin's limit
checkpoint: step 1 true <nil>
log: <nil> an argument is invalid an argument is invalid
task:  p k true false
`
	if string(task.Result) != want {
		t.Errorf("%+v\ngot\n%s\nwant\n%s", task.Failure(), task.Result, want)
	}
	lines, err := manage.New(n.client).Log(n.ctx, task.ID, 0)
	if err != nil || len(lines) == 0 || !strings.HasSuffix(lines[len(lines)-2].Text, `warning: two\x0alines {"a":"1\u0009\"x\"","b":"`+"\ufffd"+`"}`) {
		t.Errorf("%+v, %v", lines, err)
	}
}

// A handler reaches what its manifest grants, on networks that the host grants, and nothing else.
func TestHandlerSendsHTTP(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/hello", http.StatusFound)
			return
		}
		fmt.Fprint(w, r.Method, " ", r.URL.Path)
	}))
	t.Cleanup(web.Close)
	wasm := runtimetest.BuildCHandler(t, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) {
	static char head[1000], answer[4000];
	int32_t size = quern_input_read(0, head, sizeof head);
	int32_t n = quern_http(head, size, 0, 0);
	if (n < 0) return n;
	quern_result_read(0, answer, sizeof answer);
	uint32_t behind = 4 + *(uint32_t *)answer;
	quern_output_write(answer + 4, 13); // {"status":NNN
	return quern_output_write(answer + behind, n - behind);
}`)
	manifest := fmt.Sprintf("capabilities: {http: [{host: %q, methods: [GET]}, {host: 'http://127.0.0.1:1', methods: [GET]}]}", web.URL)
	for name, tt := range map[string]struct {
		networks []netip.Prefix
		head     string
		want     string // of the result
		code     int
	}{
		"OK":            {loopback, `{"url":"URL/hello"}`, `{"status":200GET /hello`, 0},
		"OKRedirect":    {loopback, `{"url":"URL/moved"}`, `{"status":302<a href="/hello">Found</a>.` + "\n\n", 0},
		"DeniedNetwork": {nil, `{"url":"URL/hello"}`, "", -3},
		"DeniedMethod":  {loopback, `{"method":"POST","url":"URL/hello"}`, "", -3},
		"DeniedHost":    {loopback, `{"url":"http://127.0.0.2/hello"}`, "", -3},
		"Unavailable":   {loopback, `{"url":"http://127.0.0.1:1/hello"}`, "", -9},
		"Invalid":       {loopback, `{"uri":"URL/hello"}`, "", -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := egress.New(egress.Config{Networks: tt.networks})
			t.Cleanup(client.Close)
			n := start(t, settings{
				Config: Config{Services: guest.Config{HTTP: client}}, guests: map[string][]byte{"web": wasm}, yaml: map[string]string{"web": manifest},
			})
			task := n.wait(n.enqueue("web", strings.ReplaceAll(tt.head, "URL", web.URL)))
			if string(task.Result) != tt.want {
				t.Errorf("result %q, want %q: %+v", task.Result, tt.want, task.Failure())
			}
			if f := task.Failure(); tt.code != 0 && (f.ExitCode == nil || *f.ExitCode != tt.code) {
				t.Errorf("failed with %+v, want %d", f, tt.code)
			}
			lines, err := manage.New(n.client).Log(n.ctx, task.ID, 0) // which is the tenant's: it has no socket
			if told := "quern_v1.http: GET http://127.0.0.1:1: unavailable: connect: connection refused"; name == "Unavailable" && (err != nil || len(lines) != 1 || lines[0].Text != told) {
				t.Errorf("the log is %+v, %v, want %s", lines, err, told)
			}
		})
	}
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
