package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/quern-project/quern/sdk/queue"
)

// InTopic is in every path below a topic.
type InTopic struct {
	InTenant
	Topic string `path:"topic" minLength:"1" maxLength:"128" doc:"The topic."`
}

// InSubscription is in every path below a subscription.
type InSubscription struct {
	InTenant
	ID string `path:"subscription" minLength:"1" maxLength:"128" doc:"The subscription."`
}

// Topic is a topic.
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

// Subscription is a subscription, as the command line prints it by -o json.
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
	Dead           string              `json:"dead,omitempty" maxLength:"128" doc:"The queue of dead letters; missing: the manifest decides."`
	Active         bool                `json:"active,omitempty" doc:"It gets tasks. New ones do."`
	Reason         string              `json:"reason,omitempty" doc:"Why it is not active."`
	Plugin         string              `json:"plugin,omitempty" doc:"The plugin whose manifest declares it."`
	Absent         float64             `json:"absent,omitempty" doc:"Since when no live host has had that plugin."`
	CreatedAt      float64             `json:"created_at,omitempty"`
	UpdatedAt      float64             `json:"updated_at,omitempty"`
}

// SubscriptionFilter is the filter of a subscription.
type SubscriptionFilter struct {
	Attributes map[string]string          `json:"attributes,omitempty" doc:"Patterns with at most one * by the attribute's name."`
	Data       map[string]json.RawMessage `json:"data,omitempty" doc:"JSON values by the JSON pointer to them in the payload."`
}

// Webhook is how publications are delivered to an URL.
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

// PausedSubscription is a subscription that is to be paused.
type PausedSubscription struct {
	InSubscription
	Reason string `query:"reason" maxLength:"1024" doc:"Why it is paused, for others."`
}

// PutSubscription makes or replaces a subscription.
type PutSubscription struct {
	InSubscription
	OnlyNew bool `query:"only_new" doc:"Refuse it if there is one."`
	Body    Subscription
}

// Delivery is the task of a publication for a webhook.
type Delivery struct {
	ID       string       `json:"id"`
	Status   queue.Status `json:"status" enum:"scheduled,pending,reserved,started,complete,failed"`
	Attempts int          `json:"attempts"`
	Answer   int          `json:"answer,omitempty" doc:"The status of the answer that it is complete with."`
	Created  float64      `json:"created,omitempty"`
	ETA      float64      `json:"eta,omitempty"`
	Error    string       `json:"error,omitempty" doc:"Why it failed, or its last attempt."`
}

// DeliveriesOf asks for deliveries of a subscription.
type DeliveriesOf struct {
	InSubscription
	Status queue.Status `query:"status" enum:"scheduled,pending,reserved,started,complete,failed"`
	Limit  int          `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// Replay asks for publications to be delivered again.
type Replay struct {
	InSubscription
	Since  float64 `query:"since" required:"true" minimum:"0" doc:"What was published at this second or later."`
	DryRun bool    `query:"dry_run" doc:"Only count them."`
}

// Replayed is what is delivered again.
type Replayed struct {
	Publications int      `json:"publications" doc:"That match the subscription."`
	Tasks        []string `json:"tasks,omitempty" doc:"Their new tasks, the oldest publication first."`
	Until        float64  `json:"until,omitempty" doc:"It ended after 10,000 publications, 30 seconds or an error: go on with this since."`
	Error        *Problem `json:"error,omitempty" doc:"Why it ended, with tasks enqueued."`
}

// Publication is a publication.
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

// InPublication is in the path of a publication.
type InPublication struct {
	InTenant
	ID string `path:"publication" minLength:"1" maxLength:"128" doc:"The publication."`
}

// PublicationsPage asks for some publications of a topic.
type PublicationsPage struct {
	InTopic
	Limit  int64 `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Offset int64 `query:"offset" minimum:"0" doc:"How many to skip, from the newest."`
}

