package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

const (
	// blockTasks, dueTasks and blockBytes bound what one script call writes: some 500 commands, and so less than 5 ms
	// in which Redis serves nobody else. pageTasks is how many tasks a pipeline reads.
	blockTasks = 48
	dueTasks   = 100
	blockBytes = 4 << 20
	pageTasks  = 1000
	// searched is the longest list that is searched for an ID: more would take Redis milliseconds.
	searched = 100_000
	// maxMetadata bounds key, parent and all labels of a task together, in bytes.
	maxMetadata = 16 << 10
	// maxLabels is the most labels of a task.
	maxLabels = 16
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
	// Parent is the ID of the task that this one comes from, and Depth how many there are in the chain of parents up
	// to the first (default 0).
	Parent string
	Depth  int
	// Traceparent is the trace that the task belongs to, as the W3C's header of that name has it: 55 bytes for the version 00.
	Traceparent string
	// Retry is how often and when the task is tried again; what it leaves out the plugin's manifest
	// decides.
	Retry Retry
	// Timeout bounds each attempt (default: as the manifest says).
	Timeout time.Duration
	// Deadline is by when the task must be done: then it expires, or is stopped (default: none).
	Deadline time.Time
	// Unique keeps a second task like it from being enqueued (default: nothing does).
	Unique *Unique
	// Priority is 0 to 100 (default: DefaultPriority); higher ones of the queue are reserved first.
	// Python listeners see only tasks of the default one.
	Priority *int
}

// traceparent is the form of the W3C's header; versions after 00 may have more behind it.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[0-9a-z-]{0,200})?$`)

// uniqueLife is how long a uniqueness holds at most, whatever becomes of its task. It is given up when
// the task is finished; this is for what never is.
const uniqueLife = 90 * 24 * time.Hour

// Unique says what makes a task the same as another one of its queue, and for how long.
type Unique struct {
	// Key is the caller's name for it (default: the parameters are).
	Key string
	// For is how long there is no second one, counted from the first one's enqueueing, also when that
	// is finished by then. Default 0: until the first one is finished, but for 90 days at most.
	For time.Duration
}

// hash is the name of the uniqueness in Redis.
func (u *Unique) hash(queue string, parameters []byte) string {
	sum := sha256.New()
	if u.Key != "" {
		fmt.Fprintf(sum, "key %s", u.Key)
	} else {
		fmt.Fprintf(sum, "parameters %s %s", queue, parameters)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// NewID makes an ID for a task: a random UUID.
func NewID() string { return uuid.NewString() }

// Spec is one task of EnqueueMany.
type Spec struct {
	Parameters []byte
	Options
}

// Receipt tells what became of one Spec.
type Receipt struct {
	ID string
	// Existed says that nothing was enqueued: there was a task of that ID already, or ID is the task
	// that holds the uniqueness.
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

// EnqueueMany enqueues tasks in the order given, in blocks of up to 48 tasks or 4 MiB that are
// written together or not at all, and wakes the listeners once a block. After an error the receipts
// carry every ID, so that the same specs with these IDs can be enqueued again without doubling one.
// ErrQueueFull says that a block would make the queue longer than it may be, and a NotReplicatedError,
// after everything was enqueued, that the client's Config asks for more replicas than have answered.
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
			receipts[i].ID = NewID()
		}
	}
	var lacking *NotReplicatedError
	for from := 0; from < len(specs); {
		to, size := from, 0
		for to < len(specs) && to-from < blockTasks && (to == from || size+len(specs[to].Parameters) <= blockBytes) {
			size += len(specs[to].Parameters)
			to++
		}
		replicas, waited, err := q.enqueueBlock(ctx, specs[from:to], receipts[from:to])
		if err != nil {
			return receipts, fmt.Errorf("enqueue in %q: %w", q.name, err)
		}
		if wanted := q.client.config.Replicas; replicas < wanted {
			if lacking == nil {
				lacking = &NotReplicatedError{Wanted: wanted, Got: replicas}
			}
			lacking.Got, lacking.Err = min(lacking.Got, replicas), errors.Join(lacking.Err, waited)
			for _, receipt := range receipts[from:to] {
				lacking.IDs = append(lacking.IDs, receipt.ID)
			}
		}
		from = to
	}
	if lacking != nil {
		return receipts, lacking
	}
	return receipts, nil
}

// enqueueBlock writes one block and returns how many replicas have it, if the client asks for any, or
// why that is not known.
func (q *Queue) enqueueBlock(ctx context.Context, specs []Spec, receipts []Receipt) (replicas int, waited, err error) {
	args := []any{q.client.clock, q.name}
	for i := range specs {
		args = append(args, specs[i].arguments(receipts[i].ID, q.name)...)
	}
	value, replicas, waited, err := q.client.evalReplicated(ctx, call{
		script: enqueueScript, keys: []string{q.client.keys.pending(q.name)}, args: args,
	})
	if err != nil && strings.HasPrefix(err.Error(), "QUEUEFULL") {
		err = fmt.Errorf("%w: %w", ErrQueueFull, err)
	}
	if err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE") {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return 0, nil, err
	}
	for i, written := range asList(value) {
		if first, ok := written.(string); ok {
			receipts[i] = Receipt{ID: first, Existed: true}
		} else {
			receipts[i].Existed = asInt(written) == 0
		}
	}
	return replicas, waited, nil
}

// arguments are those of one task as batch.lua takes them.
func (s *Spec) arguments(id, queue string) []any {
	text, companion := encodeValue(s.Parameters)
	fields := s.fields()
	args := []any{id, s.eta(), text, companion, s.priority(), s.age(), s.deadline()}
	args = append(args, s.unique(queue)...)
	args = append(args, len(fields))
	return append(args, fields...)
}

