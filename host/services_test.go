package host

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
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
		server: server, tenants: tenants, Config: Config{Services: Services{KV: stores, Secrets: secrets}},
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
			lines, err := client.Log(n.ctx, id, 0)
			if err != nil || len(lines) != 2 || lines[0].Text != `warning: mind the gap {"a":1}` ||
				!strings.HasPrefix(lines[1].Text, `quern_v1.kv_get: denied: `) || !strings.Contains(lines[1].Text, `bucket: "others"`) {
				t.Errorf("log %+v, %v", lines, err)
			}
			if task.Progress != 0.5 || task.Message != "half" {
				t.Errorf("progress %v %q", task.Progress, task.Message)
			}
		}
	}
	if !n.log.has("[WARN]", "a function of quern_v1 was refused", "plugin=serving", "function=kv_get", "others") {
		t.Error("the host's log does not have the refusal")
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
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	built, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, settings{
		server: server, tenants: []string{tenant},
		Config: Config{Services: Services{KV: map[string]*kv.Store{tenant: kv.New(server.Client(t), tenant)}, Secrets: secrets}},
		guests: map[string][]byte{"go": built},
		yaml: map[string]string{"go": `
limits: {timeout: 50s}
config: {size: 200x200}
warm: {input: go.yaml}
capabilities:
  kv: [{bucket: counts, access: rw}, {bucket: seen}, {bucket: small, access: rw, quota: 100B}]
  secrets: [api_key, lost]
`},
	})
	task := n.wait(n.enqueueAs("go", "", queue.Options{Parent: "p", Key: "k"}))
	const want = `config: 200x200 true false
secret: xyz <nil> true the manifest does not grant it
get nothing: there is none of that name
increment: 40 <nil>
increment: 42 <nil>
set: <nil> <nil>
increment a text: it has another value
get: value <nil>
get nothing in it: 0 <nil>
swap: value it has another value
swap:  <nil>
swap: new it has another value
swap: true it has another value
swap: true <nil>
list: [absent k n short] <nil>
list: [n] <nil>
list none: the host cannot make sense of it
delete: true <nil>
delete: false <nil>
quota: there is no room for more
read only: the manifest does not grant it
checkpoint: false <nil>
save: <nil> it is larger than the plugin's limit
checkpoint: step 1 true <nil>
log: <nil> the host cannot make sense of it the host cannot make sense of it
task:  p k true false
`
	if string(task.Result) != want {
		t.Errorf("%+v\ngot\n%s\nwant\n%s", task.Failure(), task.Result, want)
	}
	lines, err := n.client.Log(n.ctx, task.ID, 0)
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
	guest := runtimetest.BuildCHandler(t, `
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
	manifest := fmt.Sprintf("capabilities: {http: [{host: %q, methods: [GET]}]}", web.URL)
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
		"Invalid":       {loopback, `{"uri":"URL/hello"}`, "", -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := egress.New(egress.Config{Networks: tt.networks})
			t.Cleanup(client.Close)
			n := start(t, settings{
				Config: Config{Services: Services{HTTP: client}}, guests: map[string][]byte{"web": guest}, yaml: map[string]string{"web": manifest},
			})
			task := n.wait(n.enqueue("web", strings.ReplaceAll(tt.head, "URL", web.URL)))
			if string(task.Result) != tt.want {
				t.Errorf("result %q, want %q: %+v", task.Result, tt.want, task.Failure())
			}
			if f := task.Failure(); tt.code != 0 && (f.ExitCode == nil || *f.ExitCode != tt.code) {
				t.Errorf("failed with %+v, want %d", f, tt.code)
			}
		})
	}
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// A ceiling denies what the manifest grants, in each way to use a service, and says that it is the host's; what both
// grant works.
func TestBounded(t *testing.T) {
	t.Parallel()
	m, err := manifest.Parse("x.yaml", []byte(`capabilities:
  kv: [{bucket: open, access: rw}, {bucket: read, access: rw}, {bucket: shut, access: rw}]
  enqueue: {queues: ["mail.*"]}
  secrets: [api_key, ssh]
`))
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := manifest.ParseGrants("grants.yaml", []byte(`acme:
  capabilities: {kv: [{bucket: open, access: rw}, {bucket: read}], enqueue: {queues: [mail.done]}, secrets: [api_key]}
  secrets: {api_key: {value: of the file}, ssh: {value: key}}
`))
	if err != nil {
		t.Fatal(err)
	}
	terms := manifest.NewPermissions(&m, hosts, "acme", nil)
	store := kv.New(queuetest.Shared(t).Client(t), queuetest.Tenant())
	grants := make([]kv.Grant, len(terms.Capabilities.KV))
	for i, g := range terms.Capabilities.KV {
		grants[i] = kv.Grant(g)
	}
	ctx, b := t.Context(), boundedKV{store.For(grants), terms}
	for _, bucket := range []string{"open", "read", "shut", "never"} {
		_, get := b.Get(ctx, bucket, "key")
		_, list := b.List(ctx, bucket, "", "", 10)
		set := b.Set(ctx, bucket, "key", []byte("1"), 0)
		_, increment := b.Increment(ctx, bucket, "key", 1)
		_, swap := b.Swap(ctx, bucket, "key", []byte("2"), []byte("3"), 0)
		_, deleted := b.Delete(ctx, bucket, "key")
		reads, writes := []error{get, list}, []error{set, increment, swap, deleted}
		for i, err := range append(reads, writes...) {
			told := err != nil && strings.Contains(err.Error(), `the host does not: add capabilities: {kv: [{bucket: "`+bucket+`"`)
			switch granted := bucket == "open" || bucket == "read" && i < len(reads); {
			case granted && err != nil && !errors.Is(err, service.ErrNotFound):
				t.Errorf("%s %d: %v", bucket, i, err)
			case !granted && !errors.Is(err, service.ErrDenied):
				t.Errorf("%s %d: %v, want denied", bucket, i, err)
			case !granted && told != (bucket != "never"): // which the manifest would have to grant first
				t.Errorf("%s %d: %v", bucket, i, err)
			}
		}
	}
	sent := boundedEnqueuer{collector{}, terms, 0}
	if id, err := sent.Enqueue(ctx, service.Child{Queue: "mail.done"}); id != "sent" || err != nil {
		t.Errorf("enqueued: %q, %v", id, err)
	}
	if _, err := sent.Enqueue(ctx, service.Child{Queue: "mail.other"}); !errors.Is(err, service.ErrDenied) ||
		!strings.Contains(err.Error(), `add capabilities: {enqueue: {queues: ["mail.other"]}} to "acme" in grants.yaml`) {
		t.Errorf("another queue: %v", err)
	}
	v := vault{"", "acme", terms}
	if value, err := v.Secret(ctx, "api_key"); string(value) != "of the file" || err != nil {
		t.Errorf("api_key: %q, %v", value, err)
	}
	if _, err := v.Secret(ctx, "ssh"); !errors.Is(err, service.ErrDenied) || !strings.Contains(err.Error(), `capabilities: {secrets: ["ssh"]}`) {
		t.Errorf("ssh: %v", err)
	}
}

// collector takes every task.
type collector struct{}

func (collector) Enqueue(context.Context, service.Child) (string, error) { return "sent", nil }
