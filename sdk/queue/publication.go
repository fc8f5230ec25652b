package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"mime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// PublicationState is where a publication stands.
type PublicationState string

// The life of a publication: accepted with the completion of the task that published it, subscribers chosen but not all with a
// task yet, and then one of the others.
const (
	PublicationAccepted   PublicationState = "accepted"
	PublicationUnfinished PublicationState = "publishing"
	PublicationDone       PublicationState = "published"
	PublicationDropped    PublicationState = "dropped" // nobody subscribed to it
)

// IsJSON reports whether a content type is that of JSON: any of the subtype json, or that ends with +json; and none, as in CloudEvents
// (JSON Event Format 1.0.2, section 3.1).
func IsJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil && (strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json"))
}

// Publication is what was published to a topic.
type Publication struct {
	ID, Topic   string
	State       PublicationState
	Payload     []byte
	Attributes  map[string]string
	Created     time.Time
	Parent      string // the task that published it
	Depth       int    // as in Options
	Traceparent string
	Tracestate  string
	// Subscribers is how many subscriptions matched, Tasks how many of them have got their task, and Refused those that get none:
	// they were deleted meanwhile, or their queue takes none.
	Subscribers, Tasks, Refused int

	turns int // how many have had their turn: Tasks and Refused
}

// PublicationSummary reads a publication without its payload.
func (c *Client) PublicationSummary(ctx context.Context, id string) (*Publication, error) {
	if err := validName("publication", id); err != nil {
		return nil, err
	}
	hash, err := c.rdb.HMGet(ctx, c.keys.publication(id), publicationFields...).Result()
	fields := hashOf(publicationFields, hash)
	if err == nil && len(fields) == 0 {
		return nil, fmt.Errorf("publication %s: %w", id, ErrNoPublication)
	}
	return newPublication(id, fields), wrap("read publication "+id, err)
}

// publicationFields are those of a publication without its payload.
var publicationFields = []string{"topic", "created", "attributes", "parent", "depth", "traceparent", "tracestate", "subscribers", "tasks", "refused"}

func newPublication(id string, hash map[string]string) *Publication {
	p := &Publication{
		ID: id, Topic: hash["topic"], Payload: []byte(hash["parameters"]), Created: parseSeconds(hash["created"]),
		Parent: hash["parent"], Depth: int(asInt(hash["depth"])), Traceparent: hash["traceparent"], Tracestate: hash["tracestate"],
		Subscribers: int(asInt(hash["subscribers"])), Refused: int(asInt(hash["refused"])), turns: int(asInt(hash["tasks"])),
	}
	p.Tasks = max(0, p.turns-p.Refused)
	_ = json.Unmarshal([]byte(hash["attributes"]), &p.Attributes) // damaged ones are none
	switch {
	case hash["subscribers"] == "":
		p.State = PublicationAccepted
	case p.turns < p.Subscribers:
		p.State = PublicationUnfinished
	case p.Subscribers == 0:
		p.State = PublicationDropped
	default:
		p.State = PublicationDone
	}
	return p
}

// PublishedTask is a subscription's task of a publication.
type PublishedTask struct {
	Subscription string
	ID           string
	Queue        string // "" if the task does not exist (any more), as the next two
	Status       Status
	Reason       Reason // why it failed
}

// PublicationTasks reads a page of a publication's tasks, in the order of the subscriptions' IDs. Those of an unfinished
// publication may not exist yet.
func (c *Client) PublicationTasks(ctx context.Context, id string, offset, limit int64) ([]PublishedTask, error) {
	offset, limit = max(offset, 0), max(limit, 1) // Redis counts negative places from the end
	ids, err := c.rdb.LRange(ctx, c.keys.published(id), offset, offset+limit-1).Result()
	if err != nil {
		return nil, fmt.Errorf("read tasks of publication %s: %w", id, err)
	}
	tasks := make([]PublishedTask, len(ids))
	cmds, err := pipelined(ctx, &c.store, ids, func(p redis.Pipeliner, subscription string) *redis.SliceCmd {
		return p.HMGet(ctx, c.keys.task(PublishedID(id, subscription)), "queue", "status", "reason")
	})
	for i, cmd := range cmds {
		tasks[i] = PublishedTask{Subscription: ids[i], ID: PublishedID(id, ids[i])}
		if h := cmd.Val(); len(h) == 3 {
			tasks[i].Queue, tasks[i].Status, tasks[i].Reason = asString(h[0]), Status(asString(h[1])), Reason(asString(h[2]))
		}
	}
	return tasks, wrap("read tasks of publication "+id, err)
}

