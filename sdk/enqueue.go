package sdk

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/quern-project/quern/sdk/internal/guest"
)

// EnqueueOptions are the options of a new task. Unset options have the defaults of any task.
type EnqueueOptions struct {
	// ID is the new task's ID; "" lets the host make one. If a task with this ID exists, nothing is enqueued. So if the
	// ID is derived from this task's ID, a second attempt does not enqueue a second child.
	ID string
	// Key is the caller's name for what the task is about.
	Key string
	// Labels are the caller's own labels, for finding tasks.
	Labels map[string]string
	// Headers are stored with the task, apart from its parameters. Their names are in lower case, and their values are
	// printable text. There are at most 32, with at most 8 KiB in all. Without a traceparent, the new task inherits
	// traceparent and tracestate of this task.
	Headers map[string]string
	// Priority points to 0 to 100, as in urgent := 80 and then Priority: &urgent; nil means 50. Tasks with a higher
	// priority run first.
	Priority *int
	// Delay is how long the task waits, and At is when it is due. Set at most one of them. Both are rounded up to
	// milliseconds.
	Delay time.Duration
	At    time.Time
	// MaxAttempts is the maximum number of attempts; 0 means the number in the manifest of the plugin that serves the
	// queue.
	MaxAttempts int
	// Timeout bounds each attempt, rounded up to milliseconds; 0 means the timeout in that manifest.
	Timeout time.Duration
	// FairKey names whom the task is for, such as a customer, in at most 256 bytes: the keys of a queue take turns of
	// FairWeight tasks, 1 to 1000; 0 means 1.
	FairKey    string
	FairWeight int
	// ConcurrencyKey, of at most 256 bytes, makes tasks of the queue with the same key run one after another in their
	// order, or MaxConcurrent at once, 1 to 1000000; 0 means 1. "" means the key that the manifest of the plugin that
	// serves the queue names.
	ConcurrencyKey string
	MaxConcurrent  int
	// Unique prevents a second task of the same kind; nil allows it. If there is a first task and the manifest has after:
	// call, Enqueue returns the first task's ID. Otherwise it returns the ID of a new task that will not be created.
	Unique *Unique
	// After has the IDs of tasks for which the new task waits: tasks that this one has enqueued with an ID of its choice,
	// or any other tasks. If After has exactly one ID and the new task has no parameters, it gets the result of the task
	// with that ID as its parameters. When is the condition under which the new task runs: "complete" (all are complete;
	// the default), "ended" (all are complete or failed), "any" (one is complete), or "failed" (one has failed).
	After []string
	When  string
}

// Unique defines which tasks of a queue are of the same kind, and for how long.
type Unique struct {
	// Key is equal for tasks of the same kind. If it is "", tasks with equal parameters are of the same kind.
	Key string
	// For is how long a second task is refused, counted from the enqueueing of the first task. It is at least a second; 0
	// means until the first task is finished.
	For time.Duration
}

// Enqueue enqueues a task of the same tenant and returns its ID. The manifest must grant the queue. options can be nil.
//
// The new task is created when this task completes, together with its result: a task that fails enqueues nothing. With
// after: call in the manifest, the new task is created at once.
//
// Errors: [ErrInvalid] for an invalid queue name or option; [ErrDenied] if the queue is not granted; [ErrTooBig] if
// result and parameters together exceed the plugin's output limit; [ErrLimit] if the task enqueues more tasks than the
// manifest allows (default 256), or more bytes (default 16 MiB), or if the chain of parents is too long. With after:
// call also [ErrQuota] and [ErrUnavailable].
func Enqueue(queue string, parameters []byte, options *EnqueueOptions) (id string, err error) {
	id, err = services().Enqueue(queue, parameters, options)
	return id, asking(err, "enqueue to ", "", queue)
}

// PublishOptions are the options of a publication.
type PublishOptions struct {
	// ID is the publication's ID; "" lets the host make one. If a publication with this ID exists, nothing is published.
	// So if the ID is derived from the task's ID, a second attempt does not publish again.
	ID string
	// Attributes are CloudEvents attributes, such as type and source, or any others, such as tenant. Their names consist
	// of a-z and 0-9. Subscriptions filter by attributes. The tasks have them as headers, with the prefix ce-.
	Attributes map[string]string
}

