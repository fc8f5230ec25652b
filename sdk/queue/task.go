package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/seal"
)

// Task is the state of a task at the time of reading. Fields that the task's hash lacks are zero.
type Task struct {
	ID         string
	Queue      string
	Status     Status
	Parameters []byte
	Result     []byte // set only if the task is complete
	Sealed     string // the ID of the key that the client lacks to read Parameters or Result, which are nil then
	Error      string // set only if the task has failed: a Failure as JSON, or the plain text of a Python processor
	Reason     Reason
	LastError  string

	Node string // ID of the listener that holds the task, or held it last
	PID  int    // process ID of that listener
	Run  int64  // number of times the task was reserved; a part of its listen.Claim
	Born string // distinguishes the task from earlier ones with the same ID: see listen.Claim

	Attempts    int // number of finished attempts; crashes, rejects and reschedules do not count
	MaxAttempts int // 0 if not set, Unlimited if there is no bound
	Crashes     int // number of runs during which the host died
	Reschedules int
	Rejects     int
	Priority    int    // 0 to 100, DefaultPriority unless the producer set it
	FairKey     string // whom the task is for; FairWeight is 0 without it
	FairWeight  int
	// ConcurrencyKey is the concurrency key that the producer or the manifest set, and MaxConcurrent how many tasks with
	// it may run at once, or 0. If the key is a label, it is written as in the JSON of the labels.
	ConcurrencyKey string
	MaxConcurrent  int
	InLine         bool          // it waits until other tasks with its concurrency key have ended
	Held           bool          // it is scheduled because its key is held or paused
	After          *After        // the task's dependencies; nil if it has none
	Retry          Retry         // the fields of the retry policy that the task itself sets
	Timeout        time.Duration // maximum duration of one attempt; 0 if not set

	Created    time.Time
	Updated    time.Time
	ETA        time.Time
	Deadline   time.Time // the time by which the task must be complete; zero if not set
	Expires    time.Time // the time at which the task fails if it still waits; zero for never
	RetriedAt  time.Time // when somebody last retried it by hand
	ReservedAt time.Time
	StartedAt  time.Time
	FinishedAt time.Time

	Plugin  string // the plugin that runs the task, or ran it last
	Digest  string // the digest of that plugin: "sha256:" and 64 hex digits
	Version string // the name of that plugin's version, if its manifest gives one
	Release int    // the number of the release that this version is; 0 for none

	Progress    float64 // 0 to 1
	Message     string
	Key         string
	Labels      map[string]string
	Parent      string
	Depth       int               // length of the chain of its parents
	Traceparent string            // the task's trace, written like the W3C header traceparent; "" if none
	Headers     map[string]string // by lower-case name, including traceparent; nil if the task has none
	LiveID      string            // for a dead letter: ID of the failed task, whose parameters and history it shares
	// DeadID is the ID of the task's dead letter. Handled is set to the same ID when that letter is complete.
	DeadID, Handled string
	Dead            string // the queue for the task's dead letter, if its producer named one
	DeadError       string // why the failed task has no dead letter although a queue for it is set
	CancelAsked     bool   // the task was cancelled while it ran, and is to be stopped
	CheckpointSize  int64  // size of the checkpoint in bytes; 0 once the task is complete
	RecordRun       int64  // the run whose record is kept, or was too large to be kept; 0 for none
	RecordSize      int64  // size of that record in bytes; 0 if it was too large
	RecordEncrypted bool   // that record can be read only with a private key
	state           string // the state that ChangeAll compares: see store.StateOf
}

func fullDigest(text string) string {
	if text == "" || strings.HasPrefix(text, store.DigestPrefix) {
		return text
	}
	return store.DigestPrefix + text
}

// DefaultPriority is the priority of a task whose producer set none.
const DefaultPriority = 50

