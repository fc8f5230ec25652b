package abi

import (
	"context"
	"time"

	"github.com/quern-project/quern/runtime/service"
)

// Host is what the functions need of the call that they run for. Each may end the guest: it then panics with
// a value of the host's own, which passes through this package.
type Host interface {
	// Spend charges the guest for bytes that are about to be moved for it, at most 1 MiB at once.
	Spend(bytes int)
	// Output takes what the guest appends to its result. It is valid during the call only, for it is the
	// guest's memory. False means that it is over the limit, and that nothing of it was taken.
	Output(p []byte) bool
	// Reserve takes so many bytes of what the guest's result may have, for something else; less than 0 gives them back.
	// False means that there are not as many.
	Reserve(bytes int) bool
	// FuelLeft is how much the guest may still burn; math.MaxInt64 if there is no limit.
	FuelLeft() int64
	// Cancelled tells whether the guest had better end.
	Cancelled() bool
	// Log takes a line that the guest logs; it may hold anything.
	Log(line string)
	// Progress takes how far the guest says that it is, from 0 to 1, and its words; they may be anything.
	Progress(fraction float64, message string)
	// Wait lets the guest sleep.
	Wait(d time.Duration)
	// Do runs f, which may take long, while other guests go on. The context is that of the call.
	Do(f func(ctx context.Context))
	// Reveal takes a secret that the guest is about to be given.
	Reveal(name string, value []byte)
	// Refused takes why a function has answered EINVAL, EDENIED, ELIMIT or EAGAIN, for who looks after the plugin.
	Refused(function string, err error)
	// Fail ends the guest by a fault of the host.
	Fail(err error)
}

// Stage says what a guest is called for.
type Stage int

// The stages. See the package's description for what works in each.
const (
	// Running is a task.
	Running Stage = iota
	// Initializing is the guest's own start.
	Initializing
	// Warming is a call without a task, of which the memory is kept.
	Warming
)

// Task describes the task.
type Task struct {
	ID, Queue, Tenant, Plugin string
	// PreviousError is why the attempt before has failed. A host that died is no attempt.
	PreviousError string
	// Parent is the ID of the task that has enqueued this one, Key its key. Both may be empty.
	Parent, Key string
	// Traceparent is the trace that it belongs to, as the W3C's header has it; "" if none.
	Traceparent string
	// Attempt counts from 1. MaxAttempts is 0 if there may be any number.
	Attempt, MaxAttempts int
	// Deadline is when the task is ended; zero if it has none.
	Deadline time.Time
}

// Config says what a guest finds. All of it is read only, and nothing is copied.
type Config struct {
	// Host is required.
	Host  Host
	Stage Stage
	Task  Task
	// Input is the task's, or in the stage Warming what stands for one.
	Input []byte
	// Checkpoint is what an earlier run of the task has kept; nil if nothing.
	Checkpoint []byte
	// Services are what the task may use beside itself.
	Services service.Services
	// Counters count the calls. Default nil, which counts nothing.
	Counters *Counters
	// Started is the zero of the monotonic clock, not more than 290 years ago.
	Started time.Time
}

// System is what one guest sees during one call. It belongs to the goroutine of that call.
type System struct {
	host    Host
	stage   Stage
	task    Task
	input   []byte
	started time.Time

	checkpoint []byte // the last one; nil if there is none
	services   service.Services
	counters   *Counters
	moved      int   // bytes, by the function that is called
	reason     error // why it is refused, nil if that is nobody's concern

	slot       string
	filled     bool   // the slot was, however much is in it
	failure    []byte // of error_set
	failed     bool   // error_set was called
	retryAfter time.Duration
	misused    string
}

// New makes the system of one call.
func New(c Config) *System {
	s := &System{}
	s.Init(c)
	return s
}

// Init makes s the system of another call, of which nothing is left from the one before.
func (s *System) Init(c Config) {
	*s = System{
		host: c.Host, stage: c.Stage, task: c.Task, input: c.Input, started: c.Started,
		checkpoint: c.Checkpoint, services: c.Services, counters: c.Counters,
	}
}

// RetryAfter is when the guest wants to be called again, if it ends so; 0 if it does not say, at most a
// year.
func (s *System) RetryAfter() time.Duration { return s.retryAfter }

// Misused names the first function that was refused in the stage Warming, or is empty.
func (s *System) Misused() string { return s.misused }
