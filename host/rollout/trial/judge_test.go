package trial

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/release"
)

// workload says how the tasks of a simulated trial end. at is the part of the trial that is over, 0 to 1.
type workload struct {
	failing func(at float64, random *rand.Rand) float64 // the probability that a task fails
	took    func(at float64, random *rand.Rand) time.Duration
	fuel    func(at float64, random *rand.Rand) int64
}

func constant(p float64) func(float64, *rand.Rand) float64 {
	return func(float64, *rand.Rand) float64 { return p }
}

// lognormal returns durations with this median. With a spread of 1.5, the slowest of 1,000 takes 100 times the median.
func lognormal(median time.Duration, spread float64) func(float64, *rand.Rand) time.Duration {
	return func(_ float64, random *rand.Rand) time.Duration {
		return time.Duration(float64(median) * math.Exp(spread*random.NormFloat64()))
	}
}

func steadyFuel(_ float64, random *rand.Rand) int64 { return 1e6 + random.Int64N(1e5) }

// rollout simulates a trial of this many tasks, with shares that grow, and a look after each batch. It returns the first
// bad verdict, and how many tasks of each release had ended then.
func rollout(random *rand.Rand, old, next workload, tasks, batch int, shares ...float64) (v Verdict, ofOld, ofNew int64) {
	steps := make([]Step, len(shares))
	for i := range steps {
		steps[i].Share = shares[i]
	}
	for n := range tasks {
		at := float64(n) / float64(tasks)
		step := &steps[n*len(steps)/tasks]
		side, load := &step.Old, &old
		if random.Float64() < step.Share {
			side, load = &step.New, &next
		}
		if random.Float64() < load.failing(at, random) {
			side.Fail(release.KindError)
		} else {
			side.Complete(load.took(at, random), load.fuel(at, random))
		}
		if n%batch != batch-1 {
			continue
		}
		if v = Judge(steps); v.Bad() {
			break
		}
	}
	a, b := Sum(steps)
	return v, a.Runs, b.Runs
}

// At most 1 of 100 trials of equal releases may be stopped, whatever the tasks are like. The figures are in RATIONALE.md.
func TestFalseAlarms(t *testing.T) {
	t.Parallel()
	const rollouts, tasks, batch = 2000, 1200, 20
	normal := workload{constant(0.01), lognormal(50*time.Millisecond, 0.5), steadyFuel}
	with := func(change func(*workload)) workload {
		w := normal
		change(&w)
		return w
	}
	burst := func(at float64, _ *rand.Rand) float64 { // two outages
		if math.Mod(at, 0.5) > 0.4 {
			return 0.8
		}
		return 0.005
	}
	for name, load := range map[string]workload{
		"no failures":  with(func(w *workload) { w.failing = constant(0) }),
		"1 % failures": normal,
		"5 %":          with(func(w *workload) { w.failing = constant(0.05) }),
		"30 %":         with(func(w *workload) { w.failing = constant(0.3) }),
		"bursts":       with(func(w *workload) { w.failing = burst }),
		"drift":        with(func(w *workload) { w.failing = func(at float64, _ *rand.Rand) float64 { return 0.2 * at } }),
		"heavy tail":   with(func(w *workload) { w.took = lognormal(50*time.Millisecond, 2) }),
		"two kinds of tasks": with(func(w *workload) {
			w.took = func(_ float64, random *rand.Rand) time.Duration {
				if random.Float64() < 0.06 {
					return 20 * time.Second
				}
				return 10 * time.Millisecond
			}
		}),
		"ever slower": with(func(w *workload) {
			w.took = func(at float64, random *rand.Rand) time.Duration {
				return lognormal(time.Duration(20+400*at)*time.Millisecond, 0.7)(at, random)
			}
			w.fuel = func(at float64, random *rand.Rand) int64 {
				return int64(1e6 * (1 + 5*at) * math.Exp(random.NormFloat64()))
			}
		}),
	} {
		for _, shares := range [][]float64{{0.1}, {0.05, 0.25, 0.5, 1}} {
			t.Run(fmt.Sprint(name, " ", shares), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(1, 2))
				alarms := make(map[Measure]int)
				all := 0
				for range rollouts {
					if v, _, _ := rollout(random, load, load, tasks, batch, shares...); v.Bad() {
						alarms[v.Measure]++
						all++
					}
				}
				t.Logf("%d of %d trials were stopped %v", all, rollouts, alarms)
				if all > rollouts/100 {
					t.Errorf("%d of %d trials of equal releases were stopped (%v), want at most 1 %%", all, rollouts, alarms)
				}
			})
		}
	}
}

