package queue_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

func TestMatches(t *testing.T) {
	t.Parallel()
	attributes := map[string]string{"tenant": "acme", "type": "com.example.order.made"}
	const payload = `{"total": 12.50, "id": 9007199254740993, "huge": 100000000000000000000, "lines": [{"sku": "a/b"}, null], "paid": true, "m~n": "", "": 0}`
	for _, c := range []struct {
		topic      string
		attributes map[string]string
		data       string // JSON
		want       bool
	}{
		{topic: "orders", want: true},
		{topic: "order"},
		{topic: "*", want: true},
		{topic: "ord*rs", want: true},
		{topic: "orders*", want: true},
		{topic: "orders*s"}, // the s counts once
		{attributes: map[string]string{"tenant": "acme"}, want: true},
		{attributes: map[string]string{"tenant": "acme", "group": "*"}}, // missing
		{attributes: map[string]string{"tenant": "Acme"}},
		{attributes: map[string]string{"type": "com.example.order.*"}, want: true},
		{attributes: map[string]string{"type": "*.made", "tenant": "*"}, want: true},
		{data: `{"/total": 12.5}`, want: true},
		{data: `{"/total": "12.50"}`},
		{data: `{"/id": 9007199254740993}`, want: true},
		{data: `{"/id": 9007199254740992}`},
		{data: `{"/huge": 1e20}`, want: true},
		{data: `{"/huge": 100000000000000000001}`},
		{data: `{"/lines/0/sku": "a/b", "/paid": true}`, want: true},
		{data: `{"/lines/1": null}`, want: true},
		{data: `{"/lines/2": null}`},
		{data: `{"/lines/00": null}`},
		{data: `{"/lines/-": null}`},
		{data: `{"/lines": [{"sku": "a/b"}, null]}`, want: true},
		{data: `{"/lines": [null]}`},
		{data: `{"/lines/0": {"sku": "a/b", "n": 1}}`},
		{data: `{"/m~0n": "", "/": 0}`, want: true},
		{data: `{"/total/x": 1}`},
		{data: `{"": 1}`},
	} {
		if c.topic == "" {
			c.topic = "orders"
		}
		s := queue.Subscription{ID: "s", Topic: c.topic, Queue: "q", Filter: queue.Filter{Attributes: c.attributes}}
		text := must[[]byte](t)(json.Marshal(s))
		if c.data != "" {
			text = []byte(strings.Replace(string(text), `"queue"`, `"filter":{"data":`+c.data+`},"queue"`, 1))
		}
		var read queue.Subscription
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if got := read.Matches("orders", attributes, []byte(payload)); got != c.want {
			t.Errorf("%s: %v", text, got)
		}
		if c.data != "" && (read.Matches("orders", attributes, []byte("no json")) || read.Matches("orders", attributes, []byte(payload+payload)) ||
			read.Matches("orders", attributes, []byte(payload+"}"))) {
			t.Errorf("%s matches what is not JSON", text)
		}
	}
	// Values that a program wrote, not JSON.
	for want, is := range map[string]any{"1": 1, "2": int64(2), "3": 3.0, "1.5": 1.5, "1e400": json.Number("1e400")} {
		s := queue.Subscription{Topic: "t", Filter: queue.Filter{Data: map[string]any{"": is}}}
		if !s.Matches("t", nil, []byte(want)) {
			t.Errorf("%v does not match %s", is, want)
		}
	}
}

