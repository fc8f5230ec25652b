package manage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"

	"github.com/redis/go-redis/v9"
)

// PublicationSummary reads a publication without its payload.
func (m *Manager) PublicationSummary(ctx context.Context, id string) (*queue.Publication, error) {
	if err := queue.ValidPublication(id); err != nil {
		return nil, err
	}
	hash, err := m.store.RDB.HMGet(ctx, m.store.Keys.Publication(id), publicationFields...).Result()
	fields := store.HashOf(publicationFields, hash)
	if err == nil && len(fields) == 0 {
		return nil, fmt.Errorf("publication %s: %w", id, queue.ErrNoPublication)
	}
	return queue.ParsePublication(id, fields), store.Wrap("read publication "+id, err)
}

// publicationFields are those of a publication without its payload.
var publicationFields = []string{"topic", "created", "attributes", "parent", "depth", "traceparent", "tracestate", "subscribers", "tasks", "refused"}

// PublishedTask is a subscription's task of a publication.
type PublishedTask struct {
	Subscription string
	ID           string
	Queue        string // "" if the task does not exist (any more), as the next two
	Status       queue.Status
	Reason       queue.Reason // why it failed
}

// PublicationTasks reads a page of a publication's tasks, in the order of the subscriptions' IDs. Those of an unfinished
// publication may not exist yet.
func (m *Manager) PublicationTasks(ctx context.Context, id string, offset, limit int64) ([]PublishedTask, error) {
	offset, limit = max(offset, 0), max(limit, 1) // Redis counts negative places from the end
	ids, err := m.store.RDB.LRange(ctx, m.store.Keys.Published(id), offset, offset+limit-1).Result()
	if err != nil {
		return nil, fmt.Errorf("read tasks of publication %s: %w", id, err)
	}
	tasks := make([]PublishedTask, len(ids))
	cmds, err := store.Pipelined(ctx, m.store, ids, func(p redis.Pipeliner, subscription string) *redis.SliceCmd {
		return p.HMGet(ctx, m.store.Keys.Task(queue.PublishedID(id, subscription)), "queue", "status", "reason")
	})
	for i, cmd := range cmds {
		tasks[i] = PublishedTask{Subscription: ids[i], ID: queue.PublishedID(id, ids[i])}
		if h := cmd.Val(); len(h) == 3 {
			tasks[i].Queue, tasks[i].Status, tasks[i].Reason = store.AsString(h[0]), queue.Status(store.AsString(h[1])), queue.Reason(store.AsString(h[2]))
		}
	}
	return tasks, store.Wrap("read tasks of publication "+id, err)
}

