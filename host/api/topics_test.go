package api_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Topics, subscriptions and publications by the API are those of the client.
func TestTopics(t *testing.T) {
	w := setup(t)
	expect := func(method, path, body string, status int, parts ...string) {
		t.Helper()
		got := w.do(t, request{method: method, path: path, body: []byte(body), header: map[string]string{"Content-Type": "application/json"}})
		if got.status != status {
			t.Errorf("%s %s: %d %s", method, path, got.status, got.body)
		}
		for _, part := range parts {
			if !strings.Contains(string(got.body), part) {
				t.Errorf("%s %s: %s, without %s", method, path, got.body, part)
			}
		}
	}
	expect("PUT", "/subscriptions/index", `{"topic":"orders.*","queue":"index","filter":{"attributes":{"tenant":"acme"},"data":{"/n":1}},"max_attempts":5,"retry":{"base_seconds":60},"dead":"index.dead"}`, http.StatusOK, `"active":true`, `"base_seconds":60`)
	expect("PUT", "/subscriptions/hook", `{"topic":"orders.made","webhook":{"url":"https://example.com/hook","secrets":["webhook.k"]}}`, http.StatusOK, `"queue":"webhook.hook"`, `"timeout_seconds":20`)
	s, err := w.Subscription(w.ctx, "index")
	must(t, err)
	if s.Dead != "index.dead" || s.Retry.MaxAttempts != 5 || s.Retry.Base.Seconds() != 60 || s.Filter.Attributes["tenant"] != "acme" {
		t.Errorf("%+v", s)
	}
	expect("POST", "/subscriptions/hook/pause?reason=down", "", http.StatusOK, `"reason":"down"`)
	expect("PUT", "/subscriptions/hook", `{"topic":"orders.*","webhook":{"url":"https://example.com/2"}}`, http.StatusOK, `"reason":"down"`, `example.com/2`)
	expect("POST", "/subscriptions/hook/resume", "", http.StatusOK, `"active":true`)
	expect("GET", "/subscriptions", "", http.StatusOK, `"id":"hook"`, `"id":"index"`)
	expect("PUT", "/subscriptions/bad", `{"topic":"a*b*","queue":"q"}`, http.StatusBadRequest, "more than one *")
	expect("GET", "/subscriptions/none", "", http.StatusNotFound, "no such subscription")

	publish := "/topics/orders.made/publications?id=one&attribute=tenant%3Dacme"
	expect("POST", publish, `{"n":1}`, http.StatusOK, `"subscribers":2`, `"existed":false`)
	expect("POST", publish, `{"n":1}`, http.StatusOK, `"subscribers":2`, `"existed":true`)
	expect("POST", "/topics/orders.paid/publications?id=one", "x", http.StatusConflict, "choose another ID")
	expect("GET", "/publications/one", "", http.StatusOK, `"state":"published"`, `"pending":2`, `{\"n\":1}`, queue.PublishedID("one", "index"))
	expect("GET", "/topics/orders.made/publications", "", http.StatusOK, `"id":"one"`)
	expect("GET", "/publications/two", "", http.StatusNotFound, "purged")
	expect("GET", "/topics", "", http.StatusOK, `"topic":"orders.made"`, `"published":1`)
	expect("GET", "/topics/orders.made", "", http.StatusOK, `"list":[{"id":"hook"`)
	expect("GET", "/topics/nothing", "", http.StatusNotFound, "no such topic")
	expect("DELETE", "/subscriptions/hook", "", http.StatusNoContent)
	expect("DELETE", "/subscriptions/hook", "", http.StatusNotFound)
}

