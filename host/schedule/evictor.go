package schedule

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Cache holds memory in addition to that of running tasks: the code of plugins, and the instances and snapshots that
// are kept for their next tasks. *runtime.Engine implements it.
type Cache interface {
	// Held returns how many bytes the cache holds now. It leaves out the memory that running tasks can use by their
	// limits.
	Held() int64
	// Relieve frees at least this many bytes of idle memory, or all idle memory if there is less. It returns how many
	// bytes it freed.
	Relieve(ctx context.Context, bytes int64) (freed int64)
}

const (
	// measureInterval is the maximum time between two measurements of the cache. Loading a plugin makes the cache grow
	// without any task.
	measureInterval = time.Second
	// beginning is the pause before an eviction. During this pause, new tasks can take the idle memory that is kept for
	// them.
	beginning = 2 * time.Millisecond
	// A measurement goes through all plugins, and an eviction through Go's heap: some milliseconds with a thousand
	// plugins. The pause after a measurement or an eviction is this many times as long as it took.
	measurePause = 20
	evictPause   = 4
	// oftenEvictions evictions within oftenWithin mean that plugins are loaded again and again.
	oftenEvictions = 20
	oftenWithin    = time.Minute
	// 1/evictSpare of Config.Memory is evicted beyond the need, so that not every task needs an eviction.
	evictSpare = 32
)

// Evictor measures the cache, regularly and when a plan asks for it, and evicts idle memory to make room for tasks.
// Only tasks that need the room wait for the eviction.
type Evictor struct {
	scheduler *Scheduler
	cache     Cache
	logger    hclog.Logger

	resumes   time.Time // no eviction begins before this time
	counted   time.Time // when the count of evictions began
	evictions int
	warned    bool // whether it was logged that evictions are frequent
}

// NewEvictor makes an evictor that frees idle memory of cache to make room for the tasks of s.
func NewEvictor(s *Scheduler, cache Cache) *Evictor {
	return &Evictor{scheduler: s, cache: cache, logger: s.config.Logger}
}

// Run evicts until ctx ends.
func (e *Evictor) Run(ctx context.Context) {
	ticker := time.NewTicker(measureInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.scheduler.admission.cache.measure:
		case <-ticker.C: // memory may have become idle without a task
			e.scheduler.mu.Lock()
			e.scheduler.admission.cache.exhausted = false
			e.scheduler.mu.Unlock()
		}
		for due := true; due; {
			var pause time.Duration
			pause, due = e.runOnce(ctx)
			due = sleep(ctx, pause) && due
		}
	}
}

// runOnce measures the cache, and evicts if it holds too much. due reports that an eviction is due when the pause is
// over.
func (e *Evictor) runOnce(ctx context.Context) (pause time.Duration, due bool) {
	begun := time.Now()
	shortfall, _ := e.measure()
	pause = max(beginning, measurePause*time.Since(begun))
	if shortfall <= 0 || begun.Before(e.resumes) {
		return pause, shortfall > 0
	}
	if !sleep(ctx, beginning) {
		return 0, false
	}
	begun = time.Now()
	shortfall, ends := e.measure()
	if shortfall <= 0 {
		return pause, false
	}
	freed := e.cache.Relieve(ctx, shortfall+e.scheduler.config.Memory/evictSpare)
	held := e.cache.Held()
	e.scheduler.mu.Lock()
	e.scheduler.admission.evicted(held, ends, freed < shortfall)
	e.scheduler.mu.Unlock()
	e.scheduler.config.Wake()
	took := time.Since(begun)
	e.resumes = time.Now().Add(evictPause * took)
	e.logger.Debug("evicted idle memory", "lacked", shortfall, "freed", freed, "took", took)
	if freed > 0 {
		e.count(begun)
	}
	return pause, false
}

// measure returns how much the cache has to evict, and how many tasks have ended so far.
func (e *Evictor) measure() (shortfall int64, ends uint64) {
	s := e.scheduler
	s.mu.Lock()
	built := s.admission.builtSnapshots()
	s.mu.Unlock()
	held := e.cache.Held()
	s.mu.Lock()
	shortfall, fits := s.admission.measured(held, built)
	ends = s.admission.cache.ends
	s.mu.Unlock()
	if fits {
		s.config.Wake()
	}
	return shortfall, ends
}

// count counts an eviction, and logs once if evictions are too frequent.
func (e *Evictor) count(now time.Time) {
	if now.Sub(e.counted) > oftenWithin {
		e.counted, e.evictions = now, 0
	}
	if e.evictions++; e.evictions >= oftenEvictions && !e.warned {
		e.warned = true
		e.logger.Warn("memory is so small that plugins are unloaded again and again to make room for tasks",
			"memory", e.scheduler.config.Memory)
	}
}

// sleep waits for the pause. It returns false if ctx ends first.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
