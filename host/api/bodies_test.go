package api_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// allocated is how many bytes this process allocated meanwhile, whether they were in use at one time or not. The test must not run
// beside others.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// alone is setup for a test that measures memory: it does not run beside others.
func alone(t *testing.T, change ...func(*api.Config)) *world {
	t.Helper()
	return serve(t, queuetest.Shared(t).URL(), queuetest.Tenant(), change...)
}

// A body that has too much of something is refused where it has, before that takes memory.
func TestLongBodies(t *testing.T) { //nolint:paralleltest // it measures memory
	w := alone(t)
	many := func(before, one, after string) []byte {
		n := (15 << 20) / (len(one) + 1)
		return []byte(before + strings.Repeat(one+",", n-1) + one + after)
	}
	after := []byte(`{"tasks":[` + strings.Repeat(`{"after":[`+strings.Repeat(`"a",`, 9999)+`"a"]},`, 30) + `{}]}`)
	for _, c := range []struct {
		path, kind string
		body       []byte
		status     int
		words      string
	}{
		{"/queues/q/tasks/batch", "", many(`{"tasks":[`, `{}`, `]}`), http.StatusUnprocessableEntity, `"message":"expected array length \u003c= 1000","location":"body.tasks"`},
		{"/queues/q/tasks/batch", "", many(`{"tasks":[`, `0`, `]}`), http.StatusUnprocessableEntity, `"location":"body.tasks[0]"`},
		{"/queues/q/tasks/batch", "", many(`{"tasks":[`, `{"a":1}`, `]}`), http.StatusUnprocessableEntity, `"location":"body.tasks[0].a"`},
		{"/queues/q/tasks/batch", "", many(`{"tasks":[`, `{"labels":{"a":{}}}`, `]}`), http.StatusUnprocessableEntity, `"location":"body.tasks[0].labels.a"`},
		{"/queues/q/tasks/batch", "", many(`{"tasks":[{"labels":{`, `"a":""`, `}}]}`), http.StatusUnprocessableEntity, `this property is there twice: leave one of them out","location":"body.tasks[0].labels.a"`},
		{"/queues/q/tasks/batch", "", []byte(`{"tasks":[{"labels":{"z":""` + strings.ReplaceAll(members(1<<20), ":0", `:""`) + `}}]}`), http.StatusUnprocessableEntity, `at most 1000 properties","location":"body.tasks[0].labels"`},
		{"/queues/q/tasks/batch", "", many(`{`, `"tasks":[{}]`, `}`), http.StatusUnprocessableEntity, `this property is there twice: leave one of them out","location":"body.tasks"`},
		{"/queues/q/tasks/batch", "", many(`{"tasks":[{"id":"`, `x`, `"}]}`), http.StatusUnprocessableEntity, `128","location":"body.tasks[0].id"`},
		{"/queues/q/tasks/batch", "", after, http.StatusUnprocessableEntity, `the body has more than 200000 values: send less at a time","location":"body.tasks[`},
		{"/queues/q/tasks/batch", "", many(`{"tasks":[{"parameters":`, `[`, ``), http.StatusBadRequest, "no JSON"},
		{"/queues/q/events", "application/cloudevents-batch+json", many(`[`, `0`, `]`), http.StatusBadRequest, "more than 1000 events"},
		{"/queues/q/events", "application/cloudevents+json", []byte(`{"specversion":"1.0"` + members(1<<20) + `}`), http.StatusBadRequest, "more than 1000 members"},
		{"/topics/t/events", "application/cloudevents-batch+json", many(`[`, `{}`, `]`), http.StatusBadRequest, "more than 1000 events"},
	} {
		if c.kind == "" {
			c.kind = "application/json"
		}
		var got answer
		taken := allocated(func() {
			got = w.do(t, request{method: http.MethodPost, path: c.path, body: c.body, header: map[string]string{"Content-Type": c.kind}})
		})
		text := strings.ReplaceAll(string(got.body), `<`, `\u003c`)
		if got.body = []byte(text); taken > uint64(2*len(c.body)+16<<20) {
			t.Errorf("%.40s: %d MiB were allocated for a body of %d MiB", c.body, taken>>20, len(c.body)>>20)
		}
		refused(t, got, c.status, c.words)
	}
	schedules := many(`{"schedules":[`, `{}`, `]}`)[:1<<20]
	taken := allocated(func() {
		got := w.do(t, request{method: http.MethodPut, path: "/schedules?owner=o", body: schedules, header: map[string]string{"Content-Type": "application/json"}})
		refused(t, got, http.StatusUnprocessableEntity, `"location":"body.schedules[0]"`)
	})
	if taken > 16<<20 {
		t.Errorf("%d MiB were allocated for schedules of 1 MiB", taken>>20)
	}
	for _, n := range []int{21_000, 349_000} { // values of any kind, of 64 KiB and of 1 MiB
		body := `{"topic":"t","queue":"q","filter":{"data":{"/a":[` + strings.Repeat("{},", n) + `{}]}}}`
		taken := allocated(func() {
			got := w.do(t, request{method: http.MethodPut, path: "/subscriptions/s", body: []byte(body), header: map[string]string{"Content-Type": "application/json"}})
			if got.status < 400 {
				t.Errorf("%d", got.status)
			}
		})
		if taken > 16<<20 {
			t.Errorf("%d MiB were allocated for a subscription of %d KiB", taken>>20, len(body)>>10)
		}
	}
}

