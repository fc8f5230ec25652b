package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/api/client"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // they wait more than they compute; -parallel still counts
	queuetest.Exit(m)
}

// world is a server for a tenant of its own.
type world struct {
	*queue.Client
	ctx    context.Context
	rdb    redis.UniversalClient
	store  *kv.Store
	server *api.Server
	token  string // sent with every request
	base   string // the URL of the server
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 2*time.Minute, 5*time.Millisecond, what)
}

// setup serves on a free port until the test ends. change may alter the configuration.
func setup(t *testing.T, change ...func(*api.Config)) *world {
	t.Helper()
	t.Parallel()
	return serve(t, queuetest.Shared(t).URL(), queuetest.Tenant(), change...)
}

func serve(t *testing.T, url, tenant string, change ...func(*api.Config)) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	rdb, err := queue.Connect(url + "?read_timeout=20s")
	must(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: tenant})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	w := &world{Client: client, ctx: ctx, rdb: rdb, store: kv.New(rdb, tenant)}
	config := api.Config{Clients: []*queue.Client{client}, Stores: map[string]*kv.Store{tenant: w.store}, Logger: hclog.NewNullLogger()}
	for _, alter := range change {
		alter(&config)
	}
	w.server, err = api.Listen("127.0.0.1:0", config)
	must(t, err)
	w.base = "http://" + w.server.Addr()
	running, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.server.Run(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return w
}

// remote is a client of the API.
func (w *world) remote(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(w.base, "", w.Tenant())
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answer is what a client sees.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// request is one to the server; path begins below the tenant, unless it begins with /v1.
type request struct {
	method, path string
	body         []byte
	header       map[string]string
}

func (w *world) do(t *testing.T, r request) answer {
	t.Helper()
	header := make(http.Header, len(r.header))
	for name, value := range r.header {
		header.Set(name, value)
	}
	return w.send(t, r.method, r.path, r.body, header)
}

// send is do for a request with several headers of a name.
func (w *world) send(t *testing.T, method, path string, body []byte, header http.Header) answer {
	t.Helper()
	if !strings.HasPrefix(path, "/v1") {
		path = "/v1/tenants/" + w.Tenant() + path
	}
	q, err := http.NewRequestWithContext(w.ctx, method, w.base+path, bytes.NewReader(body))
	must(t, err)
	if w.token != "" {
		q.Header.Set("Authorization", "Bearer "+w.token)
	}
	maps.Copy(q.Header, header)
	response, err := http.DefaultClient.Do(q)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return answer{response.StatusCode, response.Header, text}
}

// get reads a path into a shape.
func get[T any](t *testing.T, w *world, path string) T {
	t.Helper()
	return decode[T](t, w.do(t, request{method: http.MethodGet, path: path}), http.StatusOK)
}

// post sends JSON, or nothing for nil, and reads the answer.
func post[T any](t *testing.T, w *world, path string, body any, status int) T {
	t.Helper()
	var text []byte
	if body != nil {
		var err error
		text, err = json.Marshal(body)
		must(t, err)
	}
	return decode[T](t, w.do(t, request{method: http.MethodPost, path: path, body: text, header: map[string]string{"Content-Type": "application/json"}}), status)
}

func decode[T any](t *testing.T, a answer, status int) (shape T) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	decoder := json.NewDecoder(bytes.NewReader(a.body))
	decoder.DisallowUnknownFields()
	must(t, decoder.Decode(&shape))
	return shape
}

// refused checks that an answer is a problem of a status that says some words.
func refused(t *testing.T, a answer, status int, words string) {
	t.Helper()
	var problem struct {
		Status int
		Title  string
		Detail string
		Errors []any
	}
	if err := json.Unmarshal(a.body, &problem); err != nil || a.status != status || problem.Status != status ||
		a.header.Get("Content-Type") != "application/problem+json" || problem.Title != http.StatusText(status) ||
		!strings.Contains(string(a.body), words) {
		t.Errorf("status %d, type %q, body %s: want a problem %d with %q", a.status, a.header.Get("Content-Type"), a.body, status, words)
	}
}

func (w *world) enqueue(t *testing.T, name, parameters string, options queue.Options) string {
	t.Helper()
	id, err := w.Queue(name).Enqueue(w.ctx, []byte(parameters), options)
	must(t, err)
	return id
}

// fail makes a task that failed with a message.
func (w *world) fail(t *testing.T, name, message string) string {
	t.Helper()
	id := w.enqueue(t, name, "p", queue.Options{})
	w.settle(t, name, listen.Settlement{Failure: &queue.Failure{Reason: queue.ReasonError, Message: message, Stderr: "secret"}})
	return id
}

// start has a node of a new listener start the oldest task of a queue.
func (w *world) start(t *testing.T, name string) (*listen.Node, listen.Reservation) {
	t.Helper()
	node := listen.New(w.Client)
	must(t, node.Join(w.ctx))
	must(t, node.Register(w.ctx, name))
	reply := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: name, Count: 1, Start: true, Plugin: "p", Digest: "sha256:0"}})[0]
	must(t, reply.Err)
	if len(reply.Tasks) != 1 {
		t.Fatalf("reserved %d tasks of %q, want 1", len(reply.Tasks), name)
	}
	return node, reply.Tasks[0]
}

// settle runs the oldest task of a queue.
func (w *world) settle(t *testing.T, name string, s listen.Settlement) {
	t.Helper()
	node, task := w.start(t, name)
	s.Claim = task.Claim()
	errs, err := node.Settle(w.ctx, name, []listen.Settlement{s})
	must(t, err)
	must(t, errs[0])
}
