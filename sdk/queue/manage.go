package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Cancel ends a task for good, with the reason cancelled. A task that waits (pending or scheduled) has failed when Cancel
// returns done. One that a Quern host or a worker of this package runs is stopped there, soon: Wait tells when. ErrStatus if
// the task is finished, or a Python listener holds it, which nobody can stop; ErrNoTask if the queue has no such task.
func (q *Queue) Cancel(ctx context.Context, id string) (done bool, err error) {
	answer, err := q.change(ctx, "cancel", id, q.client.clock, q.name, id, searched)
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

// Retry makes a task that failed for good wait again, and counts its attempts, crashes and age anew. ErrStatus if it has not
// failed, or if another task has its uniqueness by now; ErrNoTask if the queue has no such task.
func (q *Queue) Retry(ctx context.Context, id string) error {
	answer, err := q.change(ctx, "retry", id, q.client.clock, q.name, id, searched, int64(uniqueLife.Seconds()))
	var refusal redis.Error
	if errors.As(err, &refusal) && strings.HasPrefix(refusal.Error(), "UNIQUE ") {
		return fmt.Errorf("%s: %w", strings.TrimPrefix(refusal.Error(), "UNIQUE "), ErrStatus)
	}
	return cmp.Or(err, verdict(answer, id))
}

// Delete removes a finished task with log and history. ErrStatus if it is not finished, ErrNoTask if the queue has none.
func (q *Queue) Delete(ctx context.Context, id string) error {
	answer, err := q.change(ctx, "delete", id, q.name, id, searched)
	return cmp.Or(err, verdict(answer, id))
}

func (q *Queue) change(ctx context.Context, script, id string, args ...any) (answer any, err error) {
	if err := errors.Join(ValidQueue(q.name), ValidID(id)); err != nil {
		return nil, err
	}
	answer, err = q.client.eval(ctx, newCall(script, q.client.keys.task(id), args...))
	return answer, wrap(fmt.Sprintf("%s task %s", script, id), err)
}
