package upkeep

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// The names under which metrics and logs report the calls to Redis.
const (
	opDue                 = "due"
	opReclaim             = "reclaim"
	opPurge               = "purge"
	opPublish             = "publish"
	opAdvance             = "advance"
	opTick                = "tick"
	opDeclare             = "declare"
	opDeclareSubscription = "declare_subscription"
)

// Health records which calls to Redis succeed.
type Health interface {
	periodic.Reports
	// NoDeadLetter records why the dead letter of a failed task was not written. why is "" if it was written.
	NoDeadLetter(op, queue, why string)
}

// Metrics counts what the duties do.
type Metrics interface {
	ScheduleTicks(tenant, result string, n int)
	ScheduleLate(tenant string, late time.Duration)
	TasksReclaimed(tenant, outcome string, n int)
}

// Config has what the duties of a session need. All fields are required.
type Config struct {
	Client  *queue.Client
	Node    *listen.Node
	Fleet   *listen.Fleet
	Logger  hclog.Logger
	Health  Health
	Metrics Metrics
	// Interval is how often the duties look for work that no message announced, ± 20 %.
	Interval time.Duration
	// MaxCrashes is the number of crashed hosts at which a task fails.
	MaxCrashes int
	// Reclaimed is called after tasks of a dead listener were reclaimed. It must not block.
	Reclaimed func()
	// Purge says which finished tasks and publications are deleted.
	Purge listen.PurgeOptions
	// Expiry returns the maximum age of a queue's tasks that set none themselves (0: no bound), and the queue for their
	// dead letters ("": none).
	Expiry func(queue string) (maxAge time.Duration, dead string)
	// Wake is called when a queue has got tasks. Poll is called to have the backlogs polled after a time.
	Wake func(queue string)
	Poll func(in time.Duration)
	// Borrow reserves memory to publish a payload of this size.
	Borrow func(ctx context.Context, size int64) (*account.Share, error)
	// Steadiness is the record of the session's renewals.
	Steadiness *Steadiness
	// Declared lists what the manifests of this host's plugins declare now. Serves reports whether a plugin serves a
	// queue here.
	Declared func() []Declaration
	Serves   func(plugin string) bool
	// Running returns the set of plugins that at least one live host has and does not refuse.
	Running func(ctx context.Context, client *queue.Client) (plugins map[string]bool, err error)
	// Publish writes the present state of the host to Redis, and returns when Redis has it.
	Publish func(ctx context.Context) error
}

// Upkeep has the duties of one session.
type Upkeep struct {
	Mover       *Mover
	Recovery    *Recovery
	Advancer    *Advancer
	Publisher   *Publisher
	Ticker      *Ticker
	Declarer    *Declarer
	Housekeeper *Housekeeper
}

// New makes the duties of a session.
func New(c *Config) *Upkeep {
	duty := func(op string, first time.Duration) periodic.Duty {
		return periodic.Duty{Reports: c.Health, Op: op, First: first}
	}
	return &Upkeep{
		Mover:       &Mover{Duty: duty(opDue, periodic.UntilAsked), Config: c, moves: make(map[string]Moves)},
		Recovery:    &Recovery{Duty: duty(opReclaim, 0), Config: c},
		Advancer:    &Advancer{Duty: duty(opAdvance, 0), Config: c},
		Publisher:   &Publisher{Duty: duty(opPublish, publishInterval/2), Config: c},
		Ticker:      &Ticker{Duty: duty(opTick, 0), Config: c},
		Declarer:    &Declarer{Duty: duty(opDeclare, 0), Config: c, foreign: make(map[string]bool)},
		Housekeeper: &Housekeeper{Duty: duty(opPurge, housekeepingWait()), Config: c},
	}
}

// Workers lists the duties for periodic.Start.
func (u *Upkeep) Workers() []periodic.Worker {
	return []periodic.Worker{u.Mover, u.Recovery, u.Advancer, u.Publisher, u.Ticker, u.Declarer, u.Housekeeper}
}

const (
	// termRetry is the time after which a host tries again to get a term that another host has, ± 50 %.
	termRetry = 200 * time.Millisecond
	// yieldTimeout is the time limit for giving back a term.
	yieldTimeout = time.Second
)

// untilRetry returns how long to wait for a term that another host has.
func untilRetry() time.Duration { return termRetry/2 + rand.N(termRetry) }

// holdTerm takes the term of this name. got is false if another host has the term. Otherwise holdTerm calls step as
// long as step reports more to do, for at most half of the term, and gives the term back.
func (c *Config) holdTerm(ctx context.Context, name string, term time.Duration,
	step func() (more bool, err error),
) (got bool, err error) {
	if got, err = c.Node.TakeDuty(ctx, name, term); err != nil || !got {
		return false, err
	}
	for end, more := time.Now().Add(term/2), true; more && err == nil && time.Now().Before(end); {
		more, err = step()
	}
	// Give the term back even if ctx has ended: otherwise no host gets the term before its end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), yieldTimeout)
	defer cancel()
	return true, errors.Join(err, c.Node.YieldDuty(ctx, name))
}
