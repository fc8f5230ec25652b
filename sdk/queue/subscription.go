package queue

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Subscription tells when a queue may have work: at a message on its channel, and whenever the channel is subscribed to (again),
// because earlier messages are lost. It can follow the control channel, and that of ended tasks, in the same way.
type Subscription struct {
	client *Client
	pubsub *redis.PubSub

	mu      sync.Mutex
	queues  map[string]string // channel → queue; guarded by mu
	notices map[string]func() // of the tenant's other channels; guarded by mu
}

// Subscribe makes a subscription to no queue; Run it, and Close it at the end.
func (c *Client) Subscribe() *Subscription {
	return &Subscription{client: c, pubsub: c.rdb.Subscribe(context.Background()), queues: make(map[string]string), notices: make(map[string]func())}
}

// Add follows queues. An error means that Redis is away: the subscription is made when it is back.
func (s *Subscription) Add(ctx context.Context, queues ...string) error {
	channels := make([]string, len(queues))
	s.mu.Lock()
	for i, queue := range queues {
		channels[i] = s.client.keys.channel(queue)
		s.queues[channels[i]] = queue
	}
	s.mu.Unlock()
	return wrap(fmt.Sprintf("subscribe to queues %.100q", queues), s.pubsub.Subscribe(ctx, channels...))
}

// Remove stops following a queue.
func (s *Subscription) Remove(ctx context.Context, queue string) error {
	channel := s.client.keys.channel(queue)
	s.mu.Lock()
	delete(s.queues, channel)
	s.mu.Unlock()
	return wrap("unsubscribe from queue "+queue, s.pubsub.Unsubscribe(ctx, channel))
}

// Control follows the tenant's control channel too: notice is called when there may be tasks to stop or a node to drain, and
// must not block. An error means the same as Add's.
func (s *Subscription) Control(ctx context.Context, notice func()) error {
	return s.notice(ctx, s.client.keys.control(), notice)
}

// Ended follows the ends of tasks that others wait for: notice is called when there may be some for Fleet.Advance, and must not
// block. An error means the same as Add's.
func (s *Subscription) Ended(ctx context.Context, notice func()) error {
	return s.notice(ctx, s.client.keys.ended(), notice)
}

func (s *Subscription) notice(ctx context.Context, channel string, notice func()) error {
	s.mu.Lock()
	s.notices[channel] = notice
	s.mu.Unlock()
	return wrap("subscribe to "+channel, s.pubsub.Subscribe(ctx, channel))
}

// Run calls wake, which must not block, whenever a queue may have work, until ctx ends or the subscription is closed.
func (s *Subscription) Run(ctx context.Context, wake func(queue string)) {
	messages := s.pubsub.ChannelWithSubscriptions()
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
		s.mu.Lock()
		queue, known := s.queues[channel]
		notice := s.notices[channel]
		s.mu.Unlock()
		switch {
		case known:
			wake(queue)
		case notice != nil:
			notice()
		}
	}
}

// Close ends the subscription.
func (s *Subscription) Close() error { return s.pubsub.Close() }