// PublishedTask is the task that a publication made for a subscription.
type PublishedTask struct {
	Subscription string `json:"subscription"`
	ID           string `json:"id"`
	Queue        string `json:"queue,omitempty"`
	Status       string `json:"status" enum:"scheduled,pending,reserved,started,complete,failed,gone"`
	Reason       string `json:"reason,omitempty"`
}

// Published is what became of a publication; `quern topic publish -o json` prints these names.
type Published struct {
	ID          string `json:"id"`
	Tenant      string `json:"tenant"`
	Topic       string `json:"topic"`
	Existed     bool   `json:"existed" doc:"It was published before, and nothing is published now."`
	Taken       bool   `json:"taken,omitempty" doc:"What existed has another payload or other attributes. Missing for who may not see parameters."`
	Subscribers int    `json:"subscribers" doc:"0: it is dropped."`
	Damaged     int    `json:"damaged,omitempty" doc:"Subscriptions that cannot be read, and got no task: see the doctor."`
}

// PublishRaw is a publication whose payload is the body, of any kind.
type PublishRaw struct {
	InTopic
	RequestTrace
	ID          string   `query:"id" maxLength:"128" doc:"The publication's ID; missing: a new UUID. If it is kept, nothing is published."`
	Parent      string   `query:"parent" maxLength:"128" doc:"The task that it comes from."`
	Traceparent string   `query:"traceparent" maxLength:"300" doc:"Its trace; missing: that of the request."`
	Tracestate  string   `query:"tracestate" maxLength:"8192" doc:"Of its traceparent."`
	Attribute   []string `query:"attribute,explode" maxItems:"24" doc:"NAME=VALUE: a CloudEvents attribute, for filters and handlers."`
	RawBody     []byte   `contentType:"application/octet-stream"`
}

// TopicEvents is a CloudEvent for a topic, or a batch of them.
type TopicEvents struct {
	InTopic
	SentEvents
}

func (s *service) describeTopics() {
	add(s, looking("/tenants/{tenant}/topics", "list-topics", "List topics with what was published, the one last published to first"),
		func(ctx context.Context, in *InTenant) (*ListOf[Topic], error) {
			return listed(s.tenants[in.Tenant].reader(ctx).Topics(ctx))
		})
	add(s, looking("/tenants/{tenant}/topics/{topic}", "show-topic", "Show a topic with its subscriptions"),
		func(ctx context.Context, in *InTopic) (*Of[Topic], error) {
			if err := s.reserve(ctx, listCost); err != nil {
				return nil, err
			}
			topic, err := s.tenants[in.Tenant].reader(ctx).Topic(ctx, in.Topic)
			return &Of[Topic]{topic}, err
		})
	add(s, topicPath("publications", "publish", "Publish to a topic: a task for each subscriber, with the body as its parameters. With an id the request may be repeated"),
		func(ctx context.Context, in *PublishRaw) (*Of[Published], error) {
			attributes, err := pairs("attribute", in.Attribute)
			if err != nil {
				return nil, err
			}
			o := queue.PublishOptions{ID: in.ID, Parent: in.Parent, Traceparent: in.Traceparent, Tracestate: in.Tracestate, Attributes: attributes}
			in.publish(&o)
			published, err := s.tenants[in.Tenant].Publish(ctx, in.Topic, in.RawBody, o)
			return &Of[Published]{publishedShape(in.Tenant, in.Topic, published, principal(ctx))}, err
		})
	add(s, topicPath("events", "publish-events", "Publish CloudEvents 1.0, structured, binary or batched: each source and id once, as long as the publication is kept. "+
		"The tasks' parameters are the event's data, and their headers its attributes"),
		func(ctx context.Context, in *TopicEvents) (*ListOf[Published], error) {
			events, err := parseEvents(in.ContentType, in.header, in.RawBody)
			if err != nil {
				return nil, failed(http.StatusBadRequest, "%v", err)
			}
			for i := range events { // before the first is published
				if lost := events[i].lost; lost != nil {
					return nil, failed(http.StatusBadRequest, "event %d: %v", i, lost)
				}
			}
			t := s.tenants[in.Tenant]
			out := &ListOf[Published]{}
			for i := range events {
				payload, o, err := events[i].publication(t.Queue(in.Topic).OnceID("event", events[i].Source, events[i].ID))
				if err != nil {
					return nil, failed(http.StatusBadRequest, "event %d: %v", i, err)
				}
				in.publish(&o)
				published, err := t.Publish(ctx, in.Topic, payload, o)
				if err != nil {
					return nil, err
				}
				out.Body.Items = append(out.Body.Items, publishedShape(in.Tenant, in.Topic, published, principal(ctx)))
			}
			return out, nil
		})
	s.describePublications()
	s.describeSubscriptions()
}

