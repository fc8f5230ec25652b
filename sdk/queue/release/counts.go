package release

import (
	"iter"
	"math"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	// buckets is the number of buckets of a Histogram, and perDoubling how many of them a doubling has.
	buckets     = 128
	perDoubling = 4
)

// Histogram counts values in buckets that grow by a fourth root of two. Its first bucket has the values up to 1, so use
// a unit that is small beside the values. It covers values up to 2^32 units; the last bucket has all larger ones.
type Histogram [buckets]int64

// bucketOf returns the bucket of a value.
func bucketOf(value float64) int {
	if value <= 1 {
		return 0
	}
	return min(int(math.Ceil(perDoubling*math.Log2(value))), buckets-1)
}

// Add counts one value.
func (h *Histogram) Add(value float64) { h[bucketOf(value)]++ }

// Total returns how many values are counted.
func (h *Histogram) Total() (n int64) {
	for _, some := range h {
		n += some
	}
	return n
}

// Quantile returns the value that the given share (0 to 1) of the values do not exceed; 0 if none is counted. It is
// exact to 19 %.
func (h *Histogram) Quantile(share float64) float64 {
	rank, before := share*float64(h.Total()), 0.0
	for i, n := range h {
		if n > 0 && before+float64(n) >= rank {
			upper := math.Exp2(float64(i) / perDoubling)
			lower := upper * math.Exp2(-1.0/perDoubling)
			return lower + (upper-lower)*(rank-before)/float64(n)
		}
		before += float64(n)
	}
	return 0
}

func (h *Histogram) merge(other *Histogram) {
	for i, n := range other {
		h[i] += n
	}
}

// The units of histograms.
const (
	durationUnit = 10 * time.Microsecond // so the longest is 12 hours
	fuelUnit     = 1 << 12
)

// Kind says how a run ended that did not complete its task.
type Kind int

// The kinds of failures.
const (
	KindError Kind = iota // the handler returned an error
	KindTrap
	KindLimit // of memory, time, CPU or output
	kinds
)

// String returns the name of a kind.
func (k Kind) String() string { return [kinds]string{"error", "trap", "limit"}[k] }

// KindOf returns the kind of a failure.
func KindOf(reason queue.Reason) Kind {
	switch reason {
	case queue.ReasonTrap:
		return KindTrap
	case queue.ReasonMemory, queue.ReasonTimeout, queue.ReasonCPU, queue.ReasonOutput,
		queue.ReasonExpired: // while it ran
		return KindLimit
	}
	return KindError
}

// Counts says how the tasks of a release ended. Each task counts once, with its first run: retries of a bad task would
// count its input many times.
type Counts struct {
	Runs     int64
	Failures [kinds]int64
	Duration Histogram // of the runs that completed, in units of 10 µs
	Fuel     Histogram // of the runs that completed, in units of 4,096
}

// Complete counts a task that completed.
func (c *Counts) Complete(took time.Duration, fuel int64) {
	c.Runs++
	c.Duration.Add(float64(took) / float64(durationUnit))
	c.Fuel.Add(float64(fuel) / fuelUnit)
}

// Fail counts a task that failed.
func (c *Counts) Fail(kind Kind) {
	c.Runs++
	c.Failures[kind]++
}

// Failed returns how many tasks failed.
func (c *Counts) Failed() (n int64) {
	for _, some := range c.Failures {
		n += some
	}
	return n
}

// ByKind returns the kinds of failures that occurred, with their numbers.
func (c *Counts) ByKind() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for kind, n := range c.Failures {
			if n > 0 && !yield(Kind(kind).String(), n) {
				return
			}
		}
	}
}

// Merge adds other counts.
func (c *Counts) Merge(other *Counts) {
	c.Runs += other.Runs
	for kind, n := range other.Failures {
		c.Failures[kind] += n
	}
	c.Duration.merge(&other.Duration)
	c.Fuel.merge(&other.Fuel)
}

// Took returns the duration that the given share of the completed runs did not exceed.
func (c *Counts) Took(share float64) time.Duration {
	return time.Duration(c.Duration.Quantile(share) * float64(durationUnit))
}

// Burned returns the fuel that the given share of the completed runs did not exceed.
func (c *Counts) Burned(share float64) int64 { return int64(c.Fuel.Quantile(share) * fuelUnit) }
