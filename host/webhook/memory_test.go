package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/webhook"
	"github.com/quern-project/quern/sdk/queue"
)

// Large payloads are read from Redis only as far as the tenant's memory goes; small ones pass those that wait.
func TestPayloadsTakeMemory(t *testing.T) {
	const payload, large, together = 4 << 20, 8, 3
	memory := account.New(0)
	budget := memory.Open(account.Deliveries, (together*3+2)*payload, 1)
	w := setup(t, func(c *webhook.Config) { c.Small, c.Large = memory.Open(account.Deliveries, 1<<20, 1), budget })
	release := make(chan struct{})
	w.answers(func(_ http.ResponseWriter, r request) {
		if len(r.body) >= payload {
			<-release
		}
	})
	w.subscribe("large", queue.Webhook{}, queue.Retry{})
	for range large {
		w.publish(strings.Repeat("x", payload))
	}
	running := func() (n int) {
		for _, r := range w.seen() {
			if len(r.body) >= payload {
				n++
			}
		}
		return n
	}
	w.eventually("as many large payloads are delivered as there is memory for", func() bool { return running() == together })
	for range 20 { // each has the chance to let another large one pass
		w.publish("small")
	}
	w.eventually("small payloads are delivered meanwhile", func() bool { return len(w.seen()) == together+20 })
	if n := running(); n != together {
		t.Errorf("%d deliveries of %d bytes have memory at a time, want %d", n, payload, together)
	}
	if reserved := memory.Reserved(); reserved < together*payload || reserved > budget.Whole()+1<<20 {
		t.Errorf("%d bytes are reserved", reserved)
	}
	close(release)
	w.eventually("all are delivered", func() bool { return running() == large })
	w.stop()
	if reserved := memory.Reserved(); reserved != 0 {
		t.Errorf("%d bytes are reserved after the end", reserved)
	}
}

// Payloads of all kinds arrive in events as they were published.
func TestEventsOfPayloads(t *testing.T) {
	w := setup(t, nil)
	w.subscribe("s", queue.Webhook{Body: queue.WebhookCloudEvent}, queue.Retry{})
	for i, c := range []struct{ kind, payload string }{
		{"application/json", `{"n": 12345678901234567891.0, "t": "<\u00e4>"}`},
		{"text/plain", "grüße \"quoted\" \\ \n\t <&> \u2028"},
		{"text/plain", strings.Repeat("\x01", 100) + "mostly escapes"},
		{"application/octet-stream", "\xff\x00"},
		{"application/json", "no JSON"},
		{"text/plain", ""},
	} {
		_, err := w.Publish(w.ctx, "orders", []byte(c.payload), queue.PublishOptions{Attributes: map[string]string{"datacontenttype": c.kind}})
		check(t, err)
		w.eventually("it is delivered", func() bool { return len(w.seen()) == i+1 })
		var event struct {
			Data       json.RawMessage `json:"data"`
			DataBase64 []byte          `json:"data_base64"`
			Type       string          `json:"datacontenttype"`
		}
		body := w.seen()[i].body
		check(t, json.Unmarshal(body, &event))
		got := []byte(event.Data)
		var text string
		switch {
		case event.DataBase64 != nil:
			got = event.DataBase64
		case event.Data != nil && json.Unmarshal(event.Data, &text) == nil:
			got = []byte(text)
		}
		if !bytes.Equal(got, []byte(c.payload)) || event.Type != c.kind {
			t.Errorf("%q arrives as %s", c.payload, body)
		}
	}
}
