package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// The document describes every path, and every operation says what its errors look like.
func TestOpenAPI(t *testing.T) {
	w := setup(t)
	text := w.do(t, request{method: http.MethodGet, path: "/v1/openapi.json"})
	if text.status != http.StatusOK {
		t.Fatalf("status %d: %s", text.status, text.body)
	}
	document, err := openapi3.NewLoader().LoadFromData(text.body)
	must(t, err)
	must(t, document.Validate(w.ctx, openapi3.DisableExamplesValidation()))
	if document.OpenAPI != "3.1.0" {
		t.Errorf("OpenAPI %s, want 3.1.0", document.OpenAPI)
	}
	if n := document.Paths.Len(); n < 20 {
		t.Errorf("%d paths, want 20 or more", n)
	}
	if document.Paths.Find("/v1/tenants/{tenant}/tasks/{id}") == nil {
		t.Error("a task has no path")
	}
	result := document.Paths.Find("/v1/tenants/{tenant}/tasks/{id}/result").Get.Responses.Status(http.StatusOK).Value
	if len(result.Content) != 1 || result.Content["application/octet-stream"] == nil {
		t.Errorf("a result is described as %+v; the API sends its bytes", result.Content)
	}
	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			if op.Summary == "" || op.OperationID == "" {
				t.Errorf("%s %s has no summary or ID", method, path)
			}
			other := op.Responses.Default()
			if other == nil || other.Value.Content["application/problem+json"] == nil {
				t.Errorf("%s %s does not say that its errors are problems", method, path)
			}
		}
	}
}

// TestOperations compares OPERATIONS.md with the operations, the methods of operators, and the commands in the manual.
func TestOperations(t *testing.T) {
	page, err := os.ReadFile("OPERATIONS.md")
	must(t, err)
	commands, err := os.ReadFile("../../cmd/quern/manual/commands.md")
	must(t, err)
	mapped := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (.*) \\| (.*) \\|$|^\\| `([a-z-]+)` \\| \\| \\|$").FindAllStringSubmatch(string(page), -1) {
		operation := row[1] + row[4]
		mapped[operation] = true
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			of := reflect.TypeFor[admin.Tenant]()
			method, ofQueue := strings.CutPrefix(name[1], "Queue.")
			if ofQueue {
				of = reflect.TypeFor[admin.QueueHandle]()
			}
			method, ofPlugin := strings.CutPrefix(method, "Releases.")
			if ofPlugin {
				of = reflect.TypeFor[admin.Releases]()
			}
			method, ofPauses := strings.CutPrefix(method, "Pauses.")
			if ofPauses {
				of = reflect.TypeFor[admin.Pauses]()
			}
			if _, ok := of.MethodByName(method); !ok {
				t.Errorf("%s: %s has no method %s", operation, of, method)
			}
		}
		for _, command := range regexp.MustCompile("`(quern [a-z ]*[a-z])").FindAllStringSubmatch(row[3], -1) {
			if !regexp.MustCompile("\\| `" + command[1] + "[` ]").Match(commands) {
				t.Errorf("%s: there is no command %s", operation, command[1])
			}
		}
	}
	w := setup(t)
	document, err := openapi3.NewLoader().LoadFromData(w.do(t, request{method: http.MethodGet, path: "/v1/openapi.json"}).body)
	must(t, err)
	for _, item := range document.Paths.Map() {
		for _, op := range item.Operations() {
			if !mapped[op.OperationID] {
				t.Errorf("OPERATIONS.md lacks %s", op.OperationID)
			}
			delete(mapped, op.OperationID)
		}
	}
	for operation := range mapped {
		t.Errorf("OPERATIONS.md has %s, which is no operation", operation)
	}
}

