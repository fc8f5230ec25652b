package upkeep

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// moveTerm is the term of the host that moves tasks.
const moveTerm = 5 * time.Second

// Moves says what to do in a queue: move due tasks, fail expired tasks, recheck the dependencies of blocked tasks.
type Moves struct{ Due, Expired, Recheck bool }

// Mover moves scheduled tasks that are due to the pending lists, fails waiting tasks that have expired, and rechecks
// the dependencies of blocked tasks. It goes round the queues with such tasks and handles a block of each at a time, so
// that no queue waits until another one is done.
type Mover struct {
	periodic.Duty
	*Config

	mu    sync.Mutex // guards the fields below
	order []string   // the queues in moves, the next one first
	moves map[string]Moves
}

// Add adds work for a queue. The queue goes behind the others, unless it is among them already.
func (m *Mover) Add(name string, what Moves) {
	if what == (Moves{}) {
		return
	}
	m.mu.Lock()
	before, known := m.moves[name]
	m.moves[name] = Moves{before.Due || what.Due, before.Expired || what.Expired, before.Recheck || what.Recheck}
	if !known {
		m.order = append(m.order, name)
	}
	m.mu.Unlock()
	m.Ask()
}

// next removes the first queue and returns it, or an empty name if there is none.
func (m *Mover) next() (name string, what Moves) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.order) == 0 {
		return "", Moves{}
	}
	name, m.order = m.order[0], m.order[1:]
	what = m.moves[name]
	delete(m.moves, name)
	return name, what
}

// RunOnce moves blocks for half of a term, if this host gets the term, and then leaves it to other hosts for a while.
func (m *Mover) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	m.mu.Lock()
	idle := len(m.order) == 0
	m.mu.Unlock()
	if idle {
		return 0, periodic.UntilAsked, periodic.ErrIdle
	}
	wait = 2 * termRetry // so that another host gets the term when it tries again
	got, err := m.holdTerm(ctx, "due", moveTerm, func() (more bool, err error) {
		name, what := m.next()
		if name == "" {
			wait = 0
			return false, nil
		}
		return true, m.move(ctx, name, what)
	})
	switch {
	case err != nil:
		return 0, 0, err
	case !got: // the host with the term may die, or have looked before the last task was due
		wait = untilRetry()
	}
	return wait, wait, nil
}

// move handles one batch of each kind of work that what names, in one queue. A batch that Redis refuses is tried again
// after the next poll.
func (m *Mover) move(ctx context.Context, name string, what Moves) error {
	fleet := m.Fleet
	var left Moves
	var due, expired, recheck error
	if what.Due {
		block, err := fleet.EnqueueDue(ctx, name)
		left.Due, due = m.moved(name, block), err
	}
	if what.Expired && !queue.IsUnavailable(due) {
		maxAge, dead := m.Expiry(name)
		block, err := fleet.Expire(ctx, name, maxAge, dead)
		left.Expired, expired = m.moved(name, block), err
	}
	if what.Recheck && !queue.IsUnavailable(cmp.Or(due, expired)) {
		_, recheck = fleet.Recheck(ctx, name) // once per poll: a recheck is much work for a rare case
	}
	switch err := cmp.Or(expired, due, recheck); {
	case err == nil:
		m.Health.Succeeded(opDue, name)
	case ctx.Err() != nil || queue.IsUnavailable(err):
		m.Add(name, what)
		return err
	default:
		m.Health.Failed(opDue, name, err)
	}
	m.Add(name, left)
	return nil
}

// moved records a block that was moved, and reports whether there is another block to move now.
func (m *Mover) moved(name string, block listen.Block) (more bool) {
	if block.Tasks > 0 {
		m.Logger.Debug("moved tasks that are due or have expired", "queue", name, "tasks", block.Tasks)
		m.Wake(name) // no message comes if the host has no right to publish
	}
	m.Health.NoDeadLetter(opDue, name, block.DeadError)
	if !block.More && !block.Next.IsZero() {
		m.Poll(block.Next.Sub(block.Clock))
	}
	return block.More
}
