package sdk

import (
	"errors"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/internal/guest"
)

// The functions below call functions of the host (quern_v1), in modules built as handlers. The plugin's manifest must
// grant most of them: a function that is not granted returns [ErrDenied]. If a command imports one of these host
// functions, it is refused when it is loaded. On the developer's machine, and while the module starts, all functions
// except [Config] return [ErrNoHost].

// The errors of the host. Compare them with errors.Is.
const (
	ErrInvalid     = HostError(-1)  // an argument is invalid; see the task's log
	ErrDenied      = HostError(-3)  // denied by the manifest, the host's grants or its networks; see the task's log
	ErrNotFound    = HostError(-4)  // there is nothing of that name
	ErrTooBig      = HostError(-5)  // something is larger than its limit
	ErrQuota       = HostError(-6)  // the quota is used up
	ErrConflict    = HostError(-7)  // the present value is not the expected one
	ErrLost        = HostError(-8)  // another host has the task: stop, since the result of this run is discarded
	ErrUnavailable = HostError(-9)  // the service is unavailable: try later
	ErrNoHost      = HostError(-10) // there is no task, or no host
	ErrLimit       = HostError(-11) // there are too many, or the chain of parents is too long
)

// HostError is an error that the host returned for a call.
type HostError int32

func (e HostError) Error() string {
	if n := -int(e); 0 <= n && n < len(hostErrors) && hostErrors[n] != "" {
		return hostErrors[n]
	}
	return "the host gave an unknown answer"
}

// hostErrors are the texts of the errors, by the absolute values of their numbers.
var hostErrors = [...]string{
	-ErrInvalid:     "an argument is invalid",
	-ErrDenied:      "denied: the task's log says by whom, and what to add",
	-ErrNotFound:    "not found",
	-ErrTooBig:      "it is larger than the plugin's limit",
	-ErrQuota:       "there is no room for more",
	-ErrConflict:    "the present value is not the expected one",
	-ErrLost:        "another host has taken over the task",
	-ErrUnavailable: "the service is unavailable: try later",
	-ErrNoHost:      "there is no task, or no host",
	-ErrLimit:       "too many, or too deep",
}

// callError is an error of the host, with a description of the call.
type callError struct {
	asked string
	err   error
}

func (e *callError) Error() string { return e.asked + ": " + e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// asking adds to an error the call and the name that was asked for: CALL PLACE/NAME, or CALL NAME if place is "".
func asking(err error, call, place, name string) error {
	if err == nil {
		return nil
	}
	if place != "" {
		call += place + "/"
	}
	for _, refused := range []HostError{ErrInvalid, ErrDenied, ErrQuota, ErrUnavailable, ErrLimit} {
		if errors.Is(err, refused) {
			return &callError{call + name, guest.Because(err, refusal())}
		}
	}
	return &callError{call + name, err}
}

// appendJSON appends text as a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendJSON(to []byte, text string) []byte {
	const hex = "0123456789abcdef"
	to = append(to, '"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			to = append(to, '\\', byte(r))
		case r < ' ':
			to = append(to, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			to = append(to, string(r)...)
		}
	}
	return append(to, '"')
}

// SaveCheckpoint saves at most 1 MiB for the task's next run, and replaces the last checkpoint. It returns once Redis
// has the checkpoint, which then survives the host. If it returns [ErrLost], stop: another host has the task.
func SaveCheckpoint(value []byte) error {
	return asking(services().SaveCheckpoint(value), "save checkpoint", "", "")
}

