package sdktest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
	"github.com/quern-project/quern/sdk/internal/guest"
)

// run is the host of one run of a handler. Package sdk calls its methods.
type run struct {
	*Harness
	task     Task
	deadline int64 // Unix milliseconds; 0 if there is none

	result  Result // what the run has left so far; guarded by the harness's mu
	failure string // the text of the handler's error; guarded by the harness's mu
}

// end returns the result of a run that has ended with a status and with the error that the handler returned.
func (r *run) end(status int, returned error) *Result {
	defer r.lock()()
	r.ending = false
	result := r.result
	result.Status, result.Outcome = status, outcomes[status]
	if result.Outcome != Complete {
		result.Err, result.Result = cmp.Or(returned, errors.New(r.failure)), nil
		if !r.EnqueueAtOnce {
			result.Enqueued = nil
		}
		if !r.PublishAtOnce {
			result.Published = nil
		}
	}
	return &result
}

// lock locks the harness for a call of the handler.
func (r *run) lock() (unlock func()) {
	r.mu.Lock()
	return r.mu.Unlock
}

// call runs f, which implements a function of quern_v1, while the harness is locked. First it returns the test's error
// for that function, if there is one.
func call[T any](r *run, function string, f func() (T, error)) (answer T, err error) {
	if r.Fault != nil {
		if err := r.Fault(function); err != nil {
			return answer, err
		}
	}
	defer r.lock()()
	return f()
}

// Input returns a copy, because the handler is allowed to change it.
func (r *run) Input() []byte { return slices.Clone(r.task.Input) }

func (r *run) Output(p []byte) error {
	defer r.lock()()
	r.result.Result = slices.Clone(p)
	return nil
}

func (r *run) Fail(text string) {
	defer r.lock()()
	r.failure = text
}

func (r *run) RetryAfter(ms int64) {
	defer r.lock()()
	r.result.HoldKey = ms < 0
	r.result.RetryAfter = (time.Duration(ms) * time.Millisecond).Abs()
}

func (r *run) TaskText(field uint32) string {
	t := &r.task
	if field == textHeaders {
		return headerLines(t)
	}
	return [...]string{t.ID, t.Queue, t.Tenant, t.Plugin, t.PreviousError, t.Parent, t.Key, t.Traceparent}[field]
}

func (r *run) Dependencies() (string, error) {
	return call(r, "task_text", func() (string, error) {
		var text strings.Builder
		for _, d := range r.task.Dependencies {
			fmt.Fprintf(&text, "%s %s\n", d.ID, cmp.Or(d.End, "complete"))
		}
		return text.String(), nil
	})
}

func (r *run) DependencyResult(id string) ([]byte, error) {
	return call(r, "dependency_result", func() ([]byte, error) {
		i := slices.IndexFunc(r.task.Dependencies, func(d Dependency) bool { return d.ID == id })
		switch {
		case i < 0:
			return nil, sdk.ErrInvalid
		case cmp.Or(r.task.Dependencies[i].End, "complete") != "complete":
			why := map[string]string{"failed": "failed and has no result", "gone": "is deleted, and so is its result"}
			return nil, guest.Because(sdk.ErrNotFound, "task "+id+" "+
				cmp.Or(why[r.task.Dependencies[i].End], "has no result yet"))
		}
		return clone(r.task.Dependencies[i].Result), nil
	})
}

// textHeaders is the number of the field that has the headers.
const textHeaders = 8

// headerLines returns the headers in the form in which a host returns them.
func headerLines(t *Task) string {
	headers := make(map[string]string, len(t.Headers)+1)
	maps.Copy(headers, t.Headers)
	if t.Traceparent != "" {
		headers["traceparent"] = t.Traceparent
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		fmt.Fprintf(&text, "%s: %s\n", name, headers[name])
	}
	return text.String()
}

func (r *run) TaskNumber(field uint32) int64 {
	return [...]int64{
		int64(r.task.Attempt), int64(r.task.MaxAttempts), r.deadline, math.MaxInt64, int64(r.task.Reschedules),
	}[field]
}

func (r *run) Cancelled() bool {
	defer r.lock()()
	return r.ending
}

