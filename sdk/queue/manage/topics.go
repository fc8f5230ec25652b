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
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Topic is a topic with its counts.
type Topic struct {
	listen.TopicCounts
	// Subscriptions is the number of subscriptions that match the topic, and Active how many of those are active.
	Subscriptions, Active int
}

// maxTopics is the maximum number of topics with publications that Topics lists.
const maxTopics = 10_000

// Topics lists the topics that have publications, at most 10,000; the topic with the latest publication comes first.
// Topics that have only subscriptions follow.
func (m *Manager) Topics(ctx context.Context) ([]Topic, error) {
	subscriptions, err := m.client.Subscriptions(ctx)
	if subscriptions == nil && err != nil { // if only some are damaged, the others are listed
		return nil, err
	}
	fleet := listen.NewFleet(m.client)
	counts, err := fleet.BusyTopics(ctx, maxTopics)
	if err != nil {
		return nil, err
	}
	busy, unused := make(map[string]bool, len(counts)), make(map[string]bool)
	for _, topic := range counts {
		busy[topic.Name] = true
	}
	for _, s := range subscriptions {
		if queue.ValidTopic(s.Topic) == nil && !busy[s.Topic] {
			unused[s.Topic] = true
		}
	}
	others, err := fleet.TopicCounts(ctx, slices.Sorted(maps.Keys(unused)))
	return subscribed(append(counts, others...), subscriptions), err
}

// subscribed counts the subscriptions of each topic.
func subscribed(counts []listen.TopicCounts, subscriptions []queue.Subscription) []Topic {
	of := make(map[string][]*queue.Subscription) // by topic; "*": all subscriptions whose topic is a pattern
	for i := range subscriptions {
		topic := subscriptions[i].Topic
		if strings.Contains(topic, "*") {
			topic = "*"
		}
		of[topic] = append(of[topic], &subscriptions[i])
	}
	topics := make([]Topic, len(counts))
	for i := range counts {
		topics[i].TopicCounts = counts[i]
		for _, s := range slices.Concat(of[counts[i].Name], of["*"]) {
			if s.OfTopic(counts[i].Name) {
				topics[i].Subscriptions++
				if s.Active {
					topics[i].Active++
				}
			}
		}
	}
	return topics
}

// Topic reads one topic. It returns queue.ErrNoTopic if the topic has no stored publication and no subscription.
func (m *Manager) Topic(ctx context.Context, name string) (Topic, error) {
	if err := queue.ValidTopic(name); err != nil {
		return Topic{}, err
	}
	subscriptions, err := m.client.Subscriptions(ctx)
	if subscriptions == nil && err != nil { // if only some are damaged, the others are listed
		return Topic{}, err
	}
	counts, err := listen.NewFleet(m.client).TopicCounts(ctx, []string{name})
	if err != nil {
		return Topic{}, err
	}
	topic := subscribed(counts, subscriptions)[0]
	score, err := m.store.RDB.ZScore(ctx, m.store.Keys.Topics(), name).Result()
	if store.IsNil(err) {
		if topic.Subscriptions == 0 {
			return Topic{}, fmt.Errorf("topic %s: %w", name, queue.ErrNoTopic)
		}
		return topic, nil
	}
	topic.Last = time.UnixMicro(int64(score * 1e6))
	return topic, store.Wrap("read topic "+name, err)
}
