package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/seal"
)

const (
	// maxMetadata is the maximum size of the keys, the parent and all labels of a task together, in bytes.
	maxMetadata = 16 << 10
	// maxLabels is the maximum number of labels of a task.
	maxLabels = 16
	// maxShareKey is the maximum size of a fairness key and of a concurrency key, in bytes. Redis keeps the fairness keys
	// of all waiting tasks once more.
	maxShareKey = 256
	// maxWeight is the maximum weight of a fairness key.
	maxWeight = 1000
	// maxConcurrent is the maximum of MaxConcurrent.
	maxConcurrent = 1_000_000
)

// Options are the options of a new task. With the zero value, the task is due at once.
type Options struct {
	// ID is the task's ID (default: a new UUID). If a task with this ID exists, nothing is written, so an Enqueue whose
	// reply was lost can be repeated.
	ID string
	// Once is how long the ID is remembered, even if the task is deleted earlier (default: while the task exists). While
	// it is remembered, no task is enqueued under it. Once needs an ID, and counts in whole seconds.
	Once time.Duration `json:"-"` // tells two enqueues of a task apart as little as their time
	// Delay is the time until the task is due, by Redis's clock. At is the time at which it is due. At most one of the
	// two can be set. By default, and if At is in the past, the task is due at once.
	Delay  time.Duration
	At     time.Time
	Key    string            // the producer's name for the subject of the task; tasks can be listed by key
	Labels map[string]string // names and values that the producer chooses; tasks can be listed by label
	// Parent is the ID of the task that enqueued this one, and Depth the length of the chain of parents (default 0).
	Parent      string
	Depth       int
	Traceparent string // the trace of the task, written like the W3C header traceparent
	// Headers are metadata, stored separately from the parameters. Their names are in lower case, and their values are
	// printable text. There can be at most MaxHeaders headers with MaxHeaderBytes in total. A header named traceparent
	// sets Traceparent.
	Headers map[string]string
	// Retry decides when and how often the task is tried again. The plugin's manifest sets the fields that are zero here.
	Retry    Retry
	Timeout  time.Duration // maximum duration of each attempt (default: the timeout in the plugin's manifest)
	Deadline time.Time     // when the task fails if it waits, and is stopped if it runs (default: never)
	Unique   *Unique       // if set, the task is not enqueued while a task like it exists
	// After lists the IDs of the task's dependencies, the tasks that it waits for: at most MaxDependencies. The task is
	// blocked until they have ended as When asks (default WhenComplete). Dependencies that have ended before count too.
	// If Delay or At is later, the task then waits until that time. MaxAge counts from the end of both waits. The
	// dependencies must exist, or come before the task in the same call. If a dependency in the same call is not enqueued
	// because another task has its uniqueness, the task waits for that other task. If the task has exactly one dependency
	// and no parameters, it gets the dependency's result as its parameters.
	After []string
	When  When
	// Open lets Queue.Await add dependencies later. An open task stays blocked until Queue.Close.
	Open bool
	// Dead is the queue that gets a dead letter if the task fails for good (default: the queue that the plugin's manifest
	// names).
	Dead string
	// Report is the name of a list to which hosts add the task's ID when the task has ended (default: none): see
	// listen.Fleet.Reports.
	Report string `json:",omitempty"` // as before for tasks without it
	// Priority is 0 to 100 (default: DefaultPriority). Tasks of higher priority are reserved first. Python listeners
	// see only tasks of the default priority.
	Priority *int
	// FairKey names whom the task is for, such as a customer: 1 to 256 bytes of UTF-8 text. Within a priority, the keys
	// of a queue take turns, and all tasks without a key together count as one key. Each turn is FairWeight tasks long:
	// 1 to 1,000 (default 1). Python listeners do not see tasks with a fairness key.
	FairKey    string `json:",omitempty"`
	FairWeight int    `json:",omitempty"`
	// ConcurrencyKey makes the tasks of a queue with the same key run one after another, in the order in which they
	// became due: 1 to 256 bytes of UTF-8 text. A task that is tried again keeps its place. MaxConcurrent is how many of
	// them may run at once: 1 to 1,000,000 (default 1). The last task of a key decides for all of them. By default, the
	// plugin's manifest decides.
	ConcurrencyKey string `json:",omitempty"`
	MaxConcurrent  int    `json:",omitempty"`
}

