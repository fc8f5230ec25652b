package listen

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// tallyWaits is how many sizes of waits are distinguished: up to 1 ms, 2 ms, 4 ms and so on.
const tallyWaits = 28

// Waits is a histogram of how long tasks had waited when they started.
type Waits [tallyWaits]int64

// Add counts one wait.
func (w *Waits) Add(wait time.Duration) {
	size := 0
	for limit := time.Millisecond; wait > limit && size < tallyWaits-1; limit *= 2 {
		size++
	}
	w[size]++
}

// Merge adds the counts of others.
func (w *Waits) Merge(others Waits) {
	for size, n := range others {
		w[size] += n
	}
}

// Quantile returns the wait that this share of the tasks did not exceed, exact to a factor of two; false if no task is
// counted.
func (w *Waits) Quantile(share float64) (time.Duration, bool) {
	var all int64
	for _, n := range w {
		all += n
	}
	before := int64(0)
	for size, n := range w {
		if n > 0 && float64(before+n) >= share*float64(all) {
			upper := math.Ldexp(float64(time.Millisecond), size)
			lower := upper / 2
			if size == 0 {
				lower = 0
			}
			return time.Duration(lower + (upper-lower)*(share*float64(all)-float64(before))/float64(n)), true
		}
		before += n
	}
	return 0, false
}

// Tally has a listener's counts for a queue, and for the plugin version that runs its tasks, if one does.
type Tally struct {
	Queue, Plugin, Digest, Version string // Version may be ""
	// Complete counts tasks. Failed counts failed runs, including those after which the task is tried again.
	Complete, Failed int64
	Waits            Waits
}

// Tallies has the counts of a listener that are not yet written. Its methods are safe for concurrent use.
type Tallies struct {
	mu     sync.Mutex // guards counts
	counts map[Tally]*Tally
}

// Started counts how long a task had waited, and reports whether this is the first count since the last Write. of names
// the task's queue, and the plugin version that runs it, if one does.
func (t *Tallies) Started(of Tally, wait time.Duration) (first bool) {
	return t.change(of, func(c *Tally) { c.Waits.Add(wait) })
}

// Settled counts a run that completed, failed or is retried, unless it was cancelled. Other outcomes are not counted.
// first is as in Started.
func (t *Tallies) Settled(of Tally, outcome Outcome, reason queue.Reason) (first bool) {
	switch {
	case outcome == OutcomeComplete:
		return t.change(of, func(c *Tally) { c.Complete++ })
	case outcome == OutcomeFailed && reason != queue.ReasonCancelled, outcome == OutcomeRetried:
		return t.change(of, func(c *Tally) { c.Failed++ })
	}
	return false
}

func (t *Tallies) change(of Tally, change func(*Tally)) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first = len(t.counts) == 0
	if t.counts == nil {
		t.counts = make(map[Tally]*Tally)
	}
	if t.counts[of] == nil {
		one := of
		t.counts[of] = &one
	}
	change(t.counts[of])
	return first
}

// tallyBatch is how many tallies are written in one script.
const tallyBatch = 8

// Write adds the counts to the fleet's counts by minute. Counts that cannot be written are lost: a repeat might count
// them twice.
func (t *Tallies) Write(ctx context.Context, node *Node) error {
	t.mu.Lock()
	counts := slices.Collect(maps.Values(t.counts))
	t.counts = nil
	t.mu.Unlock()
	var errs []error
	for batch := range slices.Chunk(counts, tallyBatch) {
		values := make([]Tally, len(batch))
		for i, c := range batch {
			values[i] = *c
		}
		errs = append(errs, node.Tally(ctx, values))
	}
	return errors.Join(errs...)
}

// Tally adds to the counts of the present minute. A repeat after an error may count twice.
func (n *Node) Tally(ctx context.Context, tallies []Tally) error {
	minute, hour := &adder{}, &adder{}
	total := Tally{}
	for _, t := range tallies {
		total.Complete, total.Failed = total.Complete+t.Complete, total.Failed+t.Failed
		total.Waits.Merge(t.Waits)
	}
	for _, t := range append([]Tally{total}, tallies...) {
		minute.add("complete", t.Queue, t.Complete)
		minute.add("failed", t.Queue, t.Failed)
		for size, n := range t.Waits {
			minute.add("wait"+strconv.Itoa(size), t.Queue, n)
		}
		if t.Queue != "" && t.Plugin != "" {
			version := strings.TrimRight(t.Digest+"/"+t.Version, "/") + " " + t.Plugin
			hour.add("complete", version, t.Complete)
			hour.add("failed", version, t.Failed)
		}
	}
	c := n.client
	args := []any{c.Store().Clock, store.KeptMinutes * 60, store.KeptHours * 3600, store.TallyFields, len(minute.args)}
	_, err := c.Store().Eval(ctx, store.NewCall("tally", c.Store().Keys.Queues(),
		slices.Concat(args, minute.args, hour.args)...))
	return store.Wrap("count outcomes of tasks", err)
}

// adder collects arguments of the script.
type adder struct{ args []any }

func (a *adder) add(what, of string, n int64) {
	if n > 0 {
		a.args = append(a.args, store.TallyField(what, of), n)
	}
}
