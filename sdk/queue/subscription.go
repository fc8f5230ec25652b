package queue

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

const (
	// MaxSubscriptions is the maximum number of subscriptions of a tenant.
	MaxSubscriptions = 10_000
	// maxSubscription is the maximum size of a subscription as JSON, in bytes. maxFilter is the maximum number of
	// attributes and pointers of its filter together.
	maxSubscription = 16 << 10
	maxFilter       = 32
	// maxSigners is the maximum number of secrets that sign a delivery. Usually one secret signs, and two do while the
	// secret is being replaced.
	maxSigners = 4
	// DefaultWebhookTimeout is the default of Webhook.Timeout.
	DefaultWebhookTimeout = 20 * time.Second
	// MaxWebhookTimeout is the maximum of Webhook.Timeout.
	MaxWebhookTimeout = 10 * time.Minute
	// WebhookSecrets is the prefix of the names of secrets that webhooks can use. Without the prefix, anyone who makes
	// subscriptions could have the secrets of handlers sent anywhere.
	WebhookSecrets = "webhook."
	// ReasonGone is the Reason of a webhook that is switched off because its server answered 410 Gone.
	ReasonGone = "the server answered 410 Gone"
)

// Subscription makes a task of each publication that it matches. The task goes into a handler's queue, or is a delivery
// of a webhook.
type Subscription struct {
	ID    string // 1 to 128 bytes from 0x21 to 0x7e
	Topic string // a topic, or a pattern with one * for any text
	// Filter chooses publications of the topic (default: all).
	Filter Filter
	// Queue gets the tasks. A webhook's queue has a fixed name: "webhook." and the subscription's ID, or the SHA-1 of a
	// long ID.
	Queue   string
	Webhook *Webhook // nil if a handler runs the tasks
	// Retry, Timeout and Priority are set in the tasks, as in Options. The plugin's manifest sets the fields that are
	// zero here.
	Retry    Retry
	Timeout  time.Duration
	Priority *int
	// FairKey, FairWeight, ConcurrencyKey and MaxConcurrent are set in the tasks, as in Options. A key
	// "attributes.NAME" stands for the publication's attribute of that name. If the publication has none, or an empty
	// one, the task has no such key.
	FairKey        string
	FairWeight     int
	ConcurrencyKey string
	MaxConcurrent  int
	// Dead is the queue of the tasks' dead letters (default: the queue that the plugin's manifest names).
	Dead string
	// Active is true if publications make tasks for the subscription. If it is false, Reason can say why. With
	// ReasonGone, tasks that wait already are not delivered either.
	Active bool
	Reason string
	// Plugin is the plugin whose manifest declares the subscription; "" if a person or program made it.
	Plugin string
	// Absent is the time since which no live host has that plugin; zero while a host has it.
	Absent    time.Time
	CreatedAt time.Time // by Redis's clock
	UpdatedAt time.Time

	text string // the JSON in Redis when the subscription was read; a change is refused if it differs by then
}

// Webhook describes how a subscription's publications are delivered to a URL.
type Webhook struct {
	URL    string // http or https, without user and password
	Method string // POST (default), PUT or PATCH
	// Headers are sent with each delivery. SecretHeaders are sent too; their values here are names of secrets, which the
	// host replaces by the secrets themselves.
	Headers       map[string]string
	SecretHeaders map[string]string
	Timeout       time.Duration // maximum time until the whole response has arrived (default 20 s)
	Body          WebhookBody   // default WebhookPayload
	// Secrets are the names of the host's secrets that sign each delivery. Every one of them signs; there is more than
	// one while a secret is being replaced. Without secrets, deliveries are not signed.
	Secrets []string
	// Expect are the statuses that mean success (default: 200 to 299).
	Expect []int
	// If Final is true, a status from 400 to 499, except 408, 410 and 429, fails the delivery for good. If it is false,
	// the delivery is tried again.
	Final bool
}

// WebhookBody chooses the body of a delivery's request.
type WebhookBody string

