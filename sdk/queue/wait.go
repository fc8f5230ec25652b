package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Wait blocks until the task is finished and returns it. ErrNoTask if it does not exist or is
// deleted meanwhile. While Redis is away it goes on trying until ctx ends; when the client's connection
// is closed it ends with an error. All waits of a client share one subscription, and look together.
func (c *Client) Wait(ctx context.Context, id string) (*Task, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	w := c.waits.add(id)
	defer c.waits.remove(w)
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for task %s: %w", id, context.Cause(ctx))
		case err := <-w.ready:
			if err != nil {
				return nil, err
			}
		}
		var task *Task
		err := persist(ctx, func(ctx context.Context) (err error) {
			task, err = c.Task(ctx, id)
			return err
		})
		if ctx.Err() == nil && (err != nil || task.Status.Finished()) {
			return task, err
		}
		c.waits.again(w) // somebody has just had it tried again
	}
}

// waiters are those who wait for tasks of one client. While there is one, a goroutine holds their
// subscription and looks for all of them at once.
type waiters struct {
	client *Client

	mu   sync.Mutex
	byID map[string]map[*waiter]bool // true for one that was not answered yet; guarded by mu
	// dirty are IDs to look at now; guarded by mu.
	dirty map[string]bool
	// end ends the goroutine and waits for that; nil while nobody waits; guarded by mu.
	end func()
	// poke has a token when there is something to look at, or somebody left; never closed.
	poke chan struct{}
}

type waiter struct {
	id string
	// ready gets a value when the task is finished (nil) or will never be.
	ready chan error
}

func (ws *waiters) add(id string) *waiter {
	w := &waiter{id: id, ready: make(chan error, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.end == nil {
		ws.byID, ws.dirty, ws.poke = make(map[string]map[*waiter]bool), make(map[string]bool), make(chan struct{}, 1)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		ws.end = func() { stop(); <-ended }
		go func() { defer close(ended); ws.run(ctx) }()
	}
	if ws.byID[id] == nil {
		ws.byID[id] = make(map[*waiter]bool)
	}
	ws.byID[id][w] = true
	ws.markLocked(id)
	return w
}

func (ws *waiters) remove(w *waiter) {
	ws.mu.Lock()
	delete(ws.byID[w.id], w)
	if len(ws.byID[w.id]) == 0 {
		delete(ws.byID, w.id)
		ws.wakeLocked()
	}
	end := func() {}
	if len(ws.byID) == 0 {
		end, ws.end = ws.end, nil
	}
	ws.mu.Unlock()
	end()
}

// again answers a waiter once more, when its task is next announced or looked at.
func (ws *waiters) again(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.byID[w.id][w] = true
}

func (ws *waiters) mark(id string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.markLocked(id)
}

func (ws *waiters) markLocked(id string) {
	ws.dirty[id] = true
	ws.wakeLocked()
}

func (ws *waiters) wakeLocked() {
	select {
	case ws.poke <- struct{}{}:
	default:
	}
}

// run looks at what is announced, at what is new, and now and then at everything, until ctx ends.
func (ws *waiters) run(ctx context.Context) {
	pubsub := ws.client.rdb.Subscribe(ctx)
	subscription := pubsub.ChannelWithSubscriptions()
	messages := subscription
	defer func() {
		_ = pubsub.Close()
		for range subscription { // or what still comes keeps go-redis for a minute
		}
	}()
	ticker := time.NewTicker(ws.client.poll)
	defer ticker.Stop()
	ws.mu.Lock()
	poke := ws.poke
	ws.mu.Unlock()
	subscribed := make(map[string]bool)
	done := ws.client.keys.done("")
	pause := settleBackoff
	for {
		select {
		case <-ctx.Done():
			return
		case message, ok := <-messages:
			switch message := message.(type) {
			case *redis.Message:
				ws.mark(strings.TrimPrefix(message.Channel, done))
			case *redis.Subscription: // it stands (again): what finished before was announced to nobody
				ws.mark(strings.TrimPrefix(message.Channel, done))
			}
			if ok {
				continue
			}
			messages = nil // the client is closed: the look tells all who wait
			ws.markAll()
		case <-ticker.C:
			ws.markAll()
		case <-poke:
		}
		// Subscribe, then look, then wait: what finishes between the look and the wait is announced.
		ws.subscribe(ctx, pubsub, subscribed)
		if ws.look(ctx) == nil {
			pause = settleBackoff
		} else if rest(ctx, pause) {
			pause = min(2*pause, maxSettleBackoff)
		}
	}
}

// subscribe follows who waits. While Redis is away subscriptions are made by themselves when it is back.
func (ws *waiters) subscribe(ctx context.Context, pubsub *redis.PubSub, subscribed map[string]bool) {
	var come, gone []string
	ws.mu.Lock()
	for id := range ws.byID {
		if !subscribed[id] {
			come = append(come, ws.client.keys.done(id))
			subscribed[id] = true
		}
	}
	for id := range subscribed {
		if ws.byID[id] == nil {
			gone = append(gone, ws.client.keys.done(id))
			delete(subscribed, id)
		}
	}
	ws.mu.Unlock()
	if len(come) > 0 {
		_ = pubsub.Subscribe(ctx, come...)
	}
	if len(gone) > 0 {
		_ = pubsub.Unsubscribe(ctx, gone...)
	}
}

func (ws *waiters) markAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for id := range ws.byID {
		ws.dirty[id] = true
	}
}

// look looks at all that is to be looked at. What it cannot learn stays to be looked at.
func (ws *waiters) look(ctx context.Context) error {
	ws.mu.Lock()
	ids := slices.Collect(maps.Keys(ws.dirty))
	clear(ws.dirty)
	ws.mu.Unlock()
	var failed error
	for block := range slices.Chunk(ids, pageTasks) {
		if err := ws.lookAt(ctx, block); err != nil {
			failed = err
			for _, id := range block {
				ws.mark(id)
			}
		}
	}
	return failed
}

// lookAt reads where tasks stand and tells who waits for those that are finished or gone. It returns
// an error only if Redis did not serve.
func (ws *waiters) lookAt(ctx context.Context, ids []string) error {
	statuses, exist := make([]*redis.StringCmd, len(ids)), make([]*redis.IntCmd, len(ids))
	_, err := ws.client.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			statuses[i] = p.HGet(ctx, ws.client.keys.task(id), "status")
			exist[i] = p.Exists(ctx, ws.client.keys.task(id))
		}
		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if IsUnavailable(err) {
		return err
	}
	for i, id := range ids {
		err := statuses[i].Err()
		switch {
		case Status(statuses[i].Val()).Finished():
			ws.tell(id, nil)
		case exist[i].Err() == nil && exist[i].Val() == 0:
			ws.tell(id, fmt.Errorf("task %s: %w", id, ErrNoTask))
		case err != nil && !isNil(err):
			ws.tell(id, fmt.Errorf("wait for task %s: %w", id, err))
		}
	}
	return nil
}

// tell answers everybody who waits for a task and was not answered yet.
func (ws *waiters) tell(id string, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w, asks := range ws.byID[id] {
		if asks {
			ws.byID[id][w] = false
			w.ready <- err
		}
	}
}
