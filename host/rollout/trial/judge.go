package trial

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue/release"
)

// The budget of false alarms: in how many of all trials of equal releases each measure may stop one. Together 1 %.
const (
	failureBudget  = 0.006
	durationBudget = 0.002
	fuelBudget     = 0.002
)

// The margins: a smaller difference stops no release, however certain it is.
const (
	failureMargin = 0.02 // of all tasks
	leastFailed   = 3    // failed tasks of the new release
	slowdown      = 1.5  // the 95th percentile of the new release by that of the old one, for duration and fuel
	percentile    = 0.95
	leastRuns     = 20                   // completed tasks of each side, for duration and fuel
	hanging       = 10                   // tasks of the new release that should have ended
	leastDelay    = 5 * time.Millisecond // a smaller difference of the durations does not count
	leastFuel     = 100_000              // likewise of fuel: less than a millisecond
)

// Step is a time in which the new release ran a share of the tasks.
type Step struct {
	Share    float64 // of the tasks, 0 to 1
	Old, New release.Counts
}

// share returns the part of the tasks that is the new release's if both are equal: its share, or its part of the tasks
// that have ended if that is larger, as on a fleet of which some hosts do not have the new release. A larger share
// makes less evidence.
func (s *Step) share() float64 {
	return max(s.Share, float64(s.New.Runs)/float64(max(1, s.New.Runs+s.Old.Runs)))
}

// Measure names what is worse in a new release.
type Measure string

// The measures.
const (
	Failures Measure = "failures"
	Duration Measure = "duration"
	Fuel     Measure = "fuel"
)

// Verdict says whether a new release is worse. Measure and Reason are "" if it is not, so far.
type Verdict struct {
	Measure Measure
	Reason  string // in plain words
}

// Bad reports whether the new release is worse.
func (v Verdict) Bad() bool { return v.Measure != "" }

// Judge compares the releases of a trial over all its steps. It may be called after any number of tasks.
func Judge(steps []Step) Verdict {
	old, next := Sum(steps)
	for _, v := range []Verdict{judgeFailures(steps, &old, &next), judgeDuration(steps, &old, &next)} {
		if v.Bad() {
			return v
		}
	}
	return judgeFuel(steps, &old, &next)
}

// Hangs reports whether no task of the new release has ended in a step, although its share of the tasks makes it likely
// that many began. With all tasks as its share, there is nothing to compare.
func Hangs(s *Step) bool {
	return s.New.Runs == 0 && s.Share < 1 && s.Share*float64(s.Old.Runs) >= hanging*(1-s.Share)
}

// Sum adds the counts of all steps.
func Sum(steps []Step) (old, next release.Counts) {
	for i := range steps {
		old.Merge(&steps[i].Old)
		next.Merge(&steps[i].New)
	}
	return old, next
}

func judgeFailures(steps []Step, old, next *release.Counts) Verdict {
	failed := next.Failed()
	if failed < leastFailed {
		return Verdict{}
	}
	certain := float64(failed) - math.Sqrt(float64(failed)) // less by a standard error, so that luck passes no margin
	if certain-expected(steps) < failureMargin*float64(next.Runs) {
		return Verdict{}
	}
	cells := make([]cell, len(steps))
	for i := range steps {
		cells[i] = cell{steps[i].share(), float64(steps[i].Old.Failed()), float64(steps[i].New.Failed())}
	}
	if evidence(cells) < -math.Log(failureBudget) {
		return Verdict{}
	}
	return Verdict{Failures, fmt.Sprintf("%d of %d tasks failed%s; of the release before, %d of %d", failed, next.Runs,
		kinds(next), old.Failed(), old.Runs)}
}

// expected returns how many tasks of the new release would have failed if they had failed as often as those of the old
// one in the same step.
func expected(steps []Step) (failed float64) {
	for i := range steps {
		if old := &steps[i].Old; old.Runs > 0 {
			failed += float64(steps[i].New.Runs) * float64(old.Failed()) / float64(old.Runs)
		}
	}
	return failed
}

