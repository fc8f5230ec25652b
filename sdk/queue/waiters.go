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

	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// While a client waits, it sets the key NS_waiters every noteEvery. The key expires after noteFor. While the key
// exists, hosts announce completed tasks.
const (
	noteEvery = 5 * time.Second
	noteFor   = 3 * noteEvery
)

// waiters holds the callers of Wait of one client. While there is at least one caller, a goroutine owns the Pub/Sub
// connection and reads the tasks for all callers.
type waiters struct {
	store *store.Store

	mu    sync.Mutex                     // guards the following fields
	byID  map[string]map[chan error]bool // by task ID; a channel gets nil when the task is finished, or the error of Wait
	dirty map[string]bool                // IDs of tasks to read now
	end   func()                         // ends the goroutine and waits until it has ended; nil while nobody waits
	wake  chan struct{}                  // has a token when dirty or byID has changed; never closed
}

func (ws *waiters) add(id string) (ready chan error) {
	ready = make(chan error, 1)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.end == nil {
		wake := make(chan struct{}, 1)
		ws.byID, ws.dirty, ws.wake = make(map[string]map[chan error]bool), make(map[string]bool), wake
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		ws.end = func() { stop(); running.Wait() }
		running.Go(func() { ws.run(ctx, wake) })
	}
	if ws.byID[id] == nil {
		ws.byID[id] = make(map[chan error]bool)
	}
	ws.byID[id][ready] = true
	ws.dirty[id] = true
	periodic.Notify(ws.wake)
	return ready
}

func (ws *waiters) remove(id string, ready chan error) {
	ws.mu.Lock()
	delete(ws.byID[id], ready)
	if len(ws.byID[id]) == 0 {
		delete(ws.byID, id)
		periodic.Notify(ws.wake)
	}
	end := func() {}
	if len(ws.byID) == 0 {
		end, ws.end = ws.end, nil
	}
	ws.mu.Unlock()
	end()
}

// mark makes the goroutine read the tasks with these IDs.
func (ws *waiters) mark(ids ...string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, id := range ids {
		ws.dirty[id] = true
	}
	periodic.Notify(ws.wake)
}

// run reads tasks when they are announced and when a new caller waits for them, and all tasks at each poll, until ctx
// ends.
func (ws *waiters) run(ctx context.Context, wake <-chan struct{}) {
	pubsub := ws.store.RDB.Subscribe(ctx)
	subscription := pubsub.ChannelWithSubscriptions()
	messages := subscription
	defer func() {
		_ = pubsub.Close()
		for range subscription { // otherwise go-redis tries for a minute to deliver the remaining messages
		}
	}()
	ticker, renewal := time.NewTicker(ws.store.Poll), time.NewTicker(noteEvery)
	defer ticker.Stop()
	defer renewal.Stop()
	subscribed := make(map[string]bool) // by task ID; true once Redis has confirmed the subscription
	done := ws.store.Keys.Done("")
	var pause periodic.Pause
	var noted time.Time // when the key was last set
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case message, ok := <-messages:
			switch message := message.(type) {
			case *redis.Message:
				ws.mark(strings.TrimPrefix(message.Channel, done))
			case *redis.Subscription:
				if id := strings.TrimPrefix(message.Channel, done); message.Kind == "subscribe" {
					ws.mark(id) // the task may have finished before the subscription
					confirmed, is := subscribed[id]
					if confirmed { // confirmed again: go-redis has reconnected, perhaps to a server without the key
						noted = time.Time{}
					}
					if is {
						subscribed[id] = true
					}
				}
			}
			if ok {
				continue
			}
			messages = nil // the client is closed: the next read fails, and all callers get its error
			all = true
		case <-ticker.C:
			all = true
		case <-renewal.C:
		case <-wake:
		}
		// The order matters: subscribe, set the key, read the tasks, then wait for messages. So a task that finishes after
		// it was read is announced.
		ws.subscribe(ctx, pubsub, subscribed)
		if time.Since(noted) >= noteEvery {
			if err := ws.store.RDB.Set(ctx, ws.store.Keys.Waiters(), 1, noteFor).Err(); !IsUnavailable(err) {
				noted = time.Now()
			} // otherwise the next round tries again; without the key, the poll finds complete tasks
		}
		if ws.read(ctx, all) == nil {
			pause.Succeeded()
		} else {
			pause.Sleep(ctx)
		}
	}
}

// subscribe subscribes to the tasks that are new in byID, and unsubscribes from those that are gone. While Redis is
// unavailable, pubsub remembers its channels.
func (ws *waiters) subscribe(ctx context.Context, pubsub *redis.PubSub, subscribed map[string]bool) {
	var added, removed []string
	ws.mu.Lock()
	for id := range ws.byID {
		if _, is := subscribed[id]; !is {
			added = append(added, ws.store.Keys.Done(id))
			subscribed[id] = false
		}
	}
	for id := range subscribed {
		if ws.byID[id] == nil {
			removed = append(removed, ws.store.Keys.Done(id))
			delete(subscribed, id)
		}
	}
	ws.mu.Unlock()
	if len(added) > 0 {
		_ = pubsub.Subscribe(ctx, added...)
	}
	if len(removed) > 0 {
		_ = pubsub.Unsubscribe(ctx, removed...)
	}
}

// read reads the status of the dirty tasks, or of all tasks if all is true. It answers the callers whose task is
// finished or deleted. It returns an error if Redis is unavailable; the tasks then stay dirty.
func (ws *waiters) read(ctx context.Context, all bool) error {
	ws.mu.Lock()
	ids := slices.Collect(maps.Keys(ws.dirty))
	if all {
		ids = slices.Collect(maps.Keys(ws.byID))
	}
	clear(ws.dirty)
	ws.mu.Unlock()
	type state struct {
		status *redis.StringCmd
		exists *redis.IntCmd
	}
	states, err := store.Pipelined(ctx, ws.store, ids, func(p redis.Pipeliner, id string) state {
		key := ws.store.Keys.Task(id)
		return state{p.HGet(ctx, key, "status"), p.Exists(ctx, key)}
	})
	if ctx.Err() != nil || IsUnavailable(err) {
		ws.mark(ids...)
		return err
	}
	for i, id := range ids {
		if err != nil {
			ws.answer(id, fmt.Errorf("wait for task %s: %w", id, err)) // the client is closed
			continue
		}
		status, exists := states[i].status, states[i].exists
		switch {
		case Status(status.Val()).Finished():
			ws.answer(id, nil)
		case exists.Err() == nil && exists.Val() == 0:
			ws.answer(id, fmt.Errorf("task %s: %w", id, ErrNoTask))
		case status.Err() != nil && !store.IsNil(status.Err()):
			ws.answer(id, fmt.Errorf("wait for task %s: %w", id, status.Err()))
		}
	}
	return nil
}

// answer sends err to all callers that wait for a task.
func (ws *waiters) answer(id string, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for ready := range ws.byID[id] {
		select {
		case ready <- err:
		default: // it has an answer already
		}
	}
}
