package runtime

import (
	"context"
	"math"
	goruntime "runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	// stopBesideGC is the time from a deadline in which a guest ends while the collector runs every 10 ms beside
	// it. Twice the promise is held: BenchmarkAttack tells for which guests page faults take more than 10 ms.
	stopBesideGC = 20 * time.Millisecond
	// maxPause is how long guests hold up the whole process at most: BenchmarkAttackers.
	maxPause = 100 * time.Millisecond
)

// collect runs the collector every 10 ms until stop is called, which returns how long it took at most.
func collect(t testing.TB) (stop func() (worst time.Duration)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	worst := make(chan time.Duration)
	go func() {
		longest := time.Duration(0)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			began := time.Now()
			goruntime.GC()
			longest = max(longest, time.Since(began))
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
		worst <- longest
	}()
	return func() time.Duration {
		cancel()
		return <-worst
	}
}

// timed are those of the attacks that are hardest to stop, each in its own way.
func timed() []attack {
	names := []string{
		"loop", "recursion", "tree of calls", "returns with long tails", "memory.fill", "table.copy",
		"wild loads", "wild stores", "a fresh page with each store", "sched_yield",
	}
	return slices.DeleteFunc(attacks(), func(a attack) bool { return !slices.Contains(names, a.name) })
}

// TestHostileBesideGC: guests are stopped in time, at the best of five attacks, while the collector, which has to
// wait for each of them, runs beside them every 10 ms.
func TestHostileBesideGC(t *testing.T) { //nolint:paralleltest // it measures time
	engine := setup(t)
	for _, a := range timed() {
		t.Run(a.name, func(t *testing.T) {
			module := loadInto(t, engine, a.build(t))
			stop := collect(t)
			var late []time.Duration
			for range 5 {
				late = append(late, a.strike(t, module, 3*strikeTime))
			}
			worst := stop()
			if got := slices.Min(late); got > promised(stopBesideGC) {
				t.Errorf("it ran on for %v behind its deadline, the best of %v; a collection took %v", got, late, worst)
			}
		})
	}
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// siege lets eight guests attack at once, each until a deadline, beside the collector, and returns the longest
// stop of the world and the longest time in which a goroutine did not get its turn that wants one each
// millisecond.
func siege(t testing.TB, modules []*Module, all []attack, timeout time.Duration) (pause, still time.Duration) {
	t.Helper()
	before := pauses()
	stop, heart := collect(t), beat(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() { all[i%len(all)].strike(t, modules[i%len(all)], timeout) })
	}
	group.Wait()
	still = heart()
	stop()
	return longest(before, pauses()), still
}

// beat wants a turn each millisecond until stop is called, which returns how long it had to wait at most.
func beat(t testing.TB) (stop func() (worst time.Duration)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	worst := make(chan time.Duration)
	go func() {
		longest := time.Duration(0)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for last := time.Now(); ctx.Err() == nil; last = time.Now() {
			<-ticker.C
			longest = max(longest, time.Since(last)-time.Millisecond)
		}
		worst <- longest
	}()
	return func() time.Duration {
		cancel()
		return <-worst
	}
}

// pauses is the histogram of the times for which the collector has stopped the world, with the time that it
// took to stop it.
func pauses() *metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64Histogram()
}

// longest is the upper bound of the longest pause between two looks.
func longest(before, after *metrics.Float64Histogram) time.Duration {
	for i, count := range slices.Backward(after.Counts) {
		if count > before.Counts[i] {
			if bound := after.Buckets[i+1]; !math.IsInf(bound, 0) {
				return time.Duration(bound * float64(time.Second))
			}
			return math.MaxInt64
		}
	}
	return 0
}

// TestHostilePauses: eight guests that attack at once hold up neither the collector nor other goroutines. What
// is asserted is the best of three sieges.
func TestHostilePauses(t *testing.T) { //nolint:paralleltest // it measures time
	engine, all := setup(t), timed()
	modules := make([]*Module, len(all))
	for i, a := range all {
		modules[i] = loadInto(t, engine, a.build(t))
	}
	pause, still := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for range 3 {
		p, s := siege(t, modules, all, 10*strikeTime)
		pause, still = min(pause, p), min(still, s)
	}
	if most := promised(maxPause); pause > most || still > most {
		t.Errorf("the world stood still for %v, a goroutine waited for %v, want at most %v", pause, still, promised(maxPause))
	}
}

// BenchmarkAttack tells how long after its deadline each kind of attack is over, with the collector running
// every 10 ms beside it.
//
//	late-ms   the median of all attacks
//	worst-ms  the longest
//	gc-ms     the longest collection
func BenchmarkAttack(b *testing.B) {
	engine := setup(b)
	for _, a := range timed() {
		b.Run(a.name, func(b *testing.B) {
			module := loadInto(b, engine, a.build(b))
			stop := collect(b)
			var late []time.Duration
			for b.Loop() {
				late = append(late, a.strike(b, module, 3*strikeTime))
			}
			report(b, "gc-ms", stop())
			report(b, "late-ms", median(late))
			report(b, "worst-ms", slices.Max(late))
			b.ReportMetric(0, "ns/op") // the deadline, mostly
		})
	}
}

// BenchmarkAttackers tells how long eight attackers at once hold up the process, of each kind of attack and of
// all kinds.
//
//	pause-ms  the longest stop of the world
//	still-ms  the longest time without a turn of a goroutine that wants one each millisecond
func BenchmarkAttackers(b *testing.B) {
	engine, all := setup(b), timed()
	modules := make([]*Module, len(all))
	for i, a := range all {
		modules[i] = loadInto(b, engine, a.build(b))
	}
	besiege := func(name string, modules []*Module, all []attack) {
		b.Run(name, func(b *testing.B) {
			pause, still := time.Duration(0), time.Duration(0)
			for b.Loop() {
				p, s := siege(b, modules, all, 10*strikeTime)
				pause, still = max(pause, p), max(still, s)
			}
			report(b, "pause-ms", pause)
			report(b, "still-ms", still)
			b.ReportMetric(0, "ns/op")
		})
	}
	besiege("all", modules, all)
	for i, a := range all {
		besiege(a.name, modules[i:i+1], all[i:i+1])
	}
}

func report(b *testing.B, unit string, d time.Duration) {
	b.Helper()
	b.ReportMetric(float64(d.Microseconds())/1000, unit)
}
