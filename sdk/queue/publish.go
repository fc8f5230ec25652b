package queue

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // names, no secrets
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/seal"
)

const (
	// publishTasks is the maximum number of tasks that one script call of a publication writes. publishBytes is the
	// maximum size of their payloads together, in bytes.
	publishTasks = 1000
	publishBytes = 4 << 20
	// publishTries is the maximum number of attempts to choose the subscribers. An attempt fails if the subscriptions
	// change meanwhile.
	publishTries = 100
)

// The headers of tasks that publications make.
const (
	HeaderTopic        = "quern-topic"
	HeaderPublication  = "quern-publication"
	HeaderSubscription = "quern-subscription"
	HeaderSubscribed   = "quern-subscribed" // see Subscription.Edition
	HeaderAttribute    = "ce-"              // prefix of the headers that carry the publication's attributes
)

// PublishOptions are the options of a publication. The zero value works.
type PublishOptions struct {
	// ID is the publication's ID (default: a new UUID). If a publication with this ID exists, nothing is published, so a
	// Publish whose reply was lost can be repeated.
	ID string
	// Attributes are compared by filters, and become headers of the tasks. They are CloudEvents attributes, such as type
	// and source, or any others, such as tenant and group. There can be at most 24, with 6 KiB in total. A value can be
	// empty.
	Attributes map[string]string
	// Parent, Depth and Traceparent are set in the tasks, as in Options. Tracestate becomes the tasks' header tracestate.
	// It is left out if it is invalid, or if there is no Traceparent.
	Parent      string
	Depth       int
	Traceparent string
	Tracestate  string
}

// validate refuses invalid options.
func (o *PublishOptions) validate(topic string) error {
	if err := cmp.Or(ValidTopic(topic), validAttributes(o.Attributes)); err != nil {
		return err
	}
	if o.ID != "" {
		if err := validName("publication", o.ID); err != nil {
			return err
		}
	}
	tasks := Options{Parent: o.Parent, Depth: o.Depth, Traceparent: o.Traceparent}
	return tasks.Validate()
}

// Validate refuses an invalid publication.
func (p *Publication) Validate() error {
	o := PublishOptions{ID: p.ID, Attributes: p.Attributes, Parent: p.Parent, Depth: p.Depth, Traceparent: p.Traceparent}
	return errors.Join(validName("publication", p.ID), o.validate(p.Topic))
}

// Published is the result of Publish.
type Published struct {
	ID string
	// Existed is true if nothing was published, because a publication with this ID exists.
	Existed bool
	// Taken is true if the existing publication has another payload or other attributes.
	Taken bool
	// Subscribers is the number of subscriptions that matched at the time of publishing. If it is 0, the publication is
	// dropped.
	Subscribers int
	// Damaged is the number of subscriptions that could not be read when the subscribers were chosen, and got no task.
	// The error of Subscriptions names them.
	Damaged int
}

// Publish makes one task for each active subscription that the publication matches. It stores the publication with the
// list of its subscriptions. The first 1,000 tasks, with up to 4 MiB of payloads, are made together or not at all. The
// remaining tasks of a larger publication follow. If the caller dies before they are made, a host or the next Publish
// with the same ID makes them. If Redis fails, Publish returns the ID together with the error, and publishing again
// with this ID makes no task twice.
//
// The error is ErrQueueFull if a subscriber's queue is full, and ErrDamaged if one accepts no tasks. In both cases
// nothing is published. The error is a NotReplicatedError if the publication is published, but fewer replicas answered
// than Config.Replicas.
func (c *Client) Publish(ctx context.Context, topic string, payload []byte, options PublishOptions) (Published, error) {
	if err := options.validate(topic); err != nil {
		return Published{}, err
	}
	trace := map[string]string{HeaderTraceparent: options.Traceparent, HeaderTracestate: options.Tracestate}
	if headers := c.config.Headers; headers != nil && options.Traceparent == "" {
		trace = headers(ctx)
	}
	trace = InheritTrace(trace, nil)
	p := &Publication{
		ID: cmp.Or(options.ID, NewID()), Topic: topic, Payload: payload, Attributes: options.Attributes,
		Parent: options.Parent, Depth: options.Depth, Traceparent: trace[HeaderTraceparent],
		Tracestate: trace[HeaderTracestate],
	}
	published, err := c.publish(ctx, p)
	return published, store.Wrap(fmt.Sprintf("publish %s to %q", p.ID, topic), err)
}

