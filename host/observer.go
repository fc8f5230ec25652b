package host

import (
	"time"

	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
)

// observer counts what happens on the host; it knows how the catalogue names things.
type observer struct{ m *metrics.Metrics }

func (o observer) started(at place, waited time.Duration) {
	o.m.TaskStarted(at.tenant, at.queue, max(0, waited))
}

func (o observer) done(t *task, outcome, reason string, took time.Duration) {
	o.m.TaskDone(t.served.tenant, t.served.queue, t.version.Name, outcome, reason, took)
}

// ran counts what a call took, when it has ended: not when it is settled, which may be long after, or never.
func (o observer) ran(t *task, outcome runtime.Outcome) {
	o.m.TaskRan(t.served.tenant, t.served.queue, t.version.Name, outcome.CPU, outcome.Fuel)
}

func (o observer) dropped(at place, n int) {
	for range n {
		o.m.TaskDropped(at.tenant, at.queue)
	}
}

// reclaimed counts what became of the tasks of a listener that had died.
func (o observer) reclaimed(tenant string, r queue.Reclaimed) {
	o.m.TasksReclaimed(tenant, "released", r.Returned)
	o.m.TasksReclaimed(tenant, "rescheduled", r.Scheduled)
	o.m.TasksReclaimed(tenant, "failed", r.Failed)
}

func (o observer) refused(at place)                { o.m.ResultRefused(at.tenant, at.queue) }
func (o observer) logLinesDropped(at place, n int) { o.m.LogLinesDropped(at.tenant, at.queue, n) }
func (o observer) redisError(op string)            { o.m.RedisError(op) }
