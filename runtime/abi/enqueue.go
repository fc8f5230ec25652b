package abi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/service"
)

// maxOptions bounds the options of an enqueued task, in bytes.
const maxOptions = 64 << 10

// strictly reads a JSON object without unknown members.
func strictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return fmt.Errorf("there is something behind the object")
	}
	return nil
}

// milliseconds converts a duration that a guest wrote. Durations below 0 or above a hundred years stay out of range, so
// that the service refuses them.
func milliseconds(ms int64) time.Duration {
	most := maxLifetime.Milliseconds() + 1
	return time.Duration(min(max(ms, -1), most)) * time.Millisecond
}

// lastMoment is the last Unix time that a guest may write, in milliseconds: the end of the year 9999.
const lastMoment = 253402300799999

// parseChild reads the options of a new task.
func parseChild(options []byte) (service.Child, error) {
	var fields struct {
		ID          string            `json:"id"`
		Key         string            `json:"key"`
		Labels      map[string]string `json:"labels"`
		Headers     map[string]string `json:"headers"`
		Priority    *int              `json:"priority"`
		Delay       int64             `json:"delay_ms"`
		At          int64             `json:"at_ms"`
		MaxAttempts int               `json:"max_attempts"`
		Timeout     int64             `json:"timeout_ms"`
		After       []string          `json:"after"`
		When        string            `json:"when"`
		Unique      *struct {
			Key string `json:"key"`
			For int64  `json:"for_ms"`
		} `json:"unique"`
	}
	if len(options) > 0 {
		if err := strictly(options, &fields); err != nil {
			return service.Child{}, err
		}
	}
	if fields.At < 0 || fields.At > lastMoment {
		return service.Child{}, fmt.Errorf("at_ms is %d: use Unix time in milliseconds", fields.At)
	}
	child := service.Child{
		ID: fields.ID, Key: fields.Key, Labels: fields.Labels, Headers: fields.Headers, Priority: fields.Priority,
		Delay: milliseconds(fields.Delay), MaxAttempts: fields.MaxAttempts, Timeout: milliseconds(fields.Timeout),
		After: fields.After, When: fields.When,
	}
	if fields.At != 0 {
		child.At = time.UnixMilli(fields.At)
	}
	if fields.Unique != nil {
		child.Unique = &service.Unique{Key: fields.Unique.Key, For: milliseconds(fields.Unique.For)}
	}
	return child, nil
}

// enqueue is enqueue(queue, length, body, length, options, length). It fills the slot with the new task's ID. The host
// keeps the new task until this one ends, so it counts against the limit of the output.
func (s *System) enqueue(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	queue, body, options := in.name(), in.bytes(maxBody), in.bytes(maxOptions)
	if in.wrong != errnoSuccess {
		return in.wrong
	}
	child, err := parseChild(options)
	if err != nil {
		return s.invalid("the options: %w", err)
	}
	child.Queue, child.Body = queue, body
	size := len(queue) + len(body) + len(options)
	if s.Services.EnqueueAtOnce {
		size = 0
	}
	if !s.Host.Reserve(size) {
		return errnoTooBig
	}
	id, answer := ask(in, "enqueue", s.Services.Enqueue != nil, func(ctx context.Context) (string, error) {
		return s.Services.Enqueue.Enqueue(ctx, child)
	})
	if answer != errnoSuccess {
		s.Host.Reserve(-size)
		return answer
	}
	return s.fill(id)
}
