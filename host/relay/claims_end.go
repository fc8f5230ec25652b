package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// holdAll keeps all rows in hand claimed, and finds those that somebody has changed, and ends that were not reported.
func (l *claims) holdAll(ctx context.Context) error {
	ours, err := l.rows.hold(ctx, slices.Collect(maps.Values(l.hand)))
	if err != nil {
		return err
	}
	l.held = time.Now()
	var ids []string
	var lost []*claim
	for id, c := range l.hand {
		switch {
		case !ours[id]:
			lost = append(lost, c)
		case c.sent && !c.parked:
			ids = append(ids, id)
		}
	}
	if err := l.drop(ctx, lost...); err != nil {
		return err
	}
	for i, c := range lost {
		if i == 0 {
			l.relay.log.Warn("rows were taken from the relay, or changed; cancelling and deleting their tasks",
				"rows", len(lost), "first", c.spec.ID)
		}
		// Otherwise it runs to its end, which nobody reads.
		changed := l.client.Change(ctx, queue.ChangeCancel, c.spec.ID)
		if !errors.Is(changed.Err, queue.ErrNoTask) {
			l.stopped[c.spec.ID] = true
		}
	}
	for some := range slices.Chunk(ids, batchRows) {
		if err := l.end(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// retryParked tries parked rows in hand again: it writes their ends or refusals, or gives them back.
func (l *claims) retryParked(ctx context.Context) error {
	due := l.due(parkedBlock)
	var ends []string
	for _, c := range due {
		if c.sent {
			ends = append(ends, c.spec.ID)
		} else if !slices.Contains(l.unsent, c) {
			l.unsent = append(l.unsent, c)
		}
	}
	if err := l.end(ctx, ends); err != nil {
		return err
	}
	isActive := func(c *claim) bool { return l.hand[c.spec.ID] == c && c.sent && !l.isAlone(c.row) }
	var idle []*claim
	for _, c := range due {
		if isActive(c) && !l.queue(c.queue).served {
			idle = append(idle, c)
		}
	}
	if err := l.giveBack(ctx, idle); err != nil {
		return err
	}
	for _, c := range due {
		if isActive(c) { // its task waits or runs
			c.parked = false
			l.queue(c.queue).hand++
			l.forget(c.row)
		}
	}
	return nil
}

// reports reads reports, and writes the ends that they tell of.
func (l *claims) reports(ctx context.Context, wait time.Duration) error {
	reports, err := l.back.Reports(ctx, l.report, wait)
	if err != nil || len(reports) == 0 {
		return err
	}
	ids := make([]string, 0, len(reports))
	for _, report := range reports {
		if c := l.hand[report.Task]; c == nil || c.sent {
			ids = append(ids, report.Task)
		}
	}
	slices.Sort(ids)
	if err := l.end(ctx, slices.Compact(ids)); err != nil {
		return err
	}
	return l.back.ForgetReports(ctx, l.report, reports)
}

// end writes the ends of tasks that have ended. Rows in hand whose task does not exist any more are given back: it is
// unknown how it ended. So are rows that are back after the relay has cancelled their task.
func (l *claims) end(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	tasks, gone, err := l.back.Ends(ctx, ids)
	if err != nil {
		return err
	}
	tasks, deleted, err := l.deleteStopped(ctx, tasks, func(task string) bool { return l.stopped[task] })
	if err != nil {
		return err
	}
	gone = append(gone, deleted...)
	written, err := l.finish(ctx, tasks)
	if err != nil {
		return err
	}
	l.relay.config.Metrics.RelayRows(l.relay.config.Name, "ended", written)
	var lost []*claim
	for _, id := range gone {
		if c := l.hand[id]; c != nil {
			c.sent = false // there is nothing to cancel
			lost = append(lost, c)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	l.relay.log.Warn("tasks are gone before their end was read; their rows run again", "tasks", len(lost))
	if err := l.back.ForgetOnce(ctx, slices.Collect(maps.Keys(byTask(lost))), 0); err != nil {
		return err
	}
	return l.giveBack(ctx, lost)
}

// deleteStopped deletes the tasks that the relay itself has cancelled, which ours tells: a row that has come back since
// is to run. It returns the ends of the other tasks, and the IDs of those that it deleted.
func (l *claims) deleteStopped(
	ctx context.Context, ended []listen.Ended, ours func(task string) bool,
) (others []listen.Ended, deleted []string, err error) {
	for _, task := range ended {
		if task.Failure == nil || task.Failure.Reason != queue.ReasonCancelled || !ours(task.ID) {
			others = append(others, task)
		} else {
			err := l.client.Queue(task.Queue).Delete(ctx, task.ID)
			if err != nil && !errors.Is(err, queue.ErrNoTask) {
				return nil, nil, err
			}
			deleted = append(deleted, task.ID)
		}
		delete(l.stopped, task.ID)
	}
	return others, deleted, nil
}

// finish writes how tasks ended, and returns how many ends it wrote.
func (l *claims) finish(ctx context.Context, tasks []listen.Ended) (written int, err error) {
	if len(tasks) == 0 {
		return 0, nil
	}
	parked := make(map[string]bool)
	err = l.rows.finish(ctx, tasks, func(task string, why error) error {
		parked[task] = true
		if c := l.hand[task]; c != nil {
			return l.parkClaim(c, fmt.Errorf("its end cannot be written: %w", why))
		}
		return nil // of an earlier leader; the row will be adopted, or somebody has changed it
	})
	if err != nil {
		return 0, err
	}
	var done []*claim
	for _, task := range tasks {
		if c := l.hand[task.ID]; c != nil && !parked[task.ID] {
			done = append(done, c)
			l.queue(c.queue).ended++
		}
	}
	return len(tasks) - len(parked), l.drop(ctx, done...)
}

// giveBack leaves rows to others, as if they had never been claimed, and cancels their tasks. A row whose task runs or
// has ended stays in hand, and so does one that cannot be given back: its task is not cancelled.
func (l *claims) giveBack(ctx context.Context, given []*claim) error {
	if len(given) == 0 {
		return nil
	}
	byTask, asked := byTask(given), given
	tasks, _, _, err := l.client.Summaries(ctx, "", "", slices.Collect(maps.Keys(byTask)), 0)
	if err != nil {
		return err
	}
	var waiting []*queue.Task
	for _, task := range tasks {
		c := byTask[task.ID]
		unsure := slices.Contains(l.unsure, c)
		switch {
		case task.Status == queue.Pending || task.Status == queue.Scheduled:
			waiting = append(waiting, task)
			continue
		case task.Reason == queue.ReasonCancelled && (unsure || !c.sent && !c.adopted):
			continue // the relay cancelled it when it gave the row back before
		case unsure:
			again, err := l.rows.claimAgain(ctx, c)
			if err != nil && !ofRow(err) {
				return err
			}
			if err != nil || !again { // somebody was faster, or a rule of the table refuses it
				_ = l.client.Change(ctx, queue.ChangeCancel, task.ID)
				continue
			}
		}
		c.sent = true // its end is about to be read
		delete(byTask, task.ID)
	}
	l.unsure = slices.DeleteFunc(slices.Clone(l.unsure), func(c *claim) bool { return slices.Contains(asked, c) })
	// The row first: a leader that adopts a row of a cancelled task ends the row.
	err = l.rows.unclaim(ctx, slices.Collect(maps.Values(byTask)), func(c *claim, why error) error {
		if l.hand[c.spec.ID] != c { // it was taken from the relay
			return nil
		}
		delete(byTask, c.spec.ID)
		return l.parkClaim(c, fmt.Errorf("it cannot be given back: %w", why))
	})
	if err != nil {
		return err
	}
	waiting = slices.DeleteFunc(waiting, func(task *queue.Task) bool {
		if byTask[task.ID] != nil {
			return false
		}
		l.hand[task.ID].sent = true
		return true
	})
	var away error
	for _, change := range l.client.ChangeAll(ctx, queue.ChangeCancel, waiting) {
		id := change.Task.ID
		if change.Err == nil {
			l.stopped[id] = true
		} else if !errors.Is(change.Err, queue.ErrNoTask) {
			l.unsure = append(l.unsure, byTask[id])
			delete(byTask, id)
			if !isChanged(change.Err) {
				away = change.Err
			}
		}
	}
	if err := errors.Join(l.drop(ctx, slices.Collect(maps.Values(byTask))...), away); err != nil {
		return err
	}
	return l.giveBack(ctx, l.unsure)
}

// isChanged reports whether a task was not cancelled because it has started or ended meanwhile, as after the repeat of
// a cancel whose answer was lost.
func isChanged(err error) bool {
	return errors.Is(err, queue.ErrChanged) || errors.Is(err, queue.ErrStatus)
}
