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
	// MaxSubscriptions is the most subscriptions of a tenant.
	MaxSubscriptions = 10_000
	// maxSubscription bounds a subscription as JSON, in bytes, and maxFilter the attributes and pointers of its filter.
	maxSubscription = 16 << 10
	maxFilter       = 32
	// maxSigners is how many secrets may sign a delivery while they are changed.
	maxSigners = 4
	// DefaultWebhookTimeout is how long a delivery waits for the response.
	DefaultWebhookTimeout = 20 * time.Second
	// MaxWebhookTimeout is the longest that one may.
	MaxWebhookTimeout = 10 * time.Minute
	// WebhookSecrets begins the names of the secrets that a webhook may name: else whoever makes subscriptions could have the
	// secrets of handlers sent anywhere.
	WebhookSecrets = "webhook."
	// ReasonGone is the Reason of a webhook that is switched off because its server says that it is gone.
	ReasonGone = "the server answered 410 Gone"
)

// Subscription makes a task of each publication that it matches: in a queue, for a handler, or as the delivery of a webhook.
type Subscription struct {
	ID    string // 1 to 128 bytes from 0x21 to 0x7e
	Topic string // a topic, or a pattern with one * for any text
	// Filter is what a publication must be like (zero: all of the topic).
	Filter Filter
	// Queue is where the tasks go. That of a webhook follows from its ID: "webhook." and the ID, or the SHA-1 of a long one.
	Queue   string
	Webhook *Webhook // nil: a handler runs the tasks
	// Retry, Timeout and Priority are those of the tasks, as in Options. The plugin's manifest sets what they leave out.
	Retry    Retry
	Timeout  time.Duration
	Priority *int
	// Dead is the queue of their dead letters (default: what the plugin's manifest names).
	Dead string
	// Active: it gets tasks. Reason says why not, if somebody or something said so: ReasonGone stops the tasks that wait, too.
	Active bool
	Reason string
	// Plugin is the plugin whose manifest declares it; "" if a person or program made it.
	Plugin string
	// Absent is since when no live host has that plugin; zero while one has.
	Absent    time.Time
	CreatedAt time.Time // by Redis's clock
	UpdatedAt time.Time

	text string // as it was read from Redis, for a change that others do not overwrite
}

// Webhook is how a subscription's publications are delivered to an URL.
type Webhook struct {
	URL    string // http or https, without user and password
	Method string // POST (default), PUT or PATCH
	// Headers are sent with each delivery; SecretHeaders likewise, with the values of these secrets of the host.
	Headers       map[string]string
	SecretHeaders map[string]string
	Timeout       time.Duration // for the whole response (default 20 s)
	Body          WebhookBody   // default WebhookPayload
	// Secrets name the secrets of the host that sign each delivery, all of them; more than one while a secret is changed. None:
	// deliveries are not signed.
	Secrets []string
	// Expect are the statuses that mean success (default: 200 to 299).
	Expect []int
	// Final: a status from 400 to 499, except 408, 410 and 429, fails the delivery for good. Default: it is tried again.
	Final bool
}

// WebhookBody is what a delivery's request contains.
type WebhookBody string

// The payload as it was published, or a CloudEvent in JSON (structured mode).
const (
	WebhookPayload    WebhookBody = "payload"
	WebhookCloudEvent WebhookBody = "cloudevent"
)

// subscriptionText is a subscription as Redis has it, in JSON; times and durations in seconds. Options and the command line's
// -o json have the same names.
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
	Dead        string       `json:"dead,omitempty"`
	Active      bool         `json:"active"`
	Reason      string       `json:"reason,omitempty"`
	Plugin      string       `json:"plugin,omitempty"`
	Absent      json.Number  `json:"absent,omitempty"`
	CreatedAt   json.Number  `json:"created_at,omitempty"`
	UpdatedAt   json.Number  `json:"updated_at,omitempty"`
}

// retryJSON is a policy without the attempts, with the names of -o json.
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

