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
	"github.com/quern-project/quern/host/rollout"
	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/release"
)

// Config has the settings of a host. The zero value works.
type Config struct {
	// Concurrency is the number of slots: how many tasks run at a time (default 2 × cores, at least 4).
	Concurrency int
	// Guests is how many guests the engine lets compute at the same time (default GOMAXPROCS, as in the engine).
	Guests int
	// Memory is the maximum sum, in bytes, of the running tasks' limits of memory, input and output (default 0: no
	// bound).
	Memory int64
	// Account has the budgets for memory that tenants use outside of running tasks (default: account.New(Memory)).
	Account *account.Account
	// Cache is the engine, if the memory that it holds in addition to running tasks, such as code and snapshots, is to
	// count against Memory as well (default: none).
	Cache schedule.Cache
	// Queues selects the queues to serve among those that have a plugin. An entry is a name or a glob; one that begins
	// with "!" excludes its queues. The last entry that matches a queue decides (default: all queues).
	Queues []string
	// Grace is how long running tasks can go on when the host ends (default 30 s).
	Grace time.Duration
	// Poll is how often the host looks for tasks that Pub/Sub did not announce, ± 20 % (default 5 s). After it has found
	// such a task, it looks at idle queues about every second, for an hour.
	Poll time.Duration
	// MaxCrashes is the number of crashed hosts at which a task fails (default 3). A plugin's manifest can lower it.
	MaxCrashes int
	// KeepBadReleases makes the host report releases that are worse than the one before, without stopping them.
	KeepBadReleases bool
	// MaxQueues is the maximum number of queues of a tenant (default 1,000). Beyond it, enqueueing to a new queue fails,
	// but hosts and workers can still register for one. A tenant's grants can lower the bound. The metrics show at most
	// this many queues of a tenant, but always all served ones.
	MaxQueues int
	// Quotas are what the host's file says of the quotas of each tenant (default: nothing). An operator's value counts
	// in the place of the file's.
	Quotas map[string]manage.Quotas
	// Keep is how long finished tasks are kept (default 7 days; negative: for ever).
	Keep time.Duration
	// KeepTasks is how many finished tasks are kept in each queue (default 100,000; negative: all).
	KeepTasks int64
	// PurgeForeign makes the purge also delete tasks that were enqueued by clients other than Quern's (default: keep
	// them).
	PurgeForeign bool
	// Retry has the retry settings that apply where neither the task nor its plugin's manifest sets one (default: one
	// attempt).
	Retry queue.Retry
	// Services has the stores and clients behind the services of handlers (default: none: handlers then have
	// only checkpoints).
	Services guest.Config
	// Releases is the folder in which fetched releases are kept, for hosts that are started again (default: a temporary
	// folder).
	Releases string
	// Artifacts reads releases whose bytes are in OCI registries (default: none, so that the host dials no registry).
	Artifacts rollout.Artifacts
	// Verify returns an error if a release of a tenant must not serve, because it is not signed (default: releases need no
	// signature).
	Verify func(tenant string, r *release.Release) error
	// Unbuilt lists plugins whose source could not be built. They are published beside those of the directory (default:
	// none).
	Unbuilt func() []plugins.Status
	// Ended is called after each settlement of a task, from several goroutines. It must not block (default: none).
	Ended func(Ended)
	// Name is a name of the host for people, which the host publishes (default: none).
	Name string
	// Version is the program's version, which the host publishes.
	Version string
	// Tracer makes the spans of tasks; the caller closes it (default: none).
	Tracer *trace.Tracer
	// Logger receives the host's log (default: none).
	Logger hclog.Logger
}

// Ended describes a task that was settled.
type Ended struct {
	Tenant, Queue, ID string
	Took              time.Duration
	Failure           *queue.Failure // nil if the task is complete
	Again             bool           // the task will be tried again
	PutOff            bool           // the task has put itself off, which counts no attempt
	Status            int            // of the response to a delivery of a webhook; 0 for other tasks
	Quiet             bool           // one of many put-offs of the task, for which the log has no line either
}

// Defaults returns the settings that the zero Config stands for.
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
	if c.Verify == nil {
		c.Verify = func(string, *release.Release) error { return nil }
	}
	if c.Artifacts == nil {
		c.Artifacts = rollout.NoArtifacts{}
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
	// If the list begins with an exclusion, queues that match no entry are served.
	return len(c.Queues) == 0 || strings.HasPrefix(c.Queues[0], "!")
}