// The bodies: the payload as it was published, or a CloudEvent in JSON (structured mode).
const (
	WebhookPayload    WebhookBody = "payload"
	WebhookCloudEvent WebhookBody = "cloudevent"
)

// subscriptionText is a subscription as JSON, as Redis stores it; times and durations are in seconds. The API and the
// command line's -o json use the same names.
type subscriptionText struct {
	ID          string       `json:"id"`
	Topic       string       `json:"topic"`
	Filter      *Filter      `json:"filter,omitempty"`
	Queue       string       `json:"queue"`
	Webhook     *webhookText `json:"webhook,omitempty"`
	MaxAttempts int          `json:"max_attempts,omitempty"`
	Retry       *retryJSON   `json:"retry,omitempty"`
	Timeout     float64      `json:"timeout_seconds,omitempty"`
	Priority    *int         `json:"priority,omitempty"`
	taskKeys
	Dead      string      `json:"dead,omitempty"`
	Active    bool        `json:"active"`
	Reason    string      `json:"reason,omitempty"`
	Plugin    string      `json:"plugin,omitempty"`
	Absent    json.Number `json:"absent,omitempty"`
	CreatedAt json.Number `json:"created_at,omitempty"`
	UpdatedAt json.Number `json:"updated_at,omitempty"`
}

// retryJSON is a retry policy without MaxAttempts, with the member names of the command line's -o json.
type retryJSON struct {
	Backoff        Backoff `json:"backoff,omitempty"`
	Base           float64 `json:"base_seconds,omitempty"`
	Min            float64 `json:"min_seconds,omitempty"`
	Max            float64 `json:"max_seconds,omitempty"`
	Jitter         *bool   `json:"jitter,omitempty"`
	MaxAge         float64 `json:"max_age_seconds,omitempty"`
	MaxReschedules int     `json:"max_reschedules,omitempty"`
}

