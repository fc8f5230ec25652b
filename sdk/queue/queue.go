package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

const (
	// blockTasks and blockBytes bound what one script call writes, so that Redis is never busy for
	// long with one of them.
	blockTasks = 1000
	blockBytes = 4 << 20
	// searchedBacklog is the longest pending list that cancelling searches for the ID.
	searchedBacklog = 100_000
	// maxMetadata bounds key, parent and all labels of a task together, in bytes.
	maxMetadata = 16 << 10
)

// Queue is a named queue of a tenant.
type Queue struct {
	client *Client
	name   string
}

// Name is the queue's name.
func (q *Queue) Name() string { return q.name }

// Options say more about a task; the zero value is a task to run now.
type Options struct {
	// ID is the task's ID (default: a new UUID). If a task of that ID exists nothing is written, so
	// that enqueueing may be repeated when the answer did not come.
	ID string
	// Delay is how long the task waits, by Redis's clock (default: not at all). Delay or At, not both.
	Delay time.Duration
	// At is when the task is due (default: now). A time in the past is now.
	At time.Time
	// Key is the caller's own name for what the task is about.
	Key string
	// Labels are the caller's own, for looking tasks up.
	Labels map[string]string
	// Parent is the ID of the task that this one comes from.
	Parent string
}

// Spec is one task of EnqueueMany.
type Spec struct {
	Parameters []byte
	Options
}

// Receipt tells what became of one Spec.
type Receipt struct {
	ID string
	// Existed says that there was a task of that ID already; it was left as it is.
	Existed bool
}

// Enqueue puts a task into the queue and returns its ID. After an error the task may have been
// enqueued or not; enqueueing with the returned ID again is safe.
func (q *Queue) Enqueue(ctx context.Context, parameters []byte, options Options) (string, error) {
	receipts, err := q.EnqueueMany(ctx, []Spec{{Parameters: parameters, Options: options}})
	if len(receipts) == 0 {
		return "", err
	}
	return receipts[0].ID, err
}

// Schedule enqueues a task that is due at eta.
func (q *Queue) Schedule(ctx context.Context, parameters []byte, eta time.Time, options Options) (string, error) {
	options.At = eta
	return q.Enqueue(ctx, parameters, options)
}

// EnqueueMany enqueues tasks in the order given, in blocks of up to 1,000 tasks or 4 MiB that are
// written together or not at all, and wakes the listeners once a block. After an error the receipts
// carry every ID, so that the same specs with these IDs can be enqueued again without doubling one.
func (q *Queue) EnqueueMany(ctx context.Context, specs []Spec) ([]Receipt, error) {
	if err := ValidQueue(q.name); err != nil {
		return nil, err
	}
	receipts := make([]Receipt, len(specs))
	for i := range specs {
		if err := specs[i].validate(); err != nil {
			return nil, err
		}
		if receipts[i].ID = specs[i].ID; receipts[i].ID == "" {
			receipts[i].ID = uuid.NewString()
		}
	}
	for from := 0; from < len(specs); {
		to, size := from, 0
		for to < len(specs) && to-from < blockTasks && (to == from || size+len(specs[to].Parameters) <= blockBytes) {
			size += len(specs[to].Parameters)
			to++
		}
		if err := q.enqueueBlock(ctx, specs[from:to], receipts[from:to]); err != nil {
			return receipts, fmt.Errorf("enqueue in %q: %w", q.name, err)
		}
		from = to
	}
	return receipts, nil
}

func (q *Queue) enqueueBlock(ctx context.Context, specs []Spec, receipts []Receipt) error {
	k := q.client.keys
	args := []any{q.client.clock, q.name, k.channel(q.name), k.task(""), k.bytes("")}
	for i, spec := range specs {
		text, companion := encodeValue(spec.Parameters)
		fields := spec.fields()
		args = append(args, receipts[i].ID, spec.eta(), text, companion, len(fields))
		args = append(args, fields...)
	}
	value, err := q.client.eval(ctx, call{
		script: enqueueScript,
		keys:   []string{k.queues(), k.pending(q.name), k.scheduled(q.name), k.index(q.name), k.stats(q.name)},
		args:   args,
	})
	if err != nil {
		return err
	}
	for i, written := range asList(value) {
		receipts[i].Existed = asInt(written) == 0
	}
	return nil
}

func (o *Options) validate() error {
	if o.ID != "" {
		if err := ValidID(o.ID); err != nil {
			return err
		}
	}
	if o.Delay < 0 {
		return fmt.Errorf("%w: delay %s: use 0 or more", ErrInvalid, o.Delay)
	}
	if o.Delay > 0 && !o.At.IsZero() {
		return fmt.Errorf("%w: both a delay and a time: give one of them", ErrInvalid)
	}
	size := len(o.Key) + len(o.Parent)
	for name, value := range o.Labels {
		size += len(name) + len(value)
	}
	if size > maxMetadata {
		return fmt.Errorf("%w: key, parent and labels have %d bytes: at most %d together", ErrInvalid, size, maxMetadata)
	}
	return nil
}