// topicPath is an operation that publishes.
func topicPath(path, name, summary string) operation {
	o := enqueueing("/tenants/{tenant}/topics/{topic}/"+path, name, summary)
	o.copies = 4 // the body, what filters read of it, and its way to Redis
	return o
}

// publication is the payload and the options of an event that is published.
func (e *event) publication(id string) ([]byte, queue.PublishOptions, error) {
	o := queue.PublishOptions{ID: id, Traceparent: e.Traceparent, Tracestate: e.headers[queue.HeaderTracestate], Attributes: make(map[string]string)}
	for name, value := range e.headers {
		if attribute, ok := strings.CutPrefix(name, queue.HeaderAttribute); ok && value != "" {
			o.Attributes[attribute] = value
		}
	}
	var payload []byte
	switch {
	case e.DataBase64 != nil:
		return payload, o, json.Unmarshal(e.DataBase64, &payload)
	case bytes.HasPrefix(e.Data, []byte(`"`)) && !queue.IsJSON(o.Attributes["datacontenttype"]):
		var text string
		err := json.Unmarshal(e.Data, &text)
		return []byte(text), o, err
	}
	return e.Data, o, nil // as it was written: a JSON text is one for who gets it, too
}

func (s *service) describePublications() {
	add(s, looking("/tenants/{tenant}/topics/{topic}/publications", "list-publications", "List the publications of a topic that are kept, newest first"),
		func(ctx context.Context, in *PublicationsPage) (*ListOf[Publication], error) {
			return listed(s.tenants[in.Tenant].reader(ctx).Publications(ctx, in.Topic, in.Offset, in.Limit))
		})
	add(s, looking("/tenants/{tenant}/publications/{publication}", "show-publication", "Show a publication and what became of its tasks"),
		func(ctx context.Context, in *InPublication) (*Of[Publication], error) {
			if err := s.reserve(ctx, publicationCost); err != nil {
				return nil, err
			}
			shape, err := s.tenants[in.Tenant].reader(ctx).publication(ctx, in.ID, shownPayload)
			return &Of[Publication]{shape}, err
		})
	add(s, revealing("/tenants/{tenant}/publications/{publication}/payload", "show-payload", "The bytes of a publication's payload"),
		func(ctx context.Context, in *InPublication) (*Bytes, error) {
			t := s.tenants[in.Tenant]
			size, err := t.PublicationSize(ctx, in.ID)
			if err == nil && size > maxParameters {
				err = failed(http.StatusConflict, "it has %d bytes, and the API sends at most %d", size, maxParameters)
			}
			if err == nil {
				err = s.reserve(ctx, valueAnswer(size))
			}
			if err != nil {
				return nil, err
			}
			p, err := t.PublicationWithin(ctx, in.ID, size)
			if err != nil {
				return nil, err
			}
			return raw(p.Payload), nil
		})
}

