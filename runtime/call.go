package runtime

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/wasi"
)

// Profile holds what all calls of a pool share. A guest may read it at its start and keep it in memory, so a pool has
// only one profile.
type Profile struct {
	// Tenant names the tenant whose tasks the pool runs: TASK_TENANT.
	Tenant string
	// Env holds the variables that the manifest grants, by name. Names that begin with ReservedEnv are skipped.
	Env map[string]string
	// Files are files that the guest may read, beside the files that the module carries. Where both have a path, the
	// guest reads the file in Files. Default nil: none.
	Files *Files
	// Limits bound each call, and the start of a handler. The zero value means the defaults.
	Limits Limits
	// MaxTimeout bounds the Timeout of calls. Default 0: no bound.
	MaxTimeout time.Duration
	// Config holds the values that a handler reads with config_get, by key. Default nil: none.
	Config map[string]string
	// Entry names the export of an Extism plugin that tasks call. Default "": Info.Entry.
	Entry string
	// Warm is the input of the warm call: the host calls a handler once without a task, and takes the snapshot after
	// that. Default nil: no warm call.
	Warm []byte
}

// Call is one task as the guest sees it.
type Call struct {
	// TaskID and Queue identify the task: TASK_ID and TASK_QUEUE.
	TaskID, Queue string
	// Plugin is the plugin's name: TASK_PLUGIN, and argument 0 of a command.
	Plugin string
	// Attempt is TASK_ATTEMPT, 1 for the first attempt. MaxAttempts is TASK_MAX_ATTEMPTS. A command does not get a
	// variable whose number is 0 (unknown, or unlimited).
	Attempt, MaxAttempts int
	// PreviousError says why the previous attempt failed; an attempt whose host died does not count. Parent is the ID
	// of the task that enqueued this task. Key is this task's key, and Traceparent its trace, in the form of the W3C
	// header. A handler can ask for all four. Default "": none.
	PreviousError, Parent, Key, Traceparent string
	// Headers are the task's headers, by name in lower case, traceparent among them. A command gets them in
	// TASK_HEADERS, each as a line "name: value". Names have no colon, and values no line breaks. Default nil: none,
	// and no TASK_HEADERS.
	Headers map[string]string
	// Input is what a command reads from stdin, and a handler by input_read. Run does not change or keep it.
	Input []byte
	// Services are the services of the host that a handler may use. Run replaces their Config by the profile's. At its
	// start and in the warm call a handler may use only Config.
	Services service.Services
	// Secrets collects the secrets that the task reads from Services.Secrets. Run replaces each secret's value by its
	// name in everything but Output. Default nil: Run makes a set of its own.
	Secrets *redact.Secrets
	// Denied is called with the reason when a function of quern_v1 returns EINVAL, EDENIED, ELIMIT or EAGAIN, also at
	// the handler's start. It gets each reason once and at most ten, of about 400 bytes each. A reason may quote the
	// guest. Default nil.
	Denied func(function, reason string)
	// Checkpoint is what an earlier run of the task saved: a command reads it as the file /checkpoint, a handler by
	// checkpoint_load. Default nil: nothing.
	Checkpoint []byte
	// Ending is closed when the guest should end by itself. A handler can ask whether it is closed. Default nil: never
	// closed.
	Ending <-chan struct{}
	// Timeout is the task's own limit of wall-clock time, instead of Limits.Timeout; Profile.MaxTimeout bounds it. Default
	// 0: Limits.Timeout.
	Timeout time.Duration
	// Log receives each line that the guest writes to stderr, and for a handler also to stdout, without its newline.
	// Control characters are escaped, invalid UTF-8 is replaced, long lines come in pieces. Log is called on the
	// goroutine of Run and must not block. Default nil: lines are dropped.
	Log func(line string)
	// Progress receives the guest's progress from 0 to 1, and a message. A guest can report both by a line of stderr:
	// quern:progress=0.42 resizing. The message has at most 1 KiB and is sanitized like a line of the log. Such lines
	// are neither logged nor counted against the limit. Progress is called like Log. Default nil: progress is dropped.
	Progress func(fraction float64, message string)
}

// Files is an immutable tree of files in memory that guests may read. Any number of calls may share it.
type Files = wasi.Files

// NewFiles makes a tree from contents by absolute path, such as /data/model.bin. The contents are not copied. An error
// names a path that is not absolute and clean, that lies below a file, or that is /checkpoint or below it.
func NewFiles(contents map[string][]byte) (*Files, error) { return wasi.NewFiles(contents) }

// ReservedEnv is the prefix of the environment variables that no manifest can set.
const ReservedEnv = "TASK_"

// granted lists the variables that the manifest grants as NAME=VALUE, in the order of their names.
func (p *Profile) granted() []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if !strings.HasPrefix(name, ReservedEnv) {
			env = append(env, name+"="+p.Env[name])
		}
	}
	return env
}

// variables lists the variables of a task, which only a command gets.
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
	if len(c.Headers) > 0 {
		env = append(env, "TASK_HEADERS="+abi.FormatHeaders(c.Headers))
	}
	return env
}

// task returns the fields of the task that a handler can ask for.
func (c *Call) task(tenant string, deadline time.Time) abi.Task {
	return abi.Task{
		ID: c.TaskID, Queue: c.Queue, Tenant: tenant, Plugin: c.Plugin,
		PreviousError: c.PreviousError, Parent: c.Parent, Key: c.Key, Traceparent: c.Traceparent, Headers: c.Headers,
		Attempt: c.Attempt, MaxAttempts: c.MaxAttempts, Deadline: deadline,
	}
}
