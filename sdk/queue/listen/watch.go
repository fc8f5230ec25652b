package listen

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Watch reports when a queue may have work: when a message arrives on the queue's channel, and whenever the channel is
// subscribed to (again), because messages before that are lost. Watch can also follow the control channel and the
// channel of ended tasks in the same way.
type Watch struct {
	client *queue.Client
	pubsub *redis.PubSub

	mu      sync.Mutex
	queues  map[string]string // channel → queue; guarded by mu
	notices map[string]func() // by channel, for the tenant's other channels; guarded by mu
}

// NewWatch makes a watch that follows no queue yet. The caller runs it with Run, and closes it at the end.
func NewWatch(c *queue.Client) *Watch {
	return &Watch{
		client: c, pubsub: c.Store().RDB.Subscribe(context.Background()), queues: make(map[string]string),
		notices: make(map[string]func()),
	}
}

// Add follows queues. An error means that Redis is away; the watch follows the queues once Redis is back.
func (w *Watch) Add(ctx context.Context, queues ...string) error {
	channels := make([]string, len(queues))
	w.mu.Lock()
	for i, queue := range queues {
		channels[i] = w.client.Store().Keys.Channel(queue)
		w.queues[channels[i]] = queue
	}
	w.mu.Unlock()
	return store.Wrap(fmt.Sprintf("subscribe to queues %.100q", queues), w.pubsub.Subscribe(ctx, channels...))
}

// Remove stops following a queue.
func (w *Watch) Remove(ctx context.Context, name string) error {
	channel := w.client.Store().Keys.Channel(name)
	w.mu.Lock()
	delete(w.queues, channel)
	w.mu.Unlock()
	return store.Wrap(fmt.Sprintf("unsubscribe from queue %q", name), w.pubsub.Unsubscribe(ctx, channel))
}

// Control also follows the tenant's control channel. notice is called when there may be tasks to stop or a node to
// drain; it must not block. An error means the same as in Add.
func (w *Watch) Control(ctx context.Context, notice func()) error {
	return w.notice(ctx, w.client.Store().Keys.Control(), notice)
}

// Ended also follows the channel of ended tasks that other tasks wait for. notice is called when Fleet.Advance may have
// something to do; it must not block. An error means the same as in Add.
func (w *Watch) Ended(ctx context.Context, notice func()) error {
	return w.notice(ctx, w.client.Store().Keys.Ended(), notice)
}

func (w *Watch) notice(ctx context.Context, channel string, notice func()) error {
	w.mu.Lock()
	w.notices[channel] = notice
	w.mu.Unlock()
	return store.Wrap("subscribe to "+channel, w.pubsub.Subscribe(ctx, channel))
}

// Run calls wake, which must not block, whenever a queue may have work, until ctx ends or the watch is closed.
func (w *Watch) Run(ctx context.Context, wake func(name string)) {
	messages := w.pubsub.ChannelWithSubscriptions()
	for {
		var channel string
		select {
		case <-ctx.Done():
			return
		case message, ok := <-messages:
			if !ok {
				return
			}
			switch message := message.(type) {
			case *redis.Message:
				channel = message.Channel
			case *redis.Subscription:
				if message.Kind == "subscribe" {
					channel = message.Channel
				}
			}
		}
		w.mu.Lock()
		name, known := w.queues[channel]
		notice := w.notices[channel]
		w.mu.Unlock()
		switch {
		case known:
			wake(name)
		case notice != nil:
			notice()
		}
	}
}

// Close ends the watch and its subscription.
func (w *Watch) Close() error { return w.pubsub.Close() }
