package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// MaxAnswer is how many bytes of a response's body are kept in the result. maxShown is how many bytes of the body an
	// error shows.
	MaxAnswer = 64 << 10
	maxShown  = 2 << 10
	// minDelay and maxDelay bound the delay that a server may ask for with the header Retry-After. Without that header
	// the delay is standardDelay.
	minDelay      = time.Second
	maxDelay      = time.Hour
	standardDelay = 30 * time.Second

	// A text is sent as a JSON string if the string takes at most maxEscapes bytes more than twice the text. Otherwise
	// the text is sent in base64, because the memory for a longer string was not counted.
	maxEscapes = 1 << 10

	signingPrefix = "whsec_"
	// contentAttribute is the task's header that names the content type of the payload.
	contentAttribute = "ce-datacontenttype"
)

// Answer is the result of a delivery.
type Answer struct {
	Status     int                 `json:"status"`
	Headers    map[string][]string `json:"headers,omitempty"`
	Body       string              `json:"body,omitempty"`        // text, of the first MaxAnswer bytes
	BodyBase64 []byte              `json:"body_base64,omitempty"` // instead of Body, if the bytes are not UTF-8
}

// parcel has what is needed of a task to deliver it.
type parcel struct {
	webhook *queue.Webhook
	id      string            // webhook-id: the same for every attempt, and for a replay
	headers map[string]string // headers of the task
	payload []byte
}

// request returns the HTTP request of a delivery. secret returns the secret with the given name.
func (p *parcel) request(now time.Time, secret func(name string) ([]byte, error)) (service.Request, error) {
	w := p.webhook
	r := service.Request{
		Method: w.Method, URL: w.URL, Timeout: w.Timeout, Body: p.payload, Trace: p.headers,
		Headers: map[string][]string{
			"Content-Type": {p.contentType()}, "User-Agent": {"Quern"},
		},
	}
	for _, name := range []string{queue.HeaderTopic, queue.HeaderPublication} {
		if value := p.headers[name]; value != "" {
			r.Headers[http.CanonicalHeaderKey(name)] = []string{value}
		}
	}
	if w.Body == queue.WebhookCloudEvent {
		r.Body = p.cloudEvent()
		r.Headers["Content-Type"] = []string{"application/cloudevents+json"}
	} else {
		for name, value := range p.headers {
			if strings.HasPrefix(name, "ce-") && name != contentAttribute {
				r.Headers[http.CanonicalHeaderKey(name)] = []string{percentEncoded(value)}
			}
		}
	}
	for name, value := range w.Headers {
		r.Headers[http.CanonicalHeaderKey(name)] = []string{value}
	}
	for name, named := range w.SecretHeaders {
		value, err := readSecret(secret, named)
		if err != nil {
			return r, err
		}
		r.Headers[http.CanonicalHeaderKey(name)] = []string{string(value)}
	}
	timestamp := strconv.FormatInt(now.Unix(), 10)
	r.Headers["Webhook-Id"], r.Headers["Webhook-Timestamp"] = []string{p.id}, []string{timestamp}
	var signatures []string
	for _, name := range w.Secrets {
		value, err := readSecret(secret, name)
		if err != nil {
			return r, err
		}
		key, err := signingKey(value)
		if err != nil {
			return r, fmt.Errorf("secret %s: %w", name, err)
		}
		signatures = append(signatures, "v1,"+sign(key, p.id, timestamp, r.Body))
	}
	if len(signatures) > 0 {
		r.Headers["Webhook-Signature"] = []string{strings.Join(signatures, " ")}
	}
	return r, nil
}

func readSecret(read func(name string) ([]byte, error), name string) ([]byte, error) {
	value, err := read(name)
	if errors.Is(err, service.ErrNotFound) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", name, err)
	}
	return value, nil
}

// signingKey decodes a secret in the form of Standard Webhooks: whsec_ and the key in base64.
func signingKey(secret []byte) ([]byte, error) {
	text := strings.TrimPrefix(strings.TrimSpace(string(secret)), signingPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("it is no signing key: use %s and 24 to 64 random bytes in base64, such as `echo whsec_$(openssl rand -base64 32)` prints", signingPrefix)
	}
	return key, nil
}