// Write adds lines to the log: what the handler logs, and the stack of a panic.
func (r *run) Write(p []byte) (int, error) {
	defer r.lock()()
	for line := range strings.Lines(string(p)) {
		r.result.Log = append(r.result.Log, strings.TrimSuffix(line, "\n"))
	}
	return len(p), nil
}

func (r *run) Progress(fraction float64, message string) error {
	defer r.lock()()
	if len(message) > maxProgress {
		end := maxProgress
		for end > 0 && !utf8.RuneStart(message[end]) {
			end--
		}
		message = message[:end]
	}
	r.result.Progress = append(r.result.Progress, Progress{fraction, message})
	return nil
}

// maxProgress is the maximum size of a message that a host shows, in bytes.
const maxProgress = 1 << 10

func (r *run) SaveCheckpoint(value []byte) error {
	_, err := call(r, "checkpoint_save", func() (none struct{}, err error) {
		if len(value) > maxCheckpoint {
			return none, sdk.ErrTooBig
		}
		r.result.Checkpoint = clone(value)
		return none, nil
	})
	return err
}

func (r *run) Checkpoint() ([]byte, error) {
	defer r.lock()()
	if r.result.Checkpoint == nil {
		return nil, sdk.ErrNotFound
	}
	return clone(r.result.Checkpoint), nil
}

func (r *run) Config(name string) (string, bool) {
	value, ok := r.Harness.Config[name]
	return value, ok
}

func (r *run) Secret(name string) ([]byte, error) {
	return call(r, "secret_get", func() ([]byte, error) {
		if value, ok := r.Secrets[name]; ok {
			return []byte(value), nil
		}
		return nil, denied("the test gives no secret %q: add h.Secrets[%[1]q] = \"…\"", name)
	})
}

// errNoDatabase is returned for databases, which only the host's tests have.
func (r *run) errNoDatabase(name string) error {
	return denied("a test has no database %q: test the plugin by `quern plugin test --database %[1]s=URL`", name)
}

func (r *run) SQL(database, _ string, _ []byte) ([]byte, error) {
	return call(r, "sql", func() ([]byte, error) { return nil, r.errNoDatabase(database) })
}

func (r *run) CommitSQL(database, _ string, _ []byte) ([]byte, error) {
	return call(r, "sql_commit", func() ([]byte, error) { return nil, r.errNoDatabase(database) })
}

func (r *run) RollbackSQL(database string) error {
	_, err := call(r, "sql_rollback", func() (struct{}, error) { return struct{}{}, r.errNoDatabase(database) })
	return err
}

func (r *run) StepSQL(database, _ string) ([]byte, error) {
	return call(r, "sql_step", func() ([]byte, error) { return nil, r.errNoDatabase(database) })
}

func (r *run) Enqueue(queue string, parameters []byte, options any) (string, error) {
	return call(r, "enqueue", func() (string, error) {
		switch {
		case !slices.ContainsFunc(r.Queues, func(pattern string) bool { return matches(pattern, queue) }):
			return "", denied("the test does not let it enqueue to %q: add h.Queues = []string{%[1]q}", queue)
		case len(parameters) > maxBody:
			return "", sdk.ErrTooBig
		}
		child := Enqueued{Queue: queue, Parameters: slices.Clone(parameters)}
		if given := options.(*sdk.EnqueueOptions); given != nil {
			child.Options = *given
		}
		child.ID = cmp.Or(child.Options.ID, fmt.Sprintf("child-%d", len(r.result.Enqueued)+1))
		r.result.Enqueued = append(r.result.Enqueued, child)
		return child.ID, nil
	})
}

func (r *run) Publish(topic string, payload []byte, options any) (string, error) {
	return call(r, "enqueue", func() (string, error) {
		switch {
		case !slices.ContainsFunc(r.Topics, func(pattern string) bool { return matches(pattern, topic) }):
			return "", denied("the test does not let it publish to %q: add h.Topics = []string{%[1]q}", topic)
		case len(payload) > maxBody:
			return "", sdk.ErrTooBig
		}
		p := Published{Topic: topic, Payload: slices.Clone(payload)}
		if given := options.(*sdk.PublishOptions); given != nil {
			p.Options = *given
		}
		p.ID = cmp.Or(p.Options.ID, fmt.Sprintf("publication-%d", len(r.result.Published)+1))
		r.result.Published = append(r.result.Published, p)
		return p.ID, nil
	})
}

