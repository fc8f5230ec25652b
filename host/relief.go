package host

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Reservoir is what holds memory beside running tasks: the code of plugins, and what is kept ready for
// their next tasks. *runtime.Engine is one.
type Reservoir interface {
	// Held is how many bytes are held now, without what running tasks may take by their limits.
	Held() int64
	// Relieve gives back at least so many bytes of what nobody uses, if there is as much, and returns how
	// many it were.
	Relieve(ctx context.Context, bytes int64) (freed int64)
}

const (
	// reliefInterval is how often what is held is measured whatever happens: plugins that are loaded add
	// to it without any task.
	reliefInterval = time.Second
	// beginning is how long the tasks that were granted last may take to make use of what was idle for
	// them: it is held no more then.
	beginning = 2 * time.Millisecond
	// Measuring goes through all plugins, and relief through Go's heap: some milliseconds where there are
	// a thousand. Neither is done again before so many times as long.
	measuringPause = 20
	reliefPause    = 4
	// oftenReliefs in oftenWithin are so many that plugins are loaded more than they run.
	oftenReliefs = 20
	oftenWithin  = time.Minute
	// reliefSpare is the part of the bound by which more is given back than has to be, so that it is not
	// done for each task.
	reliefSpare = 32
)

// relief measures what is held beside the tasks, on the scheduler's wish and regularly, and has idle
// memory given back where it stands in the way. Both may take long, and nothing waits for them but the
// tasks that need the room.
type relief struct {
	reservoir Reservoir
	scheduler *scheduler
	logger    hclog.Logger
	spare     int64 // what is given back beyond what has to be

	resumes time.Time // there is no relief before
	counted time.Time // since when reliefs are counted
	reliefs int
	often   bool // it was logged that there are many
}

func newRelief(scheduler *scheduler, config Config) *relief {
	return &relief{reservoir: config.Reservoir, scheduler: scheduler, logger: config.Logger, spare: config.Memory / reliefSpare}
}

// Run relieves until ctx ends.
func (r *relief) Run(ctx context.Context) {
	ticker := time.NewTicker(reliefInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.scheduler.doubts:
		case <-ticker.C:
			r.scheduler.retryRelief()
		}
		for again := true; again; {
			var pause time.Duration
			pause, again = r.runOnce(ctx)
			again = sleep(ctx, pause) && again
		}
	}
}

// runOnce measures, and relieves if too much is held. It returns the pause that is due then, and whether it
// is to be called again because relief is due, but not yet.
func (r *relief) runOnce(ctx context.Context) (pause time.Duration, again bool) {
	begun := time.Now()
	lacks, _ := r.measure()
	pause = max(beginning, measuringPause*time.Since(begun))
	if lacks <= 0 || begun.Before(r.resumes) {
		return pause, lacks > 0
	}
	if !sleep(ctx, beginning) {
		return 0, false
	}
	begun = time.Now()
	lacks, ends := r.measure()
	if lacks <= 0 {
		return pause, false
	}
	freed := r.reservoir.Relieve(ctx, lacks+r.spare)
	r.scheduler.relieved(r.reservoir.Held(), ends, freed < lacks)
	took := time.Since(begun)
	r.resumes = time.Now().Add(reliefPause * took)
	r.logger.Debug("idle memory given back", "lacked", lacks, "freed", freed, "took", took)
	if freed > 0 {
		r.count(begun)
	}
	return pause, false
}

func (r *relief) measure() (lacks int64, ends uint64) {
	formed := r.scheduler.formed()
	return r.scheduler.measured(r.reservoir.Held(), formed)
}

// count counts a relief, and says once if there are too many.
func (r *relief) count(now time.Time) {
	if now.Sub(r.counted) > oftenWithin {
		r.counted, r.reliefs = now, 0
	}
	if r.reliefs++; r.reliefs >= oftenReliefs && !r.often {
		r.often = true
		r.logger.Warn("memory is so small that plugins are unloaded again and again to make room for tasks", "memory", r.scheduler.memory.total)
	}
}
