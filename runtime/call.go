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

// Call is one task as the guest sees it.
type Call struct {
	// TaskID, Queue and Tenant say which task this is; the guest reads them as TASK_ID, TASK_QUEUE
	// and TASK_TENANT.
	TaskID, Queue, Tenant string
	// Plugin is the plugin's name: TASK_PLUGIN and the guest's argument 0.
	Plugin string
	// Attempt is TASK_ATTEMPT, 1 for the first one; MaxAttempts is TASK_MAX_ATTEMPTS. A variable
	// whose value is 0 (unknown, or unlimited) is left out.
	Attempt, MaxAttempts int
	// PreviousError is why the attempt before has failed (a host that died is none), Parent the ID of the task that
	// has enqueued this one, and Key its key. A handler can ask for them. Each may be empty.
	PreviousError, Parent, Key string
	// Traceparent is the trace that the task belongs to, in the form of the W3C's header. Default "", which is none.
	Traceparent string
	// Input is what a command reads from stdin, and a handler by input_read. It is not changed, and not kept after Run.
	Input []byte
	// Env is what the manifest grants. Names that begin with TASK_ are the host's: they are skipped.
	Env map[string]string
	// Files are what the guest may read at their paths. Default nil, which is none.
	Files *Files
	// Services are what a handler may use beyond its task. At its start and in its warm call it has their Config alone.
	Services service.Services
	// Secrets are those that the task has got from Services.Secrets: Run adds them, and shows their names in their place in
	// all that it tells of the call, but for its Output. Who tells more of what the guest wrote asks them, too. Default nil,
	// which is a set of Run's own.
	Secrets *redact.Secrets
	// Denied is told why a function of quern_v1 has answered EINVAL, EDENIED, ELIMIT or EAGAIN, also at the start; once of the same
	// reason, and of ten at most. The guest's words may be in the reason, which has some 400 bytes at most. Default nil.
	Denied func(function, reason string)
	// Checkpoint is what an earlier run of the task left, which a command reads as the file /checkpoint, and a handler
	// by checkpoint_load. Default nil, which is nothing.
	Checkpoint []byte
	// Pool names the instances that the call may use: calls of a module with the same Pool and Tenant share
	// them, one at a time and each as if nobody had before. They must have the same Env, Files, Limits, Warm and
	// Services.Config, which an instance may hold from its start. Default "", which is an instance of the call's own.
	Pool string
	// Warm is the input of a call without a task, which a handler gets before the image of its instances is
	// taken. Default nil, which is no such call.
	Warm []byte
	// Ending is closed when the guest had better end by itself, which a handler is told if it asks. Default nil, which
	// is never.
	Ending <-chan struct{}
	// Limits bound the call; the zero value means the defaults.
	Limits Limits
	// Timeout is the task's own limit of wall-clock time, in the place of Limits.Timeout. Default 0,
	// which leaves that one in force.
	Timeout time.Duration
	// Log receives each line that the guest writes to stderr, a handler also to stdout, as it comes and without its newline:
	// control characters are escaped, invalid UTF-8 is replaced, long lines come in pieces. It is
	// called on the goroutine of Run, which waits for it: it must not block. Default nil, which drops
	// them.
	Log func(line string)
	// Progress receives what the guest reports of its progress, from 0 to 1, by lines of stderr such as
	//
	//	quern:progress=0.42 resizing
	//
	// as they come. The message may be empty; it has at most 1 KiB and is made safe like a line of the
	// log. Such lines are not logged and not counted: a guest may write any number of them. It is called
	// like Log. Default nil, which drops them.
	Progress func(fraction float64, message string)
}

// Files is a tree of files in memory that guests may read. It does not change, and any number of calls
// may share it.
type Files = wasi.Files

// NewFiles makes a tree from contents by absolute path, such as /data/model.bin. The contents are not
// copied. A path that is not absolute and clean, that lies below a file, or that is /checkpoint or below it,
// is an error that names it.
func NewFiles(contents map[string][]byte) (*Files, error) { return wasi.NewFiles(contents) }

// ReservedEnv begins the names of the environment that no manifest can set.
const ReservedEnv = "TASK_"

// limits are those of the call.
func (c *Call) limits() Limits {
	l := c.Limits.WithDefaults()
	if c.Timeout > 0 {
		l.Timeout = c.Timeout
	}
	return l
}

// environment lists the variables of a guest, each as NAME=VALUE, in a fixed order: the task's first, which only a
// command gets, then the granted by name.
func (c *Call) environment(kind Kind) []string {
	if kind == Handler {
		return c.granted(nil)
	}
	env := []string{
		"TASK_ID=" + c.TaskID,
		"TASK_QUEUE=" + c.Queue,
		"TASK_TENANT=" + c.Tenant,
		"TASK_PLUGIN=" + c.Plugin,
	}
	if c.Attempt > 0 {
		env = append(env, "TASK_ATTEMPT="+strconv.Itoa(c.Attempt))
	}
	if c.MaxAttempts > 0 {
		env = append(env, "TASK_MAX_ATTEMPTS="+strconv.Itoa(c.MaxAttempts))
	}
	return c.granted(env)
}

// granted adds the variables that the manifest grants, by name.
func (c *Call) granted(env []string) []string {
	if len(c.Env) == 0 {
		return env
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if !strings.HasPrefix(name, ReservedEnv) {
			env = append(env, name+"="+c.Env[name])
		}
	}
	return env
}

// task is what a handler can ask of the task.
func (c *Call) task(deadline time.Time) abi.Task {
	return abi.Task{
		ID: c.TaskID, Queue: c.Queue, Tenant: c.Tenant, Plugin: c.Plugin,
		PreviousError: c.PreviousError, Parent: c.Parent, Key: c.Key, Traceparent: c.Traceparent,
		Attempt: c.Attempt, MaxAttempts: c.MaxAttempts, Deadline: deadline,
	}
}