func (o *Options) validate() error {
	if o.ID != "" {
		if err := ValidID(o.ID); err != nil {
			return err
		}
	}
	if o.Delay < 0 || o.Delay > longest {
		return fmt.Errorf("%w: delay %s: use 0s to %s", ErrInvalid, o.Delay, longest)
	}
	if o.Delay > 0 && !o.At.IsZero() {
		return fmt.Errorf("%w: both a delay and a time: give one of them", ErrInvalid)
	}
	if err := o.Retry.validate(); err != nil {
		return err
	}
	if o.Timeout < 0 || o.Timeout > longest {
		return fmt.Errorf("%w: timeout %s: use 0s (none) to %s", ErrInvalid, o.Timeout, longest)
	}
	if o.Unique != nil && o.Unique.For != 0 && (o.Unique.For < time.Second || o.Unique.For > longest) {
		return fmt.Errorf("%w: unique for %s: use 1s to %s, or 0s for until it is finished", ErrInvalid, o.Unique.For, longest)
	}
	if o.Priority != nil && (*o.Priority < 0 || *o.Priority > 100) {
		return fmt.Errorf("%w: priority %d: use 0 to 100; higher ones run first, %d is the default", ErrInvalid, *o.Priority, DefaultPriority)
	}
	if len(o.Labels) > maxLabels {
		return fmt.Errorf("%w: %d labels: use at most %d", ErrInvalid, len(o.Labels), maxLabels)
	}
	if o.Depth < 0 {
		return fmt.Errorf("%w: depth %d: use 0 or more", ErrInvalid, o.Depth)
	}
	if o.Traceparent != "" && !traceparent.MatchString(o.Traceparent) {
		return fmt.Errorf("%w: traceparent %q: use VERSION-TRACE-PARENT-FLAGS in hexadecimal digits", ErrInvalid, o.Traceparent)
	}
	if !utf8.ValidString(o.Key) || !utf8.ValidString(o.Parent) {
		return fmt.Errorf("%w: key %q or parent %q: use UTF-8 text", ErrInvalid, o.Key, o.Parent)
	}
	if !o.At.IsZero() && !o.Deadline.IsZero() && o.Deadline.Before(o.At) {
		return fmt.Errorf("%w: the deadline %s is before the task is due: it could never run", ErrInvalid, o.Deadline.Format(time.RFC3339))
	}
	for name, value := range o.Labels {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return fmt.Errorf("%w: label %q=%q: use UTF-8 text", ErrInvalid, name, value)
		}
	}
	if size := o.metadata(); size > maxMetadata {
		return fmt.Errorf("%w: key, parent and labels have %d bytes: at most %d together", ErrInvalid, size, maxMetadata)
	}
	return nil
}

// metadata is how many bytes key, parent and labels have.
func (o *Options) metadata() int {
	size := len(o.Key) + len(o.Parent)
	for name, value := range o.Labels {
		size += len(name) + len(value)
	}
	return size
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

// priority is what the hash says: nothing for the default one, whose tasks wait in Blueque's own list.
func (o *Options) priority() string {
	if o.Priority == nil || *o.Priority == DefaultPriority {
		return ""
	}
	return strconv.Itoa(*o.Priority)
}

func (o *Options) age() string { return optional(o.Retry.MaxAge > 0, durationText(o.Retry.MaxAge)) }

func (o *Options) deadline() string {
	if o.Deadline.IsZero() {
		return ""
	}
	return seconds(o.Deadline)
}

// unique are the arguments of the task's uniqueness: its hash, its life, and whether it holds for all
// of that.
func (s *Spec) unique(queue string) []any {
	switch u := s.Unique; {
	case u == nil:
		return []any{"", "", ""}
	case u.For == 0:
		return []any{u.hash(queue, s.Parameters), int64(uniqueLife.Seconds()), ""}
	default:
		return []any{u.hash(queue, s.Parameters), int64(math.Ceil(u.For.Seconds())), "1"}
	}
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
	if o.Depth > 0 {
		fields = append(fields, "depth", o.Depth)
	}
	if o.Traceparent != "" {
		fields = append(fields, "traceparent", o.Traceparent)
	}
	if o.Retry.MaxAttempts != 0 {
		fields = append(fields, "max_attempts", o.Retry.MaxAttempts)
	}
	if text := o.Retry.encode(); text != "" {
		fields = append(fields, "retry", text)
	}
	if age := o.age(); age != "" {
		fields = append(fields, "max_age", age)
	}
	if o.Timeout > 0 {
		fields = append(fields, "timeout", durationText(o.Timeout))
	}
	if deadline := o.deadline(); deadline != "" {
		fields = append(fields, "deadline", deadline)
	}
	if len(o.Labels) > 0 {
		text, _ := json.Marshal(o.Labels) // a map of strings always can be
		fields = append(fields, "labels", text)
	}
	return fields
}

// Stats is what a queue holds at one moment, and what it has done since it exists.
type Stats struct {
	// Depth counts the tasks by state; reserved are those that have not started.
	Depth map[Status]int64
	// Listeners is how many listeners serve the queue.
	Listeners int64
	// Paused says that Quern hosts take nothing from it, and Limit how many tasks may wait in it (0: any
	// number).
	Paused bool
	Limit  int64
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
		calls[i] = call{
			script: lookScript,
			keys:   []string{c.keys.pending(name)},
			args:   []any{c.clock, name},
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
	if len(look) < 11 {
		return Stats{}
	}
	s := Stats{
		Depth:     make(map[Status]int64, 6),
		Listeners: asInt(look[6]),
		Paused:    asInt(look[7]) == 1,
		Limit:     asInt(look[10]),
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