// Deliveries have the statuses of the answers; results that no webhook has are not read, and subscriptions of handlers have none.
func TestDeliveries(t *testing.T) {
	w := setup(t)
	for _, s := range []queue.Subscription{{ID: "index", Topic: "orders", Queue: "index"}, {ID: "hook", Topic: "orders", Webhook: &queue.Webhook{URL: "https://example.com"}}} {
		_, err := w.Subscribe(w.ctx, s)
		must(t, err)
	}
	for _, id := range []string{"short", "long", "failed", "waiting"} {
		_, err := w.Publish(w.ctx, "orders", []byte("payload"), queue.PublishOptions{ID: id})
		must(t, err)
	}
	w.settle(t, "webhook.hook", listen.Settlement{Result: []byte(`{"status":204}`)})
	w.settle(t, "webhook.hook", listen.Settlement{Result: []byte(`{"status":204,"body":"` + strings.Repeat("x", 1<<20) + `"}`)})
	w.settle(t, "webhook.hook", listen.Settlement{Failure: &queue.Failure{Reason: queue.ReasonError, Message: "HTTP 500"}})
	got := map[string]admin.Delivery{}
	for _, d := range get[api.List[admin.Delivery]](t, w, "/subscriptions/hook/deliveries").Items {
		got[d.ID] = d
	}
	of := func(id string) admin.Delivery { return got[queue.PublishedID(id, "hook")] }
	if short, long := of("short"), of("long"); short.Answer != 204 || short.Status != queue.Complete || long.Answer != 0 || long.Status != queue.Complete {
		t.Errorf("%+v", got)
	}
	if f, waits := of("failed"), of("waiting"); f.Status != queue.Failed || !strings.Contains(f.Error, "HTTP 500") || waits.Status != queue.Pending || waits.Created == 0 {
		t.Errorf("%+v", got)
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/subscriptions/index/deliveries"}), http.StatusBadRequest, `has no webhook: list the tasks of its queue \"index\"`)
}

// A replay that ends before its end answers with the tasks that it made, why it ended, and from when it goes on; the client makes an
// error of it. One that makes no task is refused.
func TestReplay(t *testing.T) {
	w := setup(t)
	remote := w.remote(t)
	_, err := w.Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "orders", Queue: "q"})
	must(t, err)
	for _, id := range []string{"first", "second"} {
		_, err := w.Publish(w.ctx, "orders", []byte(id), queue.PublishOptions{ID: id})
		must(t, err)
	}
	must(t, w.Queue("q").SetLimit(w.ctx, 3)) // of which two are there
	done, err := remote.Replay(w.ctx, "s", time.Unix(1, 0), false)
	second, lost := w.Publication(w.ctx, "second")
	must(t, lost)
	if !errors.Is(err, queue.ErrQueueFull) || len(done.Tasks) != 1 || done.Publications != 1 || !done.Until.Equal(second.Created) {
		t.Errorf("%+v, not until %s: %v", done, second.Created, err)
	}
	if done, err := remote.Replay(w.ctx, "s", done.Until, false); !errors.Is(err, queue.ErrQueueFull) || done.Tasks != nil {
		t.Errorf("%+v: %v", done, err)
	}
	must(t, w.Queue("q").SetLimit(w.ctx, 0))
	done, err = remote.Replay(w.ctx, "s", done.Until, false)
	if err != nil || len(done.Tasks) != 1 || !done.Until.IsZero() {
		t.Fatalf("%+v: %v", done, err)
	}
	if task, err := w.Task(w.ctx, done.Tasks[0]); err != nil || string(task.Parameters) != "second" {
		t.Errorf("%+v: %v", task, err)
	}
}

// A damaged subscription is told, and hides neither the others nor a topic.
func TestDamagedSubscription(t *testing.T) {
	w := setup(t)
	remote := w.remote(t)
	must(t, w.rdb.HSet(w.ctx, w.Tenant()+"_subscriptions", "broken", "{").Err())
	_, err := w.Subscribe(w.ctx, queue.Subscription{ID: "good", Topic: "orders", Queue: "q"})
	must(t, err)
	if list := get[api.List[admin.Subscription]](t, w, "/subscriptions"); len(list.Items) != 1 || !strings.Contains(list.Error, "broken") {
		t.Errorf("%+v", list)
	}
	if all, err := remote.Subscriptions(w.ctx); err == nil || !strings.Contains(err.Error(), "broken") || len(all) != 1 || all[0].Queue != "q" {
		t.Errorf("%+v: %v", all, err)
	}
	if topic := get[admin.Topic](t, w, "/topics/orders"); len(topic.List) != 1 || topic.List[0].ID != "good" {
		t.Errorf("%+v", topic)
	}
}