// members are those of an object, with names of their own.
func members(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `,"a%d":0`, i)
	}
	return text.String()
}

// A body with a coding is refused, wherever among the codings of its headers that is; identity is none.
func TestCodings(t *testing.T) {
	w := setup(t)
	for _, c := range []struct {
		codings []string
		named   string // "" if the body is taken
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"identity"}, ""},
		{[]string{"IDENTITY", "identity, Identity"}, ""},
		{[]string{"gzip"}, "gzip"},
		{[]string{"identity", "gzip"}, "gzip"},
		{[]string{"", "br"}, "br"},
		{[]string{"identity, deflate"}, "deflate"},
		{[]string{"gzip", "identity,BR"}, "gzip, BR"},
	} {
		for path, body := range map[string]string{"queues/q/tasks": "x", "queues/q/tasks/batch": `{"tasks":[{}]}`, "queues/q/events": "[]", "topics/t/publications": "x", "topics/t/events": "[]"} {
			kind := "application/json"
			if strings.HasSuffix(path, "/events") {
				kind = "application/cloudevents-batch+json"
			}
			header := http.Header{"Content-Type": {kind}, "Content-Encoding": c.codings}
			a := w.send(t, http.MethodPost, "/"+path, []byte(body), header)
			if c.named != "" {
				refused(t, a, http.StatusUnsupportedMediaType, `Content-Encoding \"`+c.named+`\"`)
			} else if a.status != http.StatusOK {
				t.Errorf("%q to %s: %d %s", c.codings, path, a.status, a.body)
			}
		}
	}
}

// What a body may be it is, in all forms that JSON has.
func TestBodies(t *testing.T) {
	w := setup(t)
	for body, want := range map[string]int{
		`{"tasks":[{}]}`:                                                http.StatusOK,
		" {\t\"tasks\" : [ {\n} ] } \r\n":                               http.StatusOK,
		`{"Tasks":[{"KEY":null,"key2":1}]}`:                             http.StatusUnprocessableEntity,
		`{"TASKS":[{"Key":"k"}]}`:                                       http.StatusOK,
		`{"ta\u0073ks":[{"key":"\u00e9\""}]}`:                           http.StatusOK,
		`{"tasks":[{"key":null,"after":null}]}`:                         http.StatusOK,
		`{"tasks":[{"parameters":[1,{"a":[]},"]}",true,null,-1.5e3]}]}`: http.StatusOK,
		`{"tasks":[{"parameters_base64":"AA=="}]}`:                      http.StatusOK,
		`{"tasks":[{"parameters_base64":"?"}]}`:                         http.StatusUnprocessableEntity,
		`{"tasks":[{"parameters":[1,}]}]}`:                              http.StatusBadRequest,
		`{"tasks":[{"priority":101}]}`:                                  http.StatusUnprocessableEntity,
		`{"tasks":[{"priority":"1"}]}`:                                  http.StatusUnprocessableEntity,
		`{"tasks":[{"backoff":"no"}]}`:                                  http.StatusUnprocessableEntity,
		`{"tasks":[{}],"tasks":[{}]}`:                                   http.StatusUnprocessableEntity,
		`{"tasks":[]}`:                                                  http.StatusUnprocessableEntity,
		`{"tasks":{}}`:                                                  http.StatusUnprocessableEntity,
		`{"tasks":[{}]} x`:                                              http.StatusBadRequest,
		`{"tasks":[{}}`:                                                 http.StatusBadRequest,
		`{}`:                                                            http.StatusUnprocessableEntity,
		`[]`:                                                            http.StatusUnprocessableEntity,
		`null`:                                                          http.StatusUnprocessableEntity,
		``:                                                              http.StatusBadRequest,
	} {
		got := w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks/batch", body: []byte(body), header: map[string]string{"Content-Type": "application/json"}})
		if got.status != want {
			t.Errorf("%s: %d %s, want %d", body, got.status, got.body, want)
		}
	}
	for body, location := range map[string]string{
		`{"tasks":[{"priority":1e400}]}`:          "body.tasks[0].priority",
		`{"tasks":[{},{"delay_seconds":-1e400}]}`: "body.tasks[1].delay_seconds",
		`{"tasks":[{"labels":{"a":1e999}}]}`:      "body.tasks[0].labels.a",
	} {
		got := w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks/batch", body: []byte(body), header: map[string]string{"Content-Type": "application/json"}})
		refused(t, got, http.StatusUnprocessableEntity, `is too large","location":"`+location+`"`)
	}
	refused(t, w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks/batch", body: []byte("a: b"), header: map[string]string{"Content-Type": "text/yaml"}}),
		http.StatusUnsupportedMediaType, "send application/json")
}

