package host

import (
	"context"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// tallyPause is the time between two writes of a session's counts: one script for all tasks in between.
const tallyPause = 5 * time.Second

// tally counts the outcomes of a session's tasks, by queue and version.
type tally struct {
	periodic.Duty
	node   *listen.Node
	counts listen.Tallies
}

// started counts how long a task had waited.
func (t *tally) started(task *task, wait time.Duration) {
	if t.counts.Started(tallyOf(task), wait) {
		t.Ask()
	}
}

// settled counts an outcome, as the metrics name it.
func (t *tally) settled(task *task, outcome listen.Outcome, failure *queue.Failure) {
	var reason queue.Reason
	if failure != nil {
		reason = failure.Reason
	}
	if t.counts.Settled(tallyOf(task), outcome, reason) {
		t.Ask()
	}
}

func tallyOf(t *task) listen.Tally {
	return listen.Tally{
		Queue: t.Queue.Name, Plugin: t.version.Name, Digest: t.version.Digest,
		Version: t.version.Manifest.Version,
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
