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
)

// Cancel ends a task for good, with the reason cancelled. A task that waits (pending or scheduled) has failed when Cancel
// returns done. One that a Quern host or a worker of this package runs is stopped there, soon: Wait tells when. ErrStatus if
// the task is finished, or a Python listener holds it, which nobody can stop; ErrNoTask if the queue has no such task.
func (q *Queue) Cancel(ctx context.Context, id string) (done bool, err error) {
	answer, err := q.change(ctx, "cancel", id, q.client.clock, q.name, id, 0)
	switch {
	case err != nil:
		return false, err
	case answer == "asked":
		return false, nil
	case answer == "python":
		return false, fmt.Errorf("task %s is held by a Python listener, which cannot be told to stop: %w", id, ErrStatus)
	}
	return answer == "ok", verdict(answer, id)
}

// Retry makes a task that failed for good wait again, and counts its attempts, crashes and age anew. Its dead letters stay. ErrStatus if
// it has not failed, and ErrUnique, which is one, if another task has its uniqueness by now; ErrNoTask if the queue has no such task.
func (q *Queue) Retry(ctx context.Context, id string) error {
	answer, err := q.change(ctx, "retry", id, q.client.clock, q.name, id)
	var refusal redis.Error
	if errors.As(err, &refusal) && strings.HasPrefix(refusal.Error(), "UNIQUE ") {
		return fmt.Errorf("%s: %w", strings.TrimPrefix(refusal.Error(), "UNIQUE "), ErrUnique)
	}
	return cmp.Or(err, verdict(answer, id))
}

// Retry is Queue.Retry as an operator means it. Of a dead letter it retries the failed task that the letter stands for, while that
// exists; and it deletes the letters of the task that wait or failed, since nobody needs to handle them any more: ErrLetterStays if it
// cannot, although the task is retried. It returns the task that it retried or refused to retry, as Summary read it before.
func (c *Client) Retry(ctx context.Context, id string) (*Task, error) {
	task, err := c.Summary(ctx, id)
	if err == nil && task.LiveID != "" {
		origin, gone := c.Summary(ctx, task.LiveID)
		if !errors.Is(gone, ErrNoTask) {
			task, err = origin, gone
		}
	}
	if err != nil {
		return nil, err
	}
	letters, err := c.letters(ctx, task.ID) // while the task still tells them
	if err != nil {
		return task, wrap("read dead letters of task "+task.ID, err)
	}
	if err = c.Queue(task.Queue).Retry(ctx, task.ID); err != nil {
		return task, err
	}
	for _, letter := range letters {
		if failed := c.clear(ctx, letter); failed != nil && err == nil {
			err = fmt.Errorf("task %s is retried, but %w: %w", task.ID, ErrLetterStays, failed)
		}
	}
	return task, err
}

// letters lists the dead letters of a task. Each names the one that was made when it failed itself.
func (c *Client) letters(ctx context.Context, id string) (letters []string, err error) {
	h, err := c.rdb.HMGet(ctx, c.keys.task(id), "dead_id", "run", "retried_at", "created").Result()
	if err != nil || h[0] == nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(id + " " + asString(h[1]) + " " + asString(h[2]) + " " + asString(h[3]))) //nolint:gosec // as PROTOCOL.md names letters
	for next := "dead-" + hex.EncodeToString(sum[:]); next != "" && len(letters) < maxLetters; {
		letters = append(letters, next)
		if next, err = c.rdb.HGet(ctx, c.keys.task(next), "dead_id").Result(); err != nil && !isNil(err) {
			return nil, err
		}
	}
	if last := asString(h[0]); !slices.Contains(letters, last) { // one between them is deleted
		letters = append(letters, last)
	}
	return letters, nil
}

// maxLetters is the length of the longest chain of dead letters.
const maxLetters = 5

// clear deletes a dead letter, unless it runs or was handled.
func (c *Client) clear(ctx context.Context, letter string) error {
	task, err := c.Summary(ctx, letter)
	switch {
	case errors.Is(err, ErrNoTask):
		return nil
	case err != nil:
		return err
	}
	q := c.Queue(task.Queue)
	if task.Status != Failed {
		answer, err := q.change(ctx, "cancel", letter, c.clock, q.name, letter, 1)
		if err = cmp.Or(err, verdict(answer, letter)); err != nil {
			return passStatus(err)
		}
	}
	return passStatus(q.Delete(ctx, letter))
}

// passStatus drops the error of a task that somebody else changed meanwhile.
func passStatus(err error) error {
	if errors.Is(err, ErrStatus) || errors.Is(err, ErrNoTask) {
		return nil
	}
	return err
}

// DeadLetters counts the waiting dead letters in the queue, pending or scheduled, and the failed tasks of it whose dead letter nobody
// has handled: up to 10,000 of each status, from the newest (scheduled: from the next due).
func (q *Queue) DeadLetters(ctx context.Context) (waiting, failed int64, err error) {
	count := func(status Status, has, without string) (n int64, err error) {
		ids, err := q.ids(ctx, ListOptions{Status: status, Limit: 10_000})
		if err != nil {
			return 0, err
		}
		hashes, err := pipelined(ctx, &q.client.store, ids, func(p redis.Pipeliner, id string) *redis.SliceCmd {
			return p.HMGet(ctx, q.client.keys.task(id), has, without)
		})
		for _, hash := range hashes {
			if h := hash.Val(); len(h) == 2 && h[0] != nil && h[1] == nil {
				n++
			}
		}
		return n, err
	}
	if err := ValidQueue(q.name); err != nil {
		return 0, 0, err
	}
	for _, status := range []Status{Pending, Scheduled} {
		n, err := count(status, "live_id", "result")
		if waiting += n; err != nil {
			return waiting, 0, wrap(fmt.Sprintf("count dead letters of %q", q.name), err)
		}
	}
	failed, err = count(Failed, "dead_id", "handled")
	return waiting, failed, wrap(fmt.Sprintf("count dead letters of %q", q.name), err)
}

// Delete removes a finished task with log and history. Tasks that wait for it are told of its end first, and get its result if that is
// to be their parameters. ErrStatus if it is not finished, ErrNoTask if the queue has none.
func (q *Queue) Delete(ctx context.Context, id string) error {
	for {
		answer, err := q.change(ctx, "delete", id, q.name, id)
		if err != nil || answer != "telling" {
			return cmp.Or(err, verdict(answer, id))
		}
		if err := q.client.Fleet().advanceAll(ctx); err != nil {
			return wrap("delete task "+id, err)
		}
	}
}

func (q *Queue) change(ctx context.Context, script, id string, args ...any) (answer any, err error) {
	if err := errors.Join(ValidQueue(q.name), ValidID(id)); err != nil {
		return nil, err
	}
	answer, err = q.client.eval(ctx, newCall(script, q.client.keys.task(id), args...))
	return answer, wrap(fmt.Sprintf("%s task %s", script, id), err)
}