// Republish makes the missing tasks of a publication. The error is ErrNoPublication if the publication does not exist
// (any more).
func (c *Client) Republish(ctx context.Context, id string) error {
	p, err := c.Publication(ctx, id)
	if err == nil && p.State != PublicationDone && p.State != PublicationDropped {
		_, err = c.publish(ctx, p)
	}
	return store.Wrap("go on with publication "+id, err)
}

// publish stores a publication, or continues an existing one, until each of its subscribers has a task or is refused.
func (c *Client) publish(ctx context.Context, p *Publication) (Published, error) {
	out := Published{ID: p.ID}
	var lacking error
	for {
		answer, err := c.publishBlock(ctx, p)
		if errors.Is(err, ErrNotReplicated) {
			lacking = cmp.Or(lacking, err)
		} else if err != nil {
			return out, err
		}
		switch answer.word {
		case "gone":
			return out, ErrNoPublication // purged meanwhile
		case "elsewhere":
			return out, fmt.Errorf("%w: it was published to topic %q: choose another ID", ErrExists, answer.topic)
		case "old", "accepted":
			out.Existed = out.Existed || p.State == ""
			out.Taken = out.Taken || answer.other
		}
		out.Subscribers, out.Damaged = answer.subscribers, max(out.Damaged, answer.damaged)
		if answer.word != "accepted" && answer.turns >= answer.subscribers {
			return out, lacking
		}
		if p, err = c.Publication(ctx, p.ID); err != nil { // other processes may have made tasks meanwhile
			return out, err
		}
	}
}

// publishAnswer is the parsed reply of publish.lua.
type publishAnswer struct {
	word, topic        string
	subscribers, turns int
	other              bool // the existing publication has another payload or other attributes
	damaged            int  // number of damaged subscriptions when the subscribers were chosen
}

// publishBlock runs publish.lua for the next block of subscribers. If the subscriptions have changed since the
// subscribers were chosen from them, it reads the subscriptions and chooses again.
func (c *Client) publishBlock(ctx context.Context, p *Publication) (publishAnswer, error) {
	for range publishTries {
		chosen, generation, err := c.choose(ctx, p)
		if err != nil {
			return publishAnswer{}, err
		}
		answer, err := c.evalPublish(ctx, c.publishCall(p, chosen, generation), p.ID)
		if answer.damaged = chosen.damaged; answer.word != "stale" {
			return answer, err
		}
		if _, _, _, err := c.readSubscriptions(ctx); err != nil {
			return publishAnswer{}, err
		}
	}
	return publishAnswer{}, fmt.Errorf("the subscriptions changed %d times meanwhile: try again", publishTries)
}

// chosen holds the subscribers of a publication, and those of them that get their tasks in the next call of
// publish.lua.
type chosen struct {
	all     []string        // IDs of all subscribers, if they were chosen now
	before  int             // number of subscribers before next; -1 if the subscribers were chosen now
	total   int             // number of all subscribers
	damaged int             // number of damaged subscriptions, if the subscribers were chosen now
	next    []*Subscription // an entry is nil if that subscription was deleted meanwhile
}