// Unique refuses a task while the queue has another task with the same Key or, without a Key, with the same parameters.
type Unique struct {
	Key string // identifies the task (default: its parameters do)
	// For is how long a second task is refused, counted from the first task's enqueue, even if the first task finishes
	// earlier. The default, 0, means until the first task is finished, but at most 90 days.
	For time.Duration
}

// hash returns the SHA-256 that names the uniqueness in its Redis key.
func (u *Unique) hash(keys *seal.Ring, queue string, parameters []byte) string {
	if u.Key != "" {
		var none *seal.Ring
		return none.Hash([]byte("key " + u.Key))
	}
	return keys.Hash(fmt.Appendf(nil, "parameters %s %s", queue, parameters))
}

// NewID makes an ID for a task: a random UUID.
func NewID() string { return uuid.NewString() }

// Spec describes one task for EnqueueMany.
type Spec struct {
	Parameters []byte
	Options
}

// Size returns the approximate size of the task in Redis, in bytes: the sum of its parameters, key, parent, labels,
// headers and dependencies.
func (s *Spec) Size() int {
	size := len(s.Parameters) + s.metadata() + headerBytes(s.Headers)
	for _, id := range s.After {
		size += len(id)
	}
	return size
}

// Receipt is the result of enqueueing one Spec.
type Receipt struct {
	ID string
	// Existed is true if nothing was enqueued, because a task with the given ID existed or another task has the
	// uniqueness. In the second case, ID is the ID of that other task.
	Existed bool
	// Taken is true if the ID belongs to something else: a task of another queue or with other parameters, or a key that
	// is not a task.
	Taken bool
}

// Enqueue puts a task into the queue and returns its ID. If Redis fails, it returns the ID together with the error, and
// enqueueing with that ID again is safe. Concurrent calls of one client share round trips, so use one client for all
// producers of a process. The error wraps ErrExists if the ID belongs to something else: see Receipt.Taken.
func (q *Queue) Enqueue(ctx context.Context, parameters []byte, options Options) (string, error) {
	receipts, err := q.EnqueueMany(ctx, []Spec{{Parameters: parameters, Options: options}})
	if len(receipts) == 0 {
		return "", err
	}
	if receipts[0].Taken {
		err = cmp.Or(err, fmt.Errorf("%w: task ID %q belongs to another task: choose another ID", ErrExists,
			receipts[0].ID))
	}
	return receipts[0].ID, err
}

// EnqueueMany enqueues tasks in the order given. It writes them in blocks of up to 48 tasks or 4 MiB. Each block is
// written as a whole or not at all, and one round trip carries several blocks. After an error, the receipts have the
// IDs of all tasks, and enqueueing the same specs with these IDs makes no task twice. The error is ErrQueueFull if a
// block would exceed the queue's limit; later, smaller blocks may still be enqueued. The error is a NotReplicatedError
// if all tasks are enqueued, but fewer replicas answered than Config.Replicas.
func (q *Queue) EnqueueMany(ctx context.Context, specs []Spec) ([]Receipt, error) {
	if err := ValidTarget(q.name); err != nil {
		return nil, err
	}
	for i := range specs {
		if err := specs[i].ValidateTarget(); err != nil {
			return nil, err
		}
	}
	return q.enqueue(ctx, specs)
}

