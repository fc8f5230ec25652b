package abi

import (
	"context"
	"time"

	"github.com/quern-project/quern/runtime/service"
)

// Host is the host's side of one call. Each method may end the guest by a panic, which passes through this package.
type Host interface {
	// Spend charges the guest for bytes before they are moved, at most 1 MiB at once.
	Spend(bytes int)
	// Output appends to the guest's result. The bytes are the guest's memory, valid during the call only. It returns
	// false if the result would be over the limit, and appends nothing then.
	Output(p []byte) bool
	// Reserve takes bytes from the limit of the result for another use; a negative number returns them. It returns
	// false if too few are left.
	Reserve(bytes int) bool
	// FuelLeft returns the fuel left; math.MaxInt64 without a limit.
	FuelLeft() int64
	// Wait sleeps.
	Wait(d time.Duration)
	// Do runs f, which may take long, while other guests go on. f gets the context of the call.
	Do(f func(ctx context.Context))
	// Fail ends the guest because of an error of the host.
	Fail(err error)
	// Exit ends the guest as if it had asked for it.
	Exit(code uint32)
}

// Reporter passes on the guest's texts, which are untrusted.
type Reporter interface {
	// Log logs a line. It may cut the text, but not the fields after the text.
	Log(text, fields string)
	// Progress reports the guest's progress, from 0 to 1, and its message. It may cut the message.
	Progress(fraction float64, message string)
	// Reveal announces a secret before the guest gets it.
	Reveal(name string, value []byte)
	// Refused reports to the plugin's owner why a function answered EINVAL, EDENIED, ELIMIT or EAGAIN, and returns the
	// report.
	Refused(function string, err error) (report string)
}

// Stage says for what a guest is called.
type Stage int

// The stages. The package comment says what works in each.
const (
	Running      Stage = iota // a task
	Initializing              // the guest's own start
	Warming                   // a call without a task, before the snapshot
)

// Task describes the task.
type Task struct {
	ID, Queue, Tenant, Plugin string
	// PreviousError is the error of the previous attempt. An attempt whose host died does not count.
	PreviousError string
	// Parent is the ID of the task that enqueued this one, Key this task's key. Both may be empty.
	Parent, Key string
	// Traceparent is the task's trace in the form of the W3C header; "" if it has none.
	Traceparent string
	// Headers are the task's headers, by name in lower case, traceparent among them.
	Headers map[string]string
	// Attempt counts from 1. MaxAttempts is 0 without a limit.
	Attempt, MaxAttempts int
	// Deadline is when the host ends the task; zero if there is no deadline.
	Deadline time.Time
}

// Config holds what a guest can use. All of it is read only and not copied.
type Config struct {
	Host     Host     // required
	Reporter Reporter // required
	Stage    Stage
	Task     Task
	// Ending is closed when the guest should end by itself. Default nil: never.
	Ending <-chan struct{}
	// Input is the task's input, or the manifest's input for Warming.
	Input []byte
	// Checkpoint is what an earlier run of the task saved; nil if nothing.
	Checkpoint []byte
	// Services are the services that the task may use.
	Services service.Services
	// Counters count the calls. Default nil: no counting.
	Counters *Counters
	// Started is the zero of the monotonic clock, at most 290 years ago.
	Started time.Time
}

// System is the state of quern_v1 during one call. It belongs to the goroutine of that call.
type System struct {
	Config // Checkpoint becomes the last one that the guest saved

	moved  int   // bytes, by the current function
	reason error // why the current function is refused; nil if there is nothing to report

	slot       string
	filled     bool   // the slot was filled, perhaps by an empty text
	failure    []byte // text of error_set
	failed     bool   // error_set was called
	retryAfter time.Duration
	misused    string
	extism     extism
}

// Init prepares s for another call. Nothing of the call before is left.
func (s *System) Init(c Config) { *s = System{Config: c} }

// RetryAfter returns the delay that the guest asked for before its next attempt, at most a year; 0 if it did not ask.
func (s *System) RetryAfter() time.Duration { return s.retryAfter }

// Misused returns the name of the first function that was refused in the stage Warming, or "".
func (s *System) Misused() string { return s.misused }