// Publications reads a page of the publications that are kept of a topic, newest first, without their payloads.
func (c *Client) Publications(ctx context.Context, topic string, offset, limit int64) ([]*Publication, error) {
	if err := ValidTopic(topic); err != nil {
		return nil, err
	}
	if limit < 1 || limit > maxPage || offset < 0 {
		return nil, fmt.Errorf("%w: page of %d publications from %d: use a limit of 1 to %d and an offset from 0", ErrInvalid, limit, offset, maxPage)
	}
	ids, err := c.rdb.ZRevRange(ctx, c.keys.publications(topic), offset, offset+limit-1).Result()
	if err != nil {
		return nil, fmt.Errorf("list publications of %q: %w", topic, err)
	}
	cmds, err := pipelined(ctx, &c.store, ids, func(p redis.Pipeliner, id string) *redis.SliceCmd {
		return p.HMGet(ctx, c.keys.publication(id), publicationFields...)
	})
	var all []*Publication
	for i, cmd := range cmds {
		hash := hashOf(publicationFields, cmd.Val())
		if hash["topic"] == topic { // else it was purged meanwhile
			all = append(all, newPublication(ids[i], hash))
		}
	}
	return all, wrap(fmt.Sprintf("list publications of %q", topic), err)
}

// Topic is what a tenant has of a topic.
type Topic struct {
	Name string
	// Published, Dropped and Tasks count publications, those of them without a subscriber, and tasks, since its publications were
	// last all purged.
	Published, Dropped, Tasks int64
	Kept                      int64     // publications that are kept
	Last                      time.Time // of the last publication that is kept; zero for none
	// Subscriptions is how many match the topic, and Active how many of them are active.
	Subscriptions, Active int
}

// maxTopics is the most topics that Topics reads.
const maxTopics = 10_000

// Topics lists the topics that have publications, the one last published to first, at most 10,000, and then those that only
// subscriptions name.
func (c *Client) Topics(ctx context.Context) ([]Topic, error) {
	subscriptions, _, _, err := c.readSubscriptions(ctx)
	if err != nil {
		return nil, err
	}
	names, last, err := c.busyTopics(ctx, maxTopics)
	if err != nil {
		return nil, err
	}
	unused := make(map[string]bool)
	for _, s := range subscriptions {
		if ValidTopic(s.Topic) == nil && last[s.Topic].IsZero() {
			unused[s.Topic] = true
		}
	}
	names = append(names, slices.Sorted(maps.Keys(unused))...)
	topics, err := c.readTopics(ctx, names, subscriptions)
	for i := range topics {
		topics[i].Last = last[topics[i].Name]
	}
	return topics, err
}

// BusyTopics reads at most this many topics, the ones last published to first, without their subscriptions.
func (c *Client) BusyTopics(ctx context.Context, most int64) ([]Topic, error) {
	names, last, err := c.busyTopics(ctx, most)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	topics, err := c.readTopics(ctx, names, nil)
	for i := range topics {
		topics[i].Last = last[topics[i].Name]
	}
	return topics, err
}

// busyTopics are the names of topics with publications, and when each had its last one.
func (c *Client) busyTopics(ctx context.Context, most int64) (names []string, last map[string]time.Time, err error) {
	scored, err := c.rdb.ZRevRangeWithScores(ctx, c.keys.topics(), 0, most-1).Result()
	last = make(map[string]time.Time)
	for _, z := range scored {
		name, _ := z.Member.(string)
		names, last[name] = append(names, name), time.UnixMicro(int64(z.Score*1e6))
	}
	return names, last, wrap("list topics", err)
}

// readTopics reads the counts of topics, in this order.
func (c *Client) readTopics(ctx context.Context, names []string, subscriptions []Subscription) ([]Topic, error) {
	type read struct {
		counts *redis.SliceCmd
		kept   *redis.IntCmd
	}
	cmds, err := pipelined(ctx, &c.store, names, func(p redis.Pipeliner, name string) read {
		return read{p.HMGet(ctx, c.keys.topic(name), "published", "dropped", "tasks"), p.ZCard(ctx, c.keys.publications(name))}
	})
	topics := make([]Topic, len(cmds))
	of := make(map[string][]*Subscription) // by topic; "*": those of patterns
	for i := range subscriptions {
		topic := subscriptions[i].Topic
		if strings.Contains(topic, "*") {
			topic = "*"
		}
		of[topic] = append(of[topic], &subscriptions[i])
	}
	for i, cmd := range cmds {
		topics[i] = Topic{Name: names[i], Kept: cmd.kept.Val()}
		if counts := cmd.counts.Val(); len(counts) == 3 {
			topics[i].Published, topics[i].Dropped, topics[i].Tasks = asInt(counts[0]), asInt(counts[1]), asInt(counts[2])
		}
		for _, s := range slices.Concat(of[names[i]], of["*"]) {
			if matches(s.Topic, names[i]) {
				topics[i].Subscriptions++
				if s.Active {
					topics[i].Active++
				}
			}
		}
	}
	return topics, wrap("read topics", err)
}

// Topic reads one topic: ErrNoTopic if nobody published to it, as far as publications are kept, or subscribed to it.
func (c *Client) Topic(ctx context.Context, name string) (Topic, error) {
	if err := ValidTopic(name); err != nil {
		return Topic{}, err
	}
	subscriptions, _, _, err := c.readSubscriptions(ctx)
	if err != nil {
		return Topic{}, err
	}
	topics, err := c.readTopics(ctx, []string{name}, subscriptions)
	if err != nil {
		return Topic{}, err
	}
	score, err := c.rdb.ZScore(ctx, c.keys.topics(), name).Result()
	if isNil(err) {
		if topics[0].Subscriptions == 0 {
			return Topic{}, fmt.Errorf("topic %s: %w", name, ErrNoTopic)
		}
		return topics[0], nil
	}
	topics[0].Last = time.UnixMicro(int64(score * 1e6))
	return topics[0], wrap("read topic "+name, err)
}