func TestSubscriptionText(t *testing.T) {
	t.Parallel()
	priority, jitter := 7, false
	s := queue.Subscription{
		ID: "s", Topic: "orders", Filter: queue.Filter{Attributes: map[string]string{"tenant": "acme"}, Data: map[string]any{"/a": "b"}},
		Queue: "webhook.s", Webhook: &queue.Webhook{
			URL: "https://example.com/a?b", Method: "PUT", Headers: map[string]string{"X-A": "b"}, SecretHeaders: map[string]string{"Authorization": "webhook.token"},
			Timeout: 1500 * time.Millisecond, Body: queue.WebhookCloudEvent, Secrets: []string{"webhook.new", "webhook.old"}, Expect: []int{200, 204}, Final: true,
		},
		Retry:   queue.Retry{MaxAttempts: 5, MaxAge: time.Hour, Backoff: queue.Linear, Base: time.Minute, Min: time.Second, Max: time.Hour, Jitter: &jitter, MaxReschedules: 3},
		Timeout: time.Minute, Priority: &priority, Dead: "dead", Active: true, Reason: "because", Plugin: "p",
		CreatedAt: time.Unix(1700000000, 5000), UpdatedAt: time.Unix(1700000001, 0),
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	var read queue.Subscription
	text := must[[]byte](t)(json.Marshal(s))
	if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(read, s) {
		t.Errorf("%v\n%+v, want\n%+v", err, read, s)
	}
	// What a newer version or a person wrote.
	read, err := queue.ParseSubscription("s", `{"id":"s","topic":"orders","webhook":{"url":"https://a"},"later":{"a":1}}`)
	if err != nil || read.Webhook.Method != "POST" || read.Webhook.Timeout != queue.DefaultWebhookTimeout || read.Queue != "webhook.s" {
		t.Errorf("%+v, %v", read, err)
	}
}

func TestSubscriptionRefusals(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(s *queue.Subscription){
		`subscription "a b": use 1 to 128`:        func(s *queue.Subscription) { s.ID = "a b" },
		`topic "": use 1 to 128`:                  func(s *queue.Subscription) { s.Topic = "" },
		`topic "a*b*" has more than one *`:        func(s *queue.Subscription) { s.Topic = "a*b*" },
		`has no queue and no webhook`:             func(s *queue.Subscription) { s.Queue = "" },
		`queues that begin with webhook. are for`: func(s *queue.Subscription) { s.Queue = "webhook.x" },
		`of a webhook: it is always webhook.s`:    func(s *queue.Subscription) { s.Webhook = &queue.Webhook{URL: "https://a"} },
		`queue "a b": use 1 to 128`:               func(s *queue.Subscription) { s.Queue = "a b" },
		`would go to its own queue "q"`:           func(s *queue.Subscription) { s.Dead = "q" },
		`queue "a b"`:                             func(s *queue.Subscription) { s.Dead = "a b" },
		`max attempts -2`:                         func(s *queue.Subscription) { s.Retry.MaxAttempts = -2 },
		`priority 101`:                            func(s *queue.Subscription) { p := 101; s.Priority = &p },
		`attribute "Tenant": use 1 to 64`:         func(s *queue.Subscription) { s.Filter.Attributes = map[string]string{"Tenant": "a"} },
		`attribute tenant: it is empty`:           func(s *queue.Subscription) { s.Filter.Attributes = map[string]string{"tenant": ""} },
		`"*a*" has more than one *`:               func(s *queue.Subscription) { s.Filter.Attributes = map[string]string{"tenant": "*a*"} },
		`filter of data "a": use a JSON pointer`:  func(s *queue.Subscription) { s.Filter.Data = map[string]any{"a": 1} },
		`filter of 33 attributes`: func(s *queue.Subscription) {
			s.Filter.Attributes = make(map[string]string)
			for i := range 33 {
				s.Filter.Attributes[fmt.Sprint("a", i)] = "b"
			}
		},
		`url "ftp://a"`:                    hooked(func(w *queue.Webhook) { w.URL = "ftp://a" }),
		`url "https://"`:                   hooked(func(w *queue.Webhook) { w.URL = "https://" }),
		`put them into a secret`:           hooked(func(w *queue.Webhook) { w.URL = "https://u:p@a" }),
		`method "GET"`:                     hooked(func(w *queue.Webhook) { w.Method = "GET" }),
		`body "xml"`:                       hooked(func(w *queue.Webhook) { w.Body = "xml" }),
		`timeout 1h0m0s`:                   hooked(func(w *queue.Webhook) { w.Timeout = time.Hour }),
		`5 secrets: at most 4`:             hooked(func(w *queue.Webhook) { w.Secrets = make([]string, 5) }),
		`secret "": the name of a webhook`: hooked(func(w *queue.Webhook) { w.Secrets = []string{""} }),
		`expected statuses [100]`:          hooked(func(w *queue.Webhook) { w.Expect = []int{100} }),
		`header "a b"`:                     hooked(func(w *queue.Webhook) { w.Headers = map[string]string{"a b": "c"} }),
		`header "a" has the value "b\n"`:   hooked(func(w *queue.Webhook) { w.Headers = map[string]string{"a": "b\n"} }),
		`"webhook.a/../../b/c": the name`:  hooked(func(w *queue.Webhook) { w.Secrets = []string{"webhook.a/../../b/c"} }),
		`"api_key": the name of a webhook`: hooked(func(w *queue.Webhook) { w.SecretHeaders = map[string]string{"a": "api_key"} }),
		`header "a" is there twice`: hooked(func(w *queue.Webhook) {
			w.Headers, w.SecretHeaders = map[string]string{"A": "b"}, map[string]string{"a": "webhook.s"}
		}),
		`header "X_Forwarded_For"`:          hooked(func(w *queue.Webhook) { w.Headers = map[string]string{"X_Forwarded_For": "b"} }),
		`header "Host": the sender sets it`: hooked(func(w *queue.Webhook) { w.SecretHeaders = map[string]string{"Host": "webhook.s"} }),
	} {
		s := queue.Subscription{ID: "s", Topic: "t", Queue: "q"}
		change(&s)
		if strings.Contains(want, "own queue") {
			s.Dead = s.Queue
		}
		s = s.WithDefaults()
		if err := s.Validate(); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for want, publish := range map[string]func(p *queue.Publication){
		`topic "a*": a * belongs only`:   func(p *queue.Publication) { p.Topic = "a*" },
		`publication "": use 1`:          func(p *queue.Publication) { p.ID = "" },
		`attribute "a-b"`:                func(p *queue.Publication) { p.Attributes = map[string]string{"a-b": "c"} },
		`1 attributes of 6149 bytes`:     func(p *queue.Publication) { p.Attributes = map[string]string{"about": strings.Repeat("x", 6<<10)} },
		`traceparent "x": use VERSION-`:  func(p *queue.Publication) { p.Traceparent = "x" },
		`attribute a: "\n": use printab`: func(p *queue.Publication) { p.Attributes = map[string]string{"a": "\n"} },
		`attribute "": use 1 to 64`:      func(p *queue.Publication) { p.Attributes = map[string]string{"": ""} },
	} {
		p := queue.Publication{ID: "p", Topic: "t"}
		publish(&p)
		if err := p.Validate(); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// hooked changes a webhook that is right.
func hooked(change func(w *queue.Webhook)) func(*queue.Subscription) {
	return func(s *queue.Subscription) {
		s.Queue, s.Webhook = "", &queue.Webhook{URL: "https://example.com"}
		change(s.Webhook)
	}
}

// The queue of a webhook is named after its subscription, however long that name is.
func TestWebhookQueue(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, id := range []string{"a", strings.Repeat("a", 120), strings.Repeat("a", 121), strings.Repeat("a", 127) + "b"} {
		s := (&queue.Subscription{ID: id, Topic: "t", Webhook: &queue.Webhook{URL: "https://example.com"}}).WithDefaults()
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
		seen[s.Queue] = true
	}
	if len(seen) != 4 {
		t.Errorf("%v", seen)
	}
}
