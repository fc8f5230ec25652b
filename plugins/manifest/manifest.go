package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

// Manifest is the content of NAME.yaml, the manifest of the plugin NAME. It grants nothing that it does not list.
type Manifest struct {
	// Name is the plugin's name: the name of its file without .wasm.
	Name string
	// Version is for people and for metrics; "" if the manifest names none.
	Version string
	// Queues are the queues that the plugin serves, in the manifest's order. Default: the plugin's name.
	Queues []string
	// Limits are the limits that the manifest sets. A limit that is left out is zero here, and has its default.
	Limits runtime.Limits
	// Retry is the retry policy of the tasks. Default zero: a failed task has no second attempt, unless the task itself
	// asks for one.
	Retry Retry
	// Concurrency is the maximum number of the plugin's tasks that run on one host. Default 0: only the host's slots
	// bound it.
	Concurrency int
	// ConcurrencyKey says which tasks of a queue run one after another, MaxConcurrent at a time: those with the same
	// key, fair_key or label labels.NAME, or all, queue. Default "": none.
	ConcurrencyKey string
	// MaxConcurrent is 0 without a ConcurrencyKey, and at least 1 with it.
	MaxConcurrent int
	// MaxRunning is the maximum number of the plugin's tasks that run on all hosts together. Default 0, which is no
	// bound.
	MaxRunning int
	// OnCrash says what becomes of a task whose host died: CrashRerun or CrashFail. Default "": not set.
	OnCrash string
	// Breaker is the circuit breaker of each version. Default zero: none.
	Breaker Breaker
	// MaxCrashes is the number of hosts that can die while they run a task before the task fails, if it is less than the
	// host's bound. Default 0: the host's bound.
	MaxCrashes int
	// Record says of which runs a record is kept: RecordFailed, RecordSampled or RecordNone. Default "", which is none.
	Record string
	// Dead is the queue that gets a new task for each task that failed for good. The plugin cannot serve this queue
	// itself. Default "", which is none.
	Dead string
	// Pin says to which version of the plugin a task keeps, if its hosts get it as a release: PinAttempt, or PinTask for
	// the one on which its first attempt began. Default "": not set, which is PinAttempt.
	Pin string
	// Entry is the export of an Extism plugin that tasks call. Default: quern_handle, else the only other export than
	// _start, else _start.
	Entry string
	// Warm is the call by which a handler is warmed. Default none.
	Warm Warm
	// Config has the values that a handler reads by config_get, by name. Default none.
	Config map[string]string
	// Capabilities are what the plugin is allowed to use in addition to its tasks. Default none.
	Capabilities Capabilities
	// Subscribe are topics whose publications make tasks in the plugin's queues. Default none.
	Subscribe []Subscription
	// Schedule are the plugin's recurring tasks, for queues that it serves. Default none.
	Schedule []Schedule
	// Tests are tasks with the outcome that they should have, in the manifest's order. Default none.
	Tests []Test

	most declaredMost // set for ceilings only
}

// Warm is the section warm of a manifest: a call without a task, before the snapshot from which every task of the
// handler starts.
type Warm struct {
	// Input is the path of the file with the call's input, like FileGrant.From. The file's content belongs to the
	// version. "" means that there is no warm call.
	Input string

	line int // the line of input in the manifest
}

// Retry is the section retry of a manifest. A zero field is not set.
type Retry struct {
	// MaxAttempts bounds the attempts of a task. It is Unlimited if the section sets only MaxAge, and 0 if there is no
	// section.
	MaxAttempts int
	// Backoff says how the delay grows from attempt to attempt: BackoffExponential or BackoffLinear.
	Backoff string
	// Base is the delay after the first attempt. Min, by default 1s, and Max, by default 12h, bound every delay.
	Base, Min, Max time.Duration
	// Jitter spreads the delays at random.
	Jitter *bool
	// MaxAge is the age of a task from which it is not tried again.
	MaxAge time.Duration
	// MaxReschedules is how often a task can ask to be run later without an attempt being counted.
	MaxReschedules int
}

// Breaker is the section breaker of a manifest: after Failures of one kind in a row, hosts run no task of the version
// for Pause, and then one as a probe. A probe that fails doubles the pause, up to MaxPause.
type Breaker struct {
	Failures        int // at least 1 with the section
	Pause, MaxPause time.Duration
}

// Unlimited is the value of MaxAttempts that sets no bound.
const Unlimited = -1

// The words of Retry.Backoff, Manifest.OnCrash and Manifest.Pin.
const (
	BackoffExponential = "exponential"
	BackoffLinear      = "linear"

	CrashRerun = "rerun"
	CrashFail  = "fail"

	PinAttempt = "attempt"
	PinTask    = "task"
)

// The words of Manifest.Record. RecordSampled keeps the records of failed runs, and of one in a hundred others.
const (
	RecordFailed  = "failed"
	RecordSampled = "sampled"
	RecordNone    = "none"
)

