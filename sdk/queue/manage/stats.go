package manage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Stats counts a queue's tasks at one moment, and its events so far.
type Stats struct {
	// Depth counts the tasks by status; Reserved counts only tasks that have not started.
	Depth map[queue.Status]int64
	// Blocked is the number of scheduled tasks that wait for other tasks to end.
	Blocked int64
	// Listeners is the number of listeners that serve the queue.
	Listeners int64
	// Paused is true if an operator has paused the queue: Quern hosts reserve none of its tasks. Limit is the maximum
	// number of tasks that can wait in the queue (0: no maximum); if DropOldest is true, a new task drops the oldest one
	// of a full queue.
	Paused     bool
	Limit      int64
	DropOldest bool
	// Held is the time until which Quern hosts reserve no task of the queue, because the server of its webhook asked for
	// a pause. It can be in the past. It is zero if no server has asked.
	Held time.Time
	// OldestPendingAge is how long the next pending task has waited; 0 if no task is pending.
	OldestPendingAge time.Duration
	// Totals maps the events enqueued, refused, complete, failed and failed:REASON to how often Quern's clients and
	// hosts have caused them since the queue was created.
	Totals map[string]int64
	// Err is not nil if the queue cannot be counted, because one of its keys has the wrong type. Every other field is
	// zero then.
	Err error
}

// Stats counts the queue. The time that this takes does not depend on the number of tasks.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	all, err := q.tenant.Stats(ctx, q.Name())
	if err != nil {
		return Stats{}, err
	}
	return all[0], all[0].Err
}

// Count returns the number of the queue's tasks of one status. The time that this takes does not depend on that number.
func (q *Queue) Count(ctx context.Context, status queue.Status) (int64, error) {
	stats, err := q.Stats(ctx)
	return stats.Depth[status], err
}

// Stats counts several queues in one round trip, in the given order. For a damaged queue, it sets Stats.Err.
func (m *Manager) Stats(ctx context.Context, queues ...string) ([]Stats, error) {
	for _, name := range queues {
		if err := queue.ValidQueue(name); err != nil {
			return nil, err
		}
	}
	stats := make([]Stats, len(queues))
	blocks := slices.Collect(slices.Chunk(queues, store.StatsQueues))
	calls := make([]store.Call, len(blocks))
	for i, block := range blocks {
		calls[i] = store.NewCall("look", m.store.Keys.Queues(), store.Named(block, m.store.Clock)...)
	}
	for i, reply := range m.store.EvalAll(ctx, calls) {
		of := stats[i*store.StatsQueues:][:len(blocks[i])]
		if err := store.Wrap(fmt.Sprintf("count queue %q", blocks[i][0]), reply.Err()); store.PassReplies(err) != nil {
			return nil, err
		} else if err != nil {
			for j := range of {
				of[j].Err = err
			}
			continue
		}
		counted := store.AsList(reply.Val())
		if len(counted) == 0 || len(counted) > len(of) {
			return nil, store.ErrReply
		}
		for j, one := range counted {
			if of[j] = readStats(one); store.AsString(one) != "" {
				of[j].Err = fmt.Errorf("count queue %q: %s", blocks[i][j], store.AsString(one))
			}
		}
		if len(counted) < len(of) { // the script ended early, to bound its time
			rest, err := m.Stats(ctx, blocks[i][len(counted):]...)
			if err != nil {
				return nil, err
			}
			copy(of[len(counted):], rest)
		}
	}
	return stats, nil
}

// CountQueues counts the tenant's queues.
func (m *Manager) CountQueues(ctx context.Context) (int64, error) {
	n, err := m.store.RDB.ZCard(ctx, m.store.Keys.Queues()).Result()
	return n, store.Wrap("count queues in "+m.store.Keys.Queues(), err)
}

// readStats parses the reply of look.lua for one queue.
func readStats(reply any) Stats {
	s := Stats{Depth: make(map[queue.Status]int64, 6), Totals: make(map[string]int64)}
	v := store.ValuesOf(reply)
	for _, status := range queue.Statuses() {
		s.Depth[status] = v.Number()
	}
	s.Listeners = v.Number()
	s.Paused = v.Flag()
	s.OldestPendingAge = v.Duration()
	totals := store.ValuesOf(v.Next())
	for totals.More() {
		if name := totals.Text(); name == "held" {
			_, until, _ := strings.Cut(totals.Text(), " ")
			s.Held = store.ParseSeconds(until)
		} else {
			s.Totals[name] = totals.Number()
		}
	}
	for _, status := range []queue.Status{queue.Complete, queue.Failed} {
		stale := "stale:" + string(status)
		s.Depth[status] = max(0, s.Depth[status]-s.Totals[stale])
		delete(s.Totals, stale)
	}
	delete(s.Totals, "large")   // see reserve.lua
	delete(s.Totals, "counted") // see finished.lua
	s.Limit, s.DropOldest = store.ParseLimit(v.Text())
	s.Blocked = v.Number()
	if v.Err() != nil {
		return Stats{}
	}
	return s
}

// ManyReschedules is the number of reschedules of a task at which people are told that these count no attempt: a
// handler that asks for a retry where it means a failure runs a thousand times.
const ManyReschedules = 3
