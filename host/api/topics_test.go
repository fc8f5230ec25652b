package api_test

import (
	"net/http"
	"strings"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"

	"github.com/quern-project/quern/sdk/queue"
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
	topic, err := w.Topic(w.ctx, "orders")
	must(t, err)
	if topic.Published != 3 || topic.Tasks != 3 {
		t.Errorf("%+v", topic)
	}
}
