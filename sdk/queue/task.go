package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Status is where a task stands; the six are Blueque's.
type Status string

// The life of a task: scheduled → pending → reserved → started → complete or failed.
const (
	Scheduled Status = "scheduled"
	Pending   Status = "pending"
	Reserved  Status = "reserved"
	Started   Status = "started"
	Complete  Status = "complete"
	Failed    Status = "failed"
)

// Statuses are all of them, in the order of a task's life.
func Statuses() []Status { return []Status{Scheduled, Pending, Reserved, Started, Complete, Failed} }

// Finished tells whether a task of this status will not change by itself any more.
func (s Status) Finished() bool { return s == Complete || s == Failed }

// Reason is the finer cause of a failure.
type Reason string

// The reasons a task fails for.
const (
	ReasonError     Reason = "error"     // the handler said so
	ReasonTrap      Reason = "trap"      // the WebAssembly program crashed
	ReasonTimeout   Reason = "timeout"   // its time was over
	ReasonCPU       Reason = "cpu"       // its computing budget was over
	ReasonMemory    Reason = "memory"    // it asked for more memory than it may have
	ReasonOutput    Reason = "output"    // its result or log was longer than it may be
	ReasonCrashed   Reason = "crashed"   // its host died too often
	ReasonExhausted Reason = "exhausted" // its attempts are used up
	ReasonExpired   Reason = "expired"   // it waited for too long, or its deadline is over
	ReasonCancelled Reason = "cancelled" // somebody cancelled it
	ReasonRejected  Reason = "rejected"  // no host would have it
	ReasonDamaged   Reason = "damaged"   // its data in Redis is not usable; not built yet: nothing sets it
)

// Task is a task as it stood when it was read. Fields that the hash does not have are zero.
type Task struct {
	ID         string
	Queue      string
	Status     Status
	Parameters []byte
	Result     []byte // only when complete
	Error      string // only when failed; JSON, or what a Python processor wrote
	Reason     Reason
	LastError  string

	Node string // the listener that holds or held it
	PID  int    // its process
	Run  int64  // how many times it was reserved: with Node and born it proves a hold
	born string // see bornAt

	Attempts    int // finished tries that count
	MaxAttempts int // 0: not set, Unlimited: no bound
	Crashes     int // runs that ended with their host
	Reschedules int
	Rejects     int
	Priority    int // 0 to 100, DefaultPriority unless the producer set it
	// Retry is what the task itself sets of its policy.
	Retry   Retry
	Timeout time.Duration // of one attempt; 0: not set

	Created    time.Time
	Updated    time.Time
	ETA        time.Time
	Deadline   time.Time // by when it must be done; zero: not set
	Expires    time.Time // when it fails if it still waits; zero: never
	RetriedAt  time.Time // when somebody retried it by hand
	ReservedAt time.Time
	StartedAt  time.Time
	FinishedAt time.Time

	Plugin string // the plugin that ran it
	Digest string // of that plugin: "sha256:" and 64 hex digits

	Progress float64 // 0 to 1
	Message  string
	Key      string
	Labels   map[string]string
	Parent   string
	Depth    int // how many there are in the chain of its parents
	// Traceparent is the trace that it belongs to, in the form of the W3C's header; "" if none.
	Traceparent string
	// LiveID is, of a dead letter, the task that failed, whose parameters and history are the letter's.
	LiveID string
	// DeadID is, of a task that failed, its dead letter, and Handled the one that was handled well.
	DeadID, Handled string
	// DeadError is why a task that failed has no dead letter, though its plugin has a queue for them; "" else.
	DeadError string
	// CancelAsked says that the task runs and is to be stopped.
	CancelAsked bool
}

// DefaultPriority is that of a task whose producer set none.
const DefaultPriority = 50