// Publish publishes to a topic of the same tenant and returns the publication's ID. Each matching subscription gets a
// task with the payload. The manifest must grant the topic. options can be nil.
//
// The publication is published when this task completes, together with its result: a task that fails publishes nothing.
// With after: call in the manifest, it is published at once.
//
// The errors are the same as for [Enqueue], with the topic instead of the queue.
func Publish(topic string, payload []byte, options *PublishOptions) (id string, err error) {
	id, err = services().Publish(topic, payload, options)
	return id, asking(err, "publish to ", "", topic)
}

// json returns the options and the topic of a publication as the JSON object that quern_v1 takes.
func (o *PublishOptions) json(topic string) string {
	to := appendJSON(appendName([]byte{'{'}, "topic"), topic)
	if o != nil {
		to = appendText(to, "id", o.ID)
		to = appendTexts(to, "attributes", o.Attributes)
	}
	return string(append(to, '}'))
}

// json returns the options that are set as the JSON object that quern_v1 takes.
func (o *EnqueueOptions) json() string {
	if o == nil {
		return ""
	}
	to := []byte{'{'}
	to = appendText(to, "id", o.ID)
	to = appendText(to, "key", o.Key)
	to = appendTexts(to, "labels", o.Labels)
	to = appendTexts(to, "headers", o.Headers)
	if o.Priority != nil {
		to = strconv.AppendInt(appendName(to, "priority"), int64(*o.Priority), 10)
	}
	to = appendMilliseconds(to, "delay_ms", o.Delay)
	if !o.At.IsZero() {
		to = strconv.AppendInt(appendName(to, "at_ms"), o.At.Add(time.Millisecond-1).UnixMilli(), 10)
	}
	to = appendNumber(to, "max_attempts", o.MaxAttempts)
	to = appendMilliseconds(to, "timeout_ms", o.Timeout)
	if len(o.After) > 0 {
		to = append(appendName(to, "after"), '[')
		for i, id := range o.After {
			if i > 0 {
				to = append(to, ',')
			}
			to = appendJSON(to, id)
		}
		to = append(to, ']')
	}
	to = appendText(to, "when", o.When)
	to = appendText(to, "fair_key", o.FairKey)
	to = appendNumber(to, "fair_weight", o.FairWeight)
	to = appendText(to, "concurrency_key", o.ConcurrencyKey)
	to = appendNumber(to, "max_concurrent", o.MaxConcurrent)
	if o.Unique != nil {
		to = append(appendName(to, "unique"), '{')
		to = appendText(to, "key", o.Unique.Key)
		to = appendMilliseconds(to, "for_ms", o.Unique.For)
		to = append(to, '}')
	}
	return string(append(to, '}'))
}

// appendNumber appends a member unless its number is 0.
func appendNumber(to []byte, name string, n int) []byte {
	if n == 0 {
		return to
	}
	return strconv.AppendInt(appendName(to, name), int64(n), 10)
}

// appendName appends the name of a JSON object's member.
func appendName(to []byte, name string) []byte {
	if to[len(to)-1] != '{' {
		to = append(to, ',')
	}
	return append(appendJSON(to, name), ':')
}

func appendText(to []byte, name, text string) []byte {
	if text == "" {
		return to
	}
	return appendJSON(appendName(to, name), text)
}

func appendTexts(to []byte, name string, texts map[string]string) []byte {
	if len(texts) == 0 {
		return to
	}
	to = append(appendName(to, name), '{')
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		to = appendJSON(appendName(to, name), texts[name])
	}
	return append(to, '}')
}

// appendMilliseconds appends a duration in milliseconds, rounded up. The host refuses a negative one.
func appendMilliseconds(to []byte, name string, d time.Duration) []byte {
	if d == 0 {
		return to
	}
	return strconv.AppendInt(appendName(to, name), guest.Milliseconds(d), 10)
}
