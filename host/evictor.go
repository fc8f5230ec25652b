package host

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/sdk/queue/listen"
)

// Cache holds memory beside running tasks: the code of plugins, and instances and snapshots kept for their next tasks.
// *runtime.Engine is one.
type Cache interface {
	// Held is how many bytes are held now, without what running tasks may take by their limits.
	Held() int64
	// Relieve frees at least this many bytes of idle memory, if there is as much, and returns how many it freed.
	Relieve(ctx context.Context, bytes int64) (freed int64)
}

const (
	// measureInterval is how often the cache is measured at least: a plugin that is loaded adds to it without any task.
	measureInterval = time.Second
	// beginning is how long new tasks may take to make use of idle memory that was kept for them.
	beginning = 2 * time.Millisecond
	// A measurement goes through all plugins, and an eviction through Go's heap: some milliseconds with a thousand plugins. The
	// pause after each is this many times as long as it took.
	measurePause = 20
	evictPause   = 4
	// oftenEvictions within oftenWithin mean that plugins are loaded more than they run.
	oftenEvictions = 20
	oftenWithin    = time.Minute
	// evictSpare is the part of the bound that is evicted beyond need, so that not every task needs an eviction.
	evictSpare = 32
)

// evictor measures the cache, regularly and when admission asks, and evicts idle memory that stands in the way of tasks. Only
// tasks that need the room wait for it.
type evictor struct {
	cache     Cache
	admission *admission
	logger    hclog.Logger

	resumes   time.Time // no eviction before
	counted   time.Time // since when evictions are counted
	evictions int
	often     bool // there were many, and the log tells it
}

// Run evicts until ctx ends.
func (e *evictor) Run(ctx context.Context) {
	ticker := time.NewTicker(measureInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.admission.evict:
		case <-ticker.C:
			e.admission.retryEviction()
		}
		for again := true; again; {
			var pause time.Duration
			pause, again = e.runOnce(ctx)
			again = listen.Sleep(ctx, pause) && again
		}
	}
}

// runOnce measures, and evicts if the cache holds too much. again means that an eviction is due when the pause is over.
func (e *evictor) runOnce(ctx context.Context) (pause time.Duration, again bool) {
	begun := time.Now()
	shortfall, _ := e.measure()
	pause = max(beginning, measurePause*time.Since(begun))
	if shortfall <= 0 || begun.Before(e.resumes) {
		return pause, shortfall > 0
	}
	if !listen.Sleep(ctx, beginning) {
		return 0, false
	}
	begun = time.Now()
	shortfall, ends := e.measure()
	if shortfall <= 0 {
		return pause, false
	}
	freed := e.cache.Relieve(ctx, shortfall+e.admission.total/evictSpare)
	e.admission.evicted(e.cache.Held(), ends, freed < shortfall)
	took := time.Since(begun)
	e.resumes = time.Now().Add(evictPause * took)
	e.logger.Debug("evicted idle memory", "lacked", shortfall, "freed", freed, "took", took)
	if freed > 0 {
		e.count(begun)
	}
	return pause, false
}

func (e *evictor) measure() (shortfall int64, ends uint64) {
	arrived := e.admission.arrived()
	return e.admission.measured(e.cache.Held(), arrived)
}

// count counts an eviction, and logs once if there are too many.
func (e *evictor) count(now time.Time) {
	if now.Sub(e.counted) > oftenWithin {
		e.counted, e.evictions = now, 0
	}
	if e.evictions++; e.evictions >= oftenEvictions && !e.often {
		e.often = true
		e.logger.Warn("memory is so small that plugins are unloaded again and again to make room for tasks", "memory", e.admission.total)
	}
}