// CloudEvents of the SDK in both modes become publications, once for each source and id; tasks get data and attributes.
func TestPublishEvents(t *testing.T) {
	w := setup(t)
	_, err := w.Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "orders", Queue: "q", Filter: queue.Filter{Attributes: map[string]string{"type": "order.*", "tier": "gold"}}})
	must(t, err)
	client, err := cloudevents.NewClientHTTP(cloudevents.WithTarget(w.base + "/v1/tenants/" + w.Tenant() + "/topics/orders/events"))
	must(t, err)
	for id, want := range map[string]string{"json": `{"n":1}`, "text": "grüß", "bytes": "\xff\x00"} {
		e := newEvent(t, id, "application/json", map[string]any{"n": 1})
		switch id {
		case "text":
			e = newEvent(t, id, "text/plain", want)
		case "bytes":
			e = newEvent(t, id, "image/png", []byte(want))
		}
		for _, structured := range []bool{false, true, true} { // all the same event
			c := cloudevents.WithEncodingBinary(w.ctx)
			if structured {
				c = cloudevents.WithEncodingStructured(w.ctx)
			}
			if result := client.Send(c, e); !cloudevents.IsACK(result) {
				t.Fatalf("%s: %v", id, result)
			}
		}
		publication := w.Queue("orders").OnceID("event", "/shop/1", id)
		task, err := w.Task(w.ctx, queue.PublishedID(publication, "s"))
		must(t, err)
		if string(task.Parameters) != want || task.Headers["ce-id"] != id || task.Headers["ce-source"] != "/shop/1" || !strings.HasPrefix(task.Traceparent, "00-0af") {
			t.Errorf("%s: %q, %v", id, task.Parameters, task.Headers)
		}
	}
	topic, err := manage.New(w.Client).Topic(w.ctx, "orders")
	must(t, err)
	if topic.Published != 3 || topic.Tasks != 3 {
		t.Errorf("%+v", topic)
	}
}

