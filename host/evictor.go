package host

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
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
	// measureInterval is how often the cache is measured whatever happens: loading a plugin adds to it without any task.
	measureInterval = time.Second
	// beginning is how long new tasks may take to make use of idle memory that was kept for them.
	beginning = 2 * time.Millisecond
	// Measuring goes through all plugins, and an eviction through Go's heap: some milliseconds with a thousand plugins. Each
	// pauses for this many times what it took.
	measurePause = 20
	evictPause   = 4
	// oftenEvictions within oftenWithin mean that plugins are loaded more than they run.
	oftenEvictions = 20
	oftenWithin    = time.Minute
	// evictSpare is the part of the bound that is evicted beyond need, so that not every task needs an eviction.
	evictSpare = 32
)

// evictor measures the cache, regularly and when admission asks, and evicts idle memory where that stands in the way of
// tasks. Both may take long. Only tasks that need the room wait for it.
type evictor struct {
	cache     Cache
	admission *admission
	logger    hclog.Logger

	resumes   time.Time // no eviction before
	counted   time.Time // since when evictions are counted
	evictions int
	often     bool // the log has it that there are many
}

// Run evicts until ctx ends.
func (r *evictor) Run(ctx context.Context) {
	ticker := time.NewTicker(measureInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.admission.evict:
		case <-ticker.C:
			r.admission.retryEviction()
		}
		for again := true; again; {
			var pause time.Duration
			pause, again = r.runOnce(ctx)
			again = sleep(ctx, pause) && again
		}
	}
}

// runOnce measures, and evicts if the cache holds too much. again means that an eviction is due when the pause is over.
func (r *evictor) runOnce(ctx context.Context) (pause time.Duration, again bool) {
	begun := time.Now()
	shortfall, _ := r.measure()
	pause = max(beginning, measurePause*time.Since(begun))
	if shortfall <= 0 || begun.Before(r.resumes) {
		return pause, shortfall > 0
	}
	if !sleep(ctx, beginning) {
		return 0, false
	}
	begun = time.Now()
	shortfall, ends := r.measure()
	if shortfall <= 0 {
		return pause, false
	}
	freed := r.cache.Relieve(ctx, shortfall+r.admission.total/evictSpare)
	r.admission.evicted(r.cache.Held(), ends, freed < shortfall)
	took := time.Since(begun)
	r.resumes = time.Now().Add(evictPause * took)
	r.logger.Debug("evicted idle memory", "lacked", shortfall, "freed", freed, "took", took)
	if freed > 0 {
		r.count(begun)
	}
	return pause, false
}

func (r *evictor) measure() (shortfall int64, ends uint64) {
	arrived := r.admission.arrived()
	return r.admission.measured(r.cache.Held(), arrived)
}

// count counts an eviction, and logs once if there are too many.
func (r *evictor) count(now time.Time) {
	if now.Sub(r.counted) > oftenWithin {
		r.counted, r.evictions = now, 0
	}
	if r.evictions++; r.evictions >= oftenEvictions && !r.often {
		r.often = true
		r.logger.Warn("memory is so small that plugins are unloaded again and again to make room for tasks", "memory", r.admission.total)
	}
}
