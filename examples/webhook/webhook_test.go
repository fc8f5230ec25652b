package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/internal/exampletest"
	"github.com/quern-project/quern/examples/webhook/signature"
	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/sdktest"
	"github.com/quern-project/quern/sdk/typed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestJudge(t *testing.T) {
	t.Parallel()
	const done, again, later, never = "complete", "tried again by the policy", "put off", "failed for good"
	for _, tt := range []struct {
		status int
		after  string
		want   string
		wait   time.Duration
	}{
		{200, "", done, 0},
		{204, "5", done, 0},
		{302, "", never, 0},
		{400, "", never, 0},
		{401, "5", never, 0},
		{408, "", again, 0},
		{410, "", never, 0},
		{429, "", again, 0},
		{429, "5", later, 5 * time.Second},
		{429, "0", again, 0},
		{429, "-5", again, 0},
		{429, "soon", again, 0},
		{500, "5", again, 0},
		{503, "", again, 0},
		{503, "Fri, 01 Mar 2999 12:00:00 GMT", later, longestWait},
		{503, "Sun, 01 Mar 2020 12:00:00 GMT", again, 0},
		{503, "2000000000", later, longestWait},
		{503, "99999999999999", later, longestWait},
	} {
		answer := &fetch.Response{Status: tt.status, Header: map[string][]string{}}
		if tt.after != "" {
			answer.Header["retry-after"] = []string{tt.after}
		}
		err := judge(answer)
		got, wait := again, time.Duration(0)
		if retry, ok := errors.AsType[*sdk.RetryError](err); ok {
			got, wait = later, retry.After
		} else if _, fatal := errors.AsType[*sdk.FatalError](err); fatal {
			got = never
		} else if err == nil {
			got = done
		}
		if got != tt.want || wait != tt.wait {
			t.Errorf("%d with Retry-After %q: %s in %s (%v), want %s in %s", tt.status, tt.after, got, wait, err, tt.want, tt.wait)
		}
	}
}

const (
	sharedKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	otherKey  = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

// TestSend runs the handler without a host.
func TestSend(t *testing.T) {
	t.Parallel()
	const input = `{"url": "https://example.com/hook?token=x", "event": "e", "payload": [1, "<&>"]}`
	key, err := signature.ParseKey(sharedKey)
	if err != nil {
		t.Fatal(err)
	}
	h := sdktest.New(t)
	h.Secrets[keyName] = sharedKey
	h.HTTP = func(r fetch.Request) (*fetch.Response, error) {
		first := func(name string) string { return strings.Join(r.Header[name], ", ") }
		err := key.Check("task", first(signature.HeaderTimestamp), first(signature.HeaderSignature), r.Body, time.Now())
		var got, want any
		if errors.Join(json.Unmarshal(r.Body, &got), json.Unmarshal([]byte(`{"type": "e", "data": [1, "<&>"]}`), &want)) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("body %s", r.Body)
		}
		if err != nil || r.Method != "POST" || r.URL != "https://example.com/hook?token=x" || first("Idempotency-Key") != "task" {
			t.Errorf("%v in %+v", err, r)
		}
		return &fetch.Response{Status: 201}, nil
	}
	handler := typed.JSON(send)
	if r := h.Run(handler, sdktest.Task{Input: []byte(input)}); string(r.Result) != `{"status":201}` {
		t.Error(r)
	}
	for name, tt := range map[string]struct {
		input   string
		err     error // of the request
		outcome sdktest.Outcome
		want    string
	}{
		"NoJSON":    {"hello", nil, sdktest.Fatal, "as JSON"},
		"NoEvent":   {`{"url": "https://example.com", "payload": 1}`, nil, sdktest.Fatal, `a webhook is {"url"`},
		"NoPayload": {`{"url": "https://example.com", "event": "e"}`, nil, sdktest.Fatal, `a webhook is {"url"`},
		"BadURL":    {input, sdk.ErrInvalid, sdktest.Fatal, "send the webhook: POST https://example.com/hook: "},
		"Denied":    {input, sdk.ErrDenied, sdktest.Failed, "denied: the task's log says by whom"},
		"Away":      {input, sdk.ErrUnavailable, sdktest.Failed, "is unavailable"},
	} {
		h.HTTP = func(fetch.Request) (*fetch.Response, error) { return nil, tt.err }
		if r := h.Run(handler, sdktest.Task{ID: name, Input: []byte(tt.input)}); r.Outcome != tt.outcome || !strings.Contains(r.Err.Error(), tt.want) {
			t.Errorf("%s: %v, want %v with %q", name, r, tt.outcome, tt.want)
		}
	}
}

