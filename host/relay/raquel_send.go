package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// send enqueues the tasks of claimed rows.
func (l *raquelTerm) send(ctx context.Context) error {
	if l.since() > forgetAfter/2 { // it was stopped, and what another leader has sent may be forgotten
		return errNotLeader
	}
	groups := make(map[string][]*raquelJob)
	for _, job := range l.unsent {
		if l.hand[job.task()] == job && !job.sent {
			groups[job.queue] = append(groups[job.queue], job)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		for _, jobs := range blocks(groups[name], func(job *raquelJob) int64 { return job.size }) {
			jobs, err := l.readPayloads(ctx, jobs)
			if err != nil {
				return err
			}
			if err := l.enqueue(ctx, name, jobs, true); err != nil {
				return err
			}
			for _, job := range jobs {
				job.payload = nil
			}
		}
	}
	l.unsent = nil
	return nil
}

// readPayloads reads the payloads of adopted rows. It drops rows that are not ours any more, and returns the others.
func (l *raquelTerm) readPayloads(ctx context.Context, jobs []*raquelJob) (ours []*raquelJob, err error) {
	unread := make(map[string]*raquelJob)
	for _, job := range jobs {
		if job.unread {
			unread[job.id] = job
		}
	}
	if len(unread) == 0 {
		return jobs, nil
	}
	err = l.rows.payloads(ctx, unread, func(id string, why error) error {
		return l.refuse(ctx, unread[id], fmt.Errorf("the payload cannot be read: %w", why))
	})
	if err != nil {
		return nil, err
	}
	for _, job := range jobs {
		switch {
		case job.refused:
		case job.unread:
			l.drop(job)
		default:
			ours = append(ours, job)
		}
	}
	return ours, nil
}

// enqueue enqueues the tasks of claimed rows of a queue. first is false for those whose earlier task is removed.
func (l *raquelTerm) enqueue(ctx context.Context, name string, jobs []*raquelJob, first bool) error {
	var specs []queue.Spec
	var large []*raquelJob
	for _, job := range jobs {
		if job.size > maxPayload {
			large = append(large, job)
		} else {
			specs = append(specs, job.spec(l.table.report))
		}
	}
	for _, job := range large {
		if err := l.refuse(ctx, job, tooLarge(job.size)); err != nil {
			return err
		}
		jobs = slices.DeleteFunc(slices.Clone(jobs), func(other *raquelJob) bool { return other == job })
	}
	receipts, err := l.client.Queue(name).EnqueueMany(ctx, specs)
	switch {
	case errors.Is(err, queue.ErrQueueFull), errors.Is(err, queue.ErrManyQueues), errors.Is(err, queue.ErrDamaged):
		l.queues[name].full = time.Now().Add(fullPause)
		l.noteFailure(err)
		return l.giveBack(ctx, byTask(jobs)) // some may be enqueued, and even run
	case errors.Is(err, queue.ErrInvalid) && len(jobs) > 1:
		for i := range jobs {
			if err := l.enqueue(ctx, name, jobs[i:i+1], first); err != nil {
				return err
			}
		}
		return nil
	case errors.Is(err, queue.ErrInvalid):
		return l.refuse(ctx, jobs[0], err)
	case err != nil:
		return err
	}
	l.relay.config.Metrics.RelayRows(l.relay.config.Name, "relayed", len(jobs))
	var known []*raquelJob
	for i, receipt := range receipts {
		if jobs[i].sent = true; receipt.Existed {
			known = append(known, jobs[i])
		}
	}
	if len(known) == 0 {
		return nil
	}
	return l.resume(ctx, name, known, first)
}

// refuse ends a row that can be no task.
func (l *raquelTerm) refuse(ctx context.Context, job *raquelJob, why error) error {
	if !job.refused {
		job.refused = true
		l.relay.log.Error("row refused", "id", job.id, "error", why)
		l.relay.config.Metrics.RelayRows(l.relay.config.Name, "refused", 1)
		l.damaged.refuse()
	}
	parked := false
	err := l.rows.write(ctx, []jobEnd{{raquelJob: *job, kind: endFatal, failure: why.Error()}}, func(e jobEnd, why error) error {
		parked = true
		return l.parkEnd(e, why)
	})
	if err != nil {
		return err
	}
	if !parked {
		l.drop(job)
	}
	return nil
}

// resume continues rows whose task was enqueued before: by an earlier leader, or before the row was given back or lost.
func (l *raquelTerm) resume(ctx context.Context, name string, known []*raquelJob, first bool) error {
	jobs := byTask(known)
	ids := slices.Collect(maps.Keys(jobs))
	ended, again, err := listen.NewRelay(l.client).Ends(ctx, ids)
	if err != nil {
		return err
	}
	var ends []string
	for _, task := range ended {
		if task.Status == queue.Complete || jobs[task.ID].adopted {
			ends = append(ends, task.ID)
		} else { // the relay cancelled it when the row was lost or given back
			if err := l.client.Queue(task.Queue).Delete(ctx, task.ID); err != nil && !errors.Is(err, queue.ErrNoTask) {
				return err
			}
			again = append(again, task.ID)
		}
	}
	if len(again) > 0 && first {
		if err := listen.NewRelay(l.client).ForgetOnce(ctx, again, 0); err != nil {
			return err
		}
		anew := make([]*raquelJob, len(again))
		for i, id := range again {
			anew[i] = jobs[id]
			anew[i].sent = false
		}
		if err := l.enqueue(ctx, name, anew, false); err != nil {
			return err
		}
	}
	return l.end(ctx, ends)
}

// raquelJob is a claimed row.
type raquelJob struct {
	id, queue string
	attempts  int64
	due       int64         // scheduled_at
	age       time.Duration // how long it had been due when it was claimed
	payload   []byte        // nil if it is larger than maxPayload, unread or sent
	size      int64         // of the payload
	left      time.Duration // how long it may wait, at most a day; 0 for no bound
	adopted   bool          // an earlier leader has claimed it
	unread    bool          // its payload was not read yet
	sent      bool          // its task was enqueued
	refused   bool          // it can be no task
	parked    bool          // its end cannot be written
}

// task returns the ID of the row's task. There is one for each attempt.
func (j *raquelJob) task() string { return fmt.Sprintf("%s%s-%d", raquelTask, j.id, j.attempts) }

// parseJob reads the ID of a row's task.
func parseJob(task, name string) (raquelJob, bool) {
	j := raquelJob{queue: name}
	rest, ours := strings.CutPrefix(task, raquelTask)
	const id = 36 // the length of a UUID
	if !ours || len(rest) <= id || rest[id] != '-' || uuid.Validate(rest[:id]) != nil {
		return j, false
	}
	var err error
	j.id = rest[:id]
	j.attempts, err = strconv.ParseInt(rest[id+1:], 10, 64)
	return j, err == nil
}

// spec returns the task of a row. It has one attempt: the row has the others.
func (j *raquelJob) spec(report string) queue.Spec {
	return queue.Spec{Parameters: j.payload, Options: queue.Options{
		ID: j.task(), Once: forgetAfter, Report: report,
		Retry:   queue.Retry{MaxAttempts: 1, MaxReschedules: -1, MaxAge: j.left},
		Headers: map[string]string{headerRaquelID: j.id, headerRaquelAttempt: fmt.Sprint(j.attempts + 1)},
	}}
}

func byTask(jobs []*raquelJob) map[string]*raquelJob {
	all := make(map[string]*raquelJob, len(jobs))
	for _, job := range jobs {
		all[job.task()] = job
	}
	return all
}