// matches reports whether a name matches a pattern, whose first * stands for any text.
func matches(pattern, name string) bool {
	head, tail, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	return len(name) >= len(head)+len(tail) && strings.HasPrefix(name, head) && strings.HasSuffix(name, tail)
}

func (r *run) HTTP(request fetch.Request) (*fetch.Response, error) {
	if _, err := call(r, "http", func() (none struct{}, err error) { return none, nil }); err != nil {
		return nil, err
	}
	return send(request, r.Harness.HTTP) // without the lock, since it may take long
}

// withBucket calls f with a bucket while the harness is locked. It returns an error if the bucket is not granted or, if
// write is true, is read-only.
func withBucket[T any](r *run, function, name string, write bool, f func(b *Bucket) (T, error)) (answer T, err error) {
	if !validName(name) {
		return answer, sdk.ErrInvalid
	}
	return call(r, function, func() (T, error) {
		switch b := r.buckets[name]; {
		case b == nil:
			return answer, denied("the test gives no bucket %q: add h.Bucket(%[1]q)", name)
		case write && b.readOnly:
			return answer, denied("the test gives the bucket %q by ReadOnly", name)
		default:
			return f(b)
		}
	})
}

// denied returns sdk.ErrDenied with a text that says what the test lacks.
func denied(format string, a ...any) error {
	return guest.Because(sdk.ErrDenied, "denied: "+fmt.Sprintf(format, a...))
}

func (r *run) Get(bucket, key string) ([]byte, error) {
	return withBucket(r, "kv_get", bucket, false, func(b *Bucket) ([]byte, error) {
		e, ok := b.values[key]
		switch {
		case !validName(key):
			return nil, sdk.ErrInvalid
		case !ok:
			return nil, sdk.ErrNotFound
		}
		return clone(e.value), nil
	})
}

func (r *run) Set(bucket, key string, value []byte, ttl int64) error {
	_, err := withBucket(r, "kv_set", bucket, true, func(b *Bucket) (none struct{}, err error) {
		return none, b.put(key, value, ttl)
	})
	return err
}

func (r *run) Delete(bucket, key string) (bool, error) {
	return withBucket(r, "kv_delete", bucket, true, func(b *Bucket) (bool, error) {
		if !validName(key) {
			return false, sdk.ErrInvalid
		}
		_, ok := b.values[key]
		delete(b.values, key)
		return ok, nil
	})
}

func (r *run) Increment(bucket, key string, delta int64) (int64, error) {
	return withBucket(r, "kv_increment", bucket, true, func(b *Bucket) (int64, error) {
		e, ok := b.values[key]
		if !ok {
			e.value = []byte("0")
		}
		old, err := strconv.ParseInt(string(e.value), 10, 64)
		sum := old + delta
		switch {
		case !validName(key):
			return 0, sdk.ErrInvalid
		case err != nil || strconv.FormatInt(old, 10) != string(e.value):
			return 0, sdk.ErrConflict
		case delta != 0 && (sum > old) != (delta > 0):
			return 0, sdk.ErrLimit
		}
		b.values[key] = entry{strconv.AppendInt(nil, sum, 10), e.ttl}
		return sum, nil
	})
}

func (r *run) Swap(bucket, key string, old, value []byte, ttl int64) ([]byte, error) {
	return withBucket(r, "kv_swap", bucket, true, func(b *Bucket) (present []byte, err error) {
		e, ok := b.values[key]
		switch {
		case b.check(key, value, ttl) != nil:
			return nil, b.check(key, value, ttl)
		case !ok && old != nil:
			return nil, sdk.ErrConflict
		case ok && (old == nil || !bytes.Equal(e.value, old)):
			return clone(e.value), sdk.ErrConflict
		}
		return nil, b.put(key, value, ttl)
	})
}

func (r *run) List(bucket, prefix, after string, limit int) ([]string, error) {
	return withBucket(r, "kv_list", bucket, false, func(b *Bucket) (keys []string, err error) {
		if !validText(prefix) || !validText(after) || limit < 1 || limit > maxList {
			return nil, sdk.ErrInvalid
		}
		for _, key := range slices.Sorted(maps.Keys(b.values)) {
			if len(keys) < limit && strings.HasPrefix(key, prefix) && key > after {
				keys = append(keys, key)
			}
		}
		return keys, nil
	})
}
