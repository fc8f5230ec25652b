package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Queue describes a queue, with the number of its tasks by status.
type Queue struct {
	Tenant                  string           `json:"tenant"`
	Queue                   string           `json:"queue"`
	Scheduled               int64            `json:"scheduled"`
	Blocked                 int64            `json:"blocked" doc:"Of the scheduled ones: they wait for other tasks."`
	Pending                 int64            `json:"pending"`
	Reserved                int64            `json:"reserved" doc:"Taken by a listener and not started."`
	Started                 int64            `json:"started"`
	Complete                int64            `json:"complete" doc:"Kept."`
	Failed                  int64            `json:"failed" doc:"Kept."`
	Listeners               int64            `json:"listeners"`
	Paused                  bool             `json:"paused"`
	Pauses                  []manage.Pause   `json:"pauses,omitempty" doc:"Its own pauses and those of the tenant: of taking, of accepting; by whom, why and since when. Of a single queue also those of its keys."`
	HeldUntil               float64          `json:"held_until,omitempty" doc:"Hosts take nothing until then, because the server of its webhook asked for a pause; it may be over. Resume ends it."`
	Limit                   int64            `json:"limit,omitempty" doc:"How many tasks may wait; missing: any number."`
	DropOldest              bool             `json:"drop_oldest,omitempty" doc:"A new task drops the oldest pending one if the queue is full."`
	OldestPendingAgeSeconds float64          `json:"oldest_pending_age_seconds"`
	DeadLetters             *int64           `json:"dead_letters,omitempty" doc:"Waiting tasks that stand for ones of other queues; only if asked for."`
	FailedWithDeadLetter    *int64           `json:"failed_with_dead_letter,omitempty" doc:"Failed tasks whose dead letter nobody has handled; only if asked for."`
	Totals                  map[string]int64 `json:"totals,omitempty" doc:"Events since the queue exists: enqueued, refused, complete, failed, failed:REASON."`
	Error                   string           `json:"error,omitempty" doc:"Why it cannot be counted; all numbers are 0 then."`
	Err                     error            `json:"-"` // the error whose text is Error
}

// NewQueue converts the counts of a queue to the form that operators see.
func NewQueue(tenant, name string, s manage.Stats) Queue {
	shape := Queue{
		Tenant: tenant, Queue: name, Scheduled: s.Depth[queue.Scheduled], Blocked: s.Blocked, Pending: s.Depth[queue.Pending],
		Reserved: s.Depth[queue.Reserved], Started: s.Depth[queue.Started], Complete: s.Depth[queue.Complete],
		Failed: s.Depth[queue.Failed], Listeners: s.Listeners, Paused: s.Paused, Limit: s.Limit,
		DropOldest: s.DropOldest, HeldUntil: Seconds(s.Held),
		OldestPendingAgeSeconds: s.OldestPendingAge.Seconds(), Totals: s.Totals,
	}
	if s.Err != nil {
		shape.Err, shape.Error = s.Err, s.Err.Error()
	}
	return shape
}

// Depth returns the number of the queue's tasks that have the given status.
func (q *Queue) Depth(status queue.Status) int64 {
	return map[queue.Status]int64{
		queue.Scheduled: q.Scheduled, queue.Pending: q.Pending, queue.Reserved: q.Reserved, queue.Started: q.Started,
		queue.Complete: q.Complete, queue.Failed: q.Failed,
	}[status]
}

// OldestPendingAge returns how long the queue's oldest pending task has waited.
func (q *Queue) OldestPendingAge() time.Duration { return Period(q.OldestPendingAgeSeconds) }

// CountQueue counts one queue. It returns an error if the queue cannot be counted.
func CountQueue(ctx context.Context, t Queues, name string) (Queue, error) {
	list, err := t.QueueCounts(ctx, []string{name})
	if err != nil {
		return Queue{}, err
	}
	return list[0], list[0].Err
}

// UnservedQueue returns a warning about a queue that no host serves or is known to have served, because its name may be
// misspelled. It returns "" for other queues. If the API said that the queue is served, nothing is read.
func UnservedQueue(ctx context.Context, t Tenant, name string) (warning string, err error) {
	if remote, ok := t.(interface{ IsServed(queue string) bool }); ok && remote.IsServed(name) {
		return "", nil
	}
	q, err := CountQueue(ctx, t, name)
	if err != nil || q.Listeners > 0 || q.Totals["complete"]+q.Totals["failed"] > 0 || q.Complete+q.Failed > 0 {
		return "", err
	}
	return fmt.Sprintf("no host serves the queue %q, nor is one known to have served it: %s", name,
		ServingQueue(ctx, t, name)), nil
}

// ServingQueue returns the remedy for a queue that no host serves: see doctor.Serving.
func ServingQueue(ctx context.Context, t Queues, name string) string {
	queues, _ := t.Queues(ctx)
	maps.DeleteFunc(queues, func(other string, listeners int64) bool { return listeners == 0 || other == name })
	return doctor.Serving(name, slices.Sorted(maps.Keys(queues)))
}
