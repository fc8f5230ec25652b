package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Stats counts a queue's tasks at one moment, and its events so far.
type Stats struct {
	// Depth counts the tasks by status; Reserved are those that have not started.
	Depth map[Status]int64
	// Blocked is how many of the scheduled ones wait for other tasks to end.
	Blocked int64
	// Listeners is how many listeners serve the queue.
	Listeners int64
	// Paused: Quern hosts take nothing from it. Limit is how many tasks may wait in it (0: any number).
	Paused bool
	Limit  int64
	// Held is until when Quern hosts take nothing from it, because the server of its webhook asked for a pause; zero if none did. It may
	// be over.
	Held time.Time
	// OldestPendingAge is how long the next task has waited; 0 when none is pending.
	OldestPendingAge time.Duration
	// Totals count enqueued, complete, failed and failed:REASON by Quern's clients and hosts since the queue exists.
	Totals map[string]int64
	// Err is why the queue cannot be counted: one of its keys is of another type. All else is zero then.
	Err error
}

// Stats counts in a time that does not depend on the number of tasks.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	all, err := q.client.Stats(ctx, q.name)
	if err != nil {
		return Stats{}, err
	}
	return all[0], all[0].Err
}

// Count is how many tasks of a state the queue holds, in a time that does not depend on it.
func (q *Queue) Count(ctx context.Context, status Status) (int64, error) {
	stats, err := q.Stats(ctx)
	return stats.Depth[status], err
}

// statsQueues is how many queues one script counts.
const statsQueues = 50

// Stats counts several queues in one round trip, in the order given. A damaged one has its own Err.
func (c *Client) Stats(ctx context.Context, queues ...string) ([]Stats, error) {
	for _, name := range queues {
		if err := ValidQueue(name); err != nil {
			return nil, err
		}
	}
	stats := make([]Stats, len(queues))
	blocks := slices.Collect(slices.Chunk(queues, statsQueues))
	calls := make([]call, len(blocks))
	for i, block := range blocks {
		calls[i] = newCall("look", c.store.keys.queues(), named(block, c.store.clock)...)
	}
	for i, reply := range c.store.evalAll(ctx, calls) {
		of := stats[i*statsQueues:][:len(blocks[i])]
		if err := wrap(fmt.Sprintf("count queue %q", blocks[i][0]), reply.Err()); passReplies(err) != nil {
			return nil, err
		} else if err != nil {
			for j := range of {
				of[j].Err = err
			}
			continue
		}
		counted := asList(reply.Val())
		if len(counted) == 0 || len(counted) > len(of) {
			return nil, errReply
		}
		for j, one := range counted {
			if of[j] = readStats(one); asString(one) != "" {
				of[j].Err = fmt.Errorf("count queue %q: %s", blocks[i][j], asString(one))
			}
		}
		if len(counted) < len(of) { // the script was to take no longer
			rest, err := c.Stats(ctx, blocks[i][len(counted):]...)
			if err != nil {
				return nil, err
			}
			copy(of[len(counted):], rest)
		}
	}
	return stats, nil
}

// CountQueues is how many queues the tenant has.
func (c *Client) CountQueues(ctx context.Context) (int64, error) {
	n, err := c.store.rdb.ZCard(ctx, c.store.keys.queues()).Result()
	return n, wrap("count queues in "+c.store.keys.queues(), err)
}

// readStats reads what look.lua returns.
func readStats(reply any) Stats {
	s := Stats{Depth: make(map[Status]int64, 6), Totals: make(map[string]int64)}
	v := valuesOf(reply)
	for _, status := range Statuses() {
		s.Depth[status] = v.number()
	}
	s.Listeners = v.number()
	s.Paused = v.flag()
	s.OldestPendingAge = v.duration()
	totals := valuesOf(v.next())
	for totals.more() {
		if name := totals.text(); name == "held" {
			_, until, _ := strings.Cut(totals.text(), " ")
			s.Held = parseSeconds(until)
		} else {
			s.Totals[name] = totals.number()
		}
	}
	for _, status := range []Status{Complete, Failed} {
		stale := "stale:" + string(status)
		s.Depth[status] = max(0, s.Depth[status]-s.Totals[stale])
		delete(s.Totals, stale)
	}
	delete(s.Totals, "large") // see reserve.lua
	s.Limit = v.number()
	s.Blocked = v.number()
	if v.err() != nil {
		return Stats{}
	}
	return s
}
