package listen

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// TopicCounts has the counts of a topic.
type TopicCounts struct {
	Name string
	// Published is the number of publications, Dropped how many of them had no subscriber, and Tasks the number of tasks
	// that were made of them. All three begin again at 0 once the last stored publication of the topic is purged.
	Published, Dropped, Tasks int64
	Kept                      int64     // number of stored publications
	Last                      time.Time // when the latest stored publication was published; zero for none
}

// BusyTopics reads up to limit topics with stored publications. The topic with the latest publication comes first.
func (f *Fleet) BusyTopics(ctx context.Context, limit int64) ([]TopicCounts, error) {
	c := f.client.Store()
	scored, err := c.RDB.ZRevRangeWithScores(ctx, c.Keys.Topics(), 0, limit-1).Result()
	if err != nil || len(scored) == 0 {
		return nil, store.Wrap("list topics", err)
	}
	names := make([]string, len(scored))
	for i, z := range scored {
		names[i], _ = z.Member.(string)
	}
	topics, err := f.TopicCounts(ctx, names)
	for i := range topics {
		topics[i].Last = time.UnixMicro(int64(scored[i].Score * 1e6))
	}
	return topics, err
}

// TopicCounts reads the counts of topics, in the order of names. It does not set Last.
func (f *Fleet) TopicCounts(ctx context.Context, names []string) ([]TopicCounts, error) {
	type read struct {
		counts *redis.SliceCmd
		kept   *redis.IntCmd
	}
	c := f.client.Store()
	cmds, err := store.Pipelined(ctx, c, names, func(p redis.Pipeliner, name string) read {
		return read{
			p.HMGet(ctx, c.Keys.Topic(name), "published", "dropped", "tasks"),
			p.ZCard(ctx, c.Keys.Publications(name)),
		}
	})
	topics := make([]TopicCounts, len(cmds))
	for i, cmd := range cmds {
		topics[i] = TopicCounts{Name: names[i], Kept: cmd.kept.Val()}
		if counts := cmd.counts.Val(); len(counts) == 3 {
			topics[i].Published, topics[i].Dropped = store.AsInt(counts[0]), store.AsInt(counts[1])
			topics[i].Tasks = store.AsInt(counts[2])
		}
	}
	return topics, store.Wrap("read topics", err)
}
