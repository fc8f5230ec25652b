package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// maxReplayed is the maximum number of publications in one replay, and replayTime its maximum duration.
const (
	maxReplayed = 10_000
	replayTime  = 30 * time.Second
)

// Replayed is the result of Replay.
type Replayed struct {
	Publications int       // number of publications that match the subscription
	Tasks        []string  // IDs of the new tasks, oldest publication first
	Until        time.Time // where the next Replay must begin; zero if all publications were read
}

// Replay delivers stored publications to a subscription once more: those that match the subscription and were published
// at since or later. Each of them becomes a new task. If dry is true, Replay only counts them. It ends after 10,000
// publications, 30 seconds or an error. A next call with since = Until repeats none of Tasks. But after a failure of
// Redis, the publication at Until may already have its new task.
func (m *Manager) Replay(ctx context.Context, subscription string, since time.Time, dry bool) (Replayed, error) {
	return m.ReplayWithin(ctx, subscription, since, dry, replayTime)
}

// ReplayWithin is Replay with the time limit within instead of 30 seconds.
func (m *Manager) ReplayWithin(ctx context.Context, subscription string, since time.Time, dry bool,
	within time.Duration,
) (done Replayed, err error) {
	began := time.Now()
	s, err := m.client.Subscription(ctx, subscription)
	if err != nil {
		return done, err
	}
	found, err := m.publicationsSince(ctx, &s, since, maxReplayed+1)
	if err != nil {
		return done, err
	}
	for i, z := range found {
		stopped := i == maxReplayed || i > 0 && time.Since(began) >= within
		if !stopped {
			id, _ := z.Member.(string)
			err = m.deliverAgain(ctx, id, &s, dry, &done)
		}
		if stopped || err != nil && len(done.Tasks) > 0 {
			done.Until = time.UnixMicro(int64(math.Round(z.Score * 1e6)))
		}
		if stopped || err != nil {
			return done, err
		}
	}
	return done, nil
}

// deliverAgain is Replay for one publication. It adds the result to done.
func (m *Manager) deliverAgain(ctx context.Context, id string, s *queue.Subscription, dry bool, done *Replayed) error {
	p, err := m.client.Publication(ctx, id)
	if errors.Is(err, queue.ErrNoPublication) { // purged meanwhile
		return nil
	}
	if err != nil || !s.Matches(p.Topic, p.Attributes, p.Payload) {
		return err
	}
	if !dry {
		task, err := m.client.Redeliver(ctx, p, s)
		if err != nil {
			return fmt.Errorf("deliver publication %s again, after %d others: %w", id, len(done.Tasks), err)
		}
		done.Tasks = append(done.Tasks, task)
	}
	done.Publications++
	return nil
}

// publicationsSince lists the IDs and times of the stored publications in all topics of a subscription that were
// published at since or later. It lists up to limit publications, oldest first.
func (m *Manager) publicationsSince(ctx context.Context, s *queue.Subscription, since time.Time,
	limit int,
) ([]redis.Z, error) {
	topics, err := m.store.RDB.ZRange(ctx, m.store.Keys.Topics(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	topics = slices.DeleteFunc(topics, func(topic string) bool { return !s.OfTopic(topic) })
	cmds, err := store.Pipelined(ctx, m.store, topics, func(p redis.Pipeliner, topic string) *redis.ZSliceCmd {
		return p.ZRangeByScoreWithScores(ctx, m.store.Keys.Publications(topic),
			&redis.ZRangeBy{Min: store.Seconds(since), Max: "+inf", Count: int64(limit)})
	})
	var found []redis.Z
	for _, cmd := range cmds {
		found = append(found, cmd.Val()...)
	}
	slices.SortStableFunc(found, func(a, b redis.Z) int { return cmp.Compare(a.Score, b.Score) })
	return found[:min(limit, len(found))], store.Wrap("list publications since "+since.Format(time.RFC3339), err)
}