// Records reports whether the runs of the plugin are recorded.
func (m *Manifest) Records() bool { return m.Record == RecordFailed || m.Record == RecordSampled }

// Test is a task and its expected outcome. `quern plugin test` runs it. Hosts do not run it, and a version does not
// depend on its files.
type Test struct {
	// Name is for people. Default: the path of the input, or else the test's number in the list.
	Name string
	// Input is the path of the file with the parameters, like FileGrant.From. Default "", which is no parameters.
	Input string
	// Parameters are the parameters themselves, in place of Input. Default nil.
	Parameters []byte
	// Output is the path of the file with the expected result. Default "": the result can be anything.
	Output string
	// Exit is the expected exit status of a command, or return value of a handler. Default 0.
	Exit int
	// Error is a part of the expected error. If it is set and Exit is not, the task can fail in any way. Default "": the
	// error is not checked.
	Error string
	// Queue is the queue of the task, one of the plugin's. Default "": the first of them.
	Queue string
	// Attempt is the number of the attempt. Default 1.
	Attempt int
	// Key is the task's key, and Headers are its headers. Default none.
	Key     string
	Headers map[string]string
	// Dependencies are the tasks that the task waited for, in their order. Default none.
	Dependencies []Dependency
	// HTTP answers the task's requests, all of them. Default nil: the servers answer.
	HTTP []Answer
	// KV has the values of buckets at the start, by bucket and key. Default: the buckets are empty.
	KV map[string]map[string]string
	// Database has the files with the SQL that runs first in a database's transaction, by the database's name.
	Database map[string]string
}

// Answer is what a test answers to requests with this method and URL. Several answers to the same request are given in
// their order, the last one as often as it is asked for.
type Answer struct {
	Method, URL string
	Status      int // default 200
	Headers     map[string]string
	Body        string
}

// Dependency is a task that a test's task waited for.
type Dependency struct {
	ID string
	// Result is the path of the file with the dependency's result, like FileGrant.From. Default "": the dependency
	// failed.
	Result string
}

// The suffixes of a plugin's two files, and the maximum sizes of a manifest and of all granted files.
const (
	Suffix       = ".yaml"
	ModuleSuffix = ".wasm"

	MaxSize  = 256 << 10 // bytes of a manifest
	MaxFiles = 64 << 20  // bytes of all granted files, which are in memory as long as the plugin serves
)

// Default returns the manifest that applies to a plugin without one.
func Default(plugin string) Manifest {
	return Manifest{Name: plugin, Queues: []string{plugin}}
}

// ownsDead reports whether the queue for dead letters, if there is one, is called NAME.dead for the plugin's name or
// for one of its queues.
func (m *Manifest) ownsDead() bool {
	name, found := strings.CutSuffix(m.Dead, ".dead")
	return m.Dead == "" || found && (name == m.Name || slices.Contains(m.Queues, name))
}

// Source is a file that a manifest names.
type Source struct {
	From string
	// To is the path at which tasks find the file; "" for the warm input.
	To string
	// Most is the maximum size of the file, in bytes.
	Most int64

	field string // the key that names the file
	line  int
}

// Sources returns the files that the manifest names: first the granted files, in the manifest's order, then the warm
// input.
func (m *Manifest) Sources() []Source {
	var all []Source
	for i, grant := range m.Capabilities.Files {
		all = append(all, Source{grant.From, grant.To, MaxFiles, fmt.Sprintf("capabilities.files[%d].from", i), grant.line})
	}
	if m.Warm.Input != "" {
		all = append(all, Source{m.Warm.Input, "", m.Limits.WithDefaults().Input, "warm.input", m.Warm.line})
	}
	return all
}

// String names the file and the key, for messages.
func (s Source) String() string { return Quote(s.From) + " of " + s.field }

// Problem turns an error of reading the file into a problem of the manifest.
func (s Source) Problem(err error) Problem {
	p := Problem{
		Line: s.line, Field: s.field,
		What: Quote(s.From) + " cannot be read: " + Cause(err).Error(), Remedy: "let the host's user read it",
	}
	if fault, ok := errors.AsType[*Fault](err); ok {
		p.What, p.Remedy = Quote(s.From)+": "+fault.What, fault.Remedy
	}
	if s.To == "" && p.Remedy == makeSmaller { // the warm input is bounded by the plugin's own limit
		p.Remedy += ", or raise limits.input"
	}
	return p
}

// CheckTotal returns a problem if the granted files are too large; bytes is their total size.
func (m *Manifest) CheckTotal(bytes int64) (problems []Problem) {
	if bytes > MaxFiles {
		problems = append(problems, Problem{
			Line: m.Capabilities.Files[0].line, Field: "capabilities.files",
			What:   "the files have " + units.FormatSize(bytes) + " together",
			Remedy: "grant at most " + units.FormatSize(MaxFiles),
		})
	}
	return problems
}