// MarshalJSON writes the subscription as Redis and the API have it.
func (s Subscription) MarshalJSON() ([]byte, error) {
	t := subscriptionText{
		ID: s.ID, Topic: s.Topic, Queue: s.Queue, MaxAttempts: s.Retry.MaxAttempts,
		Timeout: s.Timeout.Seconds(), Priority: s.Priority, Dead: s.Dead, Active: s.Active, Reason: s.Reason, Plugin: s.Plugin,
		Absent: json.Number(store.Seconds(s.Absent)), CreatedAt: json.Number(store.Seconds(s.CreatedAt)), UpdatedAt: json.Number(store.Seconds(s.UpdatedAt)),
	}
	if len(s.Filter.Attributes)+len(s.Filter.Data) > 0 {
		t.Filter = &s.Filter
	}
	r := s.Retry
	if retry := (retryJSON{r.Backoff, r.Base.Seconds(), r.Min.Seconds(), r.Max.Seconds(), r.Jitter, r.MaxAge.Seconds(), r.MaxReschedules}); retry != (retryJSON{}) {
		t.Retry = &retry
	}
	if w := s.Webhook; w != nil {
		t.Webhook = &webhookText{
			URL: w.URL, Method: w.Method, Headers: w.Headers, SecretHeaders: w.SecretHeaders, Timeout: w.Timeout.Seconds(), Body: w.Body,
			Secrets: w.Secrets, Expect: w.Expect, Final: w.Final,
		}
	}
	return json.Marshal(t)
}

// UnmarshalJSON reads what MarshalJSON writes. It passes over members that it does not know: a newer version may write them.
func (s *Subscription) UnmarshalJSON(text []byte) error {
	var t subscriptionText
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&t); err != nil {
		return fmt.Errorf("%w: subscription: %w", ErrInvalid, err)
	}
	*s = Subscription{
		ID: t.ID, Topic: t.Topic, Queue: t.Queue, Timeout: store.ParseDuration(t.Timeout), Priority: t.Priority, Dead: t.Dead,
		Active: t.Active, Reason: t.Reason, Plugin: t.Plugin,
		Absent: store.ParseSeconds(t.Absent.String()), CreatedAt: store.ParseSeconds(t.CreatedAt.String()), UpdatedAt: store.ParseSeconds(t.UpdatedAt.String()),
	}
	if r := t.Retry; r != nil {
		s.Retry = Retry{
			Backoff: r.Backoff, Base: store.ParseDuration(r.Base), Min: store.ParseDuration(r.Min), Max: store.ParseDuration(r.Max), Jitter: r.Jitter,
			MaxAge: store.ParseDuration(r.MaxAge), MaxReschedules: r.MaxReschedules,
		}
	}
	s.Retry.MaxAttempts = t.MaxAttempts
	if t.Filter != nil {
		s.Filter = *t.Filter
	}
	if w := t.Webhook; w != nil {
		s.Webhook = &Webhook{
			URL: w.URL, Method: w.Method, Headers: w.Headers, SecretHeaders: w.SecretHeaders, Timeout: store.ParseDuration(w.Timeout), Body: w.Body,
			Secrets: w.Secrets, Expect: w.Expect, Final: w.Final,
		}
	}
	return nil
}

// PluginSubscriptionID is the ID of a subscription that a plugin's manifest declares.
func PluginSubscriptionID(plugin, topic string) string { return shortened("", plugin+"/"+topic) }

// withDefaults fills what follows from the rest.
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

// validate refuses a subscription that could not work, and says what would be right.
func (s *Subscription) validate() error {
	if err := validName("subscription", s.ID); err != nil {
		return err
	}
	err := cmp.Or(validPattern("topic", s.Topic), s.Filter.validate(), s.validateTasks())
	if err == nil && s.Webhook != nil {
		err = s.Webhook.validate()
	}
	if err != nil { // whose first word is ErrInvalid's
		return fmt.Errorf("%w: subscription %s: %s", ErrInvalid, s.ID, strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": "))
	}
	return nil
}

// validateTasks checks what the subscription says of its tasks.
func (s *Subscription) validateTasks() error {
	switch {
	case s.Queue == "":
		return fmt.Errorf("%w: it has no queue and no webhook: name the queue of its handler, or an URL", ErrInvalid)
	case s.Webhook == nil && ReservedQueue(s.Queue):
		return fmt.Errorf("%w: queue %q: those that begin with %s are for webhooks: name another, or an URL", ErrInvalid, s.Queue, WebhookQueues)
	case s.Webhook != nil && s.Queue != shortened(WebhookQueues, s.ID): // two webhooks of one queue would get each other's
		return fmt.Errorf("%w: queue %q of a webhook: it is always %s, leave it out", ErrInvalid, s.Queue, shortened(WebhookQueues, s.ID))
	case s.Dead != "" && s.Dead == s.Queue:
		return fmt.Errorf("%w: its dead letters would go to its own queue %q: name another", ErrInvalid, s.Dead)
	case !utf8.ValidString(s.Reason) || len(s.Reason) > 1<<10:
		return fmt.Errorf("%w: reason: use UTF-8 text of at most 1 KiB", ErrInvalid)
	}
	if s.Dead != "" {
		if err := ValidQueue(s.Dead); err != nil {
			return err
		}
	}
	tasks := s.options()
	return errors.Join(ValidQueue(s.Queue), tasks.Validate())
}

