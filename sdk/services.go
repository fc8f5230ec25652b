package sdk

import (
	"errors"
	"time"

	"github.com/quern-project/quern/sdk/internal/guest"
)

// What follows asks the host for more than the task, by quern_v1: it is for modules that are built as handlers. Most of it has
// to be granted by the plugin's manifest; a module that imports what is not granted is refused when it is loaded, and so is a
// command that imports any of it. On the developer's own machine, and while the module starts, all of it but [Config] answers
// [ErrNoHost].

// The errors of the host. Compare by errors.Is.
const (
	ErrInvalid     = HostError(-1)  // an argument means nothing; the task's log says more
	ErrDenied      = HostError(-3)  // the manifest does not grant it; the task's log says more
	ErrNotFound    = HostError(-4)  // there is none of that name
	ErrTooBig      = HostError(-5)  // it is larger than one may be
	ErrQuota       = HostError(-6)  // there is no room for more
	ErrConflict    = HostError(-7)  // it is not as the handler believes
	ErrLost        = HostError(-8)  // the task is another host's by now: what it does is in vain
	ErrUnavailable = HostError(-9)  // what is behind the service is away: perhaps later
	ErrNoHost      = HostError(-10) // there is no task, or no host
	ErrLimit       = HostError(-11) // that many are not allowed
)

// HostError is an answer of the host.
type HostError int32

func (e HostError) Error() string {
	switch e {
	case ErrInvalid:
		return "the host cannot make sense of it"
	case ErrDenied:
		return "the manifest does not grant it"
	case ErrNotFound:
		return "there is none of that name"
	case ErrTooBig:
		return "it is larger than the plugin's limit"
	case ErrQuota:
		return "there is no room for more"
	case ErrConflict:
		return "it has another value"
	case ErrLost:
		return "the task is another host's by now"
	case ErrUnavailable:
		return "what is behind the host's service is away"
	case ErrNoHost:
		return "there is no task, or no host"
	case ErrLimit:
		return "that many are not allowed"
	default:
		return "the host's answer means nothing to this SDK"
	}
}

// appendJSON appends a text as a JSON string. What is no UTF-8 becomes U+FFFD.
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

// SaveCheckpoint keeps at most 1 MiB for the task's next run, in the place of what was kept before, and returns when Redis has it.
// The next run finds it also when this host dies in the next moment. [ErrLost] tells to stop.
func SaveCheckpoint(value []byte) error { return hostSave(value) }

// Checkpoint is what was saved last, in this run or one before; false if nothing was.
func Checkpoint() (value []byte, ok bool, err error) {
	value, err = hostLoad()
	if errors.Is(err, ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

// Config is the value of that name in the section config of the manifest; false if it has none. It may also be asked for
// in an init function.
func Config(name string) (value string, ok bool) { return hostConfig(name) }

// Secret is the secret of that name, which the manifest has to grant. [ErrNotFound] if the host has none of that name for
// the tenant. Ask for it within the task, and do not write it anywhere.
func Secret(name string) ([]byte, error) { return hostSecret(name) }

// Bucket is a bucket of the tenant's key-value store, which the manifest has to grant. Keys are 1 to 256 bytes of UTF-8
// without control characters, values at most 512 KiB.
type Bucket string

// Get is the value of a key; [ErrNotFound] if there is none.
func (b Bucket) Get(key string) ([]byte, error) { return hostGet(string(b), key) }

// Set sets a value, for ever if ttl is 0, else for so long, in milliseconds, rounded up. [ErrInvalid] if ttl is negative, as
// time.Until of a moment that is over is; [ErrQuota] if the bucket would hold more than its quota.
func (b Bucket) Set(key string, value []byte, ttl time.Duration) error {
	return hostSet(string(b), key, value, guest.Milliseconds(ttl))
}

// Delete deletes a value, and tells whether there was one.
func (b Bucket) Delete(key string) (bool, error) { return hostDelete(string(b), key) }

// Increment adds to a decimal number, 0 if there is none, and returns the sum. [ErrConflict] if the value is no number.
func (b Bucket) Increment(key string, delta int64) (int64, error) {
	return hostIncrement(string(b), key, delta)
}

// Swap sets a value if the present one is old, or if there is none and old is nil. Else the error is [ErrConflict], and
// present is the value, nil if there is none. The rest is as with Set.
func (b Bucket) Swap(key string, old, value []byte, ttl time.Duration) (present []byte, err error) {
	return hostSwap(string(b), key, old, value, guest.Milliseconds(ttl))
}

// List lists keys that begin with prefix and come after another one, in the order of their bytes, at most limit of them,
// which is 1 to 1000.
func (b Bucket) List(prefix, after string, limit int) ([]string, error) {
	return hostList(string(b), prefix, after, limit)
}

// PreviousError is why the task's attempt before has failed; "" if this is the first one. A host that died is no attempt.
func (t *Task) PreviousError() string { return hostText(4) }

// Parent is the ID of the task that has enqueued this one; "" if none has.
func (t *Task) Parent() string { return hostText(5) }

// Key is the task's own, by which it was enqueued; "" if it has none.
func (t *Task) Key() string { return hostText(6) }

// Traceparent is the trace that the task belongs to, as the header of that name of the W3C's Trace Context has it; "" if
// none. Pass it on with what the handler requests of others.
func (t *Task) Traceparent() string { return hostText(7) }

// Deadline is when the task is ended; false if it has none.
func (t *Task) Deadline() (time.Time, bool) { return deadline() }

// Cancelled tells whether the host is about to end: a task that comes to its end now need not be run again. The handler's
// context ends then, too.
func (t *Task) Cancelled() bool { return hostCancelled() }
