package webhook

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	// tallyPause is the time between two writes of a session's counts: one script for all deliveries in between.
	tallyPause = 5 * time.Second
	// tallyBatch is how many queues are written in one script.
	tallyBatch = 8
)

// tally counts what the deliveries of a session ended as, by queue, and adds it to the fleet's counts by minute. What Redis does not
// take is lost: a repeat might count twice.
type tally struct {
	mu     sync.Mutex // guards counts
	counts map[string]*queue.Tally
}

func (t *tally) change(name string, change func(*queue.Tally)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = make(map[string]*queue.Tally)
	}
	if t.counts[name] == nil {
		t.counts[name] = &queue.Tally{Queue: name}
	}
	change(t.counts[name])
}

// started counts how long a delivery had waited.
func (t *tally) started(name string, wait time.Duration) {
	t.change(name, func(c *queue.Tally) { c.Waits.Add(wait) })
}

// settled counts an outcome, as the metrics name it.
func (t *tally) settled(name, outcome, reason string) {
	switch {
	case outcome == "complete":
		t.change(name, func(c *queue.Tally) { c.Complete++ })
	case outcome == "failed" && reason != string(queue.ReasonCancelled), outcome == "retried":
		t.change(name, func(c *queue.Tally) { c.Failed++ })
	}
}

// run writes the counts until ctx ends.
func (t *tally) run(ctx context.Context, node *queue.Node) {
	for ctx.Err() == nil {
		queue.Sleep(ctx, tallyPause)
		t.write(ctx, node)
	}
}

func (t *tally) write(ctx context.Context, node *queue.Node) {
	t.mu.Lock()
	counts := slices.Collect(maps.Values(t.counts))
	t.counts = nil
	t.mu.Unlock()
	for batch := range slices.Chunk(counts, tallyBatch) {
		values := make([]queue.Tally, len(batch))
		for i, c := range batch {
			values[i] = *c
		}
		_ = node.Tally(ctx, values) // the next ones show it
	}
}
