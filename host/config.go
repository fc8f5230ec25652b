package host

import (
	"cmp"
	"fmt"
	"path"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Config is the settings of a host. The zero value works.
type Config struct {
	// Concurrency is the number of slots: how many tasks run at a time (default 2 × cores, at least 4).
	Concurrency int
	// Guests is how many guests the engine lets compute at the same time (default GOMAXPROCS, as in the engine).
	Guests int
	// Memory bounds, in bytes, the sum of the running tasks' limits of memory, input and output (default 0: not
	// bounded).
	Memory int64
	// Account has the budgets of the memory that tenants use beside tasks (default: an account of Memory).
	Account *account.Account
	// Cache is the engine, which holds memory beside the running tasks. That memory counts against Memory as well
	// (default: none).
	Cache schedule.Cache
	// Queues chooses among the queues that have a plugin: names, globs, and exclusions that begin with "!" (default:
	// all). The last match decides.
	Queues []string
	// Grace is how long running tasks may go on when the host ends (default 30 s).
	Grace time.Duration
	// Poll is how often the host looks for tasks that Pub/Sub did not announce, ± 20 % (default 5 s). For an hour after
	// it found some, it looks at idle queues every second.
	Poll time.Duration
	// MaxCrashes is how many hosts a task may crash before it fails (default 3). A plugin's manifest may lower it.
	MaxCrashes int
	// MaxQueues bounds the queues of a tenant: when it has this many, nothing creates another one (default 1,000). A
	// tenant's grants may lower the bound. The metrics show at most this many queues, but always the served ones.
	MaxQueues int
	// Keep is how long finished tasks are kept (default 7 days; negative: for ever).
	Keep time.Duration
	// KeepTasks is how many finished tasks of a queue are kept (default 100,000; negative: all).
	KeepTasks int64
	// PurgeForeign purges also tasks that clients other than Quern's enqueued (default: keep them).
	PurgeForeign bool
	// Retry is the policy of tasks that set none and whose plugin's manifest sets none (default: one attempt).
	Retry queue.Retry
	// Services are what handlers may use beyond their tasks (default: nothing but checkpoints).
	Services guest.Config
	// Ended is called for each task that was settled, from several goroutines; it must not block (default: none).
	Ended func(Ended)
	// Name is a name for people, which the host publishes (default: none).
	Name string
	// Version is the program's version, which the host publishes.
	Version string
	// Tracer makes the spans of tasks; the caller closes it (default: none).
	Tracer *trace.Tracer
	// Logger receives the host's log (default: none).
	Logger hclog.Logger
}

// Ended is a task that was settled.
type Ended struct {
	Tenant, Queue, ID string
	Took              time.Duration
	Failure           *queue.Failure // nil: it is complete
	Again             bool           // it will be tried again
}

// Defaults are the settings of the zero Config.
func Defaults() Config { return Config{}.withDefaults() }

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, max(4, 2*goruntime.GOMAXPROCS(0)))
	c.Guests = cmp.Or(c.Guests, goruntime.GOMAXPROCS(0))
	c.Grace = cmp.Or(c.Grace, 30*time.Second)
	c.Poll = cmp.Or(c.Poll, 5*time.Second)
	c.MaxCrashes = cmp.Or(c.MaxCrashes, listen.DefaultMaxCrashes)
	c.MaxQueues = cmp.Or(c.MaxQueues, 1000)
	c.Keep = cmp.Or(c.Keep, 7*24*time.Hour)
	c.KeepTasks = cmp.Or(c.KeepTasks, 100_000)
	if c.Account == nil {
		c.Account = account.New(c.Memory)
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Concurrency < 1 || c.Concurrency > 10_000:
		return fmt.Errorf("concurrency %d: use 1 to 10000", c.Concurrency)
	case c.Memory < 0:
		return fmt.Errorf("memory %d: use a positive number of bytes, or 0 for no bound", c.Memory)
	case c.Grace < 0:
		return fmt.Errorf("grace %s: use 0s or more", c.Grace)
	case c.Poll < 10*time.Millisecond:
		return fmt.Errorf("poll %s: use at least 10ms", c.Poll)
	case c.MaxCrashes < 1:
		return fmt.Errorf("max crashes %d: use 1 or more", c.MaxCrashes)
	case c.MaxQueues < 1:
		return fmt.Errorf("max queues %d: use 1 or more", c.MaxQueues)
	case c.Retry.MaxAttempts < queue.Unlimited:
		return fmt.Errorf("max attempts %d: use 1 or more, or %d for no bound", c.Retry.MaxAttempts, queue.Unlimited)
	}
	for _, pattern := range c.Queues {
		glob := strings.TrimPrefix(pattern, "!")
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			return fmt.Errorf("queues %q: use a name or a glob like mail.*, with ! before it to exclude", pattern)
		}
	}
	return nil
}

// serves reports whether the configuration lets the host serve a queue.
func (c Config) serves(queue string) bool {
	for _, pattern := range slices.Backward(c.Queues) {
		glob, excludes := strings.CutPrefix(pattern, "!")
		if ok, _ := path.Match(glob, queue); ok || glob == queue {
			return !excludes
		}
	}
	return len(c.Queues) == 0 || strings.HasPrefix(c.Queues[0], "!") // after exclusions alone, the other queues are served
}
