package listen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// PurgeOptions choose which finished tasks a purge deletes: by OlderThan, by Keep, by both, or all of them with
// Everything.
type PurgeOptions struct {
	Status    queue.Status  // Complete or Failed (default: both)
	OlderThan time.Duration // deletes tasks that finished longer ago than this (0: deletes none)
	// Keep deletes the oldest tasks until this many of each status are left (0: deletes none).
	Keep       int64
	Everything bool // deletes all finished tasks
	// Foreign also deletes tasks that clients other than Quern's enqueued. Without Foreign these tasks stay, because
	// their clients may still want to read them. A purge without Foreign skips the oldest of them if a purge in the last
	// hour has already passed over them.
	Foreign bool
	// Most makes Fleet.Purge end when it has deleted this many tasks. It can delete up to store.PurgeTasks more. By
	// default, 0, it ends when no tasks are left to delete.
	Most int
}

func (o PurgeOptions) validate() error {
	switch {
	case o.Status != "" && !o.Status.Finished():
		return fmt.Errorf("%w: purge of tasks that are %s: use complete or failed", queue.ErrInvalid, o.Status)
	case o.OlderThan < 0 || o.Keep < 0:
		return fmt.Errorf("%w: purge of tasks older than %s, keeping %d: use 0 or more for both", queue.ErrInvalid,
			o.OlderThan, o.Keep)
	case o.OlderThan == 0 && o.Keep == 0 && !o.Everything:
		return fmt.Errorf("%w: purge without an age or a number of tasks to keep: name one, or purge everything explicitly",
			queue.ErrInvalid)
	}
	return nil
}

// limits returns the maximum age in seconds and the number of tasks to keep, in the form that scripts expect; "" means
// no limit.
func (o PurgeOptions) limits() (age, keep string) {
	if o.Everything {
		return "", "0"
	}
	return store.DurationText(o.OlderThan), store.Optional(o.Keep > 0, strconv.FormatInt(o.Keep, 10))
}

// Recounted is the result of Recount for one queue.
type Recounted struct {
	Queue     string
	Forgotten bool  // the queue was empty, and Recount deleted it
	Old       bool  // Purge may find tasks to delete
	Err       error // a key of the queue has the wrong type
}

// Recount corrects the number of listeners and the set of started tasks of each queue. It deletes queues without tasks,
// listeners and settings, together with their counters; the next enqueue or listener creates them again. Where tasks
// wait for others with their concurrency key, it checks that those have not ended. It counts finished tasks for the
// tenant's quota of their bytes if they ended before that was set. It returns only the queues that it deleted, that are
// damaged, or that are Old: a Purge with the same options may delete some of their tasks.
func (f *Fleet) Recount(ctx context.Context, queues []string, options PurgeOptions) (news []Recounted, err error) {
	age, keep := options.limits()
	blocks := slices.Collect(slices.Chunk(queues, store.RecountQueues))
	calls := make([]store.Call, len(blocks))
	for i, block := range blocks {
		calls[i] = store.NewCall("recount", f.client.Store().Keys.Queues(),
			store.Named(block, f.client.Store().Clock, age, keep)...)
	}
	var lines, uncounted []string
	for i, reply := range f.client.Store().EvalAll(ctx, calls) {
		v := store.ValuesOf(reply.Val())
		for v.More() {
			number, word := v.Count(), v.Text()
			if number < 1 || number > len(blocks[i]) {
				return nil, store.ErrReply
			}
			switch word {
			case "line":
				lines = append(lines, blocks[i][number-1])
				continue
			case "uncounted":
				uncounted = append(uncounted, blocks[i][number-1])
				continue
			}
			one := Recounted{Queue: blocks[i][number-1], Forgotten: word == "forgotten", Old: word == "old"}
			if !one.Forgotten && !one.Old {
				one.Err = fmt.Errorf("recount queue %q: %s", one.Queue, word)
				one.Old = age != "" || keep != "" // not known: let Purge find out
			}
			news = append(news, one)
		}
		if err := cmp.Or(reply.Err(), v.Err()); err != nil {
			return nil, fmt.Errorf("recount %d queues: %w", len(queues), err)
		}
	}
	for _, name := range lines {
		if err := f.client.Store().CheckLanes(ctx, name); err != nil {
			news = append(news, Recounted{Queue: name, Err: err})
		}
	}
	for _, name := range uncounted {
		if err := f.client.Store().CountFinished(ctx, name); err != nil {
			news = append(news, Recounted{Queue: name, Err: err})
		}
	}
	return news, nil
}

