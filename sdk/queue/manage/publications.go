package manage

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
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

// publicationFields are the fields of a publication's hash except the payload.
var publicationFields = []string{
	"topic", "created", "attributes", "parent", "depth", "traceparent", "tracestate",
	"subscribers", "tasks", "refused",
}

// PublishedTask is the task that a publication made for one subscription. Queue, Status and Reason are "" if the task
// does not exist yet, or was deleted.
type PublishedTask struct {
	Subscription string
	ID           string
	Queue        string
	Status       queue.Status
	Reason       queue.Reason // why the task failed
}

// PublicationTasks reads a page of a publication's tasks, in the order of the subscriptions' IDs. Some tasks of an
// unfinished publication may not exist yet.
func (m *Manager) PublicationTasks(ctx context.Context, id string, offset, limit int64) ([]PublishedTask, error) {
	offset, limit = max(offset, 0), max(limit, 1) // Redis counts negative indexes from the end
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
			tasks[i].Queue = store.AsString(h[0])
			tasks[i].Status, tasks[i].Reason = queue.Status(store.AsString(h[1])), queue.Reason(store.AsString(h[2]))
		}
	}
	return tasks, store.Wrap("read tasks of publication "+id, err)
}

// Publications reads a page of a topic's stored publications, newest first, without their payloads.
func (m *Manager) Publications(ctx context.Context, topic string, offset, limit int64) ([]*queue.Publication, error) {
	if err := queue.ValidTopic(topic); err != nil {
		return nil, err
	}
	if limit < 1 || limit > store.MaxPage || offset < 0 {
		return nil, fmt.Errorf("%w: page of %d publications from %d: use a limit of 1 to %d and an offset from 0",
			queue.ErrInvalid, limit, offset, store.MaxPage)
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
		if hash["topic"] == topic { // otherwise it was purged meanwhile
			all = append(all, queue.ParsePublication(ids[i], hash))
		}
	}
	return all, store.Wrap(fmt.Sprintf("list publications of %q", topic), err)
}
