package queue

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // as Redis's own sha1hex, not a protection
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Change is a change that operators can make to a task.
type Change string

// The changes of Queue.Cancel, Client.Retry and Queue.Delete.
const (
	ChangeCancel Change = "cancel"
	ChangeRetry  Change = "retry"
	ChangeDelete Change = "delete"

	cancelWaiting Change = "cancel waiting" // see Queue.CancelWaiting
)

// Changed is the result of a Change of one task.
type Changed struct {
	// Task is the task as it was read before the change. If the change retried a dead letter, Task is the failed task
	// that the letter stands for, if that still exists.
	Task     *Task
	Stopping bool // the task runs, and was asked to stop; Wait returns when it has ended
	Err      error
}

// Change makes a change to one task: see Queue.Cancel, Client.Retry and Queue.Delete.
func (c *Client) Change(ctx context.Context, change Change, id string) (changed Changed) {
	task, err := c.Summary(ctx, id)
	if err != nil {
		return Changed{Err: err}
	}
	return c.changeAll(ctx, change, []*Task{task}, anyState)[0]
}

// ChangeAll makes the same change to many tasks, which the caller has read with Summary or from a list. A task that has
// changed since then is left alone, and its error is ErrChanged. The call takes a few round trips.
func (c *Client) ChangeAll(ctx context.Context, change Change, tasks []*Task) []Changed {
	return c.changeAll(ctx, change, tasks, readState)
}

func (c *Client) changeAll(ctx context.Context, change Change, tasks []*Task, stateOf func(*Task) string) []Changed {
	list := make([]Changed, len(tasks))
	for i, task := range tasks {
		list[i].Task = task
	}
	if change == ChangeRetry {
		c.retryAll(ctx, list, stateOf)
	} else {
		c.each(ctx, change, list, stateOf)
	}
	return list
}

// A script changes a task only if the task is in the state that these functions return. readState returns the state in
// which the task was read. anyState returns "", which stands for any state.
func readState(t *Task) string { return t.state }
func anyState(*Task) string    { return "" }

// each runs the script of a change for every task of the list that has no error yet. The script changes a task only if
// it is in the state that stateOf returns. If some dependents do not know yet that a task has ended, each reports the
// end to them and then repeats the script.
func (c *Client) each(ctx context.Context, change Change, list []Changed, stateOf func(*Task) string) {
	script, options := string(change), []any(nil)
	if change == cancelWaiting {
		script, options = string(ChangeCancel), []any{"1"}
	}
	var open []*Changed
	for i := range list {
		one := &list[i]
		if one.Err == nil {
			one.Err = errors.Join(ValidQueue(one.Task.Queue), ValidID(one.Task.ID)) // a hash written by hand may name no queue
		}
		if one.Err == nil {
			open = append(open, one)
		}
	}
	for len(open) > 0 {
		calls := make([]store.Call, len(open))
		for i, one := range open {
			calls[i] = store.NewCall(script, c.store.Keys.Task(one.Task.ID),
				append([]any{c.store.Clock, one.Task.Queue, one.Task.ID, stateOf(one.Task)}, options...)...)
		}
		var telling []*Changed
		for i, reply := range c.store.EvalAll(ctx, calls) {
			one := open[i]
			answer, err := reply.Result()
			if err == nil && answer == "telling" {
				telling = append(telling, one)
				continue
			}
			one.Stopping, one.Err = err == nil && answer == "asked", outcome(change, one.Task.ID, answer, err)
		}
		if open = telling; len(open) == 0 {
			return
		}
		if err := c.store.AdvanceAll(ctx); err != nil {
			for _, one := range open {
				one.Err = fmt.Errorf("%s task %s: %w", change, one.Task.ID, err)
			}
			return
		}
	}
}

// outcome converts the script's reply to the error of a change. It is nil if the task was changed, or its host was
// asked to stop it.
func outcome(change Change, id string, answer any, err error) error {
	text, _ := store.Answered(err)
	if unique, ok := strings.CutPrefix(text, "UNIQUE "); ok {
		return fmt.Errorf("%s: %w", unique, ErrUnique)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s task %s: %w", change, id, err)
	case answer == "asked":
		return nil
	case answer == "changed":
		return fmt.Errorf("task %s: %w", id, ErrChanged)
	case answer == "python":
		return refusal(fmt.Sprintf("task %s is held by a Python listener, which cannot be told to stop", id))
	case answer == "ok" || answer == "gone":
		return store.Verdict(answer, id)
	}
	text = store.AsString(answer)
	if other, state, _ := strings.Cut(strings.TrimPrefix(text, "dependency "), " "); state == "gone" {
		return refusal(fmt.Sprintf("task %s waits for task %s, which does not exist any more: enqueue both anew", id, other))
	} else if state != "" {
		return refusal(fmt.Sprintf("task %[1]s waits for task %[2]s, which failed: retry task %[2]s, and task %[1]s waits again", id, other))
	}
	return refusal(fmt.Sprintf("task %s is %s: %s", id, text, changeable[change]))
}

