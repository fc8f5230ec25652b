package runtime

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/wasi"
)

// Profile holds the settings that all calls of a pool share. A guest can read them at its start and keep them in its
// memory, so a pool has only one profile.
type Profile struct {
	// Tenant is the tenant whose tasks the pool runs. A command reads it in TASK_TENANT.
	Tenant string
	// Env holds the variables that the manifest grants, by name. Names that begin with ReservedEnv are skipped.
	Env map[string]string
	// Files are files that the guest can read, in addition to the files that the module carries. If both have a file of
	// the same path, the guest reads the one in Files. Default nil: none.
	Files *Files
	// Limits bound each call, and the start of a handler. The zero value means the defaults.
	Limits Limits
	// MaxTimeout bounds the Timeout of calls. Default 0: no bound.
	MaxTimeout time.Duration
	// Config holds the values that a handler reads with config_get, by key. Default nil: none.
	Config map[string]string
	// Entry is the name of the export that tasks of an Extism plugin call. Default "": Info.Entry.
	Entry string
	// Warm is the input of the warm call: the host calls a handler once without a task, and takes the snapshot after
	// that. Default nil: no warm call.
	Warm []byte
	// Tape makes a tape for each start of an instance, which records or replays what the start and the warm call get from
	// outside. Default nil: a start is not recorded.
	Tape func() *replay.Tape
}

// Call describes one task to the guest, and receives what the guest reports while it runs.
type Call struct {
	// TaskID and Queue identify the task. A command reads them in TASK_ID and TASK_QUEUE.
	TaskID, Queue string
	// Plugin is the plugin's name. A command reads it in TASK_PLUGIN and as argument 0.
	Plugin string
	// Attempt is the number of this attempt, from 1; 0 means unknown. MaxAttempts is the maximum number of attempts; 0
	// means no maximum. A command reads them in TASK_ATTEMPT and TASK_MAX_ATTEMPTS, which are not set for 0.
	Attempt, MaxAttempts int
	// Reschedules is how often the task has put itself off, which counts no attempt. A command reads it in
	// TASK_RESCHEDULES, which is not set for 0.
	Reschedules int
	// PreviousError says why the previous attempt failed; an attempt whose host died does not count. Parent is the ID of
	// the task that enqueued this task. Key is this task's key. Traceparent is this task's trace, in the form of the W3C
	// header. A handler can read all four. Default "": none.
	PreviousError, Parent, Key, Traceparent string
	// Headers are the task's headers, by name in lower case, traceparent among them. A command reads them in
	// TASK_HEADERS, each as a line "name: value". Names contain no colon, and values no line breaks. Default nil: there
	// are no headers, and TASK_HEADERS is not set.
	Headers map[string]string
	// Input is the task's input. A command reads it from stdin, and a handler by input_read. Run neither changes nor
	// keeps it.
	Input []byte
	// Services are the services of the host that a handler can use. Run replaces Services.Config by Profile.Config.
	// During its start and the warm call, a handler can use only Config.
	Services service.Services
	// Secrets collects the secrets that the task reads from Services.Secrets. Run replaces each secret's value by its
	// name in everything but Output. Default nil: Run uses its own set.
	Secrets *redact.Secrets
	// Denied is called with the reason when a function of quern_v1 returns EINVAL, EDENIED, ELIMIT or EAGAIN, also at the
	// handler's start. It is called once for each reason, and for at most ten reasons of about 400 bytes each. A reason
	// can contain text of the guest. Default nil: reasons are not reported.
	Denied func(function, reason string)
	// Checkpoint is the checkpoint that an earlier run of the task saved. A command reads it as the file /checkpoint, and
	// a handler by checkpoint_load. Default nil: there is none.
	Checkpoint []byte
	// Ending is closed when the guest should end by itself. A handler can ask whether it is closed. Default nil: never
	// closed.
	Ending <-chan struct{}
	// Timeout is the task's own limit of wall-clock time. It replaces Limits.Timeout, and Profile.MaxTimeout bounds it.
	// Default 0: Limits.Timeout.
	Timeout time.Duration
	// Tape records what the guest gets from outside, or replays it. Then the guest uses none of Services, does not wait,
	// and has no clock but that of the record. Default nil: neither.
	Tape *replay.Tape
	// Until ends the guest with the cause replay.ErrStopped when it has burned that much fuel. Default 0: never.
	Until int64
	// Log receives each line that the guest writes to stderr, and for a handler also to stdout, without its newline.
	// Control characters are escaped, invalid UTF-8 is replaced, long lines come in pieces. Log is called on the
	// goroutine of Run and must not block. Default nil: lines are dropped.
	Log func(line string)
	// Progress receives the guest's progress from 0 to 1, and a message. A guest can report both by a line of stderr:
	// quern:progress=0.42 resizing. The message has at most 1 KiB and is sanitized like a line of the log. Such lines
	// are neither logged nor counted against the limit. Progress is called like Log. Default nil: progress is dropped.
	Progress func(fraction float64, message string)
}

// Files is an immutable tree of files in memory that guests can read. Any number of calls can share it.
type Files = wasi.Files

// NewFiles makes a tree of files from contents, whose keys are absolute paths such as /data/model.bin. The contents are
// not copied. An error names a path that is not absolute and clean, that lies below a file, or that is /checkpoint or
// below it.
func NewFiles(contents map[string][]byte) (*Files, error) { return wasi.NewFiles(contents) }

// ReservedEnv is the prefix of the environment variables that no manifest can set.
const ReservedEnv = "TASK_"

// granted returns the variables that the manifest grants, each as NAME=VALUE, sorted by name.
func (p *Profile) granted() []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if !strings.HasPrefix(name, ReservedEnv) {
			env = append(env, name+"="+p.Env[name])
		}
	}
	return env
}

// variables returns the TASK_ variables of a task, each as NAME=VALUE. Only a command gets them.
func (c *Call) variables(tenant string) []string {
	env := []string{
		"TASK_ID=" + c.TaskID,
		"TASK_QUEUE=" + c.Queue,
		"TASK_TENANT=" + tenant,
		"TASK_PLUGIN=" + c.Plugin,
	}
	if c.Attempt > 0 {
		env = append(env, "TASK_ATTEMPT="+strconv.Itoa(c.Attempt))
	}
	if c.MaxAttempts > 0 {
		env = append(env, "TASK_MAX_ATTEMPTS="+strconv.Itoa(c.MaxAttempts))
	}
	if c.Reschedules > 0 {
		env = append(env, "TASK_RESCHEDULES="+strconv.Itoa(c.Reschedules))
	}
	if len(c.Headers) > 0 {
		env = append(env, "TASK_HEADERS="+abi.FormatHeaders(c.Headers))
	}
	return env
}

// task returns the fields of the task that a handler can read.
func (c *Call) task(tenant string, deadline time.Time) abi.Task {
	return abi.Task{
		ID: c.TaskID, Queue: c.Queue, Tenant: tenant, Plugin: c.Plugin,
		PreviousError: c.PreviousError, Parent: c.Parent, Key: c.Key, Traceparent: c.Traceparent, Headers: c.Headers,
		Attempt: c.Attempt, MaxAttempts: c.MaxAttempts, Reschedules: c.Reschedules, Deadline: deadline,
	}
}