// enqueue is EnqueueMany without the checks of the queue's name, and of reserved task IDs and dead-letter queues.
func (q *Queue) enqueue(ctx context.Context, specs []Spec) ([]Receipt, error) {
	if headers := q.client.config.Headers; headers != nil {
		specs = inheriting(headers(ctx), specs)
	}
	if slices.ContainsFunc(specs, func(s Spec) bool { return s.Unique != nil && s.ID != "" }) {
		specs = slices.Clone(specs) // because rename changes them
	}
	receipts := make([]Receipt, len(specs))
	for i := range specs {
		if err := specs[i].Validate(); err != nil {
			return nil, err
		}
		if receipts[i].ID = specs[i].ID; receipts[i].ID == "" {
			receipts[i].ID = NewID()
		}
	}
	if err := q.checkLater(ctx, specs, receipts); err != nil {
		return nil, fmt.Errorf("enqueue in %q: %w", q.name, err)
	}
	wanted := q.client.config.Replicas
	lacking := &NotReplicatedError{Wanted: wanted, Got: wanted}
	for from := 0; from < len(specs); {
		blocks := q.blocks(specs[from:], receipts[from:])
		err := q.client.commits.write(ctx, blocks)
		if err != nil {
			return receipts, fmt.Errorf("enqueue in %q: %w", q.name, err)
		}
		first := from
		for _, b := range blocks {
			written := receipts[from : from+b.tasks]
			from += b.tasks
			if err = cmp.Or(err, q.client.read(b, written)); b.err == nil && b.replicas < wanted {
				lacking.Got, lacking.Err = min(lacking.Got, b.replicas), cmp.Or(lacking.Err, b.waited)
				for _, receipt := range written {
					lacking.IDs = append(lacking.IDs, receipt.ID)
				}
			}
		}
		if rename(specs[first:], receipts[first:from]); err == nil {
			err = q.awaitMany(ctx, specs[first:from], receipts[first:from])
		}
		if err != nil {
			return receipts, fmt.Errorf("enqueue in %q: %w", q.name, err)
		}
	}
	if lacking.Got < wanted {
		return receipts, lacking
	}
	return receipts, nil
}

// rename updates the dependencies of specs. A dependency that was not enqueued because another task has its uniqueness
// is replaced by that other task. receipts are the receipts of the first len(receipts) specs.
func rename(specs []Spec, receipts []Receipt) {
	names := make(map[string]string)
	for i, receipt := range receipts {
		if id := specs[i].ID; id != "" && receipt.ID != id {
			names[id] = receipt.ID
		}
	}
	if len(names) == 0 {
		return
	}
	for i := range specs {
		specs[i].After = slices.Clone(specs[i].After) // the slice belongs to the caller
		for j, id := range specs[i].After {
			specs[i].After[j] = cmp.Or(names[id], id)
		}
	}
}

// blocks groups the first specs into blocks, as many specs as one round trip carries.
func (q *Queue) blocks(specs []Spec, receipts []Receipt) (blocks []*taskBlock) {
	var b *taskBlock
	total := 0
	for i := range specs[:min(len(specs), writeTasks)] {
		size, weight := specs[i].Size(), specs[i].weight()
		if total += size; i > 0 && total > blockBytes {
			break
		}
		if b == nil || b.weight+weight > store.BlockTasks {
			b = &taskBlock{queue: q.name, args: make([]any, 0, 16*min(store.BlockTasks, len(specs)-i))}
			blocks = append(blocks, b)
		}
		b.args = specs[i].Arguments(q.client.store.Seal, b.args, receipts[i].ID, q.name, false)
		b.tasks, b.size, b.weight = b.tasks+1, b.size+size, b.weight+weight
		if specs[i].later() {
			break // a later spec may wait for this task, which gets its dependencies after this write
		}
	}
	return blocks
}

// weight returns how many of a block's store.BlockTasks the task uses up. A dependency counts as half a task, because
// it takes half as many commands.
func (s *Spec) weight() int {
	if s.later() {
		return 1
	}
	return 1 + len(s.After)/2
}

// later reports whether the task has too many dependencies to be written together with them. Later calls add them then.
func (s *Spec) later() bool { return len(s.After) > inlineDependencies }

