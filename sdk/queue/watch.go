package queue

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Watch tells when there may be work: a message on a queue's channel, and every confirmation of a
// subscription, also after a lost connection came back, because what was enqueued before it stood
// was announced to nobody. It can watch the control channel in the same way.
type Watch struct {
	client *Client
	pubsub *redis.PubSub

	mu      sync.Mutex
	queues  map[string]string // channel → queue; guarded by mu
	control func()            // nil: not watched; guarded by mu
}

// Watch makes a watch of no queue; Run it, and Close it at the end.
func (c *Client) Watch() *Watch {
	return &Watch{client: c, pubsub: c.rdb.Subscribe(context.Background()), queues: make(map[string]string)}
}

// Add watches more queues. An error means that Redis is away: the subscription is made by itself
// when it is back.
func (w *Watch) Add(ctx context.Context, queues ...string) error {
	if len(queues) == 0 {
		return nil
	}
	channels := make([]string, len(queues))
	w.mu.Lock()
	for i, queue := range queues {
		channels[i] = w.client.keys.channel(queue)
		w.queues[channels[i]] = queue
	}
	w.mu.Unlock()
	if err := w.pubsub.Subscribe(ctx, channels...); err != nil {
		return fmt.Errorf("subscribe to %d queues: %w", len(queues), err)
	}
	return nil
}

// Remove ends watching queues.
func (w *Watch) Remove(ctx context.Context, queues ...string) error {
	if len(queues) == 0 {
		return nil // to Redis it would mean all of them
	}
	channels := make([]string, len(queues))
	w.mu.Lock()
	for i, queue := range queues {
		channels[i] = w.client.keys.channel(queue)
		delete(w.queues, channels[i])
	}
	w.mu.Unlock()
	if err := w.pubsub.Unsubscribe(ctx, channels...); err != nil {
		return fmt.Errorf("unsubscribe from %d queues: %w", len(queues), err)
	}
	return nil
}

// Control watches the tenant's control channel too: look is called when there may be tasks to stop, or
// the node is to drain, and must not block. An error means the same as Add's.
func (w *Watch) Control(ctx context.Context, look func()) error {
	w.mu.Lock()
	w.control = look
	w.mu.Unlock()
	return wrap("subscribe to the control channel", w.pubsub.Subscribe(ctx, w.client.keys.control()))
}

// Run calls wake with the name of a queue whenever there may be work in it, until ctx ends or the
// watch is closed. wake must not block. It reconnects by itself.
func (w *Watch) Run(ctx context.Context, wake func(queue string)) {
	messages := w.pubsub.ChannelWithSubscriptions()
	for {
		select {
		case <-ctx.Done():
			return
		case message, ok := <-messages:
			if !ok {
				return
			}
			channel := ""
			switch message := message.(type) {
			case *redis.Message:
				channel = message.Channel
			case *redis.Subscription:
				if message.Kind == "subscribe" {
					channel = message.Channel
				}
			}
			w.mu.Lock()
			queue, known := w.queues[channel]
			look := w.control
			w.mu.Unlock()
			switch {
			case known:
				wake(queue)
			case look != nil && channel == w.client.keys.control():
				look()
			}
		}
	}
}

// Close ends the subscription.
func (w *Watch) Close() error { return w.pubsub.Close() }
