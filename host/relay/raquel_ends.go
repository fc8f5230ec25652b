package relay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// renew renews the claims of all rows in hand, and finds those that are lost, and ends that were not reported.
func (l *raquelTerm) renew(ctx context.Context) error {
	began := time.Now()
	claimed, err := l.rows.renew(ctx, slices.Collect(maps.Values(l.hand)))
	if err != nil {
		return err
	}
	l.renewed = began
	var ids []string
	for id, job := range l.hand {
		switch {
		case !claimed[job.id]: // a worker has it, or somebody changed it
			l.relay.log.Warn("a row was taken from the relay; cancelling its task", "task_id", id)
			l.drop(job)
			_ = l.client.Change(ctx, queue.ChangeCancel, id) // otherwise it runs to its end, which nobody reads
		case job.parked && !job.sent: // its refusal could not be written
			l.unsent = append(l.unsent, job)
		case job.sent:
			ids = append(ids, id)
		}
	}
	for some := range slices.Chunk(ids, batchRows) {
		if err := l.end(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// keepUp marks expired rows, counts those that wait, and gives back those in hand that no host runs.
func (l *raquelTerm) keepUp(ctx context.Context) error {
	began := time.Now()
	var served, busy []string
	for name, q := range l.queues {
		if q.served {
			served = append(served, name)
		}
		if q.hand > 0 {
			busy = append(busy, name)
		}
	}
	if err := l.rows.expire(ctx, served, l.alone(), l.parkRow); err != nil {
		return err
	}
	waiting, err := l.rows.waiting(ctx, served)
	if err != nil {
		return err
	}
	l.setCounts(waiting, l.damaged.count())
	l.keepAt = time.Now().Add(max(raquelUpkeep, lookShare*time.Since(began)))
	stats, err := manage.New(l.client).Stats(ctx, busy...)
	if err != nil {
		return err
	}
	idle := make(map[string]*raquelJob)
	for i, name := range busy {
		if q := l.queues[name]; stats[i].Paused || !q.served && time.Since(q.unserved) > raquelUpkeep {
			for id, job := range l.hand {
				if job.queue == name {
					idle[id] = job
				}
			}
		}
	}
	if len(idle) == 0 {
		return nil
	}
	return l.giveBack(ctx, idle)
}

// giveBack leaves rows to others, as if they had never been claimed, and cancels their tasks. A row whose task runs or
// has ended stays in hand.
func (l *raquelTerm) giveBack(ctx context.Context, jobs map[string]*raquelJob) error {
	if len(jobs) == 0 {
		return nil
	}
	jobs = maps.Clone(jobs)
	tasks, _, _, err := l.client.Summaries(ctx, "", "", slices.Collect(maps.Keys(jobs)), 0)
	if err != nil {
		return err
	}
	var waiting []*queue.Task
	for _, task := range tasks {
		switch job := jobs[task.ID]; {
		case task.Status == queue.Pending || task.Status == queue.Scheduled:
			waiting = append(waiting, task)
		case task.Reason == queue.ReasonCancelled && !job.sent && !job.adopted:
			// The relay cancelled it when it gave the row back before: see resume.
		default: // its end is about to be read
			job.sent = true
			delete(jobs, task.ID)
		}
	}
	// The row first: a leader that adopts a row of a cancelled task ends the row.
	if err := l.rows.unclaim(ctx, slices.Collect(maps.Values(jobs))); err != nil {
		return err
	}
	var changed []string
	for _, change := range l.client.ChangeAll(ctx, queue.ChangeCancel, waiting) {
		if isChanged(change.Err) {
			changed = append(changed, change.Task.ID)
		} // if Redis is away, the row's next claim finds the task
	}
	for _, job := range jobs {
		l.drop(job)
	}
	return l.claimStarted(ctx, jobs, changed)
}

// claimStarted claims rows again that were given back, but whose task has started meanwhile.
func (l *raquelTerm) claimStarted(ctx context.Context, jobs map[string]*raquelJob, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	tasks, _, _, err := l.client.Summaries(ctx, "", "", ids, 0)
	if err != nil {
		return err
	}
	for _, task := range tasks {
		if task.Reason == queue.ReasonCancelled || task.Status == queue.Pending || task.Status == queue.Scheduled {
			continue // a repeated cancel is refused; the row's next claim finds a pending task
		}
		again, err := l.rows.claimAgain(ctx, jobs[task.ID])
		switch {
		case err != nil:
			return err
		case again:
			jobs[task.ID].sent = true
			l.hold(jobs[task.ID])
		default: // a worker was faster
			_ = l.client.Change(ctx, queue.ChangeCancel, task.ID)
		}
	}
	return nil
}

// isChanged reports whether a task was not cancelled because it has started or ended meanwhile, as after the repeat of
// a cancel whose answer was lost.
func isChanged(err error) bool {
	return errors.Is(err, queue.ErrChanged) || errors.Is(err, queue.ErrStatus)
}

// reports reads reports, and writes the ends that they tell of.
func (l *raquelTerm) reports(ctx context.Context, wait time.Duration) error {
	back := listen.NewRelay(l.client)
	reports, err := back.Reports(ctx, l.table.report, wait)
	if err != nil || len(reports) == 0 {
		return err
	}
	ids := make([]string, 0, len(reports))
	for _, report := range reports {
		if job := l.hand[report.Task]; job == nil || job.sent {
			ids = append(ids, report.Task)
		}
	}
	slices.Sort(ids)
	if err := l.end(ctx, slices.Compact(ids)); err != nil {
		return err
	}
	return back.ForgetReports(ctx, l.table.report, reports)
}

// end writes the ends of tasks that have ended. Rows in hand whose task does not exist any more are given back: it is
// unknown how it ended.
func (l *raquelTerm) end(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	back := listen.NewRelay(l.client)
	tasks, gone, err := back.Ends(ctx, ids)
	if err != nil {
		return err
	}
	now, err := l.client.Clock(ctx)
	if err != nil {
		return err
	}
	ends, written := make([]jobEnd, 0, len(tasks)), make([]string, 0, len(tasks))
	for _, task := range tasks {
		job, ok := parseJob(task.ID, task.Queue)
		if !ok {
			continue
		}
		ends = append(ends, newJobEnd(job, &task, now))
		written = append(written, task.ID)
	}
	parked := make(map[string]bool)
	err = l.rows.write(ctx, ends, func(e jobEnd, why error) error {
		parked[e.task()] = true
		return l.parkEnd(e, why)
	})
	if err != nil {
		return err
	}
	written = slices.DeleteFunc(written, func(id string) bool { return parked[id] })
	for _, id := range written {
		if job := l.hand[id]; job != nil {
			l.drop(job)
			l.queues[job.queue].ended++
		}
	}
	l.relay.config.Metrics.RelayRows(l.relay.config.Name, "ended", len(written))
	lost := make(map[string]*raquelJob)
	for _, id := range gone {
		if job := l.hand[id]; job != nil {
			job.sent = false // there is nothing to cancel
			lost[id] = job
		}
	}
	if len(lost) > 0 {
		l.relay.log.Warn("tasks are gone before their end was read; their rows run again", "tasks", len(lost))
		if err := back.ForgetOnce(ctx, slices.Collect(maps.Keys(lost)), 0); err != nil {
			return err
		}
	}
	return l.giveBack(ctx, lost)
}