func TestUnknownPaths(t *testing.T) {
	w := setup(t)
	for _, path := range []string{"/v1/nothing", "/v1/tenants/x/y", "/v1/", "/v1/%00", "/v1//me"} {
		refused(t, w.do(t, request{method: http.MethodGet, path: path}), http.StatusNotFound, "/v1/openapi.json")
	}
	got := w.do(t, request{method: http.MethodDelete, path: "/queues"})
	refused(t, got, http.StatusMethodNotAllowed, "GET")
	if allow := got.header.Get("Allow"); allow != "GET, HEAD" {
		t.Errorf("Allow is %q", allow)
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/v1/tenants/another/queues"}), http.StatusNotFound, w.Tenant())
	refused(t, w.do(t, request{method: http.MethodGet, path: "/queues/none"}), http.StatusNotFound, "no queue")
	refused(t, w.do(t, request{method: http.MethodGet, path: "/tasks/none"}), http.StatusNotFound, "no such task")
	refused(t, w.do(t, request{method: http.MethodGet, path: "/queues?limit=0"}), http.StatusUnprocessableEntity, "query.limit")
	refused(t, w.do(t, request{method: http.MethodGet, path: "/queues?limits=1"}), http.StatusUnprocessableEntity, "unknown query parameter")
	refused(t, w.do(t, request{method: http.MethodGet, path: "/queues/" + strings.Repeat("q", 129)}), http.StatusUnprocessableEntity, "path.queue")
}

func TestQueues(t *testing.T) {
	w := setup(t)
	w.enqueue(t, "mail", "hello", queue.Options{})
	w.enqueue(t, "a/b%2Fc?", "odd", queue.Options{})
	w.fail(t, "broken", "no")

	page := get[api.List[admin.Queue]](t, w, "/queues?limit=2")
	if len(page.Items) != 2 || page.Items[0].Queue != "a/b%2Fc?" || page.Items[1].Queue != "broken" || page.Next == "" || page.Items[1].Failed != 1 {
		t.Errorf("first page: %+v", page)
	}
	page = get[api.List[admin.Queue]](t, w, "/queues?limit=2&cursor="+page.Next)
	if len(page.Items) != 1 || page.Items[0].Queue != "mail" || page.Items[0].Pending != 1 || page.Next != "" {
		t.Errorf("second page: %+v", page)
	}
	if q := get[admin.Queue](t, w, "/queues/a%2Fb%252Fc%3F"); q.Pending != 1 || q.Tenant != w.Tenant() {
		t.Errorf("a queue with an odd name: %+v", q)
	}

	w.enqueue(t, "soon", "hello", queue.Options{Delay: time.Millisecond})
	for name, want := range map[string]api.Load{"mail": {Waiting: 1, Load: 1}, "broken": {}, "none": {}, "soon": {Due: 1, Load: 1}} {
		eventually(t, "the load of "+name, func() bool { return get[api.Load](t, w, "/queues/"+name+"/load") == want })
	}
	must(t, w.rdb.Set(w.ctx, w.Tenant()+"_scheduled_tasks_damaged", "x", 0).Err())
	if got := w.do(t, request{method: http.MethodGet, path: "/queues/damaged/load"}); got.status != http.StatusConflict { // 200 would look idle
		t.Errorf("the load of a damaged queue: %d %s", got.status, got.body)
	}

	if q := post[admin.Queue](t, w, "/queues/mail/pause", nil, http.StatusOK); !q.Paused {
		t.Errorf("after pause: %+v", q)
	}
	if q := post[admin.Queue](t, w, "/queues/mail/resume", nil, http.StatusOK); q.Paused {
		t.Errorf("after resume: %+v", q)
	}
	limit := w.do(t, request{method: http.MethodPut, path: "/queues/mail/limit", body: []byte(`{"limit": 1}`)})
	if q := decode[admin.Queue](t, limit, http.StatusOK); q.Limit != 1 {
		t.Errorf("after limit: %+v", q)
	}
	got := w.do(t, request{method: http.MethodPost, path: "/queues/mail/tasks", body: []byte("one more")})
	refused(t, got, http.StatusTooManyRequests, "full")
	if got.header.Get("Retry-After") == "" {
		t.Error("a full queue does not say when to try again")
	}

	refused(t, w.do(t, request{method: http.MethodPost, path: "/queues/broken/purge"}), http.StatusBadRequest, "purge without an age or a number")
	refused(t, w.do(t, request{method: http.MethodPost, path: "/queues/broken/purge?all=true&keep=1"}), http.StatusBadRequest, "leave one of them out")
	purged := post[struct {
		Tenant, Queue string
		Purged        int
	}](t, w, "/queues/broken/purge?all=true", nil, http.StatusOK)
	if purged.Purged != 1 {
		t.Errorf("purged %+v", purged)
	}
}

func TestETags(t *testing.T) {
	w := setup(t)
	id := w.enqueue(t, "mail", "hello", queue.Options{})
	first := w.do(t, request{method: http.MethodGet, path: "/tasks/" + id})
	tag := first.header.Get("ETag")
	if tag == "" || first.header.Get("Cache-Control") != "no-cache" {
		t.Fatalf("headers %v", first.header)
	}
	same := w.do(t, request{method: http.MethodGet, path: "/tasks/" + id, header: map[string]string{"If-None-Match": `"x", W/` + tag}})
	if same.status != http.StatusNotModified || len(same.body) != 0 || same.header.Get("ETag") != tag {
		t.Errorf("the same task: %d %s", same.status, same.body)
	}
	if _, err := w.Queue("mail").Cancel(w.ctx, id); err != nil {
		t.Fatal(err)
	}
	other := w.do(t, request{method: http.MethodGet, path: "/tasks/" + id, header: map[string]string{"If-None-Match": tag}})
	if other.status != http.StatusOK || other.header.Get("ETag") == tag {
		t.Errorf("the task changed, and the answer is %d", other.status)
	}
}

func TestLoopbackAlone(t *testing.T) {
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0"} {
		if _, err := api.Listen(address, api.Config{}); err == nil || !strings.Contains(err.Error(), "--tokens") {
			t.Errorf("%s without tokens: %v", address, err)
		}
	}
	w := setup(t)
	// A page in the operator's browser whose name leads to 127.0.0.1, and one that posts across sites.
	q, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.base+"/v1/tenants", nil)
	must(t, err)
	q.Host = "rebound.example.com"
	response, err := http.DefaultClient.Do(q)
	must(t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("a foreign host gets %d", response.StatusCode)
	}
	refused(t, w.do(t, request{
		method: http.MethodPost, path: "/queues/mail/tasks", body: []byte("x"),
		header: map[string]string{"Origin": "https://evil.example.com", "Content-Type": "text/plain"},
	}), http.StatusForbidden, "another site")
	if known, err := w.Client.Queues(w.ctx); err != nil || len(known) > 0 {
		t.Errorf("queues after a refused request: %v, %v", known, err)
	}
}

