package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cancel ends a task for good, with the reason cancelled. One that waits (pending or scheduled) has
// failed when Cancel returns; done is true then. One that a Quern host or a worker of this package runs
// is stopped there, soon: Wait tells when. ErrStatus if a Python listener holds it, which nobody can
// stop, or if it is finished; ErrNoTask if the queue has none of that ID.
func (q *Queue) Cancel(ctx context.Context, id string) (done bool, err error) {
	answer, err := q.act(ctx, "cancel", id, call{
		script: cancelScript,
		keys:   []string{q.client.keys.task(id)},
		args:   []any{q.client.clock, q.name, id, searched},
	})
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

// Retry makes a task that failed for good wait again, with its attempts, crashes and age counted anew.
// ErrStatus if it has not failed, or if another task has its uniqueness by now; ErrNoTask if the queue has none of that ID.
func (q *Queue) Retry(ctx context.Context, id string) error {
	answer, err := q.act(ctx, "retry", id, call{
		script: retryScript,
		keys:   []string{q.client.keys.task(id)},
		args:   []any{q.client.clock, q.name, id, searched, int64(uniqueLife.Seconds())},
	})
	var refusal redis.Error
	if errors.As(err, &refusal) && strings.HasPrefix(refusal.Error(), "UNIQUE ") {
		return fmt.Errorf("%s: %w", strings.TrimPrefix(refusal.Error(), "UNIQUE "), ErrStatus)
	}
	if err != nil {
		return err
	}
	return verdict(answer, id)
}

// Delete removes a finished task with its log and its history. ErrStatus if it is not finished,
// ErrNoTask if the queue has none of that ID.
func (q *Queue) Delete(ctx context.Context, id string) error {
	answer, err := q.act(ctx, "delete", id, call{
		script: deleteScript,
		keys:   []string{q.client.keys.task(id)},
		args:   []any{q.name, id, searched},
	})
	if err != nil {
		return err
	}
	return verdict(answer, id)
}

func (q *Queue) act(ctx context.Context, verb, id string, one call) (answer any, err error) {
	if err := ValidQueue(q.name); err != nil {
		return nil, err
	}
	if err := ValidID(id); err != nil {
		return nil, err
	}
	if answer, err = q.client.eval(ctx, one); err != nil {
		return nil, fmt.Errorf("%s task %s: %w", verb, id, err)
	}
	return answer, nil
}

// Pause keeps every Quern host, and every listener of this package, from reserving tasks of the queue;
// what runs goes on. Python listeners know nothing of it.
func (q *Queue) Pause(ctx context.Context) error {
	if err := ValidQueue(q.name); err != nil {
		return err
	}
	return wrap("pause queue "+q.name, q.client.rdb.SAdd(ctx, q.client.keys.paused(), q.name).Err())
}

// Resume ends a pause and wakes the listeners.
func (q *Queue) Resume(ctx context.Context) error {
	if err := ValidQueue(q.name); err != nil {
		return err
	}
	if err := q.client.rdb.SRem(ctx, q.client.keys.paused(), q.name).Err(); err != nil {
		return wrap("resume queue "+q.name, err)
	}
	// Who may not publish, or is cut off now, is found by the poll.
	_ = q.client.rdb.Publish(ctx, q.client.keys.channel(q.name), "").Err()
	return nil
}

// SetLimit bounds how many tasks may wait in the queue, pending or scheduled; 0 lifts the bound. What
// waits already stays, and what is tried again is not counted against it.
func (q *Queue) SetLimit(ctx context.Context, limit int64) error {
	if err := ValidQueue(q.name); err != nil {
		return err
	}
	if limit < 0 {
		return fmt.Errorf("%w: limit %d of queue %q: use 1 or more, or 0 for none", ErrInvalid, limit, q.name)
	}
	limits := q.client.keys.limits()
	if limit == 0 {
		return wrap("lift limit of queue "+q.name, q.client.rdb.HDel(ctx, limits, q.name).Err())
	}
	return wrap("limit queue "+q.name, q.client.rdb.HSet(ctx, limits, q.name, limit).Err())
}

// Limit is how many tasks may wait in the queue; 0: there is no bound.
func (q *Queue) Limit(ctx context.Context) (int64, error) {
	limit, err := q.client.rdb.HGet(ctx, q.client.keys.limits(), q.name).Result()
	if isNil(err) {
		return 0, nil
	}
	return asInt(limit), wrap("read limit of queue "+q.name, err)
}

// PurgeOptions choose which finished tasks to forget. At least one of OlderThan and Keep says so.
type PurgeOptions struct {
	// Status is Complete or Failed (default: both).
	Status Status
	// OlderThan forgets what finished longer ago than this (default 0: nothing for its age).
	OlderThan time.Duration
	// Keep forgets the oldest of what is more than this, of each status (default 0: nothing for its
	// number; to forget all, use Everything).
	Keep int64
	// Everything forgets all finished tasks.
	Everything bool
	// Foreign forgets also tasks that clients other than Quern's enqueued: they may want to read them. Without it, those at
	// the old end that a purge of the last hour passed over are not looked at again.
	Foreign bool
}

func (o PurgeOptions) validate() error {
	switch {
	case o.Status != "" && !o.Status.Finished():
		return fmt.Errorf("%w: purge of tasks that are %s: use complete or failed", ErrInvalid, o.Status)
	case o.OlderThan < 0 || o.Keep < 0:
		return fmt.Errorf("%w: purge of what is older than %s, or more than %d: use 0 or more", ErrInvalid, o.OlderThan, o.Keep)
	case o.OlderThan == 0 && o.Keep == 0 && !o.Everything:
		return fmt.Errorf("%w: purge of everything: say so, or name an age or a number", ErrInvalid)
	}
	return nil
}

// Purge forgets finished tasks, in blocks between which Redis serves others, and returns how many. It
// may be broken off and repeated at any time.
func (q *Queue) Purge(ctx context.Context, options PurgeOptions) (int, error) {
	if err := ValidQueue(q.name); err != nil {
		return 0, err
	}
	if err := options.validate(); err != nil {
		return 0, err
	}
	if options.Everything {
		options.OlderThan, options.Keep = 0, 0
	}
	total := 0
	for _, status := range []Status{Complete, Failed} {
		if options.Status != "" && options.Status != status {
			continue
		}
		keep := optional(options.Keep > 0 || options.Everything, strconv.FormatInt(options.Keep, 10))
		n, err := q.purge(ctx, status, keep, options)
		total += n
		if err != nil {
			return total, fmt.Errorf("purge %s tasks of %q: %w", status, q.name, err)
		}
	}
	return total, nil
}

// purgeTasks is how many entries one block looks at: forgetting one takes some 20 commands.
const purgeTasks = 75

func (q *Queue) purge(ctx context.Context, status Status, keep string, options PurgeOptions) (int, error) {
	list := q.client.keys.complete(q.name)
	if status == Failed {
		list = q.client.keys.failed(q.name)
	}
	total, passed := 0, optional(options.Foreign, "0")
	for {
		value, err := q.client.eval(ctx, call{
			script: purgeScript,
			keys:   []string{list},
			args: []any{
				q.client.clock, q.name, string(status), purgeTasks,
				optional(options.OlderThan > 0, durationText(options.OlderThan)), keep, optional(options.Foreign, "1"), passed,
			},
		})
		answer := asList(value)
		if err == nil && len(answer) < 3 {
			err = errors.New("unexpected answer of a script")
		}
		if err != nil {
			return total, err
		}
		total += int(asInt(answer[0]))
		passed = strconv.FormatInt(asInt(answer[1]), 10)
		if asInt(answer[2]) == 1 {
			return total, nil
		}
	}
}

// Expire fails every task of the queue that waits and is past its time, and returns how many. maxAge
// bounds the age of tasks that name none themselves (0: none), and dead is the queue of their dead
// letters ("": none). A host does it by itself, as its plugin's manifest says.
func (q *Queue) Expire(ctx context.Context, maxAge time.Duration, dead string) (int, error) {
	return allBlocks(q.client.clock, func(clock string) (Block, error) { return q.expire(ctx, clock, maxAge, dead) })
}

// ExpireBlock is one block of Expire, for who has other queues that must not wait.
func (q *Queue) ExpireBlock(ctx context.Context, maxAge time.Duration, dead string) (Block, error) {
	return q.expire(ctx, q.client.clock, maxAge, dead)
}

func (q *Queue) expire(ctx context.Context, clock string, maxAge time.Duration, dead string) (Block, error) {
	if err := ValidQueue(q.name); err != nil {
		return Block{}, err
	}
	value, err := q.client.eval(ctx, call{
		script: expireScript,
		keys:   []string{q.client.keys.expiry(q.name)},
		args:   []any{clock, q.name, expiryTasks, optional(maxAge > 0, durationText(maxAge)), dead},
	})
	block, err := newBlock(value, err)
	return block, wrap(fmt.Sprintf("expire tasks of %q", q.name), err)
}

// expiryTasks is how many tasks one block expires: each may have to be searched for, and need a dead letter.
const expiryTasks = 16
