package abi

import (
	"context"
	"time"

	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/runtime/service"
)

// Host is the interface through which a System calls its host during one call of a guest. Each method can end the guest
// by a panic, which this package does not recover.
type Host interface {
	// Spend charges the guest for bytes before they are moved, at most 1 MiB at once.
	Spend(bytes int)
	// Output appends p to the guest's result. p is the guest's memory, valid only until Output returns. If the result
	// would exceed its limit, Output appends nothing and returns false.
	Output(p []byte) bool
	// Reserve takes bytes from the limit of the result for another use; a negative number gives them back. It returns
	// false if fewer bytes are left.
	Reserve(bytes int) bool
	// FuelLeft returns the fuel that the guest has left, math.MaxInt64 if its fuel is not limited.
	FuelLeft() int64
	// Wait sleeps for d while other guests compute.
	Wait(d time.Duration)
	// Do runs f, which can take long, and lets other guests compute meanwhile. f gets the context of the call.
	Do(f func(ctx context.Context))
	// Fail ends the guest because of an error of the host.
	Fail(err error)
	// Exit ends the guest as if the guest itself had exited with code.
	Exit(code uint32)
}

// Reporter passes on the guest's texts, which are untrusted.
type Reporter interface {
	// Log logs a line. It can cut the text, but not the fields, which follow the text.
	Log(text, fields string)
	// Progress reports the guest's progress, from 0 to 1, and its message. It can cut the message.
	Progress(fraction float64, message string)
	// Reveal announces a secret before the guest gets it, so that the guest's texts are redacted.
	Reveal(name string, value []byte)
	// Refused reports to the plugin's owner why a function returned EINVAL, EDENIED, ELIMIT or EAGAIN, and returns the
	// report.
	Refused(function string, err error) (report string)
}

// Stage is the purpose of a call of a guest.
type Stage int

// The stages. The package comment says which functions work in each stage.
const (
	Running      Stage = iota // a task
	Initializing              // the guest's own start
	Warming                   // a call without a task, before the snapshot
)

// Task describes the task that a guest runs.
type Task struct {
	ID, Queue, Tenant, Plugin string
	// PreviousError is the error of the previous attempt. An attempt whose host died does not count.
	PreviousError string
	// Parent is the ID of the task that enqueued this one. Key is this task's key. Both can be empty.
	Parent, Key string
	// Traceparent is the task's trace in the form of the W3C header; "" if it has none.
	Traceparent string
	// Headers are the values of the task's headers by name in lower case, including traceparent.
	Headers map[string]string
	// Attempt is the number of this attempt, from 1. MaxAttempts is 0 if there is no limit.
	Attempt, MaxAttempts int
	// Reschedules is how often the task has put itself off.
	Reschedules int
	// Deadline is the time at which the host ends the task; zero if there is no deadline.
	Deadline time.Time
}

// Config holds what a guest can use. Its contents are neither copied nor changed.
type Config struct {
	Host     Host     // required
	Reporter Reporter // required
	Stage    Stage
	Task     Task
	// Ending is closed when the guest should soon end by itself; nil if it never is.
	Ending <-chan struct{}
	// Input is the task's input, or the manifest's input for Warming.
	Input []byte
	// Checkpoint is the checkpoint that an earlier run of the task saved; nil if there is none.
	Checkpoint []byte
	// Services are the services that the task may use.
	Services service.Services
	// Counters count the calls of functions; nil if they are not counted.
	Counters *Counters
	// Tape records what the guest gets from outside, or plays it back; nil for neither. It has wrapped Services.
	Tape *replay.Tape
	// Started is the time at which the guest's monotonic clock is 0. It is at most 290 years ago: the clock is an int64
	// in nanoseconds.
	Started time.Time
}

// System is the state of quern_v1 during one call. Only the goroutine of that call uses it.
type System struct {
	Config // Checkpoint is replaced when the guest saves one

	called string // the current function, by the name for reports: publish is an enqueue with a topic
	moved  int    // bytes moved by the current function
	reason error  // why the current function fails; nil if there is nothing to report

	refusal    string // the last report, without the function's name
	denial     string // the last report with the function's name, if it was of EDENIED
	slot       string
	filled     bool   // the slot was filled, perhaps by an empty text
	failure    []byte // text of the last error_set
	failed     bool   // error_set was called
	retryAfter time.Duration
	holdKey    bool // retryAfter is for all tasks with the task's key
	misused    string
	strayed    bool // a fraction of progress outside 0 to 1 was logged
	extism     extism
}

// Init prepares s for another call. It keeps nothing of the previous call.
func (s *System) Init(c Config) { *s = System{Config: c} }

// RetryAfter returns the delay, at most a year, that the guest asked for before the task's next attempt. It returns 0
// if the guest did not ask for a delay.
func (s *System) RetryAfter() time.Duration { return s.retryAfter }

// HoldKey returns whether the guest asked for that delay for all tasks with the task's key.
func (s *System) HoldKey() bool { return s.holdKey }

// Misused returns the name of the first function that was refused in the stage Warming, or "".
func (s *System) Misused() string { return s.misused }
