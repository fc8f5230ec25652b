package listen

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// tallyWaits is the number of buckets in Waits. The first counts waits up to 1 ms, the next up to 2 ms, 4 ms and
// so on.
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

// Merge adds the counts of another histogram.
func (w *Waits) Merge(others Waits) {
	for size, n := range others {
		w[size] += n
	}
}

// Quantile returns the wait that the given share (0 to 1) of the tasks did not exceed, exact to a factor of two. It
// returns false if no task is counted.
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

// Tally has a listener's counts for the tasks of one queue that one plugin version runs. Plugin, Digest and
// Version are "" for tasks that no plugin runs.
type Tally struct {
	Queue, Plugin, Digest, Version string // Version is the version's name, or "" if it has none
	Release                        int    // the number of the release that the version is; 0 for none
	// Complete is the number of completed tasks. Failed is the number of failed runs, including those after which the
	// task is tried again.
	Complete, Failed int64
	Waits            Waits
	Usage            Usage
}

// Usage is what tasks have used, as a tenant's account counts it.
type Usage struct {
	Runs int64 // runs that began, whatever their end
	// Complete and Failed are tasks that ended. Retried are runs after which the task is tried again.
	Complete, Failed, Retried   int64
	Fuel                        int64
	CPU, Took                   time.Duration // processor time, and time from start to end of the runs
	BytesIn, BytesOut, LogBytes int64         // of parameters, of results, and of lines that were logged
}

func (u *Usage) add(other *Usage) {
	u.Runs, u.Complete = u.Runs+other.Runs, u.Complete+other.Complete
	u.Failed, u.Retried = u.Failed+other.Failed, u.Retried+other.Retried
	u.Fuel, u.CPU, u.Took = u.Fuel+other.Fuel, u.CPU+other.CPU, u.Took+other.Took
	u.BytesIn, u.BytesOut, u.LogBytes = u.BytesIn+other.BytesIn, u.BytesOut+other.BytesOut, u.LogBytes+other.LogBytes
}

// Tallies collects a listener's counts until Write writes them to Redis. Its methods are safe for concurrent use.
type Tallies struct {
	mu sync.Mutex
	// counts are guarded by mu. A key has only Queue, Plugin, Digest, Version and Release.
	counts map[Tally]*Tally
}

// Started counts how long a started task had waited. key has the task's queue, and the plugin version that runs the
// task, if any. first is true if this is the first count since the last Write.
func (t *Tallies) Started(key Tally, wait time.Duration) (first bool) {
	return t.change(key, func(c *Tally) { c.Waits.Add(wait) })
}

// Settled counts a run that completed the task, failed, or will be retried. It ignores all other outcomes; cancelled
// and rescheduled runs count only for the usage. key and first are as in Started.
func (t *Tallies) Settled(key Tally, outcome Outcome, reason queue.Reason) (first bool) {
	switch {
	case outcome == OutcomeComplete:
		return t.change(key, func(c *Tally) { c.Complete, c.Usage.Complete = c.Complete+1, c.Usage.Complete+1 })
	case outcome == OutcomeFailed && reason != queue.ReasonCancelled:
		return t.change(key, func(c *Tally) { c.Failed, c.Usage.Failed = c.Failed+1, c.Usage.Failed+1 })
	case outcome == OutcomeFailed:
		return t.change(key, func(c *Tally) { c.Usage.Failed++ })
	case outcome == OutcomeRetried:
		return t.change(key, func(c *Tally) { c.Failed, c.Usage.Retried = c.Failed+1, c.Usage.Retried+1 })
	case outcome == OutcomeRescheduled:
		return t.change(key, func(c *Tally) { c.Usage.Retried++ })
	}
	return false
}

// Used adds what tasks have used. key and first are as in Started.
func (t *Tallies) Used(key Tally, used Usage) (first bool) {
	return t.change(key, func(c *Tally) { c.Usage.add(&used) })
}

func (t *Tallies) change(key Tally, change func(*Tally)) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first = len(t.counts) == 0
	if t.counts == nil {
		t.counts = make(map[Tally]*Tally)
	}
	if t.counts[key] == nil {
		one := key
		t.counts[key] = &one
	}
	change(t.counts[key])
	return first
}

// tallyBatch is the maximum number of tallies that one script call writes.
const tallyBatch = 8

// Write moves the counts to the fleet's counts in Redis. Counts that cannot be written are lost, because a repeated
// call might count them twice.
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

// Tally adds tallies to the fleet's counts of the current minute, to the counts of plugin versions of the current
// hour, and to the usage of the current day. If a call is repeated after an error, tasks can be counted twice.
func (n *Node) Tally(ctx context.Context, tallies []Tally) error {
	minute, hour, day := &adder{}, &adder{}, &adder{}
	total := Tally{}
	for _, t := range tallies {
		total.Complete, total.Failed = total.Complete+t.Complete, total.Failed+t.Failed
		total.Waits.Merge(t.Waits)
		total.Usage.add(&t.Usage)
	}
	for _, t := range append([]Tally{total}, tallies...) {
		minute.add("complete", t.Queue, t.Complete)
		minute.add("failed", t.Queue, t.Failed)
		for size, n := range t.Waits {
			minute.add("wait"+strconv.Itoa(size), t.Queue, n)
		}
		if t.Queue != "" && t.Plugin != "" {
			version := store.VersionText(t.Digest, t.Release, t.Version) + " " + t.Plugin
			hour.add("complete", version, t.Complete)
			hour.add("failed", version, t.Failed)
		}
	}
	for i, n := range []int64{
		total.Usage.Runs, total.Usage.Complete, total.Usage.Failed, total.Usage.Retried, total.Usage.Fuel,
		total.Usage.CPU.Microseconds(), total.Usage.Took.Microseconds(), total.Usage.BytesIn, total.Usage.BytesOut,
		total.Usage.LogBytes,
	} {
		day.add(store.UsageFields[i], "", n)
	}
	c := n.client
	args := []any{
		c.Store().Clock, store.KeptMinutes * 60, store.KeptHours * 3600, store.TallyFields, len(minute.args), len(day.args),
		store.KeptDays * 24 * 3600,
	}
	_, err := c.Store().Eval(ctx, store.NewCall("tally", c.Store().Keys.Queues(),
		slices.Concat(args, minute.args, day.args, hour.args)...))
	return store.Wrap("count outcomes of tasks", err)
}

// adder collects names and counts as arguments of tally.lua.
type adder struct{ args []any }

func (a *adder) add(what, of string, n int64) {
	if n > 0 {
		a.args = append(a.args, store.TallyField(what, of), n)
	}
}