// newTask reads the fields of a hash. A field that is damaged or missing is left zero: a task that
// was enqueued by hand is a task.
func newTask(id string, hash map[string]string) *Task {
	number := func(field string) int { return int(asInt(hash[field])) }
	moment := func(field string) time.Time { return parseSeconds(hash[field]) }
	t := &Task{
		ID: id, Queue: hash["queue"], Status: Status(hash["status"]),
		Error: hash["error"], Reason: Reason(hash["reason"]), LastError: hash["last_error"],
		Node: hash["node"], PID: number("pid"), Run: asInt(hash["run"]), born: bornAt(hash["created"]),
		Attempts: number("attempts"), MaxAttempts: number("max_attempts"),
		Crashes: number("crashes"), Reschedules: number("reschedules"), Rejects: number("rejects"), Priority: DefaultPriority,
		Retry: parseRetry(hash["retry"], hash["max_attempts"], hash["max_age"]), Timeout: secondsDuration(hash["timeout"]),
		Deadline: moment("deadline"), Expires: moment("expires"), RetriedAt: moment("retried_at"),
		DeadID: hash["dead_id"], DeadError: hash["dead_error"], Handled: hash["handled"], CancelAsked: hash["cancel"] != "" && !Status(hash["status"]).Finished(),
		Created: moment("created"), Updated: moment("updated"), ETA: moment("eta"),
		ReservedAt: moment("reserved_at"), StartedAt: moment("started_at"), FinishedAt: moment("finished_at"),
		Plugin: hash["plugin"], Digest: hash["digest"], Message: hash["message"],
		Key: hash["key"], Parent: hash["parent"], Depth: number("depth"), Traceparent: hash["traceparent"], LiveID: hash["live_id"],
	}
	if p, err := strconv.Atoi(hash["priority"]); err == nil && p >= 0 && p <= 100 {
		t.Priority = p
	}
	t.Progress, _ = strconv.ParseFloat(hash["progress"], 64)
	_ = json.Unmarshal([]byte(hash["labels"]), &t.Labels) // damaged labels are no labels
	if text, ok := hash["parameters"]; ok {
		t.Parameters = []byte(text)
	}
	if text, ok := hash["result"]; ok {
		t.Result = []byte(text)
	}
	return t
}

// Task reads a task: ErrNoTask if there is none.
func (c *Client) Task(ctx context.Context, id string) (*Task, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	hash, err := c.rdb.HGetAll(ctx, c.keys.task(id)).Result()
	if err != nil {
		return nil, fmt.Errorf("read task %s: %w", id, err)
	}
	if len(hash) == 0 {
		return nil, fmt.Errorf("task %s: %w", id, ErrNoTask)
	}
	for _, field := range []string{"parameters", "result"} {
		if !isMarker(hash[field]) {
			continue
		}
		// Without a companion the text means itself: a Python client may have written it.
		if value, err := c.rdb.HGet(ctx, c.keys.bytes(id), field).Result(); err == nil {
			hash[field] = value
		} else if !isNil(err) {
			return nil, fmt.Errorf("read %s of task %s: %w", field, id, err)
		}
	}
	task := newTask(id, hash)
	if _, ok := hash["parameters"]; !ok && task.LiveID != "" {
		var err error
		if task.Parameters, _, err = c.ownParameters(ctx, task.LiveID); err != nil {
			return nil, err
		}
	}
	return task, nil
}

// Parameters reads the parameters of a task alone: ErrNoTask if there is none. Those of a dead letter
// are the ones of the task that failed.
func (c *Client) Parameters(ctx context.Context, id string) ([]byte, error) {
	value, found, err := c.ownParameters(ctx, id)
	if found || err != nil {
		return value, err
	}
	live, err := c.rdb.HGet(ctx, c.keys.task(id), "live_id").Result()
	if err == nil {
		value, _, err = c.ownParameters(ctx, live)
		return value, err
	}
	exists, err := c.rdb.Exists(ctx, c.keys.task(id)).Result()
	if err != nil {
		return nil, fmt.Errorf("read parameters of task %s: %w", id, err)
	}
	if exists == 0 {
		return nil, fmt.Errorf("task %s: %w", id, ErrNoTask)
	}
	return nil, nil // a task without parameters, written by hand
}

// ownParameters reads the parameters that a task's own hash holds, and tells whether there are any.
func (c *Client) ownParameters(ctx context.Context, id string) (value []byte, found bool, err error) {
	text, err := c.rdb.HGet(ctx, c.keys.task(id), "parameters").Result()
	if isNil(err) {
		return nil, false, nil
	}
	if err == nil && isMarker(text) {
		bytes, err := c.rdb.HGet(ctx, c.keys.bytes(id), "parameters").Bytes()
		if !isNil(err) {
			return bytes, err == nil, wrap("read parameters of task "+id, err)
		}
		// Without a companion the text means itself.
	}
	return []byte(text), err == nil, wrap("read parameters of task "+id, err)
}