// newTask reads a task's hash. A damaged or missing field stays zero: a task enqueued by hand may lack fields.
func newTask(id string, hash map[string]string) *Task {
	number := func(field string) int { return int(store.AsInt(hash[field])) }
	moment := func(field string) time.Time { return store.ParseSeconds(hash[field]) }
	t := &Task{
		ID: id, Queue: hash["queue"], Status: Status(hash["status"]),
		Error: hash["error"], Reason: Reason(hash["reason"]), LastError: hash["last_error"],
		Node: hash["node"], PID: number("pid"), Run: store.AsInt(hash["run"]), Born: store.BornAt(hash["created"]),
		Attempts: number("attempts"), MaxAttempts: number("max_attempts"),
		Crashes: number("crashes"), Reschedules: number("reschedules"), Rejects: number("rejects"), Priority: DefaultPriority,
		Retry:    ParseRetry(hash["retry"], hash["max_attempts"], hash["max_age"]),
		Timeout:  store.SecondsDuration(hash["timeout"]),
		Deadline: moment("deadline"), Expires: moment("expires"), RetriedAt: moment("retried_at"),
		DeadID: hash["dead_id"], Dead: hash["dead_queue"], DeadError: hash["dead_error"], Handled: hash["handled"],
		CancelAsked: hash["cancel"] != "" && !Status(hash["status"]).Finished(),
		Created:     moment("created"), Updated: moment("updated"), ETA: moment("eta"),
		ReservedAt: cmp.Or(moment("reserved_at"), moment("started_at")), StartedAt: moment("started_at"),
		Plugin: hash["plugin"], Digest: fullDigest(hash["digest"]), Version: hash["version"],
		Release: number("release"), Message: hash["message"],
		CheckpointSize: store.AsInt(hash["checkpoint"]), Key: hash["key"], Parent: hash["parent"], Depth: number("depth"),
		LiveID:      hash["live_id"],
		Traceparent: hash["traceparent"], Headers: ParseHeaders(hash["headers"], hash["traceparent"]),
	}
	t.After = parseAfter(hash["after"])
	t.FairWeight, t.FairKey = parseNumbered(hash["fair"])
	t.MaxConcurrent, t.ConcurrencyKey = parseNumbered(hash["lane"])
	t.InLine = hash["line"] != "" && t.Status == Pending
	t.Held = t.Status == Scheduled && hash["held"] != "" && hash["held"] == hash["eta"]
	if record := strings.Fields(hash["record"]); len(record) > 1 {
		t.RecordRun, t.RecordSize = store.AsInt(record[0]), store.AsInt(record[1])
		t.RecordEncrypted = slices.Contains(record[2:], store.Encrypted)
	}
	if t.Status == Started {
		t.Born += store.StartedAt(hash["started_at"])
	}
	t.state = store.StateOf(hash["created"], hash["run"], string(t.Status), hash["updated"])
	if t.Status.Finished() {
		t.FinishedAt = t.Updated
	}
	if t.Status == Complete && t.Run > 0 {
		t.Attempts = max(1, t.Attempts) // for a task that completes in its first attempt, Redis stores no count
	}
	if p, err := strconv.Atoi(hash["priority"]); err == nil && p >= 0 && p <= 100 {
		t.Priority = p
	}
	t.Progress, _ = strconv.ParseFloat(hash["progress"], 64)
	_ = json.Unmarshal([]byte(hash["labels"]), &t.Labels) // damaged labels are left out
	if text, ok := hash["parameters"]; ok {
		t.Parameters = []byte(text)
	}
	if text, ok := hash["result"]; ok {
		t.Result = []byte(text)
	}
	return t
}

// parseNumbered parses what numbered returns. A damaged field counts as missing.
func parseNumbered(field string) (number int, key string) {
	text, key, _ := strings.Cut(field, " ")
	if number = int(store.AsInt(text)); number < 1 || key == "" {
		return 0, ""
	}
	return number, key
}

