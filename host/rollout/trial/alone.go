package trial

import (
	"fmt"

	"github.com/quern-project/quern/sdk/queue/release"
)

// Crashes is the measure of a release whose tasks end hosts.
const Crashes Measure = "crashes"

const (
	// mostDeaths is at how many deaths of hosts a release is stopped.
	mostDeaths = 2
	// allFailed is how many tasks of a release must have failed, all without an exception, if nothing runs beside it.
	allFailed = 20
	// chosenMargin is the margin of failures if the tasks of the new release were chosen, and not by chance.
	chosenMargin = 0.2
)

// JudgeDeaths stops a release in a crash loop, by the number of hosts that died over its tasks.
func JudgeDeaths(deaths int) Verdict {
	if deaths < mostDeaths {
		return Verdict{}
	}
	return Verdict{Crashes, fmt.Sprintf("%d hosts died over its tasks", deaths)}
}

// JudgeChosen compares releases whose tasks were chosen, by a label. The tasks may differ as well, so only many more
// failures count, and the budget of false alarms does not hold.
func JudgeChosen(old, next *release.Counts) Verdict {
	if old.Runs == 0 || rate(next)-rate(old) < chosenMargin {
		return Verdict{}
	}
	share := float64(next.Runs) / float64(old.Runs+next.Runs)
	return judgeFailures([]Step{{Share: share, Old: *old, New: *next}}, old, next)
}

func rate(c *release.Counts) float64 { return float64(c.Failed()) / float64(max(c.Runs, 1)) }

// Suspect reports whether all tasks of a release failed that serves alone.
func Suspect(next *release.Counts) bool { return next.Runs >= allFailed && next.Failed() == next.Runs }

// JudgeAlone stops a release that serves alone if all its tasks failed, and most runs of the one before did not.
// complete and failed are the runs of the one before.
func JudgeAlone(next *release.Counts, complete, failed int64) Verdict {
	if !Suspect(next) || complete+failed < allFailed || failed > complete {
		return Verdict{}
	}
	return Verdict{Failures, fmt.Sprintf("all of its %d tasks failed%s; of the release before, %d of %d runs", next.Runs,
		kinds(next), failed, complete+failed)}
}