// choose chooses the subscribers of a publication. If they are chosen already, it reads the next block of them. It also
// returns the generation of the subscriptions.
func (c *Client) choose(ctx context.Context, p *Publication) (chosen, string, error) {
	most := max(1, min(publishTasks, publishBytes/(len(p.Payload)+1)))
	all, generation, damaged, err := c.cachedSubscriptions(ctx)
	if err != nil {
		return chosen{}, "", err
	}
	if p.State != PublicationUnfinished {
		out := chosen{before: -1, damaged: len(damaged)}
		active := make([]*Subscription, 0, len(all))
		for i := range all {
			if all[i].Active {
				active = append(active, &all[i])
			}
		}
		e := newEvent(p.Topic, p.Attributes, p.Payload, active...)
		for _, s := range active {
			if s.matches(e) {
				out.all = append(out.all, s.ID)
				if len(out.next) < most {
					out.next = append(out.next, s)
				}
			}
		}
		out.total = len(out.all)
		return out, generation, nil
	}
	if all, generation, _, err = c.readSubscriptions(ctx); err != nil {
		return chosen{}, "", err
	}
	byID := make(map[string]*Subscription, len(all))
	for i := range all {
		byID[all[i].ID] = &all[i]
	}
	out := chosen{before: p.turns, total: p.Subscribers}
	ids, err := c.store.RDB.LRange(ctx, c.store.Keys.Published(p.ID), int64(p.turns), int64(p.turns+most-1)).Result()
	for _, id := range ids {
		out.next = append(out.next, byID[id])
	}
	if err == nil && len(ids) == 0 { // the list is damaged
		out.next = make([]*Subscription, p.Subscribers-p.turns)
	}
	return out, generation, err
}

// publishCall makes the call of publish.lua for these subscribers.
func (c *Client) publishCall(p *Publication, to chosen, generation string) store.Call {
	text, companion := store.EncodeValue(c.store.Seal.Seal(p.ID, p.Payload))
	marker := store.Optional(companion != nil, text)
	from, after := store.Optional(p.State == PublicationAccepted, "-"), len(to.next)
	if to.before >= 0 {
		from, after = strconv.Itoa(to.before), to.before+len(to.next)
	}
	args := []any{c.store.Clock, p.Topic, generation, to.total, from, after, marker}
	args = p.Arguments(c.store.Seal, args, p.State == "")
	args = store.Named(to.all, args...)
	for _, s := range to.next {
		if s == nil {
			continue
		}
		spec := p.spec(s)
		args = append(args, s.Queue)
		begin := len(args)
		args = spec.Arguments(c.store.Seal, args, spec.ID, s.Queue, true)
		if marker != "" { // the payload is sent once for all: see publish.lua
			options := append([]any{"bytes", ""}, args[begin+3:]...)
			args = append(args[:begin+3], options...)
			args[begin+2] = len(options)
		}
	}
	return store.NewCall("publish", c.store.Keys.Publication(p.ID), args...)
}

