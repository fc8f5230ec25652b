package host

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue"
)

// tallyPause is the time between two writes of a session's counts: one script for all tasks in between.
const tallyPause = 5 * time.Second

// tally counts what the tasks of a session ended as, by queue and version, and adds it to the fleet's counts by minute. What
// Redis does not take is lost: a repeat might count twice.
type tally struct {
	duty
	node *queue.Node

	mu     sync.Mutex // guards counts
	counts map[tallied]*queue.Tally
}

type tallied struct {
	queue   string
	version *plugins.Version
}

// started counts how long a task had waited.
func (t *tally) started(task *task, wait time.Duration) {
	t.change(task, func(c *queue.Tally) { c.Waits.Add(wait) })
}

// settled counts an outcome, as the metrics name it.
func (t *tally) settled(task *task, outcome string, failure *queue.Failure) {
	switch {
	case outcome == "complete":
		t.change(task, func(c *queue.Tally) { c.Complete++ })
	case outcome == "failed" && failure.Reason != queue.ReasonCancelled, outcome == "retried":
		t.change(task, func(c *queue.Tally) { c.Failed++ })
	}
}

func (t *tally) change(task *task, change func(*queue.Tally)) {
	of := tallied{task.served.queue, task.version}
	t.mu.Lock()
	first := len(t.counts) == 0
	if t.counts == nil {
		t.counts = make(map[tallied]*queue.Tally)
	}
	c := t.counts[of]
	if c == nil {
		c = &queue.Tally{Queue: of.queue, Plugin: of.version.Name, Digest: of.version.Digest, Version: of.version.Manifest.Version}
		t.counts[of] = c
	}
	change(c)
	t.mu.Unlock()
	if first {
		t.ask()
	}
}

func (t *tally) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	t.write(ctx)
	return tallyPause, untilAsked, nil
}

// tallyBatch is how many queues are written in one script.
const tallyBatch = 8

func (t *tally) write(ctx context.Context) {
	t.mu.Lock()
	counts := slices.Collect(maps.Values(t.counts))
	t.counts = nil
	t.mu.Unlock()
	for batch := range slices.Chunk(counts, tallyBatch) {
		values := make([]queue.Tally, len(batch))
		for i, c := range batch {
			values[i] = *c
		}
		if err := t.node.Tally(ctx, values); err != nil {
			t.health.failedQuietly(opTally, err)
		}
	}
}
