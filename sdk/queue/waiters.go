package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/periodic"

	"github.com/redis/go-redis/v9"
)

// Hosts announce complete tasks for noteFor after a waiter noted that it waits, which it does each noteEvery.
const (
	noteEvery = 5 * time.Second
	noteFor   = 3 * noteEvery
)

// waiters are the callers of Wait of one client. While there is one, a goroutine owns their subscription and reads for all.
type waiters struct {
	store *store.Store

	mu    sync.Mutex                     // guards what follows
	byID  map[string]map[chan error]bool // by task; a channel gets nil when the task is finished, or why it never will be
	dirty map[string]bool                // IDs to read now
	end   func()                         // ends the goroutine and waits for that; nil while nobody waits
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

// mark has tasks read.
func (ws *waiters) mark(ids ...string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, id := range ids {
		ws.dirty[id] = true
	}
	periodic.Notify(ws.wake)
}

// run reads the tasks that are announced and those that are new, and all of them at each poll, until ctx ends.
func (ws *waiters) run(ctx context.Context, wake <-chan struct{}) {
	pubsub := ws.store.RDB.Subscribe(ctx)
	subscription := pubsub.ChannelWithSubscriptions()
	messages := subscription
	defer func() {
		_ = pubsub.Close()
		for range subscription { // or go-redis waits a minute to deliver what is left
		}
	}()
	ticker, renewal := time.NewTicker(ws.store.Poll), time.NewTicker(noteEvery)
	defer ticker.Stop()
	defer renewal.Stop()
	subscribed := make(map[string]bool) // true once Redis has confirmed it
	done := ws.store.Keys.Done("")
	var pause periodic.Pause
	var noted time.Time // when it was last noted that somebody waits
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
					ws.mark(id) // what finished before was announced to nobody
					confirmed, is := subscribed[id]
					if confirmed { // again: perhaps by a server that has lost the note
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
			messages = nil // the client is closed: the next read fails, and answers all who wait
			all = true
		case <-ticker.C:
			all = true
		case <-renewal.C:
		case <-wake:
		}
		// Subscribe, note it, then read, then wait: what finishes between the last two is announced.
		ws.subscribe(ctx, pubsub, subscribed)
		if time.Since(noted) >= noteEvery {
			if err := ws.store.RDB.Set(ctx, ws.store.Keys.Waiters(), 1, noteFor).Err(); !IsUnavailable(err) {
				noted = time.Now()
			} // else it is tried again with the next read; while a replica or a full server refuses it, the poll finds what is complete
		}
		if ws.read(ctx, all) == nil {
			pause.Succeeded()
		} else {
			pause.Sleep(ctx)
		}
	}
}

// subscribe follows byID. While Redis is away the subscription remembers its channels.
func (ws *waiters) subscribe(ctx context.Context, pubsub *redis.PubSub, subscribed map[string]bool) {
	var come, gone []string
	ws.mu.Lock()
	for id := range ws.byID {
		if _, is := subscribed[id]; !is {
			come = append(come, ws.store.Keys.Done(id))
			subscribed[id] = false
		}
	}
	for id := range subscribed {
		if ws.byID[id] == nil {
			gone = append(gone, ws.store.Keys.Done(id))
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

// read reads the status of the dirty tasks, or of all, and answers those who wait for a finished or deleted one. An error means
// that Redis is unavailable: they stay dirty.
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

// answer answers all who wait for a task.
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