// Purge deletes finished tasks of a queue, block by block, and returns how many. It can be interrupted and repeated at
// any time.
func (f *Fleet) Purge(ctx context.Context, name string, options PurgeOptions) (total int, err error) {
	if err := errors.Join(queue.ValidQueue(name), options.validate()); err != nil {
		return 0, err
	}
	age, keep := options.limits()
	lists := map[queue.Status]string{
		queue.Complete: f.client.Store().Keys.Complete(name),
		queue.Failed:   f.client.Store().Keys.Failed(name),
	}
	for _, status := range []queue.Status{queue.Complete, queue.Failed} {
		if options.Status != "" && options.Status != status {
			continue
		}
		for passed, done := store.Optional(options.Foreign, "0"), false; !done; {
			reply, err := f.client.Store().Eval(ctx, store.NewCall("purge", lists[status], f.client.Store().Clock, name,
				string(status), store.PurgeTasks,
				age, keep, store.Optional(options.Foreign, "1"), passed))
			v := store.ValuesOf(reply)
			total += v.Count()
			passed, done = v.Text(), v.Flag()
			untold := v.Flag()
			if err = cmp.Or(err, v.Err()); err == nil && untold {
				err = f.client.Store().AdvanceAll(ctx)
			}
			if err != nil {
				return total, fmt.Errorf("purge %s tasks of %q: %w", status, name, err)
			}
			if options.Most > 0 && total >= options.Most {
				return total, nil
			}
		}
	}
	return total, nil
}

// PurgePublications deletes publications of all topics, by OlderThan, Keep or Everything; it ignores the other options.
// The tasks of the publications stay. For each page of topics it yields the number of deleted publications, and the
// errors of damaged topics, which do not stop the others. It can be interrupted and repeated at any time.
func (f *Fleet) PurgePublications(ctx context.Context, options PurgeOptions) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		err := options.validate()
		for cursor := uint64(0); err == nil; {
			var entries []string // topics, each followed by its score
			if entries, cursor, err = f.client.Store().RDB.ZScan(ctx, f.client.Store().Keys.Topics(), cursor, "",
				store.PageTasks).Result(); err != nil {
				err = fmt.Errorf("list topics: %w", err)
				break
			}
			var topics []string
			for entry := range slices.Chunk(entries, 2) {
				topics = append(topics, entry[0])
			}
			if !yield(f.prune(ctx, topics, options)) || cursor == 0 {
				return
			}
		}
		yield(0, err)
	}
}

// prune deletes publications of the topics, one block of each topic per round trip.
func (f *Fleet) prune(ctx context.Context, topics []string, options PurgeOptions) (total int, err error) {
	age, keep := options.limits()
	passed := make(map[string]int64) // by topic, the number of the oldest publications to pass over
	for len(topics) > 0 {
		calls := make([]store.Call, len(topics))
		for i, topic := range topics {
			calls[i] = store.NewCall("prune", f.client.Store().Keys.Publications(topic), f.client.Store().Clock, topic,
				store.PurgeTasks, age, keep, passed[topic])
		}
		var more []string
		for i, reply := range f.client.Store().EvalAll(ctx, calls) {
			v := store.ValuesOf(reply.Val())
			gone, over, ended := v.Count(), v.Number(), v.Flag()
			if failed := cmp.Or(reply.Err(), v.Err()); failed != nil {
				err = errors.Join(err, fmt.Errorf("purge publications of %q: %w", topics[i], failed))
				continue
			}
			total += gone
			if passed[topics[i]] = over; !ended {
				more = append(more, topics[i])
			}
		}
		topics = more
	}
	return total, err
}