func (s *service) describeSubscriptions() {
	const path = "/tenants/{tenant}/subscriptions/{subscription}"
	add(s, looking("/tenants/{tenant}/subscriptions", "list-subscriptions", "List subscriptions, by ID"),
		func(ctx context.Context, in *TenantPage) (*ListOf[Subscription], error) {
			all, err := s.tenants[in.Tenant].Subscriptions(ctx)
			if all == nil {
				return nil, err // else damaged ones do not hide the others
			}
			out := cutSized(all, in.Paging, func(one *queue.Subscription) string { return one.ID },
				func(one *queue.Subscription) (Subscription, int) { return subscriptionShape(one, principal(ctx)) })
			if err != nil {
				out.Body.Error = err.Error() // it names damaged ones
			}
			return out, nil
		})
	add(s, looking(path, "show-subscription", "Show a subscription"),
		func(ctx context.Context, in *InSubscription) (*Of[Subscription], error) {
			one, err := s.tenants[in.Tenant].Subscription(ctx, in.ID)
			return shownSubscription(ctx, &one), err
		})
	put := acting(Admin, http.MethodPut, path, "put-subscription", "Make a subscription, or replace what it says; a new one is active")
	put.maxBody = 64 << 10 // four times what a subscription may have
	add(s, put,
		func(ctx context.Context, in *PutSubscription) (*Of[Subscription], error) {
			wanted, err := in.Body.wanted(in.ID)
			if err != nil {
				return nil, err
			}
			t := s.tenants[in.Tenant]
			made, err := t.Subscribe(ctx, wanted)
			if errors.Is(err, queue.ErrExists) && !in.OnlyNew {
				made, err = t.ChangeSubscription(ctx, in.ID, func(is *queue.Subscription) error {
					wanted.Active, wanted.Reason, wanted.Plugin, wanted.CreatedAt = is.Active, is.Reason, is.Plugin, is.CreatedAt
					*is = wanted
					return nil
				})
			}
			return shownSubscription(ctx, &made), err
		})
	for action, active := range map[string]bool{"pause": false, "resume": true} {
		summary := map[bool]string{false: "Give a subscription no more tasks; those that wait go on", true: "End the pause of a subscription"}[active]
		add(s, acting(Operator, http.MethodPost, path+"/"+action, action+"-subscription", summary),
			func(ctx context.Context, in *PausedSubscription) (*Of[Subscription], error) {
				one, err := s.tenants[in.Tenant].ChangeSubscription(ctx, in.ID, func(is *queue.Subscription) error {
					is.Active, is.Reason = active, ""
					if !active {
						is.Reason = in.Reason
					}
					return nil
				})
				return shownSubscription(ctx, &one), err
			})
	}
	add(s, looking(path+"/deliveries", "list-deliveries", "List the deliveries of a webhook, newest first"),
		func(ctx context.Context, in *DeliveriesOf) (*ListOf[Delivery], error) {
			return listed(s.tenants[in.Tenant].reader(ctx).Deliveries(ctx, in.ID, in.Status, in.Limit))
		})
	add(s, acting(Operator, http.MethodPost, path+"/replay", "replay-subscription", "Deliver again what was published since a time and matches the subscription, oldest first"),
		func(ctx context.Context, in *Replay) (*Of[Replayed], error) {
			done, err := s.tenants[in.Tenant].Replay(ctx, in.ID, Moment(in.Since), in.DryRun)
			callerOf(ctx).detail = fmt.Sprintf("since=%f publications=%d dry_run=%t", in.Since, done.Publications, in.DryRun)
			shape := Replayed{done.Publications, done.Tasks, stamp(done.Until), nil}
			if err != nil && len(done.Tasks) > 0 { // whose IDs a problem would not have
				shape.Error, err = s.described(ctx, "replay-subscription", err), nil
			}
			return &Of[Replayed]{shape}, err
		})
	add(s, acting(Admin, http.MethodDelete, path, "delete-subscription", "Delete a subscription; its tasks stay"),
		func(ctx context.Context, in *InSubscription) (*struct{}, error) {
			return nil, s.tenants[in.Tenant].Unsubscribe(ctx, in.ID)
		})
}