// A task tells of the record of its run, whose bytes have a path of their own, also by the client.
func TestRecord(t *testing.T) {
	w := setup(t)
	id := w.fail(t, "mail", "no")
	refused(t, w.do(t, request{method: http.MethodGet, path: "/tasks/" + id + "/record"}), http.StatusNotFound, "record: failed")
	w.rdb.HSet(w.ctx, w.Tenant()+"_task_"+id, "record", "1 3 encrypted")
	w.rdb.HSet(w.ctx, w.Tenant()+"_bytes_"+id, "record", "\xff\x00r")
	if task := get[admin.Task](t, w, "/tasks/"+id); task.Record == nil || *task.Record != (admin.Record{Run: 1, Size: 3, Encrypted: true}) {
		t.Errorf("%+v", task.Record)
	}
	if got := w.do(t, request{method: http.MethodGet, path: "/tasks/" + id + "/record"}); string(got.body) != "\xff\x00r" || got.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("%+v", got)
	}
}

func TestTasks(t *testing.T) {
	w := setup(t)
	created := w.do(t, request{method: http.MethodPost, path: "/queues/mail/tasks?key=order-7&label=to=ada&label=kind=x%3Dy&priority=80", body: []byte{0xff, 0}})
	receipt := decode[api.Receipt](t, created, http.StatusOK)
	task := get[admin.Task](t, w, "/tasks/"+receipt.ID)
	if task.ID != receipt.ID || task.Status != queue.Pending || task.Key != "order-7" || task.Labels["kind"] != "x=y" ||
		task.Priority != 80 || string(task.ParametersBase64) != "\xff\x00" || task.ParametersSize != 2 || task.Created == 0 {
		t.Errorf("%+v", task)
	}
	bytes := w.do(t, request{method: http.MethodGet, path: "/tasks/" + receipt.ID + "/parameters"})
	if string(bytes.body) != "\xff\x00" || bytes.header.Get("Content-Type") != "application/octet-stream" || bytes.header.Get("Content-Disposition") != "attachment" {
		t.Errorf("%+v", bytes)
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/tasks/" + receipt.ID + "/result"}), http.StatusConflict, "is pending")
	refused(t, w.do(t, request{method: http.MethodPost, path: "/tasks/" + receipt.ID + "/retry"}), http.StatusConflict, "only failed tasks")
	refused(t, w.do(t, request{method: http.MethodDelete, path: "/tasks/" + receipt.ID}), http.StatusConflict, "only complete and failed")

	w.settle(t, "mail", listen.Settlement{Result: []byte("<script>")})
	result := w.do(t, request{method: http.MethodGet, path: "/tasks/" + receipt.ID + "/result"})
	if string(result.body) != "<script>" || result.header.Get("Content-Type") != "application/octet-stream" || result.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%+v", result)
	}
	if task := get[admin.Task](t, w, "/tasks/"+receipt.ID+"?payload_limit=3"); task.Result != nil || task.ResultSize != 8 || len(task.History) != 1 || task.Plugin != "p" {
		t.Errorf("%+v", task)
	}
	if gone := w.do(t, request{method: http.MethodDelete, path: "/tasks/" + receipt.ID}); gone.status != http.StatusNoContent {
		t.Errorf("delete: %d %s", gone.status, gone.body)
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/tasks/" + receipt.ID}), http.StatusNotFound, "deleted")

	failed := w.fail(t, "mail", "cannot reach the printer")
	if task := post[admin.Task](t, w, "/tasks/"+failed+"/retry", nil, http.StatusOK); task.Status != queue.Pending {
		t.Errorf("retried: %+v", task)
	}
	ended := post[struct {
		ID    string
		Ended bool
	}](t, w, "/tasks/"+failed+"/cancel", nil, http.StatusOK)
	if !ended.Ended {
		t.Errorf("cancelled: %+v", ended)
	}
	if task := get[admin.Task](t, w, "/tasks/"+failed+"?wait_seconds=60"); task.Reason != queue.ReasonCancelled {
		t.Errorf("%+v", task)
	}
	if history := get[api.List[admin.Attempt]](t, w, "/tasks/"+failed+"/history"); len(history.Items) != 1 || history.Items[0].Error.Message != "cannot reach the printer" {
		t.Errorf("history %+v", history)
	}
}

func TestBatch(t *testing.T) {
	w := setup(t)
	body := map[string]any{"tasks": []any{
		map[string]any{"parameters": "text", "id": "a"},
		map[string]any{"parameters": json.RawMessage(`{"to":12345678901234567890}`), "labels": map[string]string{"x": "y"}, "priority": 0},
		map[string]any{"parameters_base64": []byte{0xff}},
		map[string]any{"parameters": "again", "id": "a"},
	}}
	list := post[api.List[api.Receipt]](t, w, "/queues/q/tasks/batch", body, http.StatusOK)
	if len(list.Items) != 4 || list.Items[0].ID != "a" || list.Items[0].Existed || !list.Items[3].Existed {
		t.Errorf("%+v", list)
	}
	for i, want := range []string{"text", `{"to":12345678901234567890}`, "\xff", "text"} {
		if got, err := w.Parameters(w.ctx, list.Items[i].ID, math.MaxInt64); err != nil || string(got) != want {
			t.Errorf("task %d: %q, %v, want %q", i, got, err, want)
		}
	}
	if task := get[admin.Task](t, w, "/tasks/"+list.Items[1].ID); task.Priority != 0 || task.Labels["x"] != "y" {
		t.Errorf("%+v", task)
	}
	text, err := json.Marshal(map[string]any{"tasks": []any{map[string]any{"parameter": "x"}}})
	must(t, err)
	refused(t, w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks/batch", body: text}), http.StatusUnprocessableEntity, "parameter")
}

// What a server makes has its address relative to where the request came: below the base path, or that of a proxy.
func TestLocationBelowTheBasePath(t *testing.T) {
	w := setup(t, func(c *api.Config) { c.BasePath = "/quern" })
	ask := func(method, to, body string) (status int, location string) {
		q, err := http.NewRequestWithContext(w.ctx, method, to, strings.NewReader(body))
		must(t, err)
		q.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(q)
		must(t, err)
		must(t, response.Body.Close())
		made, _ := response.Location()
		return response.StatusCode, fmt.Sprint(made)
	}
	for _, base := range []string{"", "/quern"} {
		for path, body := range map[string]string{"/queues/a%2Fb/tasks?id=a%25b": "", "/jobs": `{"action": "cancel", "filter": {"queue": "none"}}`} {
			below := w.base + base + "/v1/tenants/" + w.Tenant()
			_, location := ask(http.MethodPost, below+path, body)
			if status, _ := ask(http.MethodGet, location, ""); !strings.HasPrefix(location, below+"/") || status != http.StatusOK {
				t.Errorf("below %q: %s, %d", base, location, status)
			}
		}
	}
}

// faulty is a Redis client with a bug: it panics where a queue is limited.
type faulty struct{ redis.UniversalClient }

func (faulty) HSet(context.Context, string, ...any) *redis.IntCmd { panic("a bug") }

// An action that ends in a bug is in the audit log: it may have been done in part. The server goes on.
func TestAuditOfAPanic(t *testing.T) {
	log := &lockedBuffer{}
	w := setup(t, func(c *api.Config) {
		rdb, err := queue.Connect(queuetest.Shared(t).URL())
		must(t, err)
		t.Cleanup(func() { _ = rdb.Close() })
		client, err := queue.NewFromRedis(faulty{rdb}, queue.Config{Tenant: c.Clients[0].Tenant()})
		must(t, err)
		t.Cleanup(func() { _ = client.Close() })
		c.Clients, c.Logger = []*queue.Client{client}, hclog.New(&hclog.LoggerOptions{Output: log})
	})
	refused(t, w.do(t, request{method: http.MethodPut, path: "/queues/mail/limit", body: []byte(`{"limit": 3}`)}), http.StatusInternalServerError, "the log of this process has the details")
	entries := get[api.List[admin.AuditEntry]](t, w, "/audit").Items
	if len(entries) != 1 || entries[0].Action != "limit-queue" || entries[0].On != "queue mail" || entries[0].Status != http.StatusInternalServerError {
		t.Errorf("%+v", entries)
	}
	if text := log.String(); !strings.Contains(text, "panic=\"a bug\"") {
		t.Errorf("the log is %s", text)
	}
}
