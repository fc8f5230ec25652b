package webhook_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/quern-project/quern/sdk/queue"
)

// The data of a structured event is the payload that was published, of its own type.
func TestDataOfEvents(t *testing.T) {
	w := setup(t, nil)
	w.subscribe("structured", queue.Webhook{Body: queue.WebhookCloudEvent}, queue.Retry{})
	for _, c := range []struct{ contentType, payload, want string }{
		{"", `"123"`, `"data":"123"`},
		{"", `""`, `"data":""`},
		{"", "123", `"data":123`},
		{"application/json", `"x"`, `"data":"x"`},
		{"text/plain", "123", `"data":"123"`},
		{"text/plain", "", `"data":""`},
		{"text/plain", "5", `"data":"5"`},
		{"Text/PLAIN; charset=UTF-8", "x", `"data":"x"`},
		{"text/plain", "\b\f\n\r\t\"\\\x01ü", `"data":"\b\f\n\r\t\"\\\u0001ü"`},
		{"text/plain", "\xff", `"data_base64":"/w=="`},
		{"text/json", `{"a":1}`, `"data":{"a":1}`},
		{"Application/Problem+JSON", `{"a":1}`, `"data":{"a":1}`},
		{"image/vnd.json", `{"a":1}`, `"data":"{\"a\":1}"`},
		{"application/json", "{", `"data_base64":"ew=="`},
	} {
		attributes := map[string]string{}
		if c.contentType != "" {
			attributes["datacontenttype"] = c.contentType
		}
		before := len(w.seen())
		_, err := w.Publish(w.ctx, "orders", []byte(c.payload), queue.PublishOptions{Attributes: attributes})
		check(t, err)
		w.eventually("it is sent", func() bool { return len(w.seen()) == before+1 })
		if body := string(w.seen()[before].body); !strings.HasSuffix(body, ","+c.want+"}") {
			t.Errorf("%q of type %q: %s, want %s", c.payload, c.contentType, body, c.want)
		}
	}
}

// A structured event has the attributes that were published, also empty ones, and no others for data that it has not.
func TestAttributesOfEvents(t *testing.T) {
	w := setup(t, nil)
	w.subscribe("structured", queue.Webhook{Body: queue.WebhookCloudEvent}, queue.Retry{})
	for _, c := range []struct {
		attributes    map[string]string
		payload, want string
	}{
		{map[string]string{}, "", `{}`},
		{map[string]string{"ext": ""}, "", `{"ext":""}`},
		{map[string]string{"datacontenttype": "application/json"}, "", `{"datacontenttype":"application/json"}`},
		{map[string]string{}, "\xff", `{"data_base64":"/w==","datacontenttype":"application/octet-stream"}`},
	} {
		before := len(w.seen())
		maps.Copy(c.attributes, map[string]string{"id": "9", "source": "/shop", "type": "made"})
		_, err := w.Publish(w.ctx, "orders", []byte(c.payload), queue.PublishOptions{Attributes: c.attributes})
		check(t, err)
		w.eventually("it is sent", func() bool { return len(w.seen()) == before+1 })
		var event map[string]any
		check(t, json.Unmarshal(w.seen()[before].body, &event))
		for _, name := range []string{"id", "source", "type", "specversion"} {
			delete(event, name)
		}
		if got, _ := json.Marshal(event); string(got) != c.want {
			t.Errorf("%v %q: %s, want %s", c.attributes, c.payload, got, c.want)
		}
	}
}

// Structured or binary, the event is one for the SDK of CloudEvents, with the attributes that were published.
func TestCloudEvent(t *testing.T) {
	w := setup(t, nil)
	w.subscribe("structured", queue.Webhook{URL: w.server.URL + "/structured", Body: queue.WebhookCloudEvent}, queue.Retry{})
	w.subscribe("binary", queue.Webhook{URL: w.server.URL + "/binary"}, queue.Retry{})
	for _, c := range []struct {
		attributes                         map[string]string
		payload, source, kind, contentType string
	}{
		{nil, `{"id":7}`, "/topics/orders", "orders", "application/json"},
		{map[string]string{"id": "9", "source": "/shop", "type": "made", "specversion": "1.0", "subject": `100 % of "grüße"`, "datacontenttype": "text/plain"}, `{"id":8}`, "/shop", "made", "text/plain"},
	} {
		before := len(w.seen())
		_, err := w.Publish(w.ctx, "orders", []byte(c.payload), queue.PublishOptions{Attributes: c.attributes})
		check(t, err)
		w.eventually("both are sent", func() bool { return len(w.seen()) == before+2 })
		for _, r := range w.seen()[before:] {
			if r.URL.Path == "/binary" && c.attributes == nil {
				continue // the payload alone
			}
			e, err := binding.ToEvent(w.ctx, cehttp.NewMessage(r.Header, io.NopCloser(bytes.NewReader(r.body))))
			if err != nil || e.Validate() != nil {
				t.Errorf("%s: %v, %v, %v", r.URL.Path, r.Header, err, e)
				continue
			}
			subject := e.Subject()
			if r.URL.Path == "/binary" { // the SDK leaves it as it is in the header
				subject, err = url.PathUnescape(subject)
			}
			if err != nil || e.Source() != c.source || e.Type() != c.kind || e.DataContentType() != c.contentType || string(e.Data()) != c.payload ||
				c.attributes["id"] != "" && e.ID() != "9" || subject != c.attributes["subject"] {
				t.Errorf("%s: %s", r.URL.Path, e)
			}
		}
	}
}
