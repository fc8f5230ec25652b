package api_test

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/event"
	cloudhttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func newEvent(t *testing.T, id string, contentType string, data any) event.Event {
	t.Helper()
	e := cloudevents.NewEvent()
	e.SetID(id)
	e.SetSource("/shop/1")
	e.SetType("order.paid")
	e.SetSubject("order 7 ü")
	e.SetExtension("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	e.SetExtension("tier", "gold")
	if data != nil {
		must(t, e.SetData(contentType, data))
	}
	return e
}

// The client of the CloudEvents SDK sends events in both modes; what the tasks get is the event it sent.
func TestCloudEvents(t *testing.T) {
	w := setup(t)
	to := w.base + "/v1/tenants/" + w.Tenant() + "/queues/orders/events"
	client, err := cloudevents.NewClientHTTP(cloudevents.WithTarget(to))
	must(t, err)
	sent := map[string]event.Event{
		"json":  newEvent(t, "json", "application/json", map[string]any{"n": 1}),
		"text":  newEvent(t, "text", "text/plain", "grüß"),
		"bytes": newEvent(t, "bytes", "image/png", []byte{0xff, 0}),
		"none":  newEvent(t, "none", "", nil),
	}
	for mode, ctx := range map[string]func(id string) (event.Event, bool){
		"binary": func(id string) (event.Event, bool) { return sent[id], false },
		"structured": func(id string) (event.Event, bool) {
			e := sent[id].Clone()
			e.SetID("s-" + id)
			return e, true
		},
	} {
		for id := range sent {
			e, structured := ctx(id)
			c := cloudevents.WithEncodingBinary(w.ctx)
			if structured {
				c = cloudevents.WithEncodingStructured(w.ctx)
			}
			for range 2 { // the second is the same event
				if result := client.Send(c, e); !cloudevents.IsACK(result) {
					t.Fatalf("%s %s: %v", mode, id, result)
				}
			}
			sent := e
			tasks, err := manage.New(w.Client).Queue("orders").List(w.ctx, manage.ListOptions{Limit: 1})
			must(t, err)
			text, err := w.Parameters(w.ctx, tasks[0].ID, math.MaxInt64)
			must(t, err)
			var got event.Event
			must(t, json.Unmarshal(text, &got))
			if got.ID() != sent.ID() || got.Source() != sent.Source() || got.Type() != sent.Type() || string(got.Data()) != string(sent.Data()) ||
				got.DataContentType() != sent.DataContentType() || got.Validate() != nil {
				t.Errorf("%s %s: sent %s, the task has %s", mode, id, sent, got)
			}
			if task := tasks[0]; task.Key != "order 7 ü" || task.Labels["ce-type"] != "order.paid" || task.Labels["ce-source"] != "/shop/1" || task.Traceparent == "" {
				t.Errorf("%s %s: the task is %+v", mode, id, task)
			}
			headers := map[string]string{
				"ce-specversion": "1.0", "ce-id": sent.ID(), "ce-source": "/shop/1", "ce-type": "order.paid", "ce-subject": "order 7 ü",
				"traceparent": tasks[0].Traceparent, "ce-tier": "gold", "ce-time": tasks[0].Headers["ce-time"], // the client's
			}
			if kind := sent.DataContentType(); kind != "" {
				headers["ce-datacontenttype"] = kind
			}
			if got := tasks[0].Headers; !maps.Equal(got, headers) {
				t.Errorf("%s %s: headers %v, want %v", mode, id, got, headers)
			}
		}
	}
	if stats, err := manage.New(w.Client).Queue("orders").Stats(w.ctx); err != nil || stats.Depth[queue.Pending] != 8 {
		t.Errorf("%d tasks, %v; want 8", stats.Depth[queue.Pending], err)
	}

	// A batch, of which one event was sent before.
	batch, err := cloudhttp.NewHTTPRequestFromEvents(w.ctx, to, []event.Event{sent["json"], newEvent(t, "new", "", nil)})
	must(t, err)
	response, err := http.DefaultClient.Do(batch)
	must(t, err)
	defer response.Body.Close()
	var list api.List[api.Receipt]
	must(t, json.NewDecoder(response.Body).Decode(&list))
	if response.StatusCode != http.StatusOK || len(list.Items) != 2 || !list.Items[0].Existed || list.Items[1].Existed {
		t.Errorf("a batch: %d %+v", response.StatusCode, list)
	}
}

// A batch without events is answered with an empty list.
func TestNoEvents(t *testing.T) {
	w := setup(t)
	for _, path := range []string{"/queues/q/events", "/topics/t/events"} {
		a := w.do(t, request{method: http.MethodPost, path: path, body: []byte("[]"), header: map[string]string{"Content-Type": "application/cloudevents-batch+json"}})
		if a.status != http.StatusOK || strings.TrimSpace(string(a.body)) != `{"items":[]}` {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// An event is one task also when that has ended and was deleted.
func TestEventsAreKnownAfterTheirTasks(t *testing.T) {
	w := setup(t)
	body := []byte(`{"specversion": "1.0", "id": "1", "source": "s", "type": "t"}`)
	send := func() api.Receipt {
		a := w.do(t, request{method: http.MethodPost, path: "/queues/q/events", body: body, header: map[string]string{"Content-Type": "application/cloudevents+json; charset=utf-8"}})
		return decode[api.List[api.Receipt]](t, a, http.StatusOK).Items[0]
	}
	first := send()
	w.settle(t, "q", listen.Settlement{})
	must(t, w.Queue("q").Delete(w.ctx, first.ID))
	if second := send(); second.ID != first.ID || !second.Existed {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if _, err := w.Task(w.ctx, first.ID); err == nil {
		t.Error("the event made a second task")
	}
}

func TestWrongEvents(t *testing.T) {
	w := setup(t)
	for _, wrong := range []struct{ kind, body, words string }{
		{"application/cloudevents+json", `{`, "event 0"},
		{"application/cloudevents+json", `{"specversion": "0.3", "id": "1", "source": "s", "type": "t"}`, "1.0 is accepted"},
		{"application/cloudevents+json", `{"specversion": "1.0", "id": "", "source": "s", "type": "t"}`, "id, source and type"},
		{"application/cloudevents+json", `{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": 1, "data_base64": "eA=="}`, "both data and data_base64"},
		{"application/cloudevents-batch+json", `{}`, "JSON array"},
		{"application/cloudevents-batch+json", `[{"specversion": "1.0", "id": "1", "source": "s", "type": "t"}, {}]`, "event 1"},
		{"application/json", `{}`, "no event"},
		{";", `{}`, "Content-Type"},
	} {
		a := w.do(t, request{method: http.MethodPost, path: "/queues/q/events", body: []byte(wrong.body), header: map[string]string{"Content-Type": wrong.kind}})
		refused(t, a, http.StatusBadRequest, wrong.words)
	}
	const good = `{"specversion": "1.0", "id": "1", "source": "s", "type": "t", `
	long := strings.Repeat("x", 9000)
	for member, words := range map[string]string{
		`"MyExt": "x"}`: "MyExt", `"my-ext": "x"}`: "my-ext", `"": "x"}`: "names have", `"list": [1]}`: "list",
		`"subject": "a\nb"}`: "subject", `"ext": "a\u0000"}`: "ext", `"ext": "` + long + `"}`: "ext",
		`"time": "yesterday"}`: "RFC 3339", `"time": "2026-02-03T00:00:00,5Z"}`: "RFC 3339", `"time": "2026-02-03T0:00:00Z"}`: "RFC 3339",
		`"data_base64": "!"}`: "data_base64", `"data_base64": "eA"}`: "data_base64", `"data_base64": 5}`: "data_base64", `"data_base64": "\u0021"}`: "data_base64",
	} {
		for _, path := range []string{"queues/q/events", "topics/t/events"} {
			a := w.do(t, request{method: http.MethodPost, path: "/" + path, body: []byte(good + member), header: map[string]string{"Content-Type": "application/cloudevents+json"}})
			refused(t, a, http.StatusBadRequest, words)
			batch := "[" + good + `"data": 1},` + good + member + "]" // of which nothing is enqueued or published
			a = w.do(t, request{method: http.MethodPost, path: "/" + path, body: []byte(batch), header: map[string]string{"Content-Type": "application/cloudevents-batch+json"}})
			refused(t, a, http.StatusBadRequest, "event 1: ")
		}
	}
	for _, value := range []string{"a%0D%0Ab", "a%00", long} {
		for _, path := range []string{"queues/q/events", "topics/t/events"} {
			event := map[string]string{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t", "ce-ext": value}
			refused(t, w.do(t, request{method: http.MethodPost, path: "/" + path, header: event}), http.StatusBadRequest, "ext")
		}
	}
	many := "[" + good + `"data": 1},` + good + `"data": 1` + strings.ReplaceAll(members(24), ":0", `:"x"`) + "}]" // a publication has fewer attributes than a task headers
	refused(t, w.do(t, request{method: http.MethodPost, path: "/topics/t/events", body: []byte(many), header: map[string]string{"Content-Type": "application/cloudevents-batch+json"}}),
		http.StatusBadRequest, "event 1: 28 attributes")
	upper := []byte(`{"specversion": "1.0", "ID": "1", "Source": "s", "Type": "t"}`)
	refused(t, w.do(t, request{method: http.MethodPost, path: "/topics/t/events", body: upper, header: map[string]string{"Content-Type": "application/cloudevents+json"}}),
		http.StatusBadRequest, "names have")
	for header, words := range map[string]string{"ce-data": "as the body", "ce-datacontenttype": "as Content-Type", "ce-a-b": "a-z and 0-9"} {
		refused(t, w.do(t, request{method: http.MethodPost, path: "/queues/q/events", header: map[string]string{header: "x"}}), http.StatusBadRequest, words)
	}
	for path, words := range map[string]string{"queues/q/tasks?label=a=1&label=a=2": "two labels", "topics/t/publications?attribute=a=1&attribute=a=2": "two attributes"} {
		refused(t, w.do(t, request{method: http.MethodPost, path: "/" + path}), http.StatusBadRequest, words)
	}
	if known, err := w.Client.Queues(w.ctx); err != nil || len(known) > 0 {
		t.Errorf("queues after refused events: %v, %v", known, err)
	}
	if topics, err := manage.New(w.Client).Topics(w.ctx); err != nil || len(topics) > 0 {
		t.Errorf("topics after refused events: %v, %v", topics, err)
	}
}

func TestIdempotencyKey(t *testing.T) {
	w := setup(t)
	send := func(name, key string) api.Receipt {
		a := w.do(t, request{method: http.MethodPost, path: "/queues/" + name + "/tasks", body: []byte("x"), header: map[string]string{"Idempotency-Key": key}})
		if a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
		var r api.Receipt
		must(t, json.Unmarshal(a.body, &r))
		return r
	}
	first, again, other, elsewhere := send("q", "k"), send("q", "k"), send("q", "l"), send("r", "k")
	if first.Existed || !again.Existed || again.ID != first.ID || other.Existed || elsewhere.Existed || elsewhere.ID == first.ID {
		t.Errorf("%+v, %+v, %+v, %+v", first, again, other, elsewhere)
	}
	for _, gone := range []bool{false, true} { // also when the task is
		if gone {
			w.rdb.Del(w.ctx, w.Tenant()+"_task_"+first.ID)
		}
		a := w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks", body: []byte("y"), header: map[string]string{"Idempotency-Key": "k"}})
		refused(t, a, http.StatusUnprocessableEntity, "urn:quern:problem:idempotency-key")
	}
	forgotten := send("f", "k")
	for _, of := range []string{"all", "0"} { // expired, and the task exists
		w.rdb.Del(w.ctx, w.Tenant()+"_once_"+w.Queue("f").OnceID("idempotency", "k", of))
	}
	refused(t, w.do(t, request{method: http.MethodPost, path: "/queues/f/tasks", body: []byte("y"), header: map[string]string{"Idempotency-Key": "k"}}),
		http.StatusUnprocessableEntity, "urn:quern:problem:idempotency-key")
	if again := send("f", "k"); !again.Existed || again.ID != forgotten.ID {
		t.Errorf("%+v, then %+v", forgotten, again)
	}

	a := w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks?id=x", header: map[string]string{"Idempotency-Key": "k"}})
	refused(t, a, http.StatusBadRequest, "leave one of them out")

	batch := map[string]any{"tasks": []any{map[string]any{"parameters": "same"}, map[string]any{"parameters": "same"}}}
	text, err := json.Marshal(batch)
	must(t, err)
	for i := range 2 {
		a := w.do(t, request{method: http.MethodPost, path: "/queues/b/tasks/batch", body: text, header: map[string]string{"Idempotency-Key": "k"}})
		list := decode[api.List[api.Receipt]](t, a, http.StatusOK)
		if list.Items[0].ID == list.Items[1].ID || list.Items[0].Existed != (i > 0) {
			t.Errorf("batch %d: %+v", i, list)
		}
	}
}

// Attributes in headers are quoted or not, and percent-encoded UTF-8 (HTTP Protocol Binding for CloudEvents 1.0.2, section 3.1.3.2).
func TestAttributesOfHeaders(t *testing.T) {
	w := setup(t)
	n := 0
	for header, c := range map[string]struct{ want, refusal string }{
		`plain`:           {want: "plain"},
		`gr%C3%BC%C3%9Fe`: {want: "grüße"},
		"grüße":           {want: "grüße"},
		`a%22b%25`:        {want: `a"b%`},
		`a\b`:             {want: `a\b`},
		`a"b"`:            {want: `a"b"`},
		`""`:              {want: ""},
		`"a b"`:           {want: "a b"},
		`"a\"b"`:          {want: `a"b`},
		`"\\%41\A"`:       {want: `\AA`},
		`"a\"`:            {refusal: "closing quote is missing"},
		`"`:               {refusal: "closing quote is missing"},
		`"a`:              {refusal: "closing quote is missing"},
		`"a"b"`:           {refusal: "text follows the closing quote"},
		`a%`:              {refusal: "%25"},
		`%FF`:             {refusal: "not UTF-8"},
		`%C3%28`:          {refusal: "not UTF-8"},
		`%ED%A0%80`:       {refusal: "not UTF-8"},
		`"%FE"`:           {refusal: "not UTF-8"},
		"\xe9":            {refusal: "not UTF-8"},
	} {
		for _, path := range []string{"/queues/q/events", "/topics/t/events"} {
			n++
			event := map[string]string{"ce-specversion": "1.0", "ce-type": "t", "ce-source": "/s", "ce-id": strconv.Itoa(n), "ce-ext": header}
			a := w.do(t, request{method: http.MethodPost, path: path, header: event})
			if c.refusal != "" {
				refused(t, a, http.StatusBadRequest, c.refusal)
				refused(t, a, http.StatusBadRequest, `attribute \"ext\"`)
				continue
			}
			if a.status != http.StatusOK {
				t.Errorf("%s: %s: %d %s", path, header, a.status, a.body)
				continue
			}
			if path == "/queues/q/events" {
				task, err := w.Task(w.ctx, decode[api.List[api.Receipt]](t, a, http.StatusOK).Items[0].ID)
				if must(t, err); task.Headers["ce-ext"] != c.want {
					t.Errorf("%s: %q, want %q", header, task.Headers["ce-ext"], c.want)
				}
			}
		}
	}
	for header, value := range map[string]string{"ce-id": "%FE", "Content-Type": "text/plain;a=\"\xff\""} {
		event := map[string]string{"ce-specversion": "1.0", "ce-type": "t", "ce-source": "/s", "ce-id": "1", header: value}
		refused(t, w.do(t, request{method: http.MethodPost, path: "/queues/q/events", header: event}), http.StatusBadRequest, "not UTF-8")
	}
}

// A request that is refused leaves its Idempotency-Key free.
func TestIdempotencyKeyOfRefused(t *testing.T) {
	w := setup(t)
	must(t, w.Queue("full").SetLimit(w.ctx, 1))
	w.enqueue(t, "full", "", queue.Options{})
	for path, status := range map[string]int{
		"/queues/q/tasks?after=nosuch": http.StatusConflict, "/queues/r/tasks?header=BAD=1": http.StatusBadRequest, "/queues/full/tasks": http.StatusTooManyRequests,
	} {
		header := map[string]string{"Idempotency-Key": "k"}
		refused(t, w.do(t, request{method: http.MethodPost, path: path, body: []byte("wrong"), header: header}), status, "")
		path, _, _ = strings.Cut(path, "?")
		if path == "/queues/full/tasks" {
			must(t, w.Queue("full").SetLimit(w.ctx, 0))
		}
		for again := range 2 {
			right := w.do(t, request{method: http.MethodPost, path: path, body: []byte("right"), header: header})
			if receipt := decode[api.Receipt](t, right, http.StatusOK); receipt.Existed != (again == 1) || receipt.Taken {
				t.Errorf("%s: %+v", path, receipt)
			}
		}
	}
}