// Checkpoint returns the checkpoint that this run or an earlier one saved last; ok is false if there is none.
func Checkpoint() (value []byte, ok bool, err error) {
	value, err = services().Checkpoint()
	if errors.Is(err, ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

// Config returns the value of this name in the manifest's section config; ok is false if there is none. Config also
// works in init functions.
func Config(name string) (value string, ok bool) { return services().Config(name) }

// Secret returns a secret, which the manifest must grant. It returns [ErrNotFound] if the tenant has no secret of this
// name. Call Secret within the task, and do not write the secret anywhere.
func Secret(name string) ([]byte, error) {
	value, err := services().Secret(name)
	return value, asking(err, "secret ", "", name)
}

// Bucket is a bucket of the tenant's key-value store, which the manifest must grant. A key is 1 to 256 bytes of UTF-8
// without control characters. A value has at most 512 KiB.
type Bucket string

// Get returns the value of a key, or [ErrNotFound] if there is none.
func (b Bucket) Get(key string) ([]byte, error) {
	value, err := services().Get(string(b), key)
	return value, b.asking(err, "get", key)
}

func (b Bucket) asking(err error, verb, key string) error {
	return asking(err, "kv "+verb+" ", string(b), key)
}

// Set sets a value that lasts for ttl, rounded up to milliseconds, or forever if ttl is 0. It returns [ErrInvalid] if
// ttl is negative (such as time.Until of a time in the past), and [ErrQuota] if the bucket would exceed its quota.
func (b Bucket) Set(key string, value []byte, ttl time.Duration) error {
	return b.asking(services().Set(string(b), key, value, guest.Milliseconds(ttl)), "set", key)
}

// Delete deletes the value of a key, and reports whether there was one.
func (b Bucket) Delete(key string) (bool, error) {
	was, err := services().Delete(string(b), key)
	return was, b.asking(err, "delete", key)
}

// Increment adds delta to the value of a key, a decimal number, and returns the sum. A missing value counts as 0. It
// returns [ErrConflict] if the value is not a decimal number.
func (b Bucket) Increment(key string, delta int64) (int64, error) {
	sum, err := services().Increment(string(b), key, delta)
	return sum, b.asking(err, "increment", key)
}

// Swap sets a value, like Set, if the present value equals old, or if old is nil and there is no value. Otherwise it
// returns [ErrConflict] and the present value, or nil if there is none.
func (b Bucket) Swap(key string, old, value []byte, ttl time.Duration) (present []byte, err error) {
	present, err = services().Swap(string(b), key, old, value, guest.Milliseconds(ttl))
	return present, b.asking(err, "swap", key)
}

// List returns up to limit (1 to 1000) keys that begin with prefix and follow the key `after`, in byte order.
func (b Bucket) List(prefix, after string, limit int) ([]string, error) {
	keys, err := services().List(string(b), prefix, after, limit)
	return keys, b.asking(err, "list", prefix+"*")
}

// PreviousError returns the error of the previous attempt, or "" in the first attempt. A run during which the host died
// does not count as an attempt.
func (t *Task) PreviousError() string { return services().TaskText(textPreviousError) }

// Parent returns the ID of the task that enqueued this one, or "" if no task did.
func (t *Task) Parent() string { return services().TaskText(textParent) }

// Key returns the key with which the task was enqueued, or "" if there is none.
func (t *Task) Key() string { return services().TaskText(textKey) }

// Traceparent returns the task's trace as the value of the W3C header traceparent, or "" if it has no trace. Pass the
// value on in the handler's requests.
func (t *Task) Traceparent() string { return services().TaskText(textTraceparent) }

// Headers returns the headers with which the task was enqueued, including traceparent, by their names in lower case.
func (t *Task) Headers() map[string]string {
	headers := make(map[string]string)
	for line := range strings.Lines(services().TaskText(textHeaders)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		headers[name] = value
	}
	return headers
}

// Dependency is a task that this task waited for.
type Dependency struct {
	ID string
	// End is complete, failed, gone (the task was deleted), open (the task could not be waited for), or waiting (the task
	// has not ended).
	End string
}

// Dependencies returns the tasks that this one waited for before it ran, in the order in which they were given when it
// was enqueued.
func (t *Task) Dependencies() (all []Dependency, err error) {
	text, err := services().Dependencies()
	if errors.Is(err, ErrNoHost) {
		return nil, nil // without a host, a task's description is empty
	}
	for line := range strings.Lines(text) {
		id, end, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		all = append(all, Dependency{id, end})
	}
	return all, asking(err, "dependencies", "", "")
}

// ResultOf returns the result of a task for which this one waited. It returns [ErrNotFound] if there is no result,
// because that task is not complete or was deleted; [ErrInvalid] if this task did not wait for that task; [ErrTooBig]
// if the result is larger than 16 MiB; [ErrUnavailable] if Redis does not answer.
func (t *Task) ResultOf(id string) ([]byte, error) {
	result, err := services().DependencyResult(id)
	if errors.Is(err, ErrNotFound) {
		err = guest.Because(err, refusal())
	}
	return result, asking(err, "result of ", "", id)
}

// Deadline returns the time at which the host ends the task; it returns false if there is none.
func (t *Task) Deadline() (time.Time, bool) { return deadline() }

// Cancelled reports whether the host is about to end, as the handler's context does. A task that still completes then
// does not run again.
func (t *Task) Cancelled() bool { return services().Cancelled() }