type webhookText struct {
	URL           string            `json:"url"`
	Method        string            `json:"method,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	SecretHeaders map[string]string `json:"secret_headers,omitempty"`
	Timeout       float64           `json:"timeout_seconds,omitempty"`
	Body          WebhookBody       `json:"body,omitempty"`
	Secrets       []string          `json:"secrets,omitempty"`
	Expect        []int             `json:"expect,omitempty"`
	Final         bool              `json:"final,omitempty"`
}

// MarshalJSON encodes the subscription as Redis stores it and the API returns it.
func (s Subscription) MarshalJSON() ([]byte, error) {
	t := subscriptionText{
		ID: s.ID, Topic: s.Topic, Queue: s.Queue, MaxAttempts: s.Retry.MaxAttempts,
		Timeout: s.Timeout.Seconds(), Priority: s.Priority, taskKeys: s.keys(), Dead: s.Dead, Active: s.Active,
		Reason: s.Reason,
		Plugin: s.Plugin,
		Absent: json.Number(store.Seconds(s.Absent)), CreatedAt: json.Number(store.Seconds(s.CreatedAt)),
		UpdatedAt: json.Number(store.Seconds(s.UpdatedAt)),
	}
	if len(s.Filter.Attributes)+len(s.Filter.Data) > 0 {
		t.Filter = &s.Filter
	}
	r := s.Retry
	if retry := (retryJSON{
		r.Backoff, r.Base.Seconds(), r.Min.Seconds(), r.Max.Seconds(), r.Jitter, r.MaxAge.Seconds(),
		r.MaxReschedules,
	}); retry != (retryJSON{}) {
		t.Retry = &retry
	}
	if w := s.Webhook; w != nil {
		t.Webhook = &webhookText{
			URL: w.URL, Method: w.Method, Headers: w.Headers, SecretHeaders: w.SecretHeaders, Timeout: w.Timeout.Seconds(),
			Body:    w.Body,
			Secrets: w.Secrets, Expect: w.Expect, Final: w.Final,
		}
	}
	return json.Marshal(t)
}

// UnmarshalJSON reads what MarshalJSON writes. It ignores unknown members, because a newer version may have written
// them.
func (s *Subscription) UnmarshalJSON(text []byte) error {
	var t subscriptionText
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&t); err != nil {
		return fmt.Errorf("%w: subscription: %w", ErrInvalid, err)
	}
	*s = Subscription{
		ID: t.ID, Topic: t.Topic, Queue: t.Queue, Timeout: store.ParseDuration(t.Timeout), Priority: t.Priority, Dead: t.Dead,
		FairKey: t.FairKey, FairWeight: t.FairWeight, ConcurrencyKey: t.ConcurrencyKey, MaxConcurrent: t.MaxConcurrent,
		Active: t.Active, Reason: t.Reason, Plugin: t.Plugin,
		Absent: store.ParseSeconds(t.Absent.String()), CreatedAt: store.ParseSeconds(t.CreatedAt.String()),
		UpdatedAt: store.ParseSeconds(t.UpdatedAt.String()),
	}
	if r := t.Retry; r != nil {
		s.Retry = Retry{
			Backoff: r.Backoff, Base: store.ParseDuration(r.Base), Min: store.ParseDuration(r.Min),
			Max: store.ParseDuration(r.Max), Jitter: r.Jitter,
			MaxAge: store.ParseDuration(r.MaxAge), MaxReschedules: r.MaxReschedules,
		}
	}
	s.Retry.MaxAttempts = t.MaxAttempts
	if t.Filter != nil {
		s.Filter = *t.Filter
	}
	if w := t.Webhook; w != nil {
		s.Webhook = &Webhook{
			URL: w.URL, Method: w.Method, Headers: w.Headers, SecretHeaders: w.SecretHeaders,
			Timeout: store.ParseDuration(w.Timeout), Body: w.Body,
			Secrets: w.Secrets, Expect: w.Expect, Final: w.Final,
		}
	}
	return nil
}

// PluginSubscriptionID returns the ID of a subscription that a plugin's manifest declares.
func PluginSubscriptionID(plugin, topic string) string { return shortened("", plugin+"/"+topic) }

// withDefaults returns the subscription. If it has a webhook, the webhook's fields have their defaults, and the queue
// is set.
func (s Subscription) withDefaults() Subscription {
	if s.Webhook != nil {
		w := *s.Webhook
		w.Method = cmp.Or(w.Method, "POST")
		w.Body = cmp.Or(w.Body, WebhookPayload)
		w.Timeout = cmp.Or(w.Timeout, DefaultWebhookTimeout)
		s.Webhook = &w
		s.Queue = cmp.Or(s.Queue, shortened(WebhookQueues, s.ID))
	}
	return s
}

// validate refuses a subscription with an invalid field, and says what is valid.
func (s *Subscription) validate() error {
	if err := validName("subscription", s.ID); err != nil {
		return err
	}
	err := cmp.Or(validPattern("topic", s.Topic), s.Filter.validate(), s.validateTasks())
	if err == nil && s.Webhook != nil {
		err = s.Webhook.validate()
	}
	if err != nil { // its text begins with that of ErrInvalid, which must not occur twice
		return fmt.Errorf("%w: subscription %s: %s", ErrInvalid, s.ID,
			strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": "))
	}
	return nil
}

// validateTasks checks the fields that the subscription's tasks get.
func (s *Subscription) validateTasks() error {
	switch {
	case s.Queue == "":
		return fmt.Errorf("%w: it has no queue and no webhook: name the queue of its handler, or a URL", ErrInvalid)
	case s.Webhook == nil && ReservedQueue(s.Queue):
		return fmt.Errorf("%w: queue %q: queues that begin with %s are for webhooks: name another queue, or a URL",
			ErrInvalid, s.Queue, WebhookQueues)
	case s.Webhook != nil && s.Queue != shortened(WebhookQueues, s.ID): // webhooks with the same queue would share tasks
		return fmt.Errorf("%w: queue %q of a webhook: it is always %s, leave it out", ErrInvalid, s.Queue,
			shortened(WebhookQueues, s.ID))
	case s.Dead != "" && s.Dead == s.Queue:
		return fmt.Errorf("%w: its dead letters would go to its own queue %q: name another", ErrInvalid, s.Dead)
	case !utf8.ValidString(s.Reason) || len(s.Reason) > 1<<10:
		return fmt.Errorf("%w: reason is not UTF-8, or longer than 1 KiB: use UTF-8 text of at most 1 KiB", ErrInvalid)
	}
	if s.Dead != "" {
		if err := ValidQueue(s.Dead); err != nil {
			return err
		}
	}
	tasks := s.options()
	return errors.Join(ValidQueue(s.Queue), tasks.Validate())
}

// options returns the options of the subscription's tasks, with the keys as the subscription has them.
func (s *Subscription) options() Options {
	o := Options{Retry: s.Retry, Timeout: s.Timeout, Priority: s.Priority, Dead: s.Dead}
	s.keys().apply(&o)
	return o
}

func (s *Subscription) keys() taskKeys {
	return taskKeys{s.FairKey, s.FairWeight, s.ConcurrencyKey, s.MaxConcurrent}
}

// keyAttribute begins a key of a subscription that stands for an attribute.
const keyAttribute = "attributes."

// keyed replaces keys that stand for attributes of the publication. An attribute that is too long for a key is replaced
// by its SHA-1.
func (t taskKeys) keyed(attributes map[string]string) taskKeys {
	of := func(key string, number int) (string, int) {
		name, named := strings.CutPrefix(key, keyAttribute)
		if !named {
			return key, number
		}
		if key = attributes[name]; key == "" {
			return "", 0
		}
		return shortenedTo(maxShareKey, "", key), number
	}
	t.FairKey, t.FairWeight = of(t.FairKey, t.FairWeight)
	t.ConcurrencyKey, t.MaxConcurrent = of(t.ConcurrencyKey, t.MaxConcurrent)
	return t
}

var validWebhookSecret = regexp.MustCompile(`^` + regexp.QuoteMeta(WebhookSecrets) + `[A-Za-z0-9._-]{1,100}$`)

func (w *Webhook) validate() error {
	to, err := url.Parse(w.URL)
	switch {
	case err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" || to.Fragment != "":
		return fmt.Errorf("%w: url %q: write http:// or https://, a host and a path, without a fragment", ErrInvalid, w.URL)
	case to.User != nil:
		return fmt.Errorf("%w: url with a user or password: put them into a secret, and name it for the header Authorization",
			ErrInvalid)
	case !slices.Contains([]string{"POST", "PUT", "PATCH"}, w.Method):
		return fmt.Errorf("%w: method %q: use POST, PUT or PATCH", ErrInvalid, w.Method)
	case w.Body != WebhookPayload && w.Body != WebhookCloudEvent:
		return fmt.Errorf("%w: body %q: use %s or %s", ErrInvalid, w.Body, WebhookPayload, WebhookCloudEvent)
	case w.Timeout < time.Millisecond || w.Timeout > MaxWebhookTimeout:
		return fmt.Errorf("%w: timeout %s of the webhook: use 1ms to %s", ErrInvalid, w.Timeout, MaxWebhookTimeout)
	case len(w.Secrets) > maxSigners:
		return fmt.Errorf("%w: %d secrets: at most %d may sign", ErrInvalid, len(w.Secrets), maxSigners)
	case slices.ContainsFunc(w.Expect, func(status int) bool { return status < 200 || status > 599 }):
		return fmt.Errorf("%w: expected statuses %v: use 200 to 599", ErrInvalid, w.Expect)
	}
	for _, name := range slices.AppendSeq(slices.Clone(w.Secrets), maps.Values(w.SecretHeaders)) {
		if !validWebhookSecret.MatchString(name) {
			return fmt.Errorf("%w: secret %q: the name of a webhook's secret must begin with %q, then have 1 to 100 letters, digits, '.', '_' and '-': rename it", ErrInvalid, name, WebhookSecrets)
		}
	}
	for name, value := range w.Headers {
		if !validToken(name) {
			return invalidHeaderName(name)
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("%w: header %q has the value %q: use printable ASCII text", ErrInvalid, name, value)
		}
	}
	for name := range w.SecretHeaders {
		if !validToken(name) {
			return invalidHeaderName(name)
		}
	}
	return w.validateHeaders()
}

func invalidHeaderName(name string) error {
	return fmt.Errorf("%w: header %q is no name of an HTTP header: use letters, digits and '-', such as X-Shop",
		ErrInvalid, name)
}

// unsent matches the names of headers that a webhook must not set, because the sender sets them itself, or because a
// server would take the request for a different one. The host refuses to send them.
var unsent = regexp.MustCompile(`^(host|connection|content-length|expect|keep-alive|te|trailer|transfer-encoding|upgrade|http2-settings|` +
	`proxy(-.*)?|forwarded|x-forwarded-.*|x-http-method|x-(http-)?method-override|webhook-(id|timestamp|signature))$`)

// validateHeaders refuses a header that unsent matches, or that occurs twice. Names are compared without regard to
// case, and _ counts as -.
func (w *Webhook) validateHeaders() error {
	seen := make(map[string]bool)
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(w.Headers)), slices.Sorted(maps.Keys(w.SecretHeaders))) {
		is := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		switch {
		case unsent.MatchString(is):
			return fmt.Errorf("%w: header %q: the sender sets it itself: leave it out", ErrInvalid, name)
		case seen[is]:
			return fmt.Errorf("%w: header %q is there twice: leave one of them out", ErrInvalid, name)
		}
		seen[is] = true
	}
	return nil
}

// forbidden refuses a port that no server can have, trace headers (each delivery has its own), and a webhook's queue as
// the queue for dead letters. It is not a part of validate, so that subscriptions stored with these can still be read,
// delivered, paused and switched off.
func (s *Subscription) forbidden() error {
	if s.Dead != "" && ValidTarget(s.Dead) != nil {
		return fmt.Errorf("subscription %s: dead letters: %w", s.ID, ValidTarget(s.Dead))
	}
	if s.Webhook == nil {
		return nil
	}
	if to, err := url.Parse(s.Webhook.URL); err == nil && to.Port() != "" {
		if port, err := strconv.ParseUint(to.Port(), 10, 16); err != nil || port == 0 {
			return fmt.Errorf("%w: subscription %s: url %q: use a port from 1 to 65535", ErrInvalid, s.ID, s.Webhook.URL)
		}
	}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(s.Webhook.Headers)),
		slices.Sorted(maps.Keys(s.Webhook.SecretHeaders))) {
		if is := strings.ToLower(name); is == HeaderTraceparent || is == HeaderTracestate {
			return fmt.Errorf("%w: subscription %s: header %q: each delivery has its own: leave it out", ErrInvalid, s.ID, name)
		}
	}
	return nil
}

// Origin returns the scheme, host and port of the URL.
func (w *Webhook) Origin() string {
	to, err := url.Parse(w.URL)
	if err != nil {
		return w.URL
	}
	return to.Scheme + "://" + to.Host
}

// validToken reports whether name can be the name of an HTTP header.
func validToken(name string) bool {
	return name != "" && len(name) <= 128 && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// ValidTopic checks the name of a topic: 1 to 128 bytes from 0x21 to 0x7e, without *.
func ValidTopic(name string) error {
	if strings.Contains(name, "*") {
		return fmt.Errorf("%w: topic %q: a * belongs only in the pattern of a subscription", ErrInvalid, name)
	}
	return validName("topic", name)
}

func validPattern(what, pattern string) error {
	if strings.Count(pattern, "*") > 1 {
		return fmt.Errorf("%w: %s %q has more than one *: use a name, or one with a single * for any text, such as orders.*",
			ErrInvalid, what, pattern)
	}
	return validName(what, pattern)
}

// Definition returns a digest of everything in the subscription that a manifest can set.
func (s *Subscription) Definition() string {
	filter, _ := json.Marshal(s.Filter) // as text: the same filter has other Go types in Redis than in manifests
	if keys := s.keys(); keys != (taskKeys{}) {
		return definition(s.Topic, s.Queue, string(filter), keys)
	}
	return definition(s.Topic, s.Queue, string(filter))
}