// call is a webhook as it came to the receiver.
type call struct {
	at     time.Time
	id     string
	keyed  string // the header Idempotency-Key
	body   string
	forged error // what is wrong with the signature
}

// receiver gets webhooks. Each path has answers of its own, one after the other, of which the last one is for all further calls.
type receiver struct {
	*httptest.Server
	key signature.Key

	mu    sync.Mutex
	calls map[string][]call // by path; guarded by mu
}

type answer struct {
	status             int
	location, retryAft string
}

var answers = map[string][]answer{
	"/ok":     {{status: 204}},
	"/busy":   {{status: 503}, {status: 429, retryAft: "1"}, {status: 200}},
	"/moved":  {{status: 307, location: "/secret"}},
	"/secret": {{status: 200}},
	"/wrong":  {{status: 400}},
	"/down":   {{status: 500}},
	"/gone":   {{status: 0}}, // hangs up
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	key, err := signature.ParseKey(sharedKey)
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{key: key, calls: map[string][]call{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c := call{at: time.Now(), id: request.Header.Get(signature.HeaderID), keyed: request.Header.Get("Idempotency-Key"), body: string(body)}
	c.forged = r.key.Check(c.id, request.Header.Get(signature.HeaderTimestamp), request.Header.Get(signature.HeaderSignature), body, c.at)

	path := request.URL.Path
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[path] = append(r.calls[path], c)
	if c.forged != nil {
		http.Error(w, c.forged.Error(), http.StatusUnauthorized)
		return
	}
	a := answers[path][min(len(r.calls[path]), len(answers[path]))-1]
	for name, value := range map[string]string{"Location": a.location, "Retry-After": a.retryAft} {
		if value != "" {
			w.Header().Set(name, value)
		}
	}
	if a.status == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(a.status)
}

func (r *receiver) of(path string) []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[path]
}

// fleet is a host that serves the plugin for some tenants, which differ in their secrets.
type fleet struct {
	receiver *receiver
	redis    string
}

const manifestHost = "http://127.0.0.1:8080"

// TestPlugin sends webhooks from a real host to a real server.
func TestPlugin(t *testing.T) {
	t.Parallel()
	f := &fleet{receiver: newReceiver(t), redis: queuetest.Start(t).URL()}
	quern := exampletest.New(t)
	plugin := quern.Build(t, ".")

	secrets := t.TempDir()
	for tenant, key := range map[string]string{"shared": sharedKey, "other": otherKey, "garbled": "swordfish"} {
		if err := os.Mkdir(filepath.Join(secrets, tenant), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(secrets, tenant, "signing_key"), []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plugins := plugin.Install(t, manifestHost, f.receiver.URL, "base: 5s", "base: 10ms, min: 10ms")
	quern.Start(t, f.redis, plugins, "--tenants", "shared,other,garbled,none", "--secrets", secrets, "--allow-networks", "127.0.0.0/8")
	// This one is another tenant's, and its operator allows no network.
	quern.Start(t, f.redis, plugins, "--tenants", "walled", "--secrets", walled(t, sharedKey))

	t.Run("OK", f.ok)
	t.Run("OKBusy", f.busy)
	t.Run("Err", f.failures)
}

// walled is a folder of secrets for the tenant of that name.
func walled(t *testing.T, key string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "walled"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "walled", "signing_key"), []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// send enqueues a webhook and waits for what becomes of it. The second result is its log.
func (f *fleet) send(t *testing.T, tenant, url string, options queue.Options) (*queue.Task, string) {
	t.Helper()
	client, err := queue.New(f.redis, queue.Config{Tenant: tenant})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	input, err := json.Marshal(map[string]any{"url": url, "event": "order.paid", "payload": map[string]int{"order": 7}})
	if err != nil {
		t.Fatal(err)
	}
	id, err := client.Queue("webhook").Enqueue(t.Context(), input, options)
	if err != nil {
		t.Fatal(err)
	}
	task, err := client.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := manage.New(client).Log(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for _, line := range lines {
		fmt.Fprintln(&log, line.Text)
	}
	return task, log.String()
}

func (f *fleet) ok(t *testing.T) {
	t.Parallel()
	task, _ := f.send(t, "shared", f.receiver.URL+"/ok", queue.Options{})
	if string(task.Result) != `{"status":204}` {
		t.Errorf("result %q: %+v", task.Result, task.Failure())
	}
	calls := f.receiver.of("/ok")
	if len(calls) != 1 {
		t.Fatalf("%d calls, want one", len(calls))
	}
	if c := calls[0]; c.forged != nil || c.id != task.ID || c.keyed != task.ID || c.body != `{"type":"order.paid","data":{"order":7}}` {
		t.Errorf("%+v came of task %s", c, task.ID)
	}
}

// The receiver is down, then asks to be left alone for a second, then takes it. Only the first one is a failed attempt.
func (f *fleet) busy(t *testing.T) {
	t.Parallel()
	task, _ := f.send(t, "shared", f.receiver.URL+"/busy", queue.Options{})
	if string(task.Result) != `{"status":200}` || task.Attempts != 2 || task.Reschedules != 1 {
		t.Errorf("result %q after %d attempts and %d delays: %+v", task.Result, task.Attempts, task.Reschedules, task.Failure())
	}
	calls := f.receiver.of("/busy")
	if len(calls) != 3 {
		t.Fatalf("%d calls, want three", len(calls))
	}
	for _, c := range calls {
		if c.keyed != task.ID || c.forged != nil {
			t.Errorf("%+v came of task %s", c, task.ID)
		}
	}
	if waited := calls[2].at.Sub(calls[1].at); waited < time.Second {
		t.Errorf("it came again after %s, and was asked for a second", waited)
	}
}

func (f *fleet) failures(t *testing.T) {
	t.Parallel()
	byName := strings.Replace(f.receiver.URL, "127.0.0.1", "localhost", 1)
	tests := map[string]struct {
		tenant, url string
		attempts    int // that it may have, and has
		message     string
		log         string
	}{
		"Redirect": {"shared", f.receiver.URL + "/moved", 0, "the receiver answered 307, a redirect", ""},
		"Wrong":    {"shared", f.receiver.URL + "/wrong", 0, "the receiver answered 400", ""},
		"Down":     {"shared", f.receiver.URL + "/down", 2, "the receiver answered 500", ""},
		"NoAnswer": {"shared", f.receiver.URL + "/gone", 2, "/gone: unavailable: ", ""},
		"BadURL":   {"shared", f.receiver.URL + "/ok/\x00", 0, "send the webhook", ""},
		"OtherKey": {"other", f.receiver.URL + "/other-key", 0, "the receiver answered 401", ""},
		"NoKey":    {"none", f.receiver.URL + "/no-key", 1, "secret signing_key: not found", ""},
		"Garbled":  {"garbled", f.receiver.URL + "/garbled", 1, "secret signing_key: no key: write whsec_", ""},
		"Host": {
			"shared", byName + "/host", 1, fmt.Sprintf("denied: the manifest does not allow it: add {host: %q, methods: [POST]} to capabilities.http", byName),
			fmt.Sprintf("add {host: %q, methods: [POST]} to capabilities.http", byName),
		},
		"Network": {"walled", f.receiver.URL + "/network", 1, "denied: ", "--allow-networks 127.0.0.1/32"},
		"NoURL":   {"shared", "", 0, `a webhook is {"url"`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task, log := f.send(t, tt.tenant, tt.url, queue.Options{Retry: queue.Retry{MaxAttempts: tt.attempts}})
			failure := task.Failure()
			if task.Status != queue.Failed || task.Attempts != max(tt.attempts, 1) || !strings.Contains(failure.Message, tt.message) {
				t.Errorf("%s after %d attempts: %+v, want failed after %d with %q", task.Status, task.Attempts, failure, max(tt.attempts, 1), tt.message)
			}
			if !strings.Contains(log, tt.log) {
				t.Errorf("the log has no %q:\n%s", tt.log, log)
			}
			if strings.Contains(fmt.Sprint(failure)+log, "whsec_A") || strings.Contains(fmt.Sprint(failure)+log, "swordfish") {
				t.Errorf("the key is told: %+v\n%s", failure, log)
			}
		})
	}
	t.Cleanup(func() {
		for _, path := range []string{"/secret", "/no-key", "/garbled", "/host", "/network"} {
			if calls := f.receiver.of(path); len(calls) > 0 {
				t.Errorf("%s was reached: %+v", path, calls)
			}
		}
		if calls := f.receiver.of("/other-key"); len(calls) != 1 || calls[0].forged == nil {
			t.Errorf("of the tenant with another key: %+v, want one call with a wrong signature", calls)
		}
	})
}
