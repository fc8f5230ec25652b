package host

import (
	"cmp"
	"fmt"
	"path"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/sdk/queue"
)

// Config is how much a host takes on. The zero value works.
type Config struct {
	// Concurrency is the number of slots: how many tasks run at a time (default 2 × cores, at least 4).
	Concurrency int
	// Memory bounds the sum of what running tasks may take, in bytes: limits of memory, input and
	// output (default 0: not bounded).
	Memory int64
	// Cache holds memory beside that of the tasks, which counts as well: the engine (default: none).
	Cache Cache
	// Queues chooses among the queues that have a plugin: names, globs, and exclusions that begin
	// with "!" (default: all). The last one that matches decides.
	Queues []string
	// Grace is how long running tasks may go on after the host was told to end (default 30 s).
	Grace time.Duration
	// Poll is how often the host looks for tasks that Pub/Sub did not announce, ± 20 % (default 5 s).
	Poll time.Duration
	// MaxCrashes is how many hosts a task may lose before it fails, unless its plugin's manifest says
	// fewer (default 3).
	MaxCrashes int
	// MaxQueues bounds the queues of a tenant that its handlers may bring about, and those in the metrics: all that are
	// served, and others while there are fewer in all (default 1,000).
	MaxQueues int
	// Keep is how long finished tasks are kept (default 7 days; negative: for ever), and KeepTasks how
	// many of a queue at most (default 100,000; negative: all). PurgeForeign forgets also those that
	// clients other than Quern's enqueued.
	Keep         time.Duration
	KeepTasks    int64
	PurgeForeign bool
	// Retry holds for tasks whose own policy and whose plugin's manifest say nothing (default: one
	// attempt).
	Retry queue.Retry
	// Services are what handlers may use beyond their tasks (default: nothing but checkpoints).
	Services guest.Config
	// Version is the program's, for others to see.
	Version string
	// Logger takes the host's log (default: none).
	Logger hclog.Logger
}

// Defaults are the settings of the zero Config.
func Defaults() Config { return Config{}.withDefaults() }

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, max(4, 2*goruntime.GOMAXPROCS(0)))
	c.Grace = cmp.Or(c.Grace, 30*time.Second)
	c.Poll = cmp.Or(c.Poll, 5*time.Second)
	c.MaxCrashes = cmp.Or(c.MaxCrashes, queue.DefaultMaxCrashes)
	c.MaxQueues = cmp.Or(c.MaxQueues, 1000)
	c.Keep = cmp.Or(c.Keep, 7*24*time.Hour)
	c.KeepTasks = cmp.Or(c.KeepTasks, 100_000)
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
		if _, err := path.Match(strings.TrimPrefix(pattern, "!"), ""); err != nil || strings.TrimPrefix(pattern, "!") == "" {
			return fmt.Errorf("queues %q: use a name or a glob like mail.*, with ! before it to exclude", pattern)
		}
	}
	return nil
}

// serves tells whether the configuration lets the host serve a queue.
func (c Config) serves(queue string) bool {
	// With nothing but exclusions, everything else is served.
	serves := len(c.Queues) == 0 || strings.HasPrefix(c.Queues[0], "!")
	for _, pattern := range c.Queues {
		glob, excludes := strings.CutPrefix(pattern, "!")
		if ok, _ := path.Match(glob, queue); ok || glob == queue {
			serves = !excludes
		}
	}
	return serves
}
