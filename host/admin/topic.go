package admin

import (
	"encoding/json"
	"fmt"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Topic is a topic with counts of its subscriptions, publications and tasks.
type Topic struct {
	Tenant        string         `json:"tenant"`
	Topic         string         `json:"topic"`
	Subscriptions int            `json:"subscriptions" doc:"That match it."`
	Active        int            `json:"active" doc:"Of these."`
	Published     int64          `json:"published"`
	Dropped       int64          `json:"dropped" doc:"Publications without a subscriber."`
	Tasks         int64          `json:"tasks"`
	Kept          int64          `json:"kept" doc:"Publications that can be read."`
	LastPublished float64        `json:"last_published,omitempty"`
	List          []Subscription `json:"list,omitempty" doc:"Its subscriptions, of very large ones the first that have 4 MiB together; not in lists."`
}

// Subscription is a subscription in the form of the API and of -o json.
type Subscription struct {
	ID             string              `json:"id,omitempty" maxLength:"128"`
	Topic          string              `json:"topic" maxLength:"128" doc:"Or a pattern with one * for any text."`
	Filter         *SubscriptionFilter `json:"filter,omitempty" doc:"What a publication must be like; missing: all of the topic."`
	Queue          string              `json:"queue,omitempty" maxLength:"128" doc:"Of the handler; that of a webhook is always webhook.ID and may be missing."`
	Webhook        *Webhook            `json:"webhook,omitempty"`
	MaxAttempts    int                 `json:"max_attempts,omitempty" minimum:"-1" maximum:"1000000" doc:"-1: no bound; missing: the manifest decides."`
	Retry          *Retry              `json:"retry,omitempty"`
	TimeoutSeconds float64             `json:"timeout_seconds,omitempty" minimum:"0" maximum:"1e9" doc:"Of each attempt."`
	Priority       *int                `json:"priority,omitempty" minimum:"0" maximum:"100"`
	FairKey        string              `json:"fair_key,omitempty" maxLength:"256" doc:"Of the tasks; attributes.NAME stands for an attribute of the publication."`
	FairWeight     int                 `json:"fair_weight,omitempty" minimum:"0" maximum:"1000" doc:"With fair_key; missing: 1."`
	ConcurrencyKey string              `json:"concurrency_key,omitempty" maxLength:"256" doc:"Of the tasks, as fair_key; missing: the manifest decides."`
	MaxConcurrent  int                 `json:"max_concurrent,omitempty" minimum:"0" maximum:"1000000" doc:"With concurrency_key; missing: 1."`
	Dead           string              `json:"dead,omitempty" maxLength:"128" doc:"The queue of dead letters; missing: the manifest decides."`
	Active         bool                `json:"active,omitempty" doc:"It gets tasks. New ones do."`
	Reason         string              `json:"reason,omitempty" doc:"Why it is not active."`
	Plugin         string              `json:"plugin,omitempty" doc:"The plugin whose manifest declares it."`
	Absent         float64             `json:"absent,omitempty" doc:"Since when no live host has had that plugin."`
	CreatedAt      float64             `json:"created_at,omitempty"`
	UpdatedAt      float64             `json:"updated_at,omitempty"`
}

// SubscriptionFilter selects the publications of a topic that a subscription gets.
type SubscriptionFilter struct {
	Attributes map[string]string          `json:"attributes,omitempty" doc:"Patterns with at most one * by the attribute's name."`
	Data       map[string]json.RawMessage `json:"data,omitempty" doc:"JSON values by the JSON pointer to them in the payload."`
}

// Webhook states how publications are delivered to a URL.
type Webhook struct {
	URL            string            `json:"url" maxLength:"4096" doc:"Who may neither read payloads nor change it sees only its origin, and no values of headers."`
	Method         string            `json:"method,omitempty" enum:"POST,PUT,PATCH"`
	Headers        map[string]string `json:"headers,omitempty"`
	SecretHeaders  map[string]string `json:"secret_headers,omitempty" doc:"Headers whose values are secrets of the hosts, by the header's name."`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty" minimum:"0" maximum:"600" doc:"Missing: 20."`
	Body           string            `json:"body,omitempty" enum:"payload,cloudevent"`
	Secrets        []string          `json:"secrets,omitempty" maxItems:"4" doc:"Names of the secrets of the hosts that sign each request."`
	Expect         []int             `json:"expect,omitempty" doc:"Statuses that mean success; missing: 200 to 299."`
	Final          bool              `json:"final,omitempty" doc:"A status of 4xx, except 408, 410 and 429, fails the delivery for good."`
}

// Delivery is the task that delivers a publication to a webhook.
type Delivery struct {
	ID       string       `json:"id"`
	Status   queue.Status `json:"status" enum:"scheduled,pending,reserved,started,complete,failed"`
	Attempts int          `json:"attempts"`
	Answer   int          `json:"answer,omitempty" doc:"The status of its last answer, if it has ended with one or waits for the next attempt."`
	Created  float64      `json:"created,omitempty"`
	ETA      float64      `json:"eta,omitempty"`
	Error    string       `json:"error,omitempty" doc:"Why it failed, or its last attempt."`

	failure *queue.Failure // the failure whose headline is Error; nil if there is none
}

// Publication is a publication with the states of its tasks.
type Publication struct {
	ID            string            `json:"id"`
	Tenant        string            `json:"tenant"`
	Topic         string            `json:"topic"`
	State         string            `json:"state" enum:"accepted,publishing,published,dropped"`
	Created       float64           `json:"created"`
	Subscribers   int               `json:"subscribers" doc:"Subscriptions that matched."`
	Tasks         int               `json:"tasks" doc:"How many of them have their task."`
	Refused       int               `json:"refused,omitempty" doc:"Those that get no task: they were deleted meanwhile, or their queue takes none."`
	Attributes    map[string]string `json:"attributes,omitempty"`
	Parent        string            `json:"parent,omitempty"`
	Traceparent   string            `json:"traceparent,omitempty"`
	Payload       *string           `json:"payload,omitempty" doc:"Of at most 64 KiB; not in lists."`
	PayloadBase64 []byte            `json:"payload_base64,omitempty" doc:"Instead of payload, if it is not UTF-8."`
	PayloadSize   int               `json:"payload_size,omitempty" doc:"Bytes; not in lists."`
	Summary       map[string]int    `json:"summary,omitempty" doc:"Tasks by status; gone: those that do not exist (any more). Not in lists."`
	List          []PublishedTask   `json:"list,omitempty" doc:"The task of each subscription, the first 1,000; not in lists."`
}

// PublishedTask is the task that a publication has for one subscription.
type PublishedTask struct {
	Subscription string `json:"subscription"`
	ID           string `json:"id"`
	Queue        string `json:"queue,omitempty"`
	Status       string `json:"status" enum:"scheduled,pending,reserved,started,complete,failed,gone"`
	Reason       string `json:"reason,omitempty"`
}

// Published is the result of publishing. `quern topic publish -o json` prints the same field names.
type Published struct {
	ID          string `json:"id"`
	Tenant      string `json:"tenant"`
	Topic       string `json:"topic"`
	Existed     bool   `json:"existed" doc:"It was published before, and nothing is published now."`
	Taken       bool   `json:"taken,omitempty" doc:"What existed has another payload or other attributes. Missing for who may not see parameters."`
	Subscribers int    `json:"subscribers" doc:"0: it is dropped."`
	Damaged     int    `json:"damaged,omitempty" doc:"Subscriptions that cannot be read, and got no task: see the doctor."`
}

// NewTopic converts a topic to the form that operators see, without its subscriptions.
func NewTopic(tenant string, t manage.Topic) Topic {
	return Topic{
		Tenant: tenant, Topic: t.Name, Subscriptions: t.Subscriptions, Active: t.Active, Published: t.Published,
		Dropped: t.Dropped,
		Tasks:   t.Tasks, Kept: t.Kept, LastPublished: Seconds(t.Last),
	}
}

// Redact redacts the topic's subscriptions.
func (t *Topic) Redact(v View) {
	for i := range t.List {
		t.List[i].Redact(v)
	}
}

// NewPublication converts a publication to the form that operators see, without its payload and tasks.
func NewPublication(tenant string, p *queue.Publication) Publication {
	return Publication{
		ID: p.ID, Tenant: tenant, Topic: p.Topic, State: string(p.State), Created: Seconds(p.Created),
		Subscribers: p.Subscribers,
		Tasks:       p.Tasks, Refused: p.Refused, Attributes: p.Attributes, Parent: p.Parent, Traceparent: p.Traceparent,
	}
}

// Redact removes the payload and the attributes.
func (p *Publication) Redact(v View) {
	if !v.Payloads {
		p.Payload, p.PayloadBase64, p.Attributes = nil, nil, nil
	}
}

// NewPublished converts the result of publishing to the form that operators see.
func NewPublished(tenant, topic string, p queue.Published) Published {
	return Published{p.ID, tenant, topic, p.Existed, p.Taken, p.Subscribers, p.Damaged}
}

// Redact hides Taken from a principal that may not see payloads, since Taken would confirm a guess of a payload.
func (p *Published) Redact(v View) { p.Taken = p.Taken && v.Payloads }

// NewSubscription converts a subscription to the form that operators see. size is the length of its JSON, in bytes. The
// conversion goes through JSON, in which both types have the same names; that of Subscription.Subscription does too.
func NewSubscription(s *queue.Subscription) (shape Subscription, size int) {
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &shape)
	}
	if err != nil {
		shape.Reason = err.Error()
	}
	return shape, len(text)
}