// A page of a list ends when it has much, and its reading takes no more than that, however much there is.
func TestLargeLists(t *testing.T) { //nolint:paralleltest // it measures memory
	w := alone(t)
	large := bytes.Repeat([]byte{1}, 64<<10) // as JSON six times as long
	const count = 100
	for i := range count {
		_, err := w.PutSchedule(w.ctx, queue.Schedule{ID: fmt.Sprintf("s%03d", i), Queue: "q", Cron: "@daily", Parameters: large}, false)
		must(t, err)
	}
	taken := allocated(func() {
		if page := get[api.List[admin.Schedule]](t, w, "/schedules?limit=1"); len(page.Items) != 1 || page.Next != "s000" {
			t.Errorf("%d schedules, next %q", len(page.Items), page.Next)
		}
	})
	if taken > 16<<20 {
		t.Errorf("a page of one schedule of %d took %d MiB", count, taken>>20)
	}
	all, err := w.remote(t).Schedules(w.ctx)
	if must(t, err); len(all) != count || !bytes.Equal(admin.Bytes(all[count-1].Parameters, all[count-1].ParametersBase64), large) {
		t.Errorf("the pages have %d schedules", len(all))
	}
	got := w.do(t, request{method: http.MethodGet, path: "/schedules?limit=1000"})
	if page := decode[api.List[admin.Schedule]](t, got, http.StatusOK); page.Next == "" || len(got.body) > 8<<20 {
		t.Errorf("a page of %d schedules has %d MiB", len(page.Items), len(got.body)>>20)
	}
	taken = allocated(func() {
		if heads, err := w.ScheduleHeads(w.ctx); err != nil || len(heads) != count || len(heads[0].Parameters) > 0 || heads[0].Queue != "q" {
			t.Errorf("%d heads, %v", len(heads), err)
		}
	})
	if taken > 4<<20 {
		t.Errorf("the heads of the schedules took %d MiB", taken>>20)
	}

	key := strings.Repeat("\x01", 15<<10)
	specs := make([]queue.Spec, 300)
	specs[0].ID = "root"
	for i := range specs {
		if specs[i].Key = key; i > 0 {
			specs[i].Parent = "root"
		}
	}
	_, err = w.Queue("keys").EnqueueMany(w.ctx, specs)
	must(t, err)
	got = w.do(t, request{method: http.MethodGet, path: "/queues/keys/tasks?limit=1000"})
	if page := decode[api.List[admin.Task]](t, got, http.StatusOK); page.Next == "" || page.Partial || len(got.body) > 8<<20 {
		t.Errorf("a page of %d tasks has %d MiB, next %q", len(page.Items), len(got.body)>>20, page.Next)
	}
	if all := ids(t, w, "/tasks?queue=keys&limit=1000"); len(all) != len(specs) {
		t.Errorf("the pages have %d tasks", len(all))
	}
	got = w.do(t, request{method: http.MethodGet, path: "/tasks/root/tree?width=1000&total=10000"})
	tree := decode[admin.TreeNode](t, got, http.StatusOK)
	if shown := len(tree.Children); len(got.body) > 16<<20 || shown == 0 && tree.Left == 0 {
		t.Errorf("the tree has %d MiB, %d children and %d left out", len(got.body)>>20, shown, tree.Left)
	}
}

