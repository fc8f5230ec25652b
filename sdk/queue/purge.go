package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// PurgeOptions choose which finished tasks to forget: by OlderThan, Keep or both, or Everything.
type PurgeOptions struct {
	Status    Status        // Complete or Failed (default: both)
	OlderThan time.Duration // forgets tasks that finished longer ago than this (default 0: nothing for its age)
	// Keep forgets the oldest tasks until this many of each status are left (default 0: nothing for its number).
	Keep       int64
	Everything bool // forgets all finished tasks
	// Foreign also forgets tasks that clients other than Quern's enqueued, which those may still want to read. Without it a
	// purge skips the oldest ones that a purge of the last hour passed over.
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

// purgeTasks is how many entries one block reads: forgetting one takes some 20 commands.
const purgeTasks = 75

// Purge forgets finished tasks, block by block, and returns how many. It may be interrupted and repeated at any time.
func (q *Queue) Purge(ctx context.Context, options PurgeOptions) (total int, err error) {
	if err := errors.Join(ValidQueue(q.name), options.validate()); err != nil {
		return 0, err
	}
	if options.Everything {
		options.OlderThan, options.Keep = 0, 0
	}
	keep := optional(options.Keep > 0 || options.Everything, strconv.FormatInt(options.Keep, 10))
	lists := map[Status]string{Complete: q.client.keys.complete(q.name), Failed: q.client.keys.failed(q.name)}
	for _, status := range []Status{Complete, Failed} {
		if options.Status != "" && options.Status != status {
			continue
		}
		for passed, done := optional(options.Foreign, "0"), false; !done; {
			reply, err := q.client.eval(ctx, newCall("purge", lists[status], q.client.clock, q.name, string(status), purgeTasks,
				durationText(options.OlderThan), keep, optional(options.Foreign, "1"), passed))
			v := valuesOf(reply)
			total += v.count()
			passed, done = strconv.FormatInt(v.number(), 10), v.flag()
			if err = cmp.Or(err, v.err()); err != nil {
				return total, fmt.Errorf("purge %s tasks of %q: %w", status, q.name, err)
			}
		}
	}
	return total, nil
}