// changeable says, for error messages, which tasks each change applies to.
var changeable = map[Change]string{
	ChangeCancel: "only waiting tasks, and running ones of hosts and Go workers, can be cancelled",
	ChangeRetry:  "only failed tasks, and those that wait for their next attempt, can be retried",
	ChangeDelete: "only complete and failed tasks can be deleted",

	cancelWaiting: "it does not wait, and was left alone",
}

// refusal is an error with its own text that matches ErrStatus.
type refusal string

func (r refusal) Error() string        { return string(r) }
func (r refusal) Is(target error) bool { return target == ErrStatus }

// Cancel ends a task for good, with ReasonCancelled. If the task waits (pending or scheduled), it has failed when
// Cancel returns, and done is true. If a Quern host or a worker of package worker runs it, done is false: the task is
// stopped there soon, and Wait returns when it has ended. The error is ErrStatus if the task is finished, or if it is
// held by a Python listener, which cannot be asked to stop. The error is ErrNoTask if the queue has no such task.
func (q *Queue) Cancel(ctx context.Context, id string) (done bool, err error) {
	one := q.change(ctx, ChangeCancel, id)
	return one.Err == nil && !one.Stopping, one.Err
}

// CancelWaiting is Cancel for a task that waits. It leaves a task alone that has started: the error is ErrStatus.
func (q *Queue) CancelWaiting(ctx context.Context, id string) error {
	return q.change(ctx, cancelWaiting, id).Err
}

// Retry makes a task that failed for good wait again. Its attempts, crashes and age are counted from zero. Its dead
// letters stay. A task that waits for its next attempt runs at once, and keeps its counters. The error is ErrStatus if
// the task neither failed nor waits so. It is ErrUnique, which also matches ErrStatus, if another task has the task's
// uniqueness now. It is ErrNoTask if the queue has no such task.
func (q *Queue) Retry(ctx context.Context, id string) error {
	return q.change(ctx, ChangeRetry, id).Err
}

// Delete removes a finished task with its log and history. First, Delete reports the end of the task to its dependents,
// which get its result if that becomes their parameters. The error is ErrStatus if the task is not finished, ErrNoTask
// if the queue has no such task.
func (q *Queue) Delete(ctx context.Context, id string) error {
	return q.change(ctx, ChangeDelete, id).Err
}

// change runs the script of a change for a task of this queue, whatever its state.
func (q *Queue) change(ctx context.Context, change Change, id string) Changed {
	list := []Changed{{Task: &Task{ID: id, Queue: q.name}}}
	q.client.each(ctx, change, list, anyState)
	return list[0]
}

// Retry is Queue.Retry for operators. Given a dead letter, it retries the failed task that the letter stands for, if
// that still exists. It also deletes those dead letters of the task that wait or have failed, because nobody needs to
// handle them any more. The error is ErrLetterStays if the task is retried but a letter could not be deleted. Retry
// returns the task that it retried or refused to retry, as Summary read it before the retry.
func (c *Client) Retry(ctx context.Context, id string) (*Task, error) {
	one := c.Change(ctx, ChangeRetry, id)
	return one.Task, one.Err
}

func (c *Client) retryAll(ctx context.Context, list []Changed, stateOf func(*Task) string) {
	origins, err := c.origins(ctx, list)
	var letters [][]string
	if err == nil {
		letters, err = c.letters(ctx, list) // before the retry, which removes dead_id
	}
	if err != nil {
		for i := range list {
			list[i].Err = fmt.Errorf("retry task %s: %w", list[i].Task.ID, err)
		}
		return
	}
	c.each(ctx, ChangeRetry, list, func(t *Task) string {
		if origins[t] { // the caller has read the letter, not this task, which may have changed since
			return ""
		}
		return stateOf(t)
	})
	c.clear(ctx, list, letters)
}

