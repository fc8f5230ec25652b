package sdk

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/quern-project/quern/sdk/internal/guest"
)

// EnqueueOptions say more of a task that is enqueued. What is left out is decided as for any other task.
type EnqueueOptions struct {
	// ID is the new task's; "" for one that the host makes. If there is a task of that ID already, nothing is enqueued: an ID
	// that is made of the parent's keeps a second attempt from enqueueing a second child.
	ID string
	// Key is the caller's own name for what the task is about.
	Key string
	// Labels are the caller's own, for looking tasks up.
	Labels map[string]string
	// Priority is 0 to 100; nil for the default. Higher ones come first.
	Priority *int
	// Delay is how long the task waits, At when it is due: one of them at most. Both are rounded up to milliseconds.
	Delay time.Duration
	At    time.Time
	// MaxAttempts is how often the task is tried at most; 0 leaves that to the manifest.
	MaxAttempts int
	// Timeout bounds each attempt, in milliseconds, rounded up; 0 leaves that to the manifest.
	Timeout time.Duration
	// Unique keeps a second task like it from being enqueued; nil does not. With after: call the ID that Enqueue answers is that
	// of the first one then; else it is the new task's own, which never comes into being.
	Unique *Unique
}

// Unique says what makes a task the same as another one of its queue, and for how long.
type Unique struct {
	// Key is the name for it; "" if the parameters are.
	Key string
	// For is how long there is no second one, counted from when the first one is enqueued, from a second up; 0 for until that is
	// finished.
	For time.Duration
}

// Enqueue enqueues a task of the same tenant, which the manifest has to grant, and answers its ID. Options may be nil.
//
// The new task comes into being when this one completes, together with its result: a task that fails has enqueued nothing. A
// manifest that says after: call has it at once.
//
// [ErrInvalid] if the queue's name or an option means nothing, [ErrDenied] if the queue is not granted, [ErrTooBig] if result and
// parameters together are larger than the plugin's output may be, [ErrLimit] after as many as the manifest grants (256, or 16 MiB of them), or where the chain of parents is
// as long as the manifest lets it be. With after: call also [ErrQuota] and [ErrUnavailable].
func Enqueue(queue string, parameters []byte, options *EnqueueOptions) (id string, err error) {
	return hostEnqueue(queue, parameters, options)
}

// json is the options as quern_v1 takes them; an unset one is left out.
func (o *EnqueueOptions) json() string {
	if o == nil {
		return ""
	}
	to := []byte{'{'}
	to = appendText(to, "id", o.ID)
	to = appendText(to, "key", o.Key)
	if len(o.Labels) > 0 {
		to = append(appendName(to, "labels"), '{')
		for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
			to = appendJSON(appendName(to, name), o.Labels[name])
		}
		to = append(to, '}')
	}
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
	if o.Unique != nil {
		to = append(appendName(to, "unique"), '{')
		to = appendText(to, "key", o.Unique.Key)
		to = appendMilliseconds(to, "for_ms", o.Unique.For)
		to = append(to, '}')
	}
	return string(append(to, '}'))
}

// appendName appends the name of an object's member.
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

// appendMilliseconds rounds up. What is negative is passed on: it is for the host to refuse.
func appendMilliseconds(to []byte, name string, d time.Duration) []byte {
	if d == 0 {
		return to
	}
	return strconv.AppendInt(appendName(to, name), guest.Milliseconds(d), 10)
}
