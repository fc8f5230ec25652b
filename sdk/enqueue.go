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
	// ID is the new task's ID; "" lets the host make one. If a task with this ID exists, nothing is enqueued. So an ID
	// derived from the parent's ID keeps a second attempt from enqueueing a second child.
	ID string
	// Key is the caller's name for the subject of the task.
	Key string
	// Labels are the caller's own labels, for finding tasks.
	Labels map[string]string
	// Headers are stored with the task, apart from its parameters. Their names are in lower case, their values
	// printable text; at most 32 with 8 KiB in all. Without a traceparent, the new task inherits traceparent and
	// tracestate of this task.
	Headers map[string]string
	// Priority is 0 to 100; nil means the default. Tasks of higher priority come first.
	Priority *int
	// Delay is how long the task waits, At is when it is due. Set at most one. Both are rounded up to milliseconds.
	Delay time.Duration
	At    time.Time
	// MaxAttempts bounds the attempts; 0 means the manifest's number.
	MaxAttempts int
	// Timeout bounds each attempt, rounded up to milliseconds; 0 means the manifest's.
	Timeout time.Duration
	// Unique prevents a second task of the same kind; nil allows it. If there is a first task, Enqueue returns its ID
	// with after: call in the manifest; otherwise it returns the ID of a new task that will not be created.
	Unique *Unique
	// After are the IDs of tasks that the new task waits for: siblings that were enqueued before with an ID of their
	// choice, or any other tasks. If there is one and the new task has no parameters, it gets that task's result as its
	// parameters. When is the condition under which the new task runs: "complete" (all are complete; the default),
	// "ended" (all are complete or failed), "any" (one is complete), or "failed" (one has failed).
	After []string
	When  string
}

// Unique defines which tasks of a queue are the same, and for how long.
type Unique struct {
	// Key is the same for tasks that are the same; "" compares their parameters.
	Key string
	// For is how long a second task is refused, at least a second, counted from the first task's enqueue; 0 means until
	// the first task is finished.
	For time.Duration
}

// Enqueue enqueues a task of the same tenant and returns its ID. The manifest must grant the queue. options may be nil.
//
// The new task is created when this one completes, together with its result: a task that fails enqueues nothing. With
// after: call in the manifest, it is created at once.
//
// Errors: [ErrInvalid] for an invalid queue name or option; [ErrDenied] if the queue is not granted; [ErrTooBig] if
// result and parameters together exceed the plugin's output limit; [ErrLimit] if the task enqueues more than the
// manifest's number of tasks (default 256) or 16 MiB of tasks, or if the chain of parents is too long. With after: call
// also [ErrQuota] and [ErrUnavailable].
func Enqueue(queue string, parameters []byte, options *EnqueueOptions) (id string, err error) {
	id, err = services().Enqueue(queue, parameters, options)
	return id, asking(err, "enqueue to ", "", queue)
}

// PublishOptions are the options of a publication.
type PublishOptions struct {
	// ID is the publication's ID; "" lets the host make one. If a publication with this ID exists, nothing is
	// published. So an ID derived from the task's ID keeps a second attempt from publishing twice.
	ID string
	// Attributes are CloudEvents attributes, such as type and source, or any others, such as tenant. Subscriptions
	// filter by them, and they become headers of the tasks, with the prefix ce-. Their names consist of a-z and 0-9.
	Attributes map[string]string
}

// Publish publishes to a topic of the same tenant and returns the publication's ID. Each subscription that matches gets
// a task with the payload. The manifest must grant the topic. options may be nil.
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
	if o.MaxAttempts != 0 {
		to = strconv.AppendInt(appendName(to, "max_attempts"), int64(o.MaxAttempts), 10)
	}
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
	if o.Unique != nil {
		to = append(appendName(to, "unique"), '{')
		to = appendText(to, "key", o.Unique.Key)
		to = appendMilliseconds(to, "for_ms", o.Unique.For)
		to = append(to, '}')
	}
	return string(append(to, '}'))
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

// appendMilliseconds appends a duration, rounded up. The host refuses a negative one.
func appendMilliseconds(to []byte, name string, d time.Duration) []byte {
	if d == 0 {
		return to
	}
	return strconv.AppendInt(appendName(to, name), guest.Milliseconds(d), 10)
}