// Task reads a task. The error is ErrNoTask if no task has this ID.
func (c *Client) Task(ctx context.Context, id string) (*Task, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	var size int64
	if c.store.Measures(math.MaxInt64) {
		sizes, err := c.store.SizesOf(ctx, []string{id}, "parameters", "result")
		if err != nil {
			return nil, fmt.Errorf("read task %s: %w", id, err)
		}
		size = sizes[0] + sizes[1]
	}
	rdb, end := c.store.PayloadReader(size)
	defer end()
	hash, err := rdb.HGetAll(ctx, c.store.Keys.Task(id)).Result()
	if err != nil {
		return nil, fmt.Errorf("read task %s: %w", id, err)
	}
	if len(hash) == 0 {
		return nil, fmt.Errorf("task %s: %w", id, ErrNoTask)
	}
	for _, field := range []string{"parameters", "result"} {
		if text, ok := hash[field]; ok {
			if hash[field], err = c.store.Companion(ctx, rdb, id, field, text); err != nil {
				return nil, fmt.Errorf("read %s of task %s: %w", field, id, err)
			}
		}
	}
	task := newTask(id, hash)
	for _, value := range []*[]byte{&task.Parameters, &task.Result} {
		opened, err := c.store.Seal.Open(*value)
		if errors.Is(err, seal.ErrKey) {
			task.Sealed, err = seal.SealedBy(*value), nil
		}
		if *value = opened; err != nil {
			return nil, fmt.Errorf("read task %s: %w", id, err)
		}
	}
	if _, ok := hash["parameters"]; !ok && task.LiveID != "" {
		if task.Parameters, _, err = c.store.ReadPayload(ctx, task.LiveID, "parameters", math.MaxInt64); err != nil {
			return nil, err
		}
	}
	return task, nil
}

// Failure decodes Error. The plain text of a Python processor becomes the message of a failure with ReasonError, or
// with the task's Reason if it has one. A task without an error that has not failed has the zero Failure.
func (t *Task) Failure() Failure {
	if t.Error == "" && t.Status != Failed {
		return Failure{}
	}
	f := ParseFailure(t.Error)
	if f.Message == t.Error && t.Reason != "" {
		f.Reason = t.Reason
	}
	return f
}

// Err returns the failure of a task that has failed: an error with the text of Failure, without the stack. It is nil
// for any other task.
func (t *Task) Err() error {
	if t.Status != Failed {
		return nil
	}
	f := t.Failure()
	return fmt.Errorf("task %s failed: (%s) %s", t.ID, f.Word(), f.Headline())
}

// Wait blocks until the task is finished, and returns it. A task that failed is no error of Wait: Task.Err has its
// failure. The error is ErrNoTask if the task does not exist or is deleted meanwhile. While Redis is unavailable, Wait
// keeps trying until ctx ends. It fails when the client is closed. All waits of a client share one Pub/Sub connection.
func (c *Client) Wait(ctx context.Context, id string) (*Task, error) { return c.wait(ctx, id, c.Task) }

// WaitSummary is Wait, but returns the task without its parameters and result.
func (c *Client) WaitSummary(ctx context.Context, id string) (*Task, error) {
	return c.wait(ctx, id, c.Summary)
}

func (c *Client) wait(ctx context.Context, id string,
	read func(context.Context, string) (*Task, error),
) (*Task, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	ready := c.waits.add(id)
	defer c.waits.remove(id, ready)
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for task %s: %w%s", id, context.Cause(ctx), c.lastLook(ctx, id))
		case err := <-ready:
			if err != nil {
				return nil, err
			}
		}
		var task *Task
		err := store.Persist(ctx, func(ctx context.Context) (err error) {
			task, err = read(ctx, id)
			return err
		})
		if ctx.Err() == nil && (err != nil || task.Status.Finished()) {
			return task, err
		} // otherwise somebody has just retried the task by hand: wait again
	}
}

