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

// maxOptions is the maximum size of the options of enqueue, in bytes.
const maxOptions = 64 << 10

// strictly decodes a JSON object, and refuses unknown members.
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

// milliseconds converts a duration in milliseconds that a guest wrote. Durations below 0 or above a hundred years stay
// out of range, so that the service refuses them.
func milliseconds(ms int64) time.Duration {
	most := maxLifetime.Milliseconds() + 1
	return time.Duration(min(max(ms, -1), most)) * time.Millisecond
}

// lastMoment is the latest Unix time that a guest can name, in milliseconds: the end of the year 9999.
const lastMoment = 253402300799999

// parsePublication reads options that name a topic. It returns nil if they name none.
func parsePublication(queue string, options []byte) (*service.Publication, error) {
	var fields struct {
		Topic *string `json:"topic"`
	}
	if len(options) == 0 || json.Unmarshal(options, &fields) != nil || fields.Topic == nil {
		return nil, nil //nolint:nilnil // parseChild reports what is wrong
	}
	var of struct {
		Topic      string            `json:"topic"`
		ID         string            `json:"id"`
		Attributes map[string]string `json:"attributes"`
	}
	if err := strictly(options, &of); err != nil {
		return nil, fmt.Errorf("%w: beside topic only id and attributes are allowed", err)
	}
	if queue != "" {
		return nil, fmt.Errorf("both the queue %.200q and the topic %.200q: leave the queue empty to publish", queue,
			of.Topic)
	}
	return &service.Publication{Topic: of.Topic, ID: of.ID, Attributes: of.Attributes}, nil
}

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

		FairKey        string `json:"fair_key"`
		FairWeight     int    `json:"fair_weight"`
		ConcurrencyKey string `json:"concurrency_key"`
		MaxConcurrent  int    `json:"max_concurrent"`

		Unique *struct {
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
		After: fields.After, When: fields.When, FairKey: fields.FairKey, FairWeight: fields.FairWeight,
		ConcurrencyKey: fields.ConcurrencyKey, MaxConcurrent: fields.MaxConcurrent,
	}
	if fields.At != 0 {
		child.At = time.UnixMilli(fields.At)
	}
	if fields.Unique != nil {
		child.Unique = &service.Unique{Key: fields.Unique.Key, For: milliseconds(fields.Unique.For)}
	}
	return child, nil
}

// enqueue implements enqueue(queue, length, body, length, options, length). If the options name a topic, it publishes
// instead. It fills the slot with the ID of the new task or publication. The host can hold the task or publication back
// until this task ends; its bytes then count against the limit of the output.
func (s *System) enqueue(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	queue, body, options := in.name(), in.bytes(maxBody), in.bytes(maxOptions)
	if in.wrong != errnoSuccess {
		return in.wrong
	}
	publication, err := parsePublication(queue, options)
	if err != nil {
		return s.invalid("the options: %w", err)
	}
	if publication != nil {
		s.called = "publish"
		publication.Body = body
		return s.keep(in, len(body)+len(options), s.Services.PublishAtOnce, s.Services.Publish != nil,
			func(ctx context.Context) (string, error) {
				return s.Services.Publish.Publish(ctx, *publication)
			})
	}
	child, err := parseChild(options)
	if err != nil {
		return s.invalid("the options: %w", err)
	}
	child.Queue, child.Body = queue, body
	return s.keep(in, len(queue)+len(body)+len(options), s.Services.EnqueueAtOnce, s.Services.Enqueue != nil,
		func(ctx context.Context) (string, error) {
			return s.Services.Enqueue.Enqueue(ctx, child)
		})
}

// keep calls do, which enqueues or publishes and returns an ID. The host holds the new task or publication back until
// this task ends, so keep reserves size bytes of the output for it. If atOnce is true, nothing is held back or
// reserved.
func (s *System) keep(in *reader, size int, atOnce, served bool, do func(ctx context.Context) (string, error)) errno {
	if atOnce {
		size = 0
	}
	if !s.Host.Reserve(size) {
		return errnoTooBig
	}
	id, answer := ask(in, "enqueue", served, do)
	if answer != errnoSuccess {
		s.Host.Reserve(-size)
		return answer
	}
	return s.fill(id)
}
