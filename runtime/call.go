package runtime

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
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
	// Input is what the guest reads from stdin. It is not changed, and not kept after Run.
	Input []byte
	// Env is what the manifest grants. Names that begin with TASK_ are the host's: they are skipped.
	Env map[string]string
	// Limits bound the call; the zero value means the defaults.
	Limits Limits
	// Timeout is the task's own limit of wall-clock time, in the place of Limits.Timeout. Default 0,
	// which leaves that one in force.
	Timeout time.Duration
	// Log receives each line that the guest writes to stderr, as it comes and without its newline:
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

// ReservedEnv begins the names of the environment that no manifest can set.
const ReservedEnv = "TASK_"

// environment lists the variables in a fixed order: the task's first, then the granted by name.
func (c Call) environment() [][2]string {
	env := [][2]string{
		{"TASK_ID", c.TaskID},
		{"TASK_QUEUE", c.Queue},
		{"TASK_TENANT", c.Tenant},
		{"TASK_PLUGIN", c.Plugin},
	}
	if c.Attempt > 0 {
		env = append(env, [2]string{"TASK_ATTEMPT", strconv.Itoa(c.Attempt)})
	}
	if c.MaxAttempts > 0 {
		env = append(env, [2]string{"TASK_MAX_ATTEMPTS", strconv.Itoa(c.MaxAttempts)})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if !strings.HasPrefix(name, ReservedEnv) {
			env = append(env, [2]string{name, c.Env[name]})
		}
	}
	return env
}
