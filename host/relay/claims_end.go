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
// While Redis is away it only keeps the rows: the rest would wait for Redis, and delay the next call.
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
	if len(lost) > 0 {
		l.relay.log.Warn("rows were taken from the relay, or changed; cancelling and deleting their tasks",
			"rows", len(lost), "first", lost[0].spec.ID)
	}
	for _, c := range lost { // otherwise their tasks run to their ends, which nobody reads
		l.lost = append(l.lost, c.spec.ID)
	}
	if err := l.drop(ctx, lost...); err != nil || l.pause.Left(time.Now()) > 0 {
		return err
	}
	if err := l.stopLost(ctx); err != nil {
		return err
	}
	for some := range slices.Chunk(ids, batchRows) {
		if err := l.end(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// stopLost cancels and deletes the tasks that no row needs any more. After an error of Redis, the next call goes on.
func (l *claims) stopLost(ctx context.Context) error {
	for len(l.lost) > 0 {
		some := l.lost[:min(len(l.lost), batchRows)]
		tasks, _, _, err := l.client.Summaries(ctx, "", "", some, 0)
		if err != nil {
			return err
		}
		var cancelled []string
		var open []*queue.Task
		for _, task := range tasks {
			if task.Reason == queue.ReasonCancelled && l.stopped[task.ID] {
				cancelled = append(cancelled, task.ID)
			} else {
				open = append(open, task)
			}
		}
		left, away := l.stop(ctx, open)
		var again []string
		for _, change := range left {
			if id := change.Task.ID; errors.Is(change.Err, queue.ErrChanged) { // it has started meanwhile
				again = append(again, id)
			} else if queue.IsUnavailable(change.Err) {
				l.stopped[id] = true // it may be cancelled
			}
		}
		if !queue.IsUnavailable(away) {
			away = errors.Join(away, l.deleteCancelled(ctx, cancelled))
		}
		if queue.IsUnavailable(away) {
			return away
		} else if away != nil {
			l.noteFailure(away)
		}
		l.lost = append(slices.Clone(l.lost[len(some):]), again...)
	}
	return nil
}

// stop cancels tasks, and deletes those that did not run: a row that has come back since must find no cancelled task.
// It returns the tasks that are not cancelled, or perhaps not, and an error that is none of a task.
func (l *claims) stop(ctx context.Context, tasks []*queue.Task) (left []queue.Changed, err error) {
	var cancelled []string
	for _, change := range l.client.ChangeAll(ctx, queue.ChangeCancel, tasks) {
		switch id := change.Task.ID; {
		case change.Err == nil:
			l.stopped[id] = true
			if !change.Stopping {
				cancelled = append(cancelled, id)
			}
		case !errors.Is(change.Err, queue.ErrNoTask):
			left = append(left, change)
			if !isChanged(change.Err) {
				err = change.Err
			}
		}
	}
	if err == nil {
		err = l.deleteCancelled(ctx, cancelled)
	}
	return left, err
}

// deleteCancelled deletes tasks that the relay itself has cancelled.
func (l *claims) deleteCancelled(ctx context.Context, ids []string) error {
	for some := range slices.Chunk(ids, batchRows) {
		tasks, _, _, err := l.client.Summaries(ctx, "", "", some, 0)
		if err != nil {
			return err
		}
		tasks = slices.DeleteFunc(tasks, func(task *queue.Task) bool { return task.Reason != queue.ReasonCancelled })
		for _, change := range l.client.ChangeAll(ctx, queue.ChangeDelete, tasks) {
			if err := change.Err; err != nil && !isChanged(err) && !errors.Is(err, queue.ErrNoTask) {
				return err
			}
		}
		for _, id := range some {
			delete(l.stopped, id)
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
// unknown how it ended. Rows that are back after the relay has cancelled their task are given back, too.
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
	for _, id := range gone {
		delete(l.stopped, id)
	}
	written, err := l.finish(ctx, tasks)
	if err != nil {
		return err
	}
	l.relay.config.Metrics.RelayRows(l.relay.config.Name, "ended", written)
	unknown := l.inHand(gone)
	lost := slices.Concat(unknown, l.inHand(deleted))
	if len(lost) == 0 {
		return nil
	}
	if len(unknown) > 0 {
		l.relay.log.Warn("tasks are gone before their end was read; their rows run again", "tasks", len(unknown))
	}
	for _, c := range lost {
		c.sent = false // there is nothing to cancel
	}
	if err := l.back.ForgetOnce(ctx, slices.Collect(maps.Keys(byTask(lost))), 0); err != nil {
		return err
	}
	return l.giveBack(ctx, lost)
}

// inHand returns the rows in hand of tasks.
func (l *claims) inHand(tasks []string) (rows []*claim) {
	for _, id := range tasks {
		if c := l.hand[id]; c != nil {
			rows = append(rows, c)
		}
	}
	return rows
}

// deleteStopped deletes the tasks that the relay itself has cancelled: a row that has come back since is to run. ours
// reports whether it was the relay. It returns the ends of the other tasks, and the IDs of those that it deleted.
func (l *claims) deleteStopped(
	ctx context.Context, ended []listen.Ended, ours func(task string) bool,
) (others []listen.Ended, deleted []string, err error) {
	for _, task := range ended {
		if task.Failure == nil || task.Failure.Reason != queue.ReasonCancelled || !ours(task.ID) {
			others = append(others, task)
			delete(l.stopped, task.ID)
		} else {
			deleted = append(deleted, task.ID)
		}
	}
	return others, deleted, l.deleteCancelled(ctx, deleted)
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
			l.stopped[task.ID] = true // it was cancelled when the row was given back before
			l.lost = append(l.lost, task.ID)
			continue
		case unsure:
			again, err := l.rows.claimAgain(ctx, c)
			if err != nil && !ofRow(err) {
				return err
			}
			if err != nil || !again { // somebody was faster, or a rule of the table refuses it
				l.lost = append(l.lost, task.ID)
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
	left, away := l.stop(ctx, waiting)
	for _, change := range left {
		l.unsure = append(l.unsure, byTask[change.Task.ID])
		delete(byTask, change.Task.ID)
	}
	if err := errors.Join(l.drop(ctx, slices.Collect(maps.Values(byTask))...), away); err != nil {
		return err
	}
	if err := l.stopLost(ctx); err != nil {
		return err
	}
	return l.giveBack(ctx, l.unsure)
}

// isChanged reports whether a task was not cancelled because it has started or ended meanwhile, as after the repeat of
// a cancel whose answer was lost.
func isChanged(err error) bool {
	return errors.Is(err, queue.ErrChanged) || errors.Is(err, queue.ErrStatus)
}
