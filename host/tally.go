package host

import (
	"context"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// tallyPause is the time between two writes of a session's counts. One script writes the counts of all tasks since
// the last write.
const tallyPause = 5 * time.Second

// tally counts the started and settled tasks of a session, by queue and plugin version, and what they used, and
// adds the counts to those of the fleet in Redis.
type tally struct {
	periodic.Duty
	node   *listen.Node
	counts listen.Tallies
}

// started counts a task that has started, and how long it had waited.
func (t *tally) started(task *task, wait time.Duration) {
	if t.counts.Started(tallyOf(task), wait) {
		t.Ask()
	}
}

// settled counts the outcome of a task, the reason of a failure, and the bytes of a result.
func (t *tally) settled(task *task, outcome listen.Outcome, failure *queue.Failure, result int) {
	var reason queue.Reason
	if failure != nil {
		reason = failure.Reason
	}
	if t.counts.Settled(tallyOf(task), outcome, reason) {
		t.Ask()
	}
	if outcome == listen.OutcomeComplete && result > 0 {
		t.counts.Used(tallyOf(task), listen.Usage{BytesOut: int64(result)})
	}
}

// ran counts what a run of a task has used, except for its result.
func (t *tally) ran(e *ended, took time.Duration) {
	used := listen.Usage{
		Runs: 1, Fuel: e.outcome.Fuel, CPU: e.outcome.CPU, Took: took, BytesIn: int64(len(e.task.Parameters)),
		LogBytes: e.task.log.written(),
	}
	if t.counts.Used(tallyOf(e.task), used) {
		t.Ask()
	}
}

func tallyOf(t *task) listen.Tally {
	return listen.Tally{
		Queue: t.Queue.Name, Plugin: t.version.Name, Digest: t.version.Digest,
		Version: t.version.Manifest.Version, Release: t.release,
	}
}

// RunOnce implements periodic.Worker.
func (t *tally) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	t.write(ctx)
	return tallyPause, periodic.UntilAsked, nil
}

func (t *tally) write(ctx context.Context) {
	if err := t.counts.Write(ctx, t.node); err != nil {
		t.Reports.FailedQuietly(opTally, err)
	}
}