// Publications reads a page of the publications that are kept of a topic, newest first, without their payloads.
func (m *Manager) Publications(ctx context.Context, topic string, offset, limit int64) ([]*queue.Publication, error) {
	if err := queue.ValidTopic(topic); err != nil {
		return nil, err
	}
	if limit < 1 || limit > store.MaxPage || offset < 0 {
		return nil, fmt.Errorf("%w: page of %d publications from %d: use a limit of 1 to %d and an offset from 0", queue.ErrInvalid, limit, offset, store.MaxPage)
	}
	ids, err := m.store.RDB.ZRevRange(ctx, m.store.Keys.Publications(topic), offset, offset+limit-1).Result()
	if err != nil {
		return nil, fmt.Errorf("list publications of %q: %w", topic, err)
	}
	cmds, err := store.Pipelined(ctx, m.store, ids, func(p redis.Pipeliner, id string) *redis.SliceCmd {
		return p.HMGet(ctx, m.store.Keys.Publication(id), publicationFields...)
	})
	var all []*queue.Publication
	for i, cmd := range cmds {
		hash := store.HashOf(publicationFields, cmd.Val())
		if hash["topic"] == topic { // else it was purged meanwhile
			all = append(all, queue.ParsePublication(ids[i], hash))
		}
	}
	return all, store.Wrap(fmt.Sprintf("list publications of %q", topic), err)
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
func (m *Manager) Topics(ctx context.Context) ([]Topic, error) {
	subscriptions, err := m.client.Subscriptions(ctx)
	if subscriptions == nil && err != nil { // else damaged ones hide no topic
		return nil, err
	}
	names, last, err := m.busyTopics(ctx, maxTopics)
	if err != nil {
		return nil, err
	}
	unused := make(map[string]bool)
	for _, s := range subscriptions {
		if queue.ValidTopic(s.Topic) == nil && last[s.Topic].IsZero() {
			unused[s.Topic] = true
		}
	}
	names = append(names, slices.Sorted(maps.Keys(unused))...)
	topics, err := m.readTopics(ctx, names, subscriptions)
	for i := range topics {
		topics[i].Last = last[topics[i].Name]
	}
	return topics, err
}

// BusyTopics reads at most this many topics, the ones last published to first, without their subscriptions.
func (m *Manager) BusyTopics(ctx context.Context, most int64) ([]Topic, error) {
	names, last, err := m.busyTopics(ctx, most)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	topics, err := m.readTopics(ctx, names, nil)
	for i := range topics {
		topics[i].Last = last[topics[i].Name]
	}
	return topics, err
}

// busyTopics are the names of topics with publications, and when each had its last one.
func (m *Manager) busyTopics(ctx context.Context, most int64) (names []string, last map[string]time.Time, err error) {
	scored, err := m.store.RDB.ZRevRangeWithScores(ctx, m.store.Keys.Topics(), 0, most-1).Result()
	last = make(map[string]time.Time)
	for _, z := range scored {
		name, _ := z.Member.(string)
		names, last[name] = append(names, name), time.UnixMicro(int64(z.Score*1e6))
	}
	return names, last, store.Wrap("list topics", err)
}

// readTopics reads the counts of topics, in this order.
func (m *Manager) readTopics(ctx context.Context, names []string, subscriptions []queue.Subscription) ([]Topic, error) {
	type read struct {
		counts *redis.SliceCmd
		kept   *redis.IntCmd
	}
	cmds, err := store.Pipelined(ctx, m.store, names, func(p redis.Pipeliner, name string) read {
		return read{p.HMGet(ctx, m.store.Keys.Topic(name), "published", "dropped", "tasks"), p.ZCard(ctx, m.store.Keys.Publications(name))}
	})
	topics := make([]Topic, len(cmds))
	of := make(map[string][]*queue.Subscription) // by topic; "*": those of patterns
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
			topics[i].Published, topics[i].Dropped, topics[i].Tasks = store.AsInt(counts[0]), store.AsInt(counts[1]), store.AsInt(counts[2])
		}
		for _, s := range slices.Concat(of[names[i]], of["*"]) {
			if s.OfTopic(names[i]) {
				topics[i].Subscriptions++
				if s.Active {
					topics[i].Active++
				}
			}
		}
	}
	return topics, store.Wrap("read topics", err)
}

// Topic reads one topic: ErrNoTopic if nobody published to it, as far as publications are kept, or subscribed to it.
func (m *Manager) Topic(ctx context.Context, name string) (Topic, error) {
	if err := queue.ValidTopic(name); err != nil {
		return Topic{}, err
	}
	subscriptions, err := m.client.Subscriptions(ctx)
	if subscriptions == nil && err != nil { // else damaged ones hide no topic
		return Topic{}, err
	}
	topics, err := m.readTopics(ctx, []string{name}, subscriptions)
	if err != nil {
		return Topic{}, err
	}
	score, err := m.store.RDB.ZScore(ctx, m.store.Keys.Topics(), name).Result()
	if store.IsNil(err) {
		if topics[0].Subscriptions == 0 {
			return Topic{}, fmt.Errorf("topic %s: %w", name, queue.ErrNoTopic)
		}
		return topics[0], nil
	}
	topics[0].Last = time.UnixMicro(int64(score * 1e6))
	return topics[0], store.Wrap("read topic "+name, err)
}
