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
	case !slices.ContainsFunc(r.h.Queues, func(pattern string) bool { return matches(pattern, queue) }):
		return "", sdk.ErrDenied
	case r.asked == maxChildren:
		return "", sdk.ErrLimit
	case !validID(queue) || !validOptions(asked):
		return "", sdk.ErrInvalid
	}
	r.asked++
	if asked.ID == "" {
		r.h.made++
		asked.ID = "child-" + strconv.Itoa(r.h.made)
	}
	if r.h.taken[asked.ID] {
		return asked.ID, nil
	}
	r.h.taken[asked.ID] = true
	child := Enqueued{ID: asked.ID, Queue: queue, Parameters: slices.Clone(parameters), Options: *asked}
	if r.h.EnqueueAtOnce {
		r.enqueued = append(r.enqueued, child)
	} else {
		r.waiting = append(r.waiting, child)
	}
	return asked.ID, nil
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

func validOptions(o *sdk.EnqueueOptions) bool {
	return (o.ID == "" || validID(o.ID)) && (o.Priority == nil || *o.Priority >= 0 && *o.Priority <= maxPriority) &&
		o.Delay >= 0 && (o.Delay == 0 || o.At.IsZero()) && o.MaxAttempts >= 0 && o.Timeout >= 0 && (o.Unique == nil || o.Unique.For >= 0)
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
	options := &sdk.EnqueueOptions{
		ID: fields.ID, Key: fields.Key, Labels: fields.Labels, Priority: fields.Priority,
		Delay: time.Duration(fields.Delay) * time.Millisecond, MaxAttempts: fields.MaxAttempts,
		Timeout: time.Duration(fields.Timeout) * time.Millisecond,
	}
	if fields.At != 0 {
		options.At = time.UnixMilli(fields.At)
	}
	if fields.Unique != nil {
		options.Unique = &sdk.Unique{Key: fields.Unique.Key, For: time.Duration(fields.Unique.For) * time.Millisecond}
	}
	return options, nil
}
