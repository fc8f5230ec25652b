package admin

import (
	"context"
	"maps"

	"github.com/quern-project/quern/sdk/queue/release"
)

// Trial says how the tasks of a release on trial ended, and those of the release that served beside it.
type Trial struct {
	Release int      `json:"release" doc:"The last release on trial: a canary, or one that a push made to serve. 0: none within a week."`
	New     Measured `json:"new" doc:"Of this release."`
	Old     Measured `json:"old" doc:"Of the release that served beside the canary."`
}

// Measured says how tasks ended with their first runs.
type Measured struct {
	Runs     int64            `json:"runs"`
	Failed   int64            `json:"failed"`
	Failures map[string]int64 `json:"failures" doc:"By kind: error, trap, limit."`
	P50      float64          `json:"took_p50" doc:"Seconds. Of the tasks that completed, exact to 19 %."`
	P95      float64          `json:"took_p95" doc:"The same."`
	Fuel95   int64            `json:"fuel_p95" doc:"The same, of fuel."`
}

func measured(c *release.Counts) Measured {
	m := Measured{
		Runs: c.Runs, Failed: c.Failed(), Failures: maps.Collect(c.ByKind()),
		P50: c.Took(0.5).Seconds(), P95: c.Took(0.95).Seconds(), Fuel95: c.Burned(0.95),
	}
	return m
}

// Trial reads the counts of the plugin's last trial.
func (r releases) Trial(ctx context.Context) (Trial, error) {
	trial, err := r.Store.Trial(ctx, r.plugin)
	var old, next release.Counts
	for i := range trial.Steps {
		old.Merge(&trial.Steps[i].Old)
		next.Merge(&trial.Steps[i].New)
	}
	return Trial{Release: trial.Number, New: measured(&next), Old: measured(&old)}, err
}
