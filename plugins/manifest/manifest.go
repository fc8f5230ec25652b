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

// Manifest is the content of NAME.yaml, about the plugin NAME. It grants nothing that it does not list.
type Manifest struct {
	// Name is the plugin's name: the name of its file without .wasm.
	Name string
	// Version is for people and for metrics; "" if the manifest does not say.
	Version string
	// Queues are the queues that the plugin serves, in the manifest's order. Default: the plugin's name.
	Queues []string
	// Limits are the limits that the manifest sets. A limit that it leaves out is zero, and has its default.
	Limits runtime.Limits
	// Retry is the policy of a failed task. Default zero: no second attempt, unless the task itself asks for it.
	Retry Retry
	// Concurrency bounds the plugin's running tasks on one host. Default 0: only the host's slots.
	Concurrency int
	// MaxRunning bounds the plugin's running tasks on all hosts together. Default 0, which is no bound.
	MaxRunning int
	// OnCrash is what becomes of a task whose host died: CrashRerun or CrashFail. Default "": not set.
	OnCrash string
	// MaxCrashes is how many hosts may die over a task before it fails, if less than the host's bound. Default 0: the
	// host's bound.
	MaxCrashes int
	// Dead is the queue that gets a new task for each task that failed for good; not a queue that the plugin serves.
	// Default "", which is none.
	Dead string
	// Entry is the export of an Extism plugin that tasks call. Default: quern_handle, else the only export beside
	// _start, else _start.
	Entry string
	// Warm is the call by which a handler is warmed. Default none.
	Warm Warm
	// Config has the values that a handler gets by config_get, by name. Default none.
	Config map[string]string
	// Capabilities are what the plugin may use beyond its tasks. Default none.
	Capabilities Capabilities
	// Subscribe are topics whose publications make tasks in the plugin's queues. Default none.
	Subscribe []Subscription
	// Schedule are the plugin's recurring tasks, for queues that it serves. Default none.
	Schedule []Schedule
	// Tests are tasks with the outcome that they should have, in the manifest's order. Default none.
	Tests []Test

	most declaredMost // set for ceilings only
}

// Warm is the section warm of a manifest: a call without a task, before the snapshot that every task of a handler
// starts from.
type Warm struct {
	// Input is the file with the call's input: a path like FileGrant.From. Its content belongs to the version. ""
	// means that there is no warm call.
	Input string

	line int // the line of input in the manifest
}

// Retry is the section retry of a manifest. A field that is zero is not set.
type Retry struct {
	// MaxAttempts bounds the attempts of a task. It is Unlimited in a section with only a MaxAge, and 0 without a
	// section.
	MaxAttempts int
	// Backoff is how the delay grows from attempt to attempt: BackoffExponential or BackoffLinear.
	Backoff string
	// Base is the delay after the first attempt; Min, by default 1s, and Max, by default 12h, bound every delay.
	Base, Min, Max time.Duration
	// Jitter spreads the delays at random.
	Jitter *bool
	// MaxAge is how old a task may become before it is not tried any more.
	MaxAge time.Duration
	// MaxReschedules is how often a task may ask to be run later without an attempt being counted.
	MaxReschedules int
}

// Unlimited as MaxAttempts sets no bound.
const Unlimited = -1

// The words of Retry.Backoff and of Manifest.OnCrash.
const (
	BackoffExponential = "exponential"
	BackoffLinear      = "linear"

	CrashRerun = "rerun"
	CrashFail  = "fail"
)

// Test is a task and its outcome. `quern plugin test` runs it; hosts do not, and a version does not depend on its
// files.
type Test struct {
	// Name is for people. Default: the path of the input, or else the test's number in the list.
	Name string
	// Input is the file with the parameters: a path like FileGrant.From. Default "", which is no parameters.
	Input string
	// Output is the file with the result. Default "": the result may be anything.
	Output string
	// Exit is the exit status of a command, or what a handler returns. Default 0.
	Exit int
	// Error is a part of the error. With the default of Exit the task may fail in any way. Default "": not checked.
	Error string
	// Dependencies are the tasks that the task waited for, in their order. Default none.
	Dependencies []Dependency
}

// Dependency is a task that a test's task waited for.
type Dependency struct {
	ID string
	// Result is the file with the dependency's result: a path like FileGrant.From. Default "": the dependency failed.
	Result string
}

// The suffixes of a plugin's two files, and the maximum sizes of a manifest and of all granted files.
const (
	Suffix       = ".yaml"
	ModuleSuffix = ".wasm"

	MaxSize  = 256 << 10 // bytes of a manifest
	MaxFiles = 64 << 20  // bytes of all granted files: they are in memory as long as the plugin serves
)

// Default is the manifest of a plugin that has none.
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
	// Most bounds the file's bytes.
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

// Problem returns an error of reading the file as a problem of the manifest.
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

// CheckTotal returns a problem if the granted files, which have that many bytes together, are too large.
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