// Payloads are a part of their task as far as their JSON is short; others have their own path.
func TestEscapedPayloads(t *testing.T) { //nolint:paralleltest // it measures memory
	w := alone(t)
	for size, shown := range map[int]bool{1 << 20: true, 2 << 20: false, 15 << 20: false} {
		value := strings.Repeat("\x01", size)
		id := w.enqueue(t, "q", value, queue.Options{})
		taken := allocated(func() {
			task := get[admin.Task](t, w, "/tasks/"+id+"?payload_limit=16777216")
			if task.ParametersSize != size || (task.Parameters != nil) != shown {
				t.Errorf("%d bytes: size %d, shown %t", size, task.ParametersSize, task.Parameters != nil)
			}
		})
		if taken > 128<<20 {
			t.Errorf("a task with %d MiB took %d MiB", size>>20, taken>>20)
		}
		if got := w.do(t, request{method: http.MethodGet, path: "/tasks/" + id + "/parameters"}); string(got.body) != value {
			t.Errorf("%d bytes came back", len(got.body))
		}
	}
}

// A principal may have only so many requests answered at a time; others have theirs.
func TestManyRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	greedy, other := token(t, path, "greedy", api.Operator), token(t, path, "other", api.Operator)
	w := setup(t, access(t, path))
	ctx, stop := context.WithCancel(w.ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for range 300 {
		clients.Go(func() {
			for ctx.Err() == nil { // anew when the server ends it for being slow
				connection, err := new(net.Dialer).DialContext(ctx, "tcp", w.server.Addr())
				if err != nil {
					continue
				}
				end := context.AfterFunc(ctx, func() { _ = connection.Close() })
				_, _ = fmt.Fprintf(connection, "POST /v1/tenants/%s/queues/q/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"+
					"Content-Length: 10\r\n\r\n", w.Tenant(), greedy)
				_, _ = io.Copy(io.Discard, connection)
				end()
				_ = connection.Close()
			}
		})
	}
	w.token = greedy
	for {
		got := w.do(t, request{method: http.MethodGet, path: "/queues"})
		if got.status == http.StatusOK { // it was sooner than the others
			continue
		}
		refused(t, got, http.StatusTooManyRequests, "too many requests at a time: 256 of greedy")
		break
	}
	w.token = other
	get[api.List[admin.Queue]](t, w, "/queues")
}