// eta writes when the task is due as enqueue.lua takes it.
func (o *Options) eta() string {
	switch {
	case o.Delay > 0:
		return "+" + strconv.FormatFloat(o.Delay.Seconds(), 'f', 6, 64)
	case !o.At.IsZero():
		return seconds(o.At)
	}
	return ""
}

// fields are the further values of the hash, names and values in turn; all of them UTF-8 text.
func (o *Options) fields() []any {
	var fields []any
	if o.Key != "" {
		fields = append(fields, "key", validText(o.Key))
	}
	if o.Parent != "" {
		fields = append(fields, "parent", validText(o.Parent))
	}
	if len(o.Labels) > 0 {
		text, _ := json.Marshal(o.Labels) // a map of strings always can be
		fields = append(fields, "labels", text)
	}
	return fields
}

// Cancel fails a task that waits (pending or scheduled) with the reason cancelled. ErrStatus if it
// runs or is finished, ErrNoTask if the queue has none of that ID.
func (q *Queue) Cancel(ctx context.Context, id string) error {
	text, _ := json.Marshal(Failure{Reason: ReasonCancelled, Message: "cancelled before it ran"})
	k := q.client.keys
	return q.act(ctx, "cancel", id, call{
		script: cancelScript,
		keys:   []string{k.pending(q.name), k.scheduled(q.name), k.failed(q.name), k.stats(q.name), k.task(id)},
		args:   []any{q.client.clock, id, text, k.done(id), searchedBacklog, q.name},
	})
}

// Delete removes a finished task with its log. ErrStatus if it is not finished, ErrNoTask if the
// queue has none of that ID.
func (q *Queue) Delete(ctx context.Context, id string) error {
	k := q.client.keys
	return q.act(ctx, "delete", id, call{
		script: deleteScript,
		keys: []string{
			k.complete(q.name), k.failed(q.name), k.index(q.name),
			k.task(id), k.bytes(id), k.log(id), k.attempts(id),
		},
		args: []any{id, k.done(id), q.name},
	})
}

func (q *Queue) act(ctx context.Context, verb, id string, one call) error {
	if err := ValidQueue(q.name); err != nil {
		return err
	}
	if err := ValidID(id); err != nil {
		return err
	}
	answer, err := q.client.eval(ctx, one)
	if err != nil {
		return fmt.Errorf("%s task %s: %w", verb, id, err)
	}
	return verdict(answer, id)
}

// Stats is what a queue holds at one moment, and what it has done since it exists.
type Stats struct {
	// Depth counts the tasks by state; reserved are those that have not started.
	Depth map[Status]int64
	// Listeners is how many listeners serve the queue.
	Listeners int64
	// Paused says that Quern hosts take nothing from it.
	Paused bool
	// OldestPendingAge is how long the task that is next has waited; 0 when none is pending.
	OldestPendingAge time.Duration
	// Totals are counters since the queue exists: enqueued, complete, failed, failed:REASON. Only
	// what went through a Quern client or host is counted.
	Totals map[string]int64
	// Err says why the queue cannot be counted: a key of it is of another kind. All else is zero then.
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

// Stats counts several queues in one round trip, in the order given. One that is damaged says so by
// itself and does not hide the others.
func (c *Client) Stats(ctx context.Context, queues ...string) ([]Stats, error) {
	calls := make([]call, len(queues))
	for i, name := range queues {
		if err := ValidQueue(name); err != nil {
			return nil, err
		}
		k := c.keys
		calls[i] = call{
			script: lookScript,
			keys: []string{
				k.pending(name), k.scheduled(name), k.started(name), k.complete(name), k.failed(name),
				k.listeners(name), k.paused(), k.nodes(), k.stats(name),
			},
			args: []any{c.clock, name, k.reserved(name, ""), k.task("")},
		}
	}
	stats := make([]Stats, len(queues))
	for i, reply := range c.evalAll(ctx, calls) {
		err := reply.err
		if err != nil {
			err = fmt.Errorf("count queue %q: %w", queues[i], err)
		}
		var answer redis.Error
		if err != nil && (IsUnavailable(err) || !errors.As(err, &answer)) {
			return nil, err
		}
		stats[i] = newStats(asList(reply.value))
		stats[i].Err = err
	}
	return stats, nil
}

func newStats(look []any) Stats {
	if len(look) < 10 {
		return Stats{}
	}
	s := Stats{
		Depth:     make(map[Status]int64, 6),
		Listeners: asInt(look[6]),
		Paused:    asInt(look[7]) == 1,
		Totals:    make(map[string]int64),
	}
	for i, status := range Statuses() {
		s.Depth[status] = asInt(look[i])
	}
	if age, err := strconv.ParseFloat(asString(look[8]), 64); err == nil {
		s.OldestPendingAge = time.Duration(age * float64(time.Second))
	}
	totals := asList(look[9])
	for i := 0; i+1 < len(totals); i += 2 {
		s.Totals[asString(totals[i])] = asInt(totals[i+1])
	}
	return s
}
