package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
)

// InTopic has the path parameters of every operation on a topic.
type InTopic struct {
	InTenant
	Topic string `path:"topic" minLength:"1" maxLength:"128" doc:"The topic."`
}

// InSubscription has the path parameters of every operation on a subscription.
type InSubscription struct {
	InTenant
	ID string `path:"subscription" minLength:"1" maxLength:"128" doc:"The subscription."`
}

// PausedSubscription asks to pause or resume a subscription.
type PausedSubscription struct {
	InSubscription
	Reason string `query:"reason" maxLength:"1024" doc:"Why it is paused, for others."`
}

// PutSubscription asks to make or replace a subscription.
type PutSubscription struct {
	InSubscription
	OnlyNew bool `query:"only_new" doc:"Refuse it if there is one."`
	Body    admin.Subscription
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

// Replayed reports what a replay delivers again.
type Replayed struct {
	Publications int      `json:"publications" doc:"That match the subscription."`
	Tasks        []string `json:"tasks,omitempty" doc:"Their new tasks, the oldest publication first."`
	Until        float64  `json:"until,omitempty" doc:"It ended after 10,000 publications, 30 seconds or an error: go on with this since."`
	Error        *Problem `json:"error,omitempty" doc:"Why it ended, with tasks enqueued."`
}

// InPublication has the path parameters of every operation on a publication.
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

// PublishRaw asks to publish to a topic. The body, of any type, becomes the payload.
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

// TopicEvents asks to publish a CloudEvent, or a batch of them, to a topic.
type TopicEvents struct {
	InTopic
	SentEvents
}

func (s *service) describeTopics() {
	add(s, looking("/tenants/{tenant}/topics", "list-topics",
		"List topics with what was published, the one last published to first"),
		func(ctx context.Context, in *InTenant) (*ListOf[admin.Topic], error) {
			return listed(s.tenants[in.Tenant].Topics(ctx))
		})
	add(s, looking("/tenants/{tenant}/topics/{topic}", "show-topic", "Show a topic with its subscriptions"),
		func(ctx context.Context, in *InTopic) (*Of[admin.Topic], error) {
			if err := s.reserve(ctx, listCost); err != nil {
				return nil, err
			}
			topic, err := s.tenants[in.Tenant].Topic(ctx, in.Topic)
			return &Of[admin.Topic]{topic}, err
		})
	add(s, topicPath("publications", "publish", "Publish to a topic: a task for each subscriber, with the body as its parameters. With an id the request may be repeated"),
		func(ctx context.Context, in *PublishRaw) (*Of[admin.Published], error) {
			attributes, err := admin.Pairs("attribute", in.Attribute)
			if err != nil {
				return nil, err
			}
			o := queue.PublishOptions{
				ID: in.ID, Parent: in.Parent, Traceparent: in.Traceparent, Tracestate: in.Tracestate,
				Attributes: attributes,
			}
			in.publish(&o)
			published, err := s.tenants[in.Tenant].Publish(ctx, in.Topic, in.RawBody, o)
			return &Of[admin.Published]{admin.NewPublished(in.Tenant, in.Topic, published)}, err
		})
	add(s, topicPath("events", "publish-events", "Publish CloudEvents 1.0, structured, binary or batched: each source and id once, as long as the publication is kept. "+
		"The tasks' parameters are the event's data, and their headers its attributes"),
		func(ctx context.Context, in *TopicEvents) (*ListOf[admin.Published], error) {
			events, err := parseEvents(in.ContentType, in.header, in.RawBody)
			if err != nil {
				return nil, failed(http.StatusBadRequest, "%v", err)
			}
			t := s.tenants[in.Tenant]
			options := make([]queue.PublishOptions, len(events))
			for i := range events { // check all events before the first one is published
				e, o := &events[i], &options[i]
				*o = e.options(t.Queue(in.Topic).OnceID("event", e.Source, e.ID))
				p := queue.Publication{ID: o.ID, Topic: in.Topic, Attributes: o.Attributes}
				if err := p.Validate(); err != nil {
					return nil, failed(http.StatusBadRequest, "event %d: %s", i,
						strings.TrimPrefix(err.Error(), queue.ErrInvalid.Error()+": "))
				}
			}
			out := &ListOf[admin.Published]{List[admin.Published]{Items: make([]admin.Published, 0, len(events))}}
			for i, o := range options {
				payload, err := events[i].payload()
				if err != nil {
					return nil, failed(http.StatusBadRequest, "event %d: %v", i, err)
				}
				in.publish(&o)
				published, err := t.Publish(ctx, in.Topic, payload, o)
				if err != nil {
					return nil, err
				}
				out.Body.Items = append(out.Body.Items, admin.NewPublished(in.Tenant, in.Topic, published))
			}
			return out, nil
		})
	s.describePublications()
	s.describeSubscriptions()
}

// topicPath returns an operation that publishes to a topic.
func topicPath(path, name, summary string) operation {
	o := enqueueing("/tenants/{tenant}/topics/{topic}/"+path, name, summary)
	o.copies = 4 // the body, what filters decode of it, and the command to Redis
	return o
}

// options returns the options for publishing the event.
func (e *event) options(id string) queue.PublishOptions {
	o := queue.PublishOptions{
		ID: id, Traceparent: e.Traceparent, Tracestate: e.headers[queue.HeaderTracestate],
		Attributes: make(map[string]string),
	}
	for name, value := range e.headers {
		if attribute, ok := strings.CutPrefix(name, queue.HeaderAttribute); ok {
			o.Attributes[attribute] = value
		}
	}
	return o
}

// payload returns the event's data as the payload of a publication.
func (e *event) payload() ([]byte, error) {
	switch {
	case e.DataBase64 != nil:
		var payload []byte
		err := json.Unmarshal(e.DataBase64, &payload)
		return payload, err
	case bytes.HasPrefix(e.Data, []byte(`"`)) && !queue.IsJSON(e.headers[queue.HeaderAttribute+"datacontenttype"]):
		var text string
		err := json.Unmarshal(e.Data, &text)
		return []byte(text), err
	}
	return e.Data, nil // as written: if the content type is JSON, a string keeps its quotes
}

func (s *service) describePublications() {
	add(s, looking("/tenants/{tenant}/topics/{topic}/publications", "list-publications",
		"List the publications of a topic that are kept, newest first"),
		func(ctx context.Context, in *PublicationsPage) (*ListOf[admin.Publication], error) {
			return listed(s.tenants[in.Tenant].Publications(ctx, in.Topic, in.Offset, in.Limit))
		})
	add(s, looking("/tenants/{tenant}/publications/{publication}", "show-publication",
		"Show a publication and what became of its tasks"),
		func(ctx context.Context, in *InPublication) (*Of[admin.Publication], error) {
			if err := s.reserve(ctx, publicationCost); err != nil {
				return nil, err
			}
			shape, err := s.tenants[in.Tenant].PublicationUpTo(ctx, in.ID, shownPayload)
			return &Of[admin.Publication]{shape}, err
		})
	add(s, revealing("/tenants/{tenant}/publications/{publication}/payload", "show-payload",
		"The bytes of a publication's payload"),
		func(ctx context.Context, in *InPublication) (*Bytes, error) {
			t := s.tenants[in.Tenant]
			size, err := t.PublicationSize(ctx, in.ID)
			if err == nil && size > maxParameters {
				err = failed(http.StatusConflict, "the payload has %d bytes, and the API sends at most %d", size, maxParameters)
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
		func(ctx context.Context, in *TenantPage) (*ListOf[admin.Subscription], error) {
			all, err := s.tenants[in.Tenant].Subscriptions(ctx)
			if all == nil {
				return nil, err // none was read; otherwise damaged subscriptions must not hide the others
			}
			out := cutSized(all, in.Paging, func(one *queue.Subscription) string { return one.ID },
				admin.NewSubscription)
			if err != nil {
				out.Body.Error = err.Error() // the error names the damaged subscriptions
			}
			return out, nil
		})
	add(s, looking(path, "show-subscription", "Show a subscription"),
		func(ctx context.Context, in *InSubscription) (*Of[admin.Subscription], error) {
			one, err := s.tenants[in.Tenant].Subscription(ctx, in.ID)
			return shownSubscription(&one), err
		})
	put := acting(Admin, http.MethodPut, path, "put-subscription",
		"Make a subscription, or replace what it says; a new one is active")
	put.maxBody = 64 << 10 // four times the maximum size of a subscription
	add(s, put,
		func(ctx context.Context, in *PutSubscription) (*Of[admin.Subscription], error) {
			wanted, err := in.Body.Wanted(in.ID)
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
			return shownSubscription(&made), err
		})
	for action, active := range map[string]bool{"pause": false, "resume": true} {
		summary := map[bool]string{
			false: "Give a subscription no more tasks; those that wait go on",
			true:  "End the pause of a subscription",
		}[active]
		add(s, acting(Operator, http.MethodPost, path+"/"+action, action+"-subscription", summary),
			func(ctx context.Context, in *PausedSubscription) (*Of[admin.Subscription], error) {
				one, err := s.tenants[in.Tenant].ChangeSubscription(ctx, in.ID, func(is *queue.Subscription) error {
					is.Active, is.Reason = active, ""
					if !active {
						is.Reason = in.Reason
					}
					return nil
				})
				return shownSubscription(&one), err
			})
	}
	add(s, looking(path+"/deliveries", "list-deliveries", "List the deliveries of a webhook, newest first"),
		func(ctx context.Context, in *DeliveriesOf) (*ListOf[admin.Delivery], error) {
			return listed(s.tenants[in.Tenant].Deliveries(ctx, in.ID, in.Status, in.Limit))
		})
	add(s, acting(Operator, http.MethodPost, path+"/replay", "replay-subscription",
		"Deliver again what was published since a time and matches the subscription, oldest first"),
		func(ctx context.Context, in *Replay) (*Of[Replayed], error) {
			done, err := s.tenants[in.Tenant].Replay(ctx, in.ID, admin.Moment(in.Since), in.DryRun)
			callerOf(ctx).detail = fmt.Sprintf("since=%f publications=%d dry_run=%t", in.Since, done.Publications, in.DryRun)
			shape := Replayed{done.Publications, done.Tasks, admin.Seconds(done.Until), nil}
			if err != nil && len(done.Tasks) > 0 { // a problem would not have the IDs of the new tasks
				shape.Error, err = s.described(ctx, "replay-subscription", err), nil
			}
			return &Of[Replayed]{shape}, err
		})
	add(s, acting(Admin, http.MethodDelete, path, "delete-subscription", "Delete a subscription; its tasks stay"),
		func(ctx context.Context, in *InSubscription) (*struct{}, error) {
			return nil, s.tenants[in.Tenant].Unsubscribe(ctx, in.ID)
		})
}

const (
	// shownPayload bounds the payload that is shown as a part of its publication, in bytes. publicationCost is the memory
	// to reserve for an answer with a publication and its tasks.
	shownPayload    = 64 << 10
	publicationCost = 27*shownPayload + 10<<20
)

// shownSubscription returns an answer with a subscription.
func shownSubscription(s *queue.Subscription) *Of[admin.Subscription] {
	shape, _ := admin.NewSubscription(s)
	return &Of[admin.Subscription]{shape}
}