// lastLook says what became of a task for which a Wait ran out of time: "" if Redis does not answer at once.
func (c *Client) lastLook(ctx context.Context, id string) string {
	const most = 200 * time.Millisecond
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return "" // the caller knows why
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	defer cancel()
	task, err := c.Summary(ctx, id)
	if err != nil {
		return ""
	}
	if served, err := c.Queue(task.Queue).HasListener(ctx); err == nil && !served && !task.Status.Finished() {
		return fmt.Sprintf(": it is %s, and no host serves the queue %q", task.Status, task.Queue)
	}
	return fmt.Sprintf(": it is %s", task.Status)
}

// Summary reads a task without its parameters and result. The error is ErrNoTask if no task has this ID.
func (c *Client) Summary(ctx context.Context, id string) (*Task, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	values, err := c.store.RDB.HMGet(ctx, c.store.Keys.Task(id), store.SummaryFields...).Result()
	if err != nil {
		return nil, fmt.Errorf("read task %s: %w", id, err)
	}
	hash := store.HashOf(store.SummaryFields, values)
	if len(hash) == 0 {
		return nil, fmt.Errorf("task %s: %w", id, ErrNoTask)
	}
	return newTask(id, hash), nil
}

// summaries reads the tasks with these IDs without their parameters and results. It leaves out tasks that do not exist.
func (c *Client) summaries(ctx context.Context, ids []string) ([]*Task, error) {
	tasks, _, _, err := c.Summaries(ctx, "", "", ids, 0)
	return tasks, err
}

// summaryBlock is the number of tasks that Summaries reads per round trip if it has a limit of bytes. A summary can
// have some 250 KB.
const summaryBlock = 32

// Summaries reads tasks without their parameters and results. If limit is above 0, it stops after the task with which
// the total size reaches limit bytes. It leaves out tasks that do not exist any more and, if status is not "", tasks
// with another status. If a hash was written by hand and lacks queue or status, the task gets the given queue or
// status. passed is the number of IDs that were read, including those of tasks left out. size is the total size of what
// was read, in bytes.
func (c *Client) Summaries(ctx context.Context, queue string, status Status, ids []string,
	limit int,
) (tasks []*Task, passed, size int, err error) {
	block := max(1, len(ids))
	if limit > 0 {
		block = summaryBlock
	}
	tasks = make([]*Task, 0, len(ids))
	for some := range slices.Chunk(ids, block) {
		cmds, err := store.Pipelined(ctx, c.store, some, func(p redis.Pipeliner, id string) *redis.SliceCmd {
			return p.HMGet(ctx, c.store.Keys.Task(id), store.SummaryFields...)
		})
		if err != nil {
			return nil, 0, 0, store.Wrap(fmt.Sprintf("read tasks of %q", queue), err)
		}
		for i, cmd := range cmds {
			hash := store.HashOf(store.SummaryFields, cmd.Val())
			for name, text := range hash {
				if size += len(text); name == "key" || name == "message" || name == "error" || name == "last_error" {
					size += 5 * controls(text) // JSON writes a control character as \u00xx
				}
			}
			if task := summary(some[i], hash, queue, status); task != nil {
				tasks = append(tasks, task)
			}
			if passed++; limit > 0 && size >= limit {
				return tasks, passed, size, nil
			}
		}
	}
	return tasks, passed, size, nil
}

// controls counts the control characters of a text.
func controls(text string) (n int) {
	for i := range len(text) {
		if text[i] < ' ' {
			n++
		}
	}
	return n
}

// summary makes a Task from the hash of an ID that is in a list of the queue; status is the status of the list's tasks.
// It returns nil if the task does not exist any more, or has another status.
func summary(id string, hash map[string]string, queue string, status Status) *Task {
	if len(hash) == 0 {
		return nil
	}
	task := newTask(id, hash)
	if task.Queue == "" {
		task.Queue = queue
	}
	if task.Status == "" {
		task.Status = status // the hash was written by hand
	}
	if status != "" && task.Status != status {
		return nil
	}
	return task
}