// options are those that all of its tasks have.
func (s *Subscription) options() Options {
	return Options{Retry: s.Retry, Timeout: s.Timeout, Priority: s.Priority, Dead: s.Dead}
}

var validWebhookSecret = regexp.MustCompile(`^` + regexp.QuoteMeta(WebhookSecrets) + `[A-Za-z0-9._-]{1,100}$`)

func (w *Webhook) validate() error {
	to, err := url.Parse(w.URL)
	switch {
	case err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" || to.Fragment != "":
		return fmt.Errorf("%w: url %q: write http:// or https://, a host and a path, without a fragment", ErrInvalid, w.URL)
	case to.User != nil:
		return fmt.Errorf("%w: url with a user or password: put them into a secret, and name it for the header Authorization", ErrInvalid)
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
			return fmt.Errorf("%w: secret %q: those of webhooks have names that begin with %s, and then 1 to 100 letters, digits, '.', '_' and '-': rename it", ErrInvalid, name, WebhookSecrets)
		}
	}
	for name, value := range w.Headers {
		if !validToken(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("%w: header %q: %q: use a header's name, and printable ASCII text", ErrInvalid, name, value)
		}
	}
	for name, secret := range w.SecretHeaders {
		if !validToken(name) {
			return fmt.Errorf("%w: header %q with the secret %q: use a header's name", ErrInvalid, name, secret)
		}
	}
	return w.validateHeaders()
}

// unsent are headers that the sender sets, and those by which a server would see another request than it is. The host refuses to
// send them.
var unsent = regexp.MustCompile(`^(host|connection|content-length|expect|keep-alive|te|trailer|transfer-encoding|upgrade|http2-settings|` +
	`proxy(-.*)?|forwarded|x-forwarded-.*|x-http-method|x-(http-)?method-override|webhook-(id|timestamp|signature))$`)

// validateHeaders refuses headers that are there twice, whatever their capitals, and those that are not sent.
func (w *Webhook) validateHeaders() error {
	seen := make(map[string]bool)
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(w.Headers)), slices.Sorted(maps.Keys(w.SecretHeaders))) {
		is := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		if seen[is] || unsent.MatchString(is) {
			return fmt.Errorf("%w: header %q: the sender sets it itself, or it is there twice: leave it out", ErrInvalid, name)
		}
		seen[is] = true
	}
	return nil
}

// forbidden is an error if the webhook has a port that no server can have, or headers of a trace, which each delivery has of its own,
// or if dead letters would go to a queue of webhooks. It is no part of validate: what was stored so can still be read, delivered, paused and switched off.
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
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(s.Webhook.Headers)), slices.Sorted(maps.Keys(s.Webhook.SecretHeaders))) {
		if is := strings.ToLower(name); is == HeaderTraceparent || is == HeaderTracestate {
			return fmt.Errorf("%w: subscription %s: header %q: each delivery has its own: leave it out", ErrInvalid, s.ID, name)
		}
	}
	return nil
}

// Origin is scheme, host and port of the URL.
func (w *Webhook) Origin() string {
	to, err := url.Parse(w.URL)
	if err != nil {
		return w.URL
	}
	return to.Scheme + "://" + to.Host
}

// validToken tells whether a text may be the name of an HTTP header.
func validToken(name string) bool {
	return name != "" && len(name) <= 128 && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
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
		return fmt.Errorf("%w: %s %q has more than one *: use a name, or one with a single * for any text, such as orders.*", ErrInvalid, what, pattern)
	}
	return validName(what, pattern)
}

// Definition is a digest of what a manifest says of a subscription.
func (s *Subscription) Definition() string {
	filter, _ := json.Marshal(s.Filter) // as text, because one may have been read from Redis
	return definition(s.Topic, s.Queue, string(filter))
}