// kinds lists how tasks failed, if there is more to say than errors.
func kinds(c *release.Counts) string {
	var list []string
	for kind, n := range c.ByKind() {
		list = append(list, fmt.Sprintf("%s: %d", kind, n))
	}
	if c.Failures[release.KindError] == c.Failed() {
		return ""
	}
	return " (" + strings.Join(list, ", ") + ")"
}

func judgeDuration(steps []Step, old, next *release.Counts) Verdict {
	before, after := old.Took(percentile), next.Took(percentile)
	if after-before < leastDelay || !slower(&old.Duration, &next.Duration) ||
		tails(steps, func(c *release.Counts) *release.Histogram { return &c.Duration }) < -math.Log(durationBudget) {
		return Verdict{}
	}
	round := func(d time.Duration) time.Duration {
		return d.Round(max(d/100, 10*time.Microsecond)).Round(10 * time.Microsecond)
	}
	return Verdict{Duration, fmt.Sprintf(
		"95 %% of %d tasks took up to %s; of the release before, up to %s (%.1f times as long)",
		next.Duration.Total(), round(after), round(before), float64(after)/float64(before))}
}

func judgeFuel(steps []Step, old, next *release.Counts) Verdict {
	before, after := old.Burned(percentile), next.Burned(percentile)
	if after-before < leastFuel || !slower(&old.Fuel, &next.Fuel) ||
		tails(steps, func(c *release.Counts) *release.Histogram { return &c.Fuel }) < -math.Log(fuelBudget) {
		return Verdict{}
	}
	return Verdict{Fuel, fmt.Sprintf(
		"95 %% of %d tasks burned up to %d fuel; of the release before, up to %d (%.1f times as much)",
		next.Fuel.Total(), after, before, float64(after)/float64(before))}
}

// slower reports whether the values of the new release are higher by the margin.
func slower(old, next *release.Histogram) bool {
	return old.Total() >= leastRuns && next.Total() >= leastRuns &&
		next.Quantile(percentile) >= slowdown*old.Quantile(percentile)
}

// tails returns the logarithm of the evidence that the values of the new release are higher: the mean over all bounds.
func tails(steps []Step, of func(*release.Counts) *release.Histogram) float64 {
	cells := make([]cell, len(steps)) // above the bound
	for i := range steps {
		cells[i].share = steps[i].share()
	}
	var all sum
	for bound := len(release.Histogram{}) - 1; bound > 0; bound-- {
		for i := range steps {
			cells[i].old += float64(of(&steps[i].Old)[bound])
			cells[i].next += float64(of(&steps[i].New)[bound])
		}
		all.add(evidence(cells))
	}
	return all.mean()
}

// cell has the numbers of failed tasks of a step.
type cell struct{ share, old, next float64 }

// factors are the factors by which a new release may fail more often.
var factors = []float64{1.25, 1.6, 2.5, 5, 20, 1000}

// evidence returns the logarithm of the evidence that the tasks of the new release fail more often: see the package.
func evidence(cells []cell) float64 {
	var all sum
	for _, r := range factors {
		log := 0.0
		for _, c := range cells {
			if c.old+c.next == 0 || c.share <= 0 || c.share >= 1 {
				continue // nothing to compare
			}
			scale := c.share*r + 1 - c.share
			log += c.next*math.Log(r/scale) - c.old*math.Log(scale)
		}
		all.add(log)
	}
	return all.mean()
}

// sum adds numbers that are too large for a float64, by their logarithms.
type sum struct{ n, log float64 }

func (s *sum) add(log float64) {
	if s.n++; s.n == 1 {
		s.log = log
		return
	}
	high, low := max(s.log, log), min(s.log, log)
	s.log = high + math.Log1p(math.Exp(low-high))
}

func (s *sum) mean() float64 { return s.log - math.Log(s.n) }