// A release that is clearly worse is stopped after some hundred tasks of its own at most.
func TestPower(t *testing.T) {
	t.Parallel()
	const rollouts, batch = 100, 10
	normal := workload{constant(0.01), lognormal(50*time.Millisecond, 0.5), steadyFuel}
	for _, c := range []struct {
		name      string
		old, next func(*workload)
		shares    []float64
		most      int64 // tasks of the new release, in 95 of 100 trials
		measure   Measure
	}{
		{"20 % fail, none before", func(w *workload) { w.failing = constant(0) }, func(w *workload) { w.failing = constant(0.2) }, []float64{0.1}, 45, Failures},
		{"20 % fail, none before", func(w *workload) { w.failing = constant(0) }, func(w *workload) { w.failing = constant(0.2) }, []float64{0.5}, 90, Failures},
		{"20 % fail, 1 % before", nil, func(w *workload) { w.failing = constant(0.2) }, []float64{0.1}, 70, Failures},
		{"20 % fail, 1 % before", nil, func(w *workload) { w.failing = constant(0.2) }, []float64{0.5}, 150, Failures},
		{"5 % fail, 1 % before", nil, func(w *workload) { w.failing = constant(0.05) }, []float64{0.1}, 700, Failures},
		{"all fail", nil, func(w *workload) { w.failing = constant(1) }, []float64{0.1}, 15, Failures},
		{"twice as slow", nil, func(w *workload) { w.took = lognormal(100*time.Millisecond, 0.5) }, []float64{0.1}, 100, Duration},
		{"twice as slow, heavy tail", func(w *workload) { w.took = lognormal(50*time.Millisecond, 1.5) }, func(w *workload) { w.took = lognormal(100*time.Millisecond, 1.5) }, []float64{0.1}, 900, Duration},
		{"10 % hang", nil, func(w *workload) {
			w.took = func(at float64, random *rand.Rand) time.Duration {
				if random.Float64() < 0.1 {
					return time.Minute
				}
				return lognormal(50*time.Millisecond, 0.5)(at, random)
			}
		}, []float64{0.1}, 150, Duration},
		{"leak", nil, func(w *workload) { // fuel grows to three times
			w.fuel = func(at float64, random *rand.Rand) int64 { return int64(float64(steadyFuel(at, random)) * (1 + 2*at)) }
		}, []float64{0.1}, 1000, Fuel},
		{"twice the fuel", nil, func(w *workload) {
			w.fuel = func(at float64, random *rand.Rand) int64 { return 2 * steadyFuel(at, random) }
		}, []float64{0.5}, 60, Fuel},
	} {
		t.Run(fmt.Sprint(c.name, " ", c.shares), func(t *testing.T) {
			t.Parallel()
			old, next := normal, normal
			if c.old != nil {
				c.old(&old)
				c.old(&next)
			}
			c.next(&next)
			random := rand.New(rand.NewPCG(3, 4))
			within, measured, sum := 0, 0, int64(0)
			for range rollouts {
				v, _, needed := rollout(random, old, next, 20000, batch, c.shares...)
				sum += needed
				if v.Bad() && needed <= c.most {
					within++
				}
				if v.Measure == c.measure {
					measured++
				}
			}
			t.Logf("stopped after %d tasks of the new release, on average; %d of %d after at most %d", sum/rollouts, within, rollouts, c.most)
			if within < rollouts*95/100 {
				t.Errorf("%d of %d trials were stopped after at most %d tasks, want 95 %%", within, rollouts, c.most)
			}
			if measured < rollouts*95/100 {
				t.Errorf("%d of %d trials were stopped for %s", measured, rollouts, c.measure)
			}
		})
	}
}

// Tasks so small that nobody notices the difference stop no release.
func TestSmallTasks(t *testing.T) {
	t.Parallel()
	s := Step{Share: 0.5}
	for range 1000 {
		s.Old.Complete(time.Millisecond, 1e3)
		s.New.Complete(4*time.Millisecond, 5e4)
	}
	if v := Judge([]Step{s}); v.Bad() {
		t.Errorf("stopped: %s", v.Reason)
	}
}

// A release that is worse by less than the margins is rarely stopped, however many tasks run.
func TestMargins(t *testing.T) {
	t.Parallel()
	old := workload{constant(0.01), lognormal(time.Millisecond, 0.1), steadyFuel}
	next := workload{constant(0.02), lognormal(2*time.Millisecond, 0.1), func(at float64, random *rand.Rand) int64 {
		return steadyFuel(at, random) * 13 / 10
	}}
	random := rand.New(rand.NewPCG(5, 6))
	stopped := 0
	for range 100 {
		if v, _, _ := rollout(random, old, next, 20000, 100, 0.25); v.Bad() {
			stopped++
		}
	}
	if stopped > 10 {
		t.Errorf("%d of 100 trials were stopped", stopped)
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	var s Step
	s.Share = 0.1
	for range 900 {
		s.Old.Complete(100*time.Millisecond, 1e6)
	}
	s.Old.Fail(release.KindError)
	for range 80 {
		s.New.Complete(100*time.Millisecond, 1e6)
	}
	for range 20 {
		s.New.Fail(release.KindError)
	}
	if got, want := Judge([]Step{s}).Reason, "20 of 100 tasks failed; of the release before, 1 of 901"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.New.Fail(release.KindTrap)
	if got := Judge([]Step{s}).Reason; !strings.Contains(got, "21 of 101 tasks failed (error: 20, trap: 1); of") {
		t.Errorf("%q", got)
	}
	s.New = release.Counts{}
	for range 100 {
		s.New.Complete(300*time.Millisecond, 1e6)
	}
	if got := Judge([]Step{s}); got.Measure != Duration || !strings.Contains(got.Reason, "95 % of 100 tasks took up to") {
		t.Errorf("%+v", got)
	}
	if got := Judge(nil); got.Bad() {
		t.Errorf("%+v", got)
	}
}

// A release hangs if it should have ended ten tasks and has ended none. A share of all tasks says nothing.
func TestHangs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		share    float64
		old, new int64
		want     bool
	}{{0.1, 89, 0, false}, {0.1, 90, 0, true}, {0.1, 90, 1, false}, {0.5, 10, 0, true}, {1, 0, 0, false}, {1, 100, 0, false}} {
		s := Step{Share: tt.share, Old: release.Counts{Runs: tt.old}, New: release.Counts{Runs: tt.new}}
		if got := Hangs(&s); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