const (
	// MaxUnpublished is how many publications Unpublished lists.
	MaxUnpublished = 100
	// publishingPause is how long a publication may stand still before others go on with it.
	publishingPause = 5 * time.Second
)

// Unpublished lists publications whose tasks are not all enqueued, and of which no task was for 5 s, or which were only accepted
// as long ago: at most MaxUnpublished, those first that wait longest.
func (f *Fleet) Unpublished(ctx context.Context) ([]string, error) {
	c := f.client
	now, err := c.now(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := c.rdb.ZRangeByScore(ctx, c.keys.publishing(), &redis.ZRangeBy{
		Min: "-inf", Max: seconds(now.Add(-publishingPause)), Count: MaxUnpublished,
	}).Result()
	return ids, wrap("list publications under way", err)
}

// ForgetUnpublished removes a publication from those that Unpublished lists: one that is not kept any more.
func (f *Fleet) ForgetUnpublished(ctx context.Context, id string) error {
	return wrap("forget publication "+id, f.client.rdb.ZRem(ctx, f.client.keys.publishing(), id).Err())
}

// PostponeUnpublished puts publications behind the others that Unpublished lists, as far as it still would: after a try.
func (f *Fleet) PostponeUnpublished(ctx context.Context, ids []string) error {
	now, err := f.client.now(ctx)
	if err != nil || len(ids) == 0 {
		return err
	}
	tried := make([]redis.Z, len(ids))
	for i, id := range ids {
		tried[i] = redis.Z{Score: float64(now.UnixMicro()) / 1e6, Member: id}
	}
	return wrap("postpone publications", f.client.rdb.ZAddXX(ctx, f.client.keys.publishing(), tried...).Err())
}

// PurgePublications forgets publications of all topics by these options, of which the statuses do not matter; their tasks stay. For
// each page of topics it yields how many were forgotten, and the errors of damaged ones, which hold up no others. It may be
// interrupted and repeated at any time.
func (f *Fleet) PurgePublications(ctx context.Context, options PurgeOptions) iter.Seq2[int, error] {
	c := f.client
	return func(yield func(int, error) bool) {
		err := options.validate()
		for cursor := uint64(0); err == nil; {
			var entries []string // and their scores
			if entries, cursor, err = c.rdb.ZScan(ctx, c.keys.topics(), cursor, "", pageTasks).Result(); err != nil {
				err = fmt.Errorf("list topics: %w", err)
				break
			}
			var topics []string
			for entry := range slices.Chunk(entries, 2) {
				topics = append(topics, entry[0])
			}
			if !yield(c.prune(ctx, topics, options)) || cursor == 0 {
				return
			}
		}
		yield(0, err)
	}
}

// prune forgets publications of some topics, a block of each in turn.
func (c *Client) prune(ctx context.Context, topics []string, options PurgeOptions) (total int, err error) {
	age, keep := options.limits()
	passed := make(map[string]int64) // by topic
	for len(topics) > 0 {
		calls := make([]call, len(topics))
		for i, topic := range topics {
			calls[i] = newCall("prune", c.keys.publications(topic), c.clock, topic, purgeTasks, age, keep, passed[topic])
		}
		var more []string
		for i, reply := range c.evalAll(ctx, calls) {
			v := valuesOf(reply.Val())
			gone, over, ended := v.count(), v.number(), v.flag()
			if failed := cmp.Or(reply.Err(), v.err()); failed != nil {
				err = errors.Join(err, fmt.Errorf("purge publications of %q: %w", topics[i], failed))
				continue
			}
			total += gone
			if passed[topics[i]] = over; !ended {
				more = append(more, topics[i])
			}
		}
		topics = more
	}
	return total, err
}

// publicationsSince lists the IDs and times of publications that are kept of all topics that a pattern matches, from a time on, oldest
// first, at most this many.
func (c *Client) publicationsSince(ctx context.Context, pattern string, since time.Time, most int) ([]redis.Z, error) {
	topics, err := c.rdb.ZRange(ctx, c.keys.topics(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	topics = slices.DeleteFunc(topics, func(topic string) bool { return !matches(pattern, topic) })
	cmds, err := pipelined(ctx, &c.store, topics, func(p redis.Pipeliner, topic string) *redis.ZSliceCmd {
		return p.ZRangeByScoreWithScores(ctx, c.keys.publications(topic), &redis.ZRangeBy{Min: seconds(since), Max: "+inf", Count: int64(most)})
	})
	var found []redis.Z
	for _, cmd := range cmds {
		found = append(found, cmd.Val()...)
	}
	slices.SortStableFunc(found, func(a, b redis.Z) int { return cmp.Compare(a.Score, b.Score) })
	return found[:min(most, len(found))], wrap("list publications since "+since.Format(time.RFC3339), err)
}