// sign returns a signature as Standard Webhooks defines it.
func sign(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.", id, timestamp)
	mac.Write(body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// contentType returns the type of the payload.
func (p *parcel) contentType() string {
	switch {
	case p.headers[contentAttribute] != "":
		return p.headers[contentAttribute]
	case json.Valid(p.payload):
		return "application/json"
	}
	return "application/octet-stream"
}

// cloudEvent returns the publication as a CloudEvent in JSON. The event's attributes are in the headers of the task.
func (p *parcel) cloudEvent() []byte {
	topic := p.headers[queue.HeaderTopic]
	// These are the defaults. The publisher's attributes replace them.
	event := map[string]any{"id": p.id, "source": "/topics/" + url.PathEscape(topic), "type": topic}
	for name, value := range p.headers {
		if attribute, ok := strings.CutPrefix(name, "ce-"); ok {
			event[attribute] = value
		}
	}
	delete(event, "data") // no attribute may have the name data
	event["specversion"] = "1.0"
	kind := p.headers[contentAttribute]
	if kind == "" && len(p.payload) > 0 {
		kind = p.contentType()
	}
	if event["datacontenttype"] = kind; kind == "" { // there is no payload either
		delete(event, "datacontenttype")
	}
	isJSON := queue.IsJSON(kind)
	text, _ := json.Marshal(event) // strings can always be encoded
	switch {
	case isJSON && len(p.payload) == 0:
		return text
	case isJSON && json.Valid(p.payload):
		return withMember(text, "data", len(p.payload), func(event []byte) []byte { return append(event, p.payload...) })
	// Not for a payload of type JSON: a string would be another JSON value.
	case !isJSON && escaped(p.payload) <= 2*len(p.payload)+maxEscapes:
		return withMember(text, "data", escaped(p.payload), func(event []byte) []byte { return appendText(event, p.payload) })
	}
	return withMember(text, "data_base64", 2+base64.StdEncoding.EncodedLen(len(p.payload)), func(event []byte) []byte {
		return append(base64.StdEncoding.AppendEncode(append(event, '"'), p.payload), '"')
	})
}

// withMember returns a JSON object with one more member, whose value takes size bytes. It allocates once, because
// payloads are large.
func withMember(object []byte, name string, size int, appendValue func(object []byte) []byte) []byte {
	longer := make([]byte, 0, len(object)+len(name)+size+8)
	longer = append(longer, object[:len(object)-1]...)
	longer = append(longer, `,"`+name+`":`...)
	return append(appendValue(longer), '}')
}

// escaped returns how many bytes a text takes as a JSON string. It returns math.MaxInt if the text is not valid UTF-8.
func escaped(text []byte) int {
	if !utf8.Valid(text) {
		return math.MaxInt
	}
	size := 2
	for _, c := range text {
		switch {
		case shortEscape(c) != 0:
			size += 2
		case c < ' ':
			size += len(`\u0000`)
		default:
			size++
		}
	}
	return size
}

// shortEscape returns the byte that JSON writes after a backslash for c. It returns 0 if JSON writes c itself or its
// number.
func shortEscape(c byte) byte {
	if i := strings.IndexByte("\"\\\b\f\n\r\t", c); i >= 0 {
		return `"\bfnrt`[i]
	}
	return 0
}

// appendText appends valid UTF-8 as a JSON string.
func appendText(to, text []byte) []byte {
	to = append(to, '"')
	for _, c := range text {
		switch {
		case shortEscape(c) != 0:
			to = append(to, '\\', shortEscape(c))
		case c < ' ':
			to = fmt.Appendf(to, `\u%04x`, c)
		default:
			to = append(to, c)
		}
	}
	return append(to, '"')
}

// percentEncoded encodes the value of an attribute for a header, as CloudEvents' HTTP binding defines it.
func percentEncoded(value string) string {
	var text strings.Builder
	for _, c := range []byte(value) {
		if c <= ' ' || c > '~' || c == '"' || c == '%' {
			fmt.Fprintf(&text, "%%%02X", c)
		} else {
			text.WriteByte(c)
		}
	}
	return text.String()
}

// verdict is what a response means for a delivery.
type verdict struct {
	done  bool          // the delivery is complete
	gone  bool          // the subscription is to be switched off
	final bool          // the delivery fails for good
	later time.Duration // the delay before the next attempt, without counting this one; 0: the retry policy decides
	sick  bool          // the response counts against the destination
}

// judge returns the verdict on a response.
func judge(w *queue.Webhook, r service.Response, now time.Time) verdict {
	asked, named := retryAfter(r.Headers, now)
	switch status := r.Status; {
	case slices.Contains(w.Expect, status), len(w.Expect) == 0 && status >= 200 && status < 300:
		return verdict{done: true}
	case status == http.StatusGone:
		return verdict{gone: true, final: true}
	case status == http.StatusTooManyRequests:
		return verdict{later: asked}
	case status == http.StatusServiceUnavailable && named:
		return verdict{later: asked, sick: true}
	case status >= 500:
		return verdict{sick: true}
	case w.Final && status >= 400 && status != http.StatusRequestTimeout:
		return verdict{final: true}
	}
	return verdict{}
}

// retryAfter returns the delay that the header Retry-After names, within bounds, or else standardDelay. A date in the
// header is compared with the response's own Date, if there is one. named reports whether the header could be read.
func retryAfter(headers map[string][]string, now time.Time) (delay time.Duration, named bool) {
	text := http.Header(headers).Get("Retry-After")
	delay = standardDelay
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		delay, named = time.Duration(min(max(seconds, 0), maxDelay.Seconds())*float64(time.Second)), true
	} else if at, err := http.ParseTime(text); err == nil {
		if theirs, err := http.ParseTime(http.Header(headers).Get("Date")); err == nil {
			now = theirs
		}
		delay, named = at.Sub(now), true
	}
	return min(max(delay, minDelay), maxDelay), named
}

// answer encodes a response as the result of a task.
func answer(r service.Response) []byte {
	a := Answer{Status: r.Status, Headers: maps.Clone(r.Headers)}
	body := r.Body[:min(len(r.Body), MaxAnswer)]
	if utf8.Valid(body) {
		a.Body = string(body)
	} else {
		a.BodyBase64 = body
	}
	text, _ := json.Marshal(a) // an Answer can always be encoded
	return text
}

// RefusedWith returns the status of the response that an error message of a delivery is about; 0 if there is none.
func RefusedWith(message string) (status int) {
	_, _ = fmt.Sscanf(message, refusedBy+"%d", &status) // leaves 0 for other messages
	return status
}

const refusedBy = "the server answered "

// refusal returns the error message for a response that is not expected.
func refusal(r service.Response) string {
	body := strings.ToValidUTF8(string(r.Body[:min(len(r.Body), maxShown)]), "\ufffd")
	return strings.TrimSpace(fmt.Sprintf(refusedBy+"%d %s\n%s", r.Status, http.StatusText(r.Status), body))
}