// evalPublish runs publish.lua and waits for replicas, as Enqueue does.
func (c *Client) evalPublish(ctx context.Context, one store.Call, id string) (publishAnswer, error) {
	wanted := c.config.Replicas
	cmds, got, waited := c.store.EvalReplicated(ctx, []store.Call{one}, wanted, c.config.ReplicaTimeout)
	text, err := cmds[0].Text()
	refused := c.full(err)
	switch {
	case refused != nil:
		return publishAnswer{}, refused
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return publishAnswer{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	case err != nil:
		return publishAnswer{}, err
	}
	var a publishAnswer
	words := append(strings.Fields(text), "", "", "")
	if a.word = words[0]; a.word == "elsewhere" {
		a.topic = words[1]
		return a, nil
	}
	a.subscribers, a.turns, a.other = int(store.AsInt(words[1])), int(store.AsInt(words[2])), words[3] == "other"
	if (a.word == "new" || a.word == "old") && got < wanted {
		return a, &NotReplicatedError{IDs: []string{id}, Wanted: wanted, Got: got, Err: waited}
	}
	return a, nil
}

// Arguments appends the arguments of the publication, as batch.lua takes them. If payload is true, the payload is among
// them, encrypted with keys, because it is not stored yet.
func (p *Publication) Arguments(keys *seal.Ring, args []any, payload bool) []any {
	var attributes []byte
	if len(p.Attributes) > 0 {
		attributes, _ = json.Marshal(p.Attributes) // a map of strings can always be encoded
	}
	var value any = ""
	if payload {
		value = keys.Seal(p.ID, p.Payload)
	}
	args = append(args, p.ID, value, 0)
	begin := len(args)
	args = store.AppendFields(args,
		"topic", p.Topic,
		"attributes", string(attributes),
		"parent", p.Parent,
		"depth", store.Optional(p.Depth > 0, strconv.Itoa(p.Depth)),
		"traceparent", p.Traceparent,
		"tracestate", p.Tracestate,
	)
	args[begin-1] = len(args) - begin
	return args
}

// spec makes the task of a publication for one subscription, without the payload.
func (p *Publication) spec(s *Subscription) Spec {
	spec := Spec{Options: s.options()}
	keysOf(&spec.Options).keyed(p.Attributes).apply(&spec.Options)
	spec.Parent, spec.Depth, spec.Traceparent = p.Parent, p.Depth, p.Traceparent
	spec.Headers = map[string]string{
		HeaderTopic: p.Topic, HeaderPublication: p.ID, HeaderSubscription: s.ID,
		HeaderSubscribed: s.Edition(),
	}
	for name, value := range p.Attributes {
		spec.Headers[HeaderAttribute+name] = value
	}
	spec.Headers = InheritTrace(map[string]string{HeaderTraceparent: p.Traceparent, HeaderTracestate: p.Tracestate},
		spec.Headers)
	spec.ID = PublishedID(p.ID, s.ID)
	return spec
}

// Edition distinguishes successive subscriptions with the same ID. It consists of the time at which the subscription
// was made and a digest of its webhook's URL. A delivery that was made for an earlier subscription is sent for a later
// one with the same ID only if the time or the digest is the same.
func (s *Subscription) Edition() string {
	if s.Webhook == nil {
		return store.Seconds(s.CreatedAt)
	}
	return store.Seconds(s.CreatedAt) + " " + definition(s.Webhook.URL)
}

// PublishedID returns the ID of the task that a publication makes for a subscription.
func PublishedID(publication, subscription string) string {
	sum := sha1.Sum([]byte(publication + " " + subscription)) //nolint:gosec // a name, no secret
	return "pub-" + hex.EncodeToString(sum[:])
}

// DeliveryID returns the ID by which a receiver recognizes repeated deliveries. It is the ID of the publication's first
// task for the subscription, even if a task of a replay is delivered. DeliveryID returns false if neither a publication
// nor a replay made the task for this subscription; for example, if it was made for an earlier subscription with the
// same ID and another URL. Producers cannot choose such task IDs.
func (s *Subscription) DeliveryID(task string, headers map[string]string) (string, bool) {
	if headers[HeaderSubscription] != s.ID {
		return "", false
	}
	if edition, ok := headers[HeaderSubscribed]; ok { // tasks of older versions have no such header
		made, to, _ := strings.Cut(edition, " ")
		if madeNow, toNow, _ := strings.Cut(s.Edition(), " "); (made != madeNow || s.CreatedAt.IsZero()) && to != toNow {
			return "", false
		}
	}
	id := PublishedID(headers[HeaderPublication], s.ID)
	return id, task == id || strings.HasPrefix(task, id+"-")
}

// Redeliver makes another task of a publication for a subscription, and returns the task's ID.
func (c *Client) Redeliver(ctx context.Context, p *Publication, s *Subscription) (string, error) {
	spec := p.spec(s)
	spec.ID, spec.Parameters = spec.ID+"-"+NewID(), p.Payload // see DeliveryID
	_, err := c.Queue(s.Queue).enqueue(ctx, []Spec{spec})
	return spec.ID, err
}