// Numbers in filters keep their digits, also when the subscription is changed afterwards.
func TestNumbersOfFilters(t *testing.T) {
	w := setup(t)
	const filter = `{"data":{"/customer":9007199254740993,"/rate":0.10000000000000000555}}`
	put := w.do(t, request{
		method: http.MethodPut, path: "/subscriptions/exact", body: []byte(`{"topic":"orders","queue":"q","filter":` + filter + `}`),
		header: map[string]string{"Content-Type": "application/json"},
	})
	shown := []answer{put, w.do(t, request{method: http.MethodPost, path: "/subscriptions/exact/pause"}), w.do(t, request{method: http.MethodGet, path: "/subscriptions/exact"})}
	for _, got := range shown {
		if got.status != http.StatusOK || !strings.Contains(string(got.body), `"filter":`+filter) {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	s, err := w.Subscription(w.ctx, "exact")
	if must(t, err); s.Matches("orders", nil, []byte(`{"customer":9007199254740992,"rate":0.10000000000000000555}`)) {
		t.Error("it matches another number")
	}
}

// The data of an event is what a subscriber gets: a JSON text stays one.
func TestDataOfEvents(t *testing.T) {
	w := setup(t)
	n := 0
	for data, want := range map[string]string{
		`"data":"123"`: `"123"`, `"data":""`: `""`, `"data":123`: "123", `"data":null`: "null", `"data":{"a": 1.0}`: `{"a": 1.0}`,
		`"datacontenttype":"application/vnd.shop+json","data":"x"`: `"x"`, `"datacontenttype":"text/plain","data":"123"`: "123",
		`"datacontenttype":"text/plain","data":""`: "", `"data_base64":"/9g="`: "\xff\xd8", `"datacontenttype":"text/xml"`: "",
		`"datacontenttype":"Text/JSON; charset=utf-8","data":"x"`: `"x"`, `"datacontenttype":"Text/PLAIN; charset=UTF-8","data":"x"`: "x",
	} {
		n++
		body := fmt.Sprintf(`{"specversion":"1.0","type":"made","source":"/shop","id":"%d",%s}`, n, data)
		got := w.do(t, request{method: http.MethodPost, path: "/topics/orders/events", body: []byte(body), header: map[string]string{"Content-Type": "application/cloudevents+json"}})
		items := decode[api.List[admin.Published]](t, got, http.StatusOK).Items
		p, err := w.Publication(w.ctx, items[0].ID)
		if must(t, err); string(p.Payload) != want {
			t.Errorf("%s: %q, want %q", data, p.Payload, want)
		}
	}
}

// The attributes of an event are those of its publication and headers of its tasks, also empty ones.
func TestAttributesOfPublished(t *testing.T) {
	w := setup(t)
	_, err := w.Subscribe(w.ctx, queue.Subscription{ID: "s", Topic: "orders", Queue: "q"})
	must(t, err)
	body := []byte(`{"specversion":"1.0","type":"made","source":"/shop","id":"1","ext":"","n":5,"paid":true}`)
	got := w.do(t, request{method: http.MethodPost, path: "/topics/orders/events", body: body, header: map[string]string{"Content-Type": "application/cloudevents+json"}})
	id := decode[api.List[admin.Published]](t, got, http.StatusOK).Items[0].ID
	p, err := w.Publication(w.ctx, id)
	must(t, err)
	want := map[string]string{"specversion": "1.0", "type": "made", "source": "/shop", "id": "1", "ext": "", "n": "5", "paid": "true"}
	if !maps.Equal(p.Attributes, want) {
		t.Errorf("%v", p.Attributes)
	}
	task, err := w.Task(w.ctx, queue.PublishedID(id, "s"))
	must(t, err)
	if ext, ok := task.Headers["ce-ext"]; !ok || ext != "" {
		t.Errorf("%v", task.Headers)
	}
}

// What is no Unicode is refused in any JSON, and not replaced.
func TestNoUnicode(t *testing.T) {
	w := setup(t)
	for _, c := range []struct{ method, path, kind, body string }{
		{http.MethodPost, "/queues/q/tasks/batch", "application/json", `{"tasks":[{"parameters":"%s"}]}`},
		{http.MethodPost, "/queues/q/tasks/batch", "application/json", `{"tasks":[{"parameters":{"a":["%s"]}}]}`},
		{http.MethodPost, "/queues/q/events", "application/cloudevents+json", `{"specversion":"1.0","type":"t","source":"/s","id":"1","data":"%s"}`},
		{http.MethodPost, "/topics/t/events", "application/cloudevents-batch+json", `[{"specversion":"1.0","type":"t","source":"/s","id":"%s"}]`},
		{http.MethodPut, "/subscriptions/s", "application/json", `{"topic":"%s","queue":"q"}`},
		{http.MethodPut, "/schedules?owner=o", "application/json", `{"schedules":[{"id":"s","queue":"q","cron":"@daily","parameters":"%s"}]}`},
		{http.MethodPost, "/jobs", "application/json", `{"action":"cancel","filter":{"key":"%s"}}`},
	} {
		for _, text := range []string{"\xff", `\ud800`, `\udc00`, `\ud800\ud800`, `\ud83dx`} {
			got := w.do(t, request{method: c.method, path: c.path, body: []byte(strings.ReplaceAll(c.body, "%s", text)), header: map[string]string{"Content-Type": c.kind}})
			refused(t, got, http.StatusBadRequest, "not UTF-8")
		}
	}
	got := w.do(t, request{method: http.MethodPost, path: "/queues/q/tasks/batch", body: []byte(`{"tasks":[{"parameters":"\ud83d\ude00 \\ud800 \u00e9"}]}`), header: map[string]string{"Content-Type": "application/json"}})
	id := decode[api.List[api.Receipt]](t, got, http.StatusOK).Items[0].ID
	parameters, err := w.Parameters(w.ctx, id, math.MaxInt64)
	if must(t, err); string(parameters) != "😀 \\ud800 é" {
		t.Errorf("%q", parameters)
	}
}