// checkLater checks the dependencies that later calls add: each must exist or come earlier in specs. Without this
// check, a task could be left with only some of its dependencies. The dependencies of a task that exists already are
// not checked.
func (q *Queue) checkLater(ctx context.Context, specs []Spec, receipts []Receipt) error {
	before := make(map[string]bool, len(specs))
	var ids, dependents []string // a dependency and its dependent; for equal IDs, the dependent itself is looked up
	for i := range specs {
		if specs[i].later() {
			ids, dependents = append(ids, receipts[i].ID), append(dependents, receipts[i].ID)
			for _, id := range specs[i].After {
				if !before[id] {
					ids, dependents = append(ids, id), append(dependents, receipts[i].ID)
				}
			}
		}
		before[specs[i].ID] = true
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := store.Pipelined(ctx, q.client.store, ids, func(p redis.Pipeliner, id string) *redis.IntCmd {
		return p.Exists(ctx, q.client.store.Keys.Task(id))
	})
	existed := make(map[string]bool)
	for i := 0; err == nil && i < len(ids); i++ {
		if ids[i] == dependents[i] {
			existed[ids[i]] = found[i].Val() > 0
		} else if found[i].Val() == 0 && !existed[dependents[i]] {
			err = fmt.Errorf("%w: task %s cannot wait for task %s, which does not exist: enqueue that first", ErrDependency,
				dependents[i], ids[i])
		}
	}
	return err
}

// awaitMany adds the dependencies of the last of specs, if that task was written without them. A task that existed
// before and is closed keeps the dependencies that it has.
func (q *Queue) awaitMany(ctx context.Context, specs []Spec, receipts []Receipt) error {
	last := len(specs) - 1
	if last < 0 || !specs[last].later() {
		return nil
	}
	if receipts[last].Existed && receipts[last].ID != specs[last].ID {
		return nil // another task has its uniqueness: nothing was enqueued
	}
	err := q.await(ctx, receipts[last].ID, specs[last].After, !specs[last].Open)
	if receipts[last].Existed && errors.Is(err, ErrStatus) {
		return nil
	}
	return err
}

// full converts an error with which a script refuses new tasks, because a queue is full or paused or a quota is used
// up; nil for any other error.
func (c *Client) full(err error) error {
	if text, _ := store.Answered(err); strings.HasPrefix(text, "QUEUEFULL ") {
		return fmt.Errorf("%w: %s", ErrQueueFull, strings.TrimPrefix(text, "QUEUEFULL "))
	}
	return cmp.Or(c.store.Over(err), store.Paused(err, ErrQueueFull))
}

// read stores the replies to a block in the block's receipts, or returns the block's error.
func (c *Client) read(b *taskBlock, receipts []Receipt) error {
	refused := c.full(b.err)
	switch {
	case b.err == nil:
	case refused != nil:
		return refused
	case redis.HasErrorPrefix(b.err, "MANYQUEUES"):
		return manyQueues(b.err)
	case redis.HasErrorPrefix(b.err, "DEPENDENCY"):
		return dependencyError(b.err)
	case redis.HasErrorPrefix(b.err, "WRONGTYPE"):
		return fmt.Errorf("%w: %w", ErrDamaged, b.err)
	default:
		return b.err
	}
	for i, answer := range b.answers {
		if first, ok := strings.CutPrefix(answer, "="); ok {
			receipts[i].ID = first
		}
		receipts[i].Existed, receipts[i].Taken = answer != "new", answer == "taken"
	}
	return nil
}

// Arguments appends the arguments of one task, as batch.lua takes them. All fields of the task's hash are UTF-8 text.
// If the task has more than inlineDependencies dependencies and inline is false, the arguments leave them out and mark
// the task open, so that later calls can add them. keys encrypt the parameters.
func (s *Spec) Arguments(keys *seal.Ring, args []any, id, queue string, inline bool) []any {
	text, companion := store.EncodeValue(keys.Seal(id, s.Parameters))
	eta := store.Seconds(s.At)
	if s.Delay > 0 {
		eta = "+" + strconv.FormatFloat(s.Delay.Seconds(), 'f', 6, 64)
	}
	var priority string // "" for the default priority, whose tasks wait in Blueque's own list
	if s.Priority != nil && *s.Priority != DefaultPriority {
		priority = strconv.Itoa(*s.Priority)
	}
	var hash, life, whole string // the uniqueness's name and seconds; whole is life if it can outlive the task
	if u := s.Unique; u != nil {
		hash = u.hash(keys, queue, s.Parameters)
		life = strconv.FormatFloat(math.Ceil(cmp.Or(u.For, store.UniqueLife).Seconds()), 'f', 0, 64)
		whole = store.Optional(u.For > 0, life)
	}
	var labels []byte
	if len(s.Labels) > 0 {
		labels, _ = json.Marshal(s.Labels) // a map of strings can always be encoded
	}
	args = append(args, id, text, 0)
	begin := len(args)
	if len(s.After) > 0 || s.Open {
		args = store.AppendFields(args, "when", cmp.Or(string(s.When), string(WhenComplete)))
		if s.later() && !inline {
			args = store.AppendFields(args, "open", "1", "filling", store.Optional(!s.Open, "1"))
		} else {
			args = store.AppendFields(args, "after", strings.Join(s.After, " "), "open", store.Optional(s.Open, "1"))
		}
	}
	args = store.AppendFields(args,
		"key", store.ValidText(s.Key),
		"parent", store.ValidText(s.Parent),
		"depth", store.Optional(s.Depth > 0, strconv.Itoa(s.Depth)),
		"traceparent", cmp.Or(s.Traceparent, s.Headers[HeaderTraceparent]),
		"headers", encodeHeaders(s.Headers),
		"max_attempts", store.Optional(s.Retry.MaxAttempts != 0, strconv.Itoa(s.Retry.MaxAttempts)),
		"retry", s.Retry.encode(),
		"max_age", store.DurationText(s.Retry.MaxAge),
		"timeout", store.DurationText(s.Timeout),
		"deadline", store.Seconds(s.Deadline),
		"labels", string(labels),
		"dead_queue", s.Dead,
		"priority", priority,
		"fair", numbered(s.FairWeight, s.FairKey),
		"lane", numbered(s.MaxConcurrent, s.ConcurrencyKey),
		"unique", hash,
		"unique_for", whole,
		"eta", eta,
		"bytes", string(companion),
		"life", life,
		"report", s.Report,
		"given", s.given(),
	)
	args[begin-1] = len(args) - begin
	return args
}

// taskKeys has the fairness key and the concurrency key of Options, with their numbers, as JSON in Redis.
type taskKeys struct {
	FairKey        string `json:"fair_key,omitempty"`
	FairWeight     int    `json:"fair_weight,omitempty"`
	ConcurrencyKey string `json:"concurrency_key,omitempty"`
	MaxConcurrent  int    `json:"max_concurrent,omitempty"`
}

func keysOf(o *Options) taskKeys {
	return taskKeys{o.FairKey, o.FairWeight, o.ConcurrencyKey, o.MaxConcurrent}
}

// apply sets the keys in o.
func (t taskKeys) apply(o *Options) {
	o.FairKey, o.FairWeight, o.ConcurrencyKey, o.MaxConcurrent = t.FairKey, t.FairWeight, t.ConcurrencyKey, t.MaxConcurrent
}

// numbered returns the field of a task with a fairness key or a concurrency key: "NUMBER KEY", or "" without a key. The
// default number is 1.
func numbered(number int, key string) string {
	return store.Optional(key != "", strconv.Itoa(max(1, number))+" "+key)
}

// given returns the value of the argument given: see batch.lua.
func (s *Spec) given() string {
	if s.Once > 0 {
		return fmt.Sprintf("%.0f %s", math.Ceil(s.Once.Seconds()), onceMark(s.Parameters))
	}
	return store.Optional(s.ID != "", "1")
}

// ValidateTarget refuses a reserved task ID, and a reserved dead-letter queue.
func (o *Options) ValidateTarget() error {
	if o.ID != "" {
		if err := validNewID(o.ID); err != nil {
			return err
		}
	}
	if o.Dead != "" {
		return ValidTarget(o.Dead)
	}
	return nil
}

// reportName matches the names of lists of reports.
var reportName = regexp.MustCompile(`^[a-z0-9.-]{1,64}$`)

// Validate refuses invalid options, except reserved names: see ValidateTarget.
func (o *Options) Validate() error {
	if err := cmp.Or(o.Retry.validate(), o.validateAfter()); err != nil {
		return err
	}
	switch {
	case o.ID != "" && ValidID(o.ID) != nil:
		return ValidID(o.ID)
	case o.Once != 0 && (o.ID == "" || o.Once < 0 || o.Once > store.Longest):
		return fmt.Errorf("%w: once for %s, with the ID %q: use 0s to %s, and an ID", ErrInvalid, o.Once, o.ID,
			store.Longest)
	case o.Report != "" && !reportName.MatchString(o.Report):
		return fmt.Errorf("%w: report %q: use 1 to 64 of a-z, 0-9, . and -", ErrInvalid, o.Report)
	case o.Delay < 0 || o.Delay > store.Longest:
		return fmt.Errorf("%w: delay %s: use 0s to %s", ErrInvalid, o.Delay, store.Longest)
	case o.Delay > 0 && !o.At.IsZero():
		return fmt.Errorf("%w: both a delay and a time: give one of them", ErrInvalid)
	case o.Timeout < 0 || o.Timeout > store.Longest:
		return fmt.Errorf("%w: timeout %s: use 0s (none) to %s", ErrInvalid, o.Timeout, store.Longest)
	case o.Unique != nil && o.Unique.For != 0 && (o.Unique.For < time.Second || o.Unique.For > store.Longest):
		return fmt.Errorf("%w: unique for %s: use 1s to %s, or 0s for until it is finished", ErrInvalid, o.Unique.For,
			store.Longest)
	case o.Priority != nil && (*o.Priority < 0 || *o.Priority > 100):
		return fmt.Errorf("%w: priority %d: use 0 to 100; higher ones run first, %d is the default", ErrInvalid, *o.Priority,
			DefaultPriority)
	case o.Dead != "" && ValidQueue(o.Dead) != nil:
		return ValidQueue(o.Dead)
	case len(o.Labels) > maxLabels:
		return fmt.Errorf("%w: %d labels: use at most %d", ErrInvalid, len(o.Labels), maxLabels)
	case o.Depth < 0:
		return fmt.Errorf("%w: depth %d: use 0 or more", ErrInvalid, o.Depth)
	case o.Traceparent != "" && store.TraceID(o.Traceparent) == "":
		return invalidTraceparent(o.Traceparent)
	case len(o.FairKey) > maxShareKey || len(o.ConcurrencyKey) > maxShareKey:
		return fmt.Errorf("%w: a fair key of %d bytes, a concurrency key of %d: use at most %d bytes", ErrInvalid,
			len(o.FairKey), len(o.ConcurrencyKey), maxShareKey)
	case o.FairWeight < 0 || o.FairWeight > maxWeight:
		return fmt.Errorf("%w: fair weight %d: use 1 to %d", ErrInvalid, o.FairWeight, maxWeight)
	case o.MaxConcurrent < 0 || o.MaxConcurrent > maxConcurrent:
		return fmt.Errorf("%w: max concurrent %d: use 1 to %d", ErrInvalid, o.MaxConcurrent, maxConcurrent)
	case o.FairWeight > 0 && o.FairKey == "":
		return fmt.Errorf("%w: the fair weight %d without a fair key: add the key, or leave the weight out", ErrInvalid,
			o.FairWeight)
	case o.MaxConcurrent > 0 && o.ConcurrencyKey == "":
		return fmt.Errorf("%w: max concurrent %d without a concurrency key: add the key, or leave the maximum out",
			ErrInvalid, o.MaxConcurrent)
	case !utf8.ValidString(o.FairKey) || !utf8.ValidString(o.ConcurrencyKey):
		return fmt.Errorf("%w: fair key %q or concurrency key %q is not UTF-8: use UTF-8 text", ErrInvalid, o.FairKey,
			o.ConcurrencyKey)
	case !utf8.ValidString(o.Key) || !utf8.ValidString(o.Parent):
		return fmt.Errorf("%w: key %q or parent %q is not UTF-8: use UTF-8 text", ErrInvalid, o.Key, o.Parent)
	case !o.At.IsZero() && !o.Deadline.IsZero() && o.Deadline.Before(o.At):
		return fmt.Errorf("%w: the deadline %s is before the task is due: it could never run", ErrInvalid,
			o.Deadline.Format(time.RFC3339))
	case o.metadata() > maxMetadata:
		return fmt.Errorf("%w: key, parent and labels have %d bytes: at most %d together", ErrInvalid, o.metadata(),
			maxMetadata)
	}
	for name, value := range o.Labels {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return fmt.Errorf("%w: label %q=%q is not UTF-8: use UTF-8 text", ErrInvalid, name, value)
		}
	}
	return o.validateHeaders()
}

// metadata returns the number of bytes of keys, parent and labels.
func (o *Options) metadata() int {
	size := len(o.Key) + len(o.Parent) + len(o.FairKey) + len(o.ConcurrencyKey)
	for name, value := range o.Labels {
		size += len(name) + len(value)
	}
	return size
}