// Who may not see payloads cannot find them out by guessing either.
func TestGuessedPayloads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	secret := token(t, path, "otto", api.Operator)
	amend(t, path, "role: operator", "role: operator\n  payloads: false")
	w := setup(t, access(t, path))
	w.token = secret
	w.enqueue(t, "q", "right", queue.Options{ID: "known"})
	for _, guess := range []string{"right", "wrong"} {
		got := w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks?id=known", body: []byte(guess)})
		if receipt := decode[api.Receipt](t, got, http.StatusOK); !receipt.Existed || receipt.Taken {
			t.Errorf("%s: %s", guess, got.body)
		}
		refused(t, w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks?unique=true", body: []byte(guess)}), http.StatusForbidden, "add unique_key")
	}
	_, err := w.SyncSchedules(w.ctx, "o", []queue.Schedule{{ID: "s", Queue: "q", Cron: "@daily", Parameters: []byte("right")}}, false)
	must(t, err)
	for _, guess := range []string{"right", "wrong"} {
		body := fmt.Sprintf(`{"schedules":[{"id":"s","queue":"q","cron":"@daily","parameters":%q}]}`, guess)
		got := w.do(t, request{method: http.MethodPut, path: "/schedules?owner=o&dry_run=true", body: []byte(body), header: map[string]string{"Content-Type": "application/json"}})
		if string(bytes.TrimSpace(got.body)) != `{"changed":["s"]}` {
			t.Errorf("%s: %d %s", guess, got.status, got.body)
		}
	}
	job, err := manage.NewJobs(w.Client).New(w.ctx, "cancel", `{"error":"right"}`, "ada")
	must(t, err)
	for _, path := range []string{"/jobs", "/jobs/" + job.ID} {
		if got := w.do(t, request{method: http.MethodGet, path: path}); got.status != http.StatusOK || strings.Contains(string(got.body), "right") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// The same Idempotency-Key of two principals is two keys.
func TestIdempotencyKeyOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	tokens := []string{token(t, path, "a", api.Operator), token(t, path, "b", api.Operator)}
	w := setup(t, access(t, path))
	seen := map[string]bool{}
	for _, w.token = range tokens {
		for again := range 2 {
			got := w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks", body: []byte("x"), header: map[string]string{"Idempotency-Key": "k"}})
			receipt := decode[api.Receipt](t, got, http.StatusOK)
			if seen[receipt.ID] = true; receipt.Existed != (again == 1) {
				t.Errorf("%+v", receipt)
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("%d tasks: want one of each", len(seen))
	}
}

// What strangers send stays on the line of the log that is about it.
func TestLinesOfTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	admin := token(t, path, "ada", api.Admin)
	lines, into := io.Pipe()
	t.Cleanup(func() { _ = into.Close() })
	w := setup(t, access(t, path), func(c *api.Config) { c.Logger = hclog.New(&hclog.LoggerOptions{Output: into, DisableTime: true}) })
	read := make(chan string, 100)
	go func() {
		for scanner := bufio.NewScanner(lines); scanner.Scan(); {
			read <- scanner.Text()
		}
	}()
	next := func(words string) {
		t.Helper()
		for {
			select {
			case line := <-read:
				if strings.Contains(line, words) {
					if !strings.Contains(line, `forged\n`) {
						t.Errorf("%q", line)
					}
					return
				}
			case <-time.After(2 * time.Minute):
				t.Fatalf("no line with %s", words)
			}
		}
	}
	w.do(t, request{method: http.MethodGet, path: "/queues/forged%0a%1b[31m"})
	next("refused a request")
	w.token = admin
	w.do(t, request{method: http.MethodDelete, path: "/tasks/forged%0a%1b"})
	next("audit")
}

// A producer learns that its queue's name is probably misspelled, and nothing more once the queue was served.
func TestUnservedQueue(t *testing.T) {
	w := setup(t)
	types := map[string]string{"/tasks/batch": "application/json", "/events": "application/cloudevents+json"}
	enqueue := func(queue, path, body string) (answer, api.Receipt) {
		t.Helper()
		got := w.do(t, request{method: http.MethodPost, path: "/queues/" + queue + path, body: []byte(body), header: map[string]string{"Content-Type": types[path]}})
		if path == "/tasks" {
			return got, decode[api.Receipt](t, got, http.StatusOK)
		}
		return got, decode[api.List[api.Receipt]](t, got, http.StatusOK).Items[0]
	}
	for path, body := range map[string]string{
		"/tasks": "x", "/tasks/batch": `{"tasks":[{"parameters":"x"}]}`,
		"/events": `{"specversion":"1.0","id":"1","source":"s","type":"t"}`,
	} {
		got, receipt := enqueue("sent", path, body)
		if warning := got.header.Get("Quern-Warning"); !receipt.Unserved ||
			!strings.HasPrefix(warning, `no host serves the queue "sent", nor is one known to have served it: put a plugin`) {
			t.Errorf("%s: %+v, warning %q", path, receipt, warning)
		}
	}
	node := listen.New(w.Client)
	must(t, node.Join(w.ctx))
	must(t, node.Register(w.ctx, "mail"))
	if got, receipt := enqueue("mail", "/tasks", "x"); receipt.Unserved || got.header.Get("Quern-Warning") != "" {
		t.Errorf("served: %+v, warning %q", receipt, got.header.Get("Quern-Warning"))
	}
	if got, _ := enqueue("mial", "/tasks", "x"); !strings.HasSuffix(got.header.Get("Quern-Warning"), "did you mean mail?") {
		t.Errorf("misspelled: warning %q", got.header.Get("Quern-Warning"))
	}
	must(t, node.Leave(w.ctx))
	if _, receipt := enqueue("mail", "/tasks", "x"); receipt.Unserved {
		t.Error("served before: unserved")
	}
}