// mostOfAnswer bounds the results that are read for a list of deliveries, in bytes: several times those with a whole answer.
const mostOfAnswer = 256 << 10

// Deliveries lists deliveries of a subscription with a webhook, newest first; status "" for all.
func (t *Reader) Deliveries(ctx context.Context, id string, status queue.Status, limit int) ([]Delivery, error) {
	s, err := t.Subscription(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.Webhook == nil {
		return nil, fmt.Errorf("%w: subscription %s has no webhook: list the tasks of its queue %s", queue.ErrInvalid, id, s.Queue)
	}
	list := []Delivery{}
	for offset := 0; len(list) < limit; {
		page, err := t.Queue(s.Queue).Page(ctx, queue.ListOptions{Status: status, Offset: offset, Limit: limit - len(list), Bytes: pageBytes})
		if err != nil {
			return nil, err
		}
		if list, err = t.deliveries(ctx, list, page.Tasks); err != nil || page.End {
			return list, err
		}
		offset = page.Next
	}
	return list, nil
}

// deliveries adds those that tasks are.
func (t *Reader) deliveries(ctx context.Context, list []Delivery, tasks []*queue.Task) ([]Delivery, error) {
	for _, task := range tasks {
		var answer struct{ Status int }
		if task.Status == queue.Complete {
			result, err := t.Result(ctx, task.ID, mostOfAnswer)
			if err != nil && !errors.Is(err, queue.ErrNoTask) && !errors.Is(err, queue.ErrInvalid) {
				return nil, err
			}
			_ = json.Unmarshal(result, &answer) // it may have none
		}
		one := Delivery{ID: task.ID, Status: task.Status, Attempts: task.Attempts, Answer: answer.Status, Created: stamp(task.Created), ETA: stamp(task.ETA)}
		shape := taskShape("", task, nil, 0, t.who)
		if problem := cmp.Or(shape.Error, shape.LastError); problem != nil {
			one.Error = problem.Headline()
		}
		list = append(list, one)
	}
	return list, nil
}

// Topics lists the topics, the one last published to first, without their subscriptions.
func (t *Reader) Topics(ctx context.Context) ([]Topic, error) {
	topics, err := t.Client.Topics(ctx)
	shapes := make([]Topic, len(topics))
	for i, one := range topics {
		shapes[i] = topicShape(t.Tenant(), one)
	}
	return shapes, err
}

// Topic reads a topic with its subscriptions.
func (t *Reader) Topic(ctx context.Context, name string) (Topic, error) {
	topic, err := t.Client.Topic(ctx, name)
	if err != nil {
		return Topic{}, err
	}
	all, err := t.Subscriptions(ctx)
	if all == nil {
		return Topic{}, err // else damaged ones do not hide the others
	}
	shape := topicShape(t.Tenant(), topic)
	for i, size := 0, 0; i < len(all) && size < pageBytes; i++ {
		if all[i].OfTopic(name) {
			one, bytes := subscriptionShape(&all[i], t.who)
			shape.List, size = append(shape.List, one), size+bytes
		}
	}
	return shape, nil
}

// Publications reads a page of the publications of a topic, newest first.
func (t *Reader) Publications(ctx context.Context, topic string, offset, limit int64) ([]Publication, error) {
	all, err := t.Client.Publications(ctx, topic, offset, limit)
	shapes := make([]Publication, len(all))
	for i, p := range all {
		shapes[i] = publicationShape(t.Tenant(), p, t.who)
	}
	return shapes, err
}

// Publication reads a publication with its payload and what became of its tasks.
func (t *Reader) Publication(ctx context.Context, id string) (Publication, error) {
	return t.publication(ctx, id, math.MaxInt64)
}

const (
	// shownPayload bounds the payload that is a part of its publication, and publicationCost is what that takes, with its tasks.
	shownPayload    = 64 << 10
	publicationCost = 27*shownPayload + 10<<20
)

// publication leaves a payload of more than limit bytes out.
func (t *Reader) publication(ctx context.Context, id string, limit int64) (Publication, error) {
	size, err := t.PublicationSize(ctx, id)
	if err != nil {
		return Publication{}, err
	}
	read := t.PublicationSummary
	if shown := size <= limit && t.who.reads(); shown {
		read = func(ctx context.Context, id string) (*queue.Publication, error) {
			return t.PublicationWithin(ctx, id, size)
		}
	}
	p, err := read(ctx, id)
	if err != nil {
		return Publication{}, err
	}
	tasks, err := t.PublicationTasks(ctx, id, 0, queue.MaxSubscriptions)
	shape := publicationShape(t.Tenant(), p, t.who)
	if shape.PayloadSize = int(size); t.who.reads() && size <= limit {
		shape.Payload, shape.PayloadBase64 = payload(p.Payload, len(p.Payload))
	}
	shape.Summary = make(map[string]int)
	for i, task := range tasks {
		status := string(task.Status)
		if task.Queue == "" {
			status = "gone"
		}
		if shape.Summary[status]++; i < 1000 {
			shape.List = append(shape.List, PublishedTask{task.Subscription, task.ID, task.Queue, status, string(task.Reason)})
		}
	}
	return shape, err
}

func topicShape(tenant string, t queue.Topic) Topic {
	return Topic{
		Tenant: tenant, Topic: t.Name, Subscriptions: t.Subscriptions, Active: t.Active, Published: t.Published, Dropped: t.Dropped,
		Tasks: t.Tasks, Kept: t.Kept, LastPublished: stamp(t.Last),
	}
}

func publicationShape(tenant string, p *queue.Publication, who *Principal) Publication {
	shape := Publication{
		ID: p.ID, Tenant: tenant, Topic: p.Topic, State: string(p.State), Created: stamp(p.Created), Subscribers: p.Subscribers,
		Tasks: p.Tasks, Refused: p.Refused, Parent: p.Parent, Traceparent: p.Traceparent,
	}
	if who.reads() {
		shape.Attributes = p.Attributes
	}
	return shape
}

func publishedShape(tenant, topic string, p queue.Published, who *Principal) Published {
	return Published{p.ID, tenant, topic, p.Existed, p.Taken && who.reads(), p.Subscribers, p.Damaged}
}

// subscriptionShape and Subscription convert by way of the JSON, which has the same names. Paths and headers of webhooks often have
// tokens: who may neither read payloads nor change the subscription does not see them.
func subscriptionShape(s *queue.Subscription, who *Principal) (shape Subscription, size int) {
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &shape)
	}
	if err != nil {
		shape.Reason = err.Error()
	}
	if w := shape.Webhook; w != nil && !who.reads() && who.Role != Admin {
		w.URL = s.Webhook.Origin()
		for name := range w.Headers {
			w.Headers[name] = "hidden"
		}
	}
	return shape, len(text)
}

// shownSubscription is an answer with a subscription.
func shownSubscription(ctx context.Context, s *queue.Subscription) *Of[Subscription] {
	shape, _ := subscriptionShape(s, principal(ctx))
	return &Of[Subscription]{shape}
}

// wanted is what a request says of the subscription.
func (s Subscription) wanted(id string) (queue.Subscription, error) {
	if s.ID != "" && s.ID != id {
		return queue.Subscription{}, failed(http.StatusBadRequest, "the body's id is %q, and the path's %q: leave it out", s.ID, id)
	}
	s.ID, s.CreatedAt, s.UpdatedAt, s.Absent, s.Plugin = id, 0, 0, 0, ""
	return s.Subscription()
}

// Subscription is the subscription of sdk/queue that the shape shows.
func (s Subscription) Subscription() (wanted queue.Subscription, err error) {
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &wanted)
	}
	return wanted, err
}
