package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Topics lists the topics. The topic that was published to most recently comes first.
func (c *Client) Topics(ctx context.Context) ([]admin.Topic, error) {
	var list api.List[admin.Topic]
	err := c.do(ctx, get(&list, "topics"))
	return list.Items, err
}

// Topic reads a topic with its subscriptions.
func (c *Client) Topic(ctx context.Context, name string) (topic admin.Topic, err error) {
	if err := queue.ValidTopic(name); err != nil {
		return topic, err
	}
	err = c.do(ctx, get(&topic, "topics", name))
	return topic, err
}

// Publish publishes to a topic.
func (c *Client) Publish(ctx context.Context, topic string, payload []byte,
	o queue.PublishOptions,
) (queue.Published, error) {
	if err := queue.ValidTopic(topic); err != nil {
		return queue.Published{}, err
	}
	if o.ID == "" {
		o.ID = queue.NewID() // so that the request can be repeated
	}
	query := url.Values{"id": {o.ID}}
	for name, value := range o.Attributes {
		query.Add("attribute", name+"="+value)
	}
	for name, value := range map[string]string{
		"parent": o.Parent, "traceparent": o.Traceparent,
		"tracestate": o.Tracestate,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var shape admin.Published
	if payload == nil {
		payload = []byte{}
	}
	err := c.do(ctx, call{
		method: http.MethodPost, path: []string{"topics", topic, "publications"}, query: query,
		body: payload, into: &shape,
	})
	return queue.Published{
		ID: o.ID, Existed: shape.Existed, Taken: shape.Taken, Subscribers: shape.Subscribers,
		Damaged: shape.Damaged,
	}, err
}

// Subscriptions lists the subscriptions, sorted by ID.
func (c *Client) Subscriptions(ctx context.Context) ([]queue.Subscription, error) {
	list, err := all[queue.Subscription](ctx, c, get(nil, "subscriptions"))
	if len(list) == 0 && err != nil {
		return nil, err // none was read; otherwise damaged subscriptions must not hide the others
	}
	return list, err
}

// Subscription reads a subscription.
func (c *Client) Subscription(ctx context.Context, id string) (s queue.Subscription, err error) {
	return c.subscription(ctx, call{method: http.MethodGet, path: []string{"subscriptions", id}})
}

// subscription makes a call whose answer is a subscription.
func (c *Client) subscription(ctx context.Context, what call) (s queue.Subscription, err error) {
	what.into = &s
	err = c.do(ctx, what)
	return s, err
}

// Subscribe makes a subscription. The error is queue.ErrExists if there is one with the same ID.
func (c *Client) Subscribe(ctx context.Context, s queue.Subscription) (queue.Subscription, error) {
	return c.put(ctx, s, "only_new")
}

func (c *Client) put(ctx context.Context, s queue.Subscription, flags ...string) (queue.Subscription, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return s, err
	}
	query := url.Values{}
	for _, flag := range flags {
		query.Set(flag, "true")
	}
	return c.subscription(ctx, call{
		method: http.MethodPut, path: []string{"subscriptions", s.ID}, query: query,
		body: json.RawMessage(text),
	})
}

// ChangeSubscription reads a subscription, calls change on it, and writes the result. Changes that others make between
// the read and the write are lost.
func (c *Client) ChangeSubscription(ctx context.Context, id string,
	change func(*queue.Subscription) error,
) (queue.Subscription, error) {
	before, err := c.Subscription(ctx, id)
	if err != nil {
		return before, err
	}
	after := before
	if err := change(&after); err != nil {
		return after, err
	}
	if after.Active == before.Active && after.Reason == before.Reason {
		return c.put(ctx, after)
	}
	action, query := "resume", url.Values{}
	if !after.Active {
		action, query = "pause", url.Values{"reason": {after.Reason}}
	}
	return c.subscription(ctx, call{method: http.MethodPost, path: []string{"subscriptions", id, action}, query: query})
}

// Unsubscribe deletes a subscription.
func (c *Client) Unsubscribe(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: []string{"subscriptions", id}})
}

// Deliveries lists at most limit deliveries of a subscription, newest first. If status is empty, it lists deliveries of
// every status.
func (c *Client) Deliveries(ctx context.Context, id string, status queue.Status, limit int) ([]admin.Delivery, error) {
	var list api.List[admin.Delivery]
	what := get(&list, "subscriptions", id, "deliveries")
	what.query = url.Values{"limit": {fmt.Sprint(limit)}}
	if status != "" {
		what.query.Set("status", string(status))
	}
	err := c.do(ctx, what)
	return list.Items, err
}

// Replay delivers again the publications that match the subscription and were published at since or later. If dry is
// true, it only counts them.
func (c *Client) Replay(ctx context.Context, id string, since time.Time, dry bool) (manage.Replayed, error) {
	var got api.Replayed
	what := post(&got, "subscriptions", id, "replay")
	what.query = url.Values{"since": {fmt.Sprintf("%.6f", float64(since.UnixMicro())/1e6)}, "dry_run": {fmt.Sprint(dry)}}
	err := c.do(ctx, what)
	if err == nil && got.Error != nil {
		err = got.Error
	}
	return manage.Replayed{Publications: got.Publications, Tasks: got.Tasks, Until: admin.Moment(got.Until)}, err
}

// Publication reads a publication with its payload and the states of its tasks.
func (c *Client) Publication(ctx context.Context, id string) (p admin.Publication, err error) {
	err = c.do(ctx, get(&p, "publications", id))
	if err == nil && p.Payload == nil && p.PayloadBase64 == nil && p.PayloadSize > 0 {
		if err = c.do(ctx, get(&p.PayloadBase64, "publications", id, "payload")); errors.Is(err, admin.ErrForbidden) {
			err = nil // the token's holder may not see the payload
		}
		if utf8.Valid(p.PayloadBase64) && err == nil && p.PayloadBase64 != nil {
			text := string(p.PayloadBase64)
			p.Payload, p.PayloadBase64 = &text, nil
		}
	}
	return p, err
}

// Publications reads a page of the publications of a topic, newest first.
func (c *Client) Publications(ctx context.Context, topic string, offset, limit int64) ([]admin.Publication, error) {
	if err := queue.ValidTopic(topic); err != nil {
		return nil, err
	}
	var list api.List[admin.Publication]
	what := get(&list, "topics", topic, "publications")
	what.query = url.Values{"offset": {fmt.Sprint(offset)}, "limit": {fmt.Sprint(limit)}}
	err := c.do(ctx, what)
	return list.Items, err
}