// Redact removes the path of a webhook's URL and the values of its headers, which often contain tokens.
func (s *Subscription) Redact(v View) {
	if w := s.Webhook; w != nil && !v.Webhooks {
		w.URL = (&queue.Webhook{URL: w.URL}).Origin()
		for name := range w.Headers {
			w.Headers[name] = "hidden"
		}
	}
}

// Redact removes the text that the handler or the webhook's server wrote.
func (d *Delivery) Redact(v View) {
	if d.failure != nil && !v.Payloads {
		d.Error = redacted(d.failure).Headline()
	}
}

// Wanted returns the subscription to store when s is the body of a request to make or replace the subscription id. It
// ignores CreatedAt, UpdatedAt, Absent and Plugin, which only Quern sets.
func (s Subscription) Wanted(id string) (queue.Subscription, error) {
	if s.ID != "" && s.ID != id {
		return queue.Subscription{}, fmt.Errorf("%w: the body has the id %q, the path has %q: leave the id out of the body",
			queue.ErrInvalid, s.ID, id)
	}
	s.ID, s.CreatedAt, s.UpdatedAt, s.Absent, s.Plugin = id, 0, 0, 0, ""
	return s.Subscription()
}

// Subscription returns the subscription in the form of sdk/queue.
func (s Subscription) Subscription() (wanted queue.Subscription, err error) {
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &wanted)
	}
	return wanted, err
}
