package sdktest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk"
)

// The limits of enqueueing.
const (
	maxChildren = 256 // of one task
	maxID       = 128 // bytes, also of a queue's name
	maxPriority = 100
	maxOptions  = 64 << 10 // bytes
	maxAttempts = 1_000_000
	maxLabels   = 16
	maxMetadata = 16 << 10 // bytes of key, parent and labels
	minUnique   = time.Second
	lastMoment  = 253402300799999 // Unix time in milliseconds, the end of the year 9999

	// uniqueLife is how long a uniqueness holds at most whose task is never finished.
	uniqueLife = 90 * 24 * time.Hour
)

func (r *run) Enqueue(queue string, parameters []byte, options string) (string, error) {
	if err := passes(queue); err != nil {
		return "", err
	}
	if len(parameters) > maxBody || len(options) > maxOptions {
		return "", sdk.ErrTooBig
	}
	asked, err := parseOptions(options)
	if err != nil {
		return "", sdk.ErrInvalid
	}
	unlock, err := r.ask("enqueue")
	if err != nil {
		return "", err
	}
	defer unlock()
	switch {
	case !validID(queue):
		return "", sdk.ErrInvalid
	case !slices.ContainsFunc(r.h.Queues, func(pattern string) bool { return matches(pattern, queue) }):
		return "", sdk.ErrDenied
	case !validOptions(asked, r.task.ID):
		return "", sdk.ErrInvalid
	case r.asked == maxChildren:
		return "", sdk.ErrLimit
	}
	r.asked++
	if asked.ID == "" {
		r.h.made++
		asked.ID = "child-" + strconv.Itoa(r.h.made)
	}
	child := Enqueued{ID: asked.ID, Queue: queue, Parameters: slices.Clone(parameters), Options: *asked}
	if !r.h.EnqueueAtOnce {
		r.waiting = append(r.waiting, child)
		return child.ID, nil
	}
	return r.bear(child), nil
}

// bear brings a task into being, unless there is one of its ID, or one that it would be the same as. It answers the ID of that
// then. The harness is locked.
func (r *run) bear(child Enqueued) (id string) {
	if r.h.taken[child.ID] {
		return child.ID
	}
	if unique := child.Options.Unique; unique != nil {
		name, life := sameness{queue: child.Queue, key: unique.Key}, uniqueLife
		if unique.Key == "" {
			name.parameters = string(child.Parameters)
		}
		if first, ok := r.h.unique[name]; ok && r.h.passed < first.until {
			return first.id
		}
		if unique.For > 0 { // a host counts in seconds
			life = (unique.For + time.Second - 1).Truncate(time.Second)
		}
		r.h.unique[name] = holder{id: child.ID, until: r.h.passed + life}
	}
	r.h.taken[child.ID] = true
	r.enqueued = append(r.enqueued, child)
	return child.ID
}

// sameness is what tasks have in common of which there is to be one.
type sameness struct{ queue, key, parameters string }

// holder is the one.
type holder struct {
	id    string
	until time.Duration // in the time of Harness.passed
}

// matches tells whether a name is the pattern, whose first * stands for any text.
func matches(pattern, name string) bool {
	head, tail, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	return len(name) >= len(head)+len(tail) && strings.HasPrefix(name, head) && strings.HasSuffix(name, tail)
}

func validID(id string) bool {
	return len(id) >= 1 && len(id) <= maxID && !strings.ContainsFunc(id, func(c rune) bool { return c < 0x21 || c > 0x7e })
}

func validOptions(o *sdk.EnqueueOptions, parent string) bool {
	metadata := len(o.Key) + len(parent)
	for name, value := range o.Labels {
		metadata += len(name) + len(value)
	}
	return (o.ID == "" || validID(o.ID)) && (o.Priority == nil || *o.Priority >= 0 && *o.Priority <= maxPriority) &&
		o.Delay >= 0 && o.Delay <= maxLifetime && (o.Delay == 0 || o.At.IsZero()) &&
		o.MaxAttempts >= 0 && o.MaxAttempts <= maxAttempts && o.Timeout >= 0 && o.Timeout <= maxLifetime &&
		validUnique(o.Unique) && len(o.Labels) <= maxLabels && metadata <= maxMetadata
}

func validUnique(u *sdk.Unique) bool {
	return u == nil || u.For == 0 || u.For >= minUnique && u.For <= maxLifetime
}

// duration is a time in milliseconds. One that is negative, or too long, stays so.
func duration(ms int64) time.Duration {
	return time.Duration(min(max(ms, -1), maxLifetime.Milliseconds()+1)) * time.Millisecond
}

// parseOptions reads the options as the host does, which knows no members but these.
func parseOptions(text string) (*sdk.EnqueueOptions, error) {
	var fields struct {
		ID          string            `json:"id"`
		Key         string            `json:"key"`
		Labels      map[string]string `json:"labels"`
		Priority    *int              `json:"priority"`
		Delay       int64             `json:"delay_ms"`
		At          int64             `json:"at_ms"`
		MaxAttempts int               `json:"max_attempts"`
		Timeout     int64             `json:"timeout_ms"`
		Unique      *struct {
			Key string `json:"key"`
			For int64  `json:"for_ms"`
		} `json:"unique"`
	}
	if text == "" {
		return &sdk.EnqueueOptions{}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&fields); err != nil {
		return nil, err
	}
	if fields.At < 0 || fields.At > lastMoment {
		return nil, sdk.ErrInvalid
	}
	options := &sdk.EnqueueOptions{
		ID: fields.ID, Key: fields.Key, Labels: fields.Labels, Priority: fields.Priority,
		Delay: duration(fields.Delay), MaxAttempts: fields.MaxAttempts,
		Timeout: duration(fields.Timeout),
	}
	if fields.At != 0 {
		options.At = time.UnixMilli(fields.At)
	}
	if fields.Unique != nil {
		options.Unique = &sdk.Unique{Key: fields.Unique.Key, For: duration(fields.Unique.For)}
	}
	return options, nil
}