// origins replaces each dead letter in the list by the failed task that it stands for, if that exists. It returns the
// set of these failed tasks.
func (c *Client) origins(ctx context.Context, list []Changed) (origins map[*Task]bool, err error) {
	var ids []string
	for _, one := range list {
		if one.Task.LiveID != "" {
			ids = append(ids, one.Task.LiveID)
		}
	}
	tasks, err := c.summaries(ctx, ids)
	origins = make(map[*Task]bool, len(tasks))
	of := make(map[string]*Task, len(tasks))
	for _, task := range tasks {
		of[task.ID], origins[task] = task, true
	}
	for i := range list {
		list[i].Task = cmp.Or(of[list[i].Task.LiveID], list[i].Task)
	}
	return origins, err
}

// maxLetters is the length of the longest chain of dead letters.
const maxLetters = 5

// letters lists the dead letters of each task. Letters form a chain: the field dead_id of a letter names the letter
// that was made when this letter failed.
func (c *Client) letters(ctx context.Context, list []Changed) (letters [][]string, err error) {
	letters = make([][]string, len(list))
	var buried []int
	for i, one := range list {
		if one.Task.DeadID != "" {
			buried = append(buried, i)
		}
	}
	hashes, err := store.Pipelined(ctx, c.store, buried, func(p redis.Pipeliner, i int) *redis.SliceCmd {
		return p.HMGet(ctx, c.store.Keys.Task(list[i].Task.ID), "dead_id", "run", "retried_at", "created")
	})
	next, last := make([]string, len(list)), make([]string, len(list))
	for n, hash := range hashes {
		if h := hash.Val(); len(h) == 4 && h[0] != nil {
			i := buried[n]
			sum := sha1.Sum([]byte(list[i].Task.ID + " " + store.AsString(h[1]) + " " + store.AsString(h[2]) + " " + store.AsString(h[3]))) //nolint:gosec // as PROTOCOL.md names letters
			next[i], last[i] = "dead-"+hex.EncodeToString(sum[:]), store.AsString(h[0])
		}
	}
	for range maxLetters {
		buried = slices.DeleteFunc(buried, func(i int) bool { return next[i] == "" })
		for _, i := range buried {
			letters[i] = append(letters[i], next[i])
		}
		if err != nil || len(buried) == 0 {
			break
		}
		var names []*redis.StringCmd
		names, err = store.Pipelined(ctx, c.store, buried, func(p redis.Pipeliner, i int) *redis.StringCmd {
			return p.HGet(ctx, c.store.Keys.Task(next[i]), "dead_id")
		})
		for n, name := range names {
			next[buried[n]] = name.Val()
		}
	}
	for i := range letters {
		if last[i] != "" && !slices.Contains(letters[i], last[i]) { // a letter in the middle of the chain was deleted
			letters[i] = append(letters[i], last[i])
		}
	}
	return letters, err
}

// clear deletes the dead letters of the retried tasks, except letters that run or are complete.
func (c *Client) clear(ctx context.Context, list []Changed, letters [][]string) {
	of := make(map[string]int)
	var ids []string
	for i, some := range letters {
		for _, id := range some {
			if list[i].Err == nil {
				of[id], ids = i, append(ids, id)
			}
		}
	}
	tasks, err := c.summaries(ctx, ids)
	if err != nil {
		for _, i := range of {
			list[i].Err = fmt.Errorf("task %s is retried, but %w: %w", list[i].Task.ID, ErrLetterStays, err)
		}
		return
	}
	var waiting, failed []Changed
	for _, task := range tasks {
		if one := (Changed{Task: task}); task.Status == Failed {
			failed = append(failed, one)
		} else {
			waiting = append(waiting, one)
		}
	}
	c.each(ctx, cancelWaiting, waiting, anyState)
	failed = append(failed, waiting...)
	c.each(ctx, ChangeDelete, failed, anyState) // skips the letters that could not be cancelled
	for _, one := range failed {
		i := of[one.Task.ID]
		// ErrStatus and ErrNoTask: somebody else has changed the letter meanwhile.
		if one.Err != nil && list[i].Err == nil && !errors.Is(one.Err, ErrStatus) && !errors.Is(one.Err, ErrNoTask) {
			list[i].Err = fmt.Errorf("task %s is retried, but %w: %w", list[i].Task.ID, ErrLetterStays, one.Err)
		}
	}
}
