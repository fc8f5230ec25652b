package host

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/quern-project/quern/sdk/queue"
)

// moveTerm is how long a host may have the duty to move before another one may.
const moveTerm = 5 * time.Second

// moves are what is to be done in a queue.
type moves struct{ due, expired, unseen bool }

// mover moves the scheduled tasks that are due to the pending lists, fails the waiting ones that have expired, and looks at what
// blocked ones wait for. It goes round the queues that have such tasks, a block of each at a time: no queue waits until another
// one is done.
type mover struct {
	duty
	access    *tenantAccess
	scheduler *scheduler
	expiry    func(queue string) (maxAge time.Duration, dead string)
	// next is told when the next task of a queue is due, or expires, and Redis's clock.
	next func(at, clock time.Time)

	mu    sync.Mutex // guards what follows
	order []string   // queues, the next one first
	moves map[string]moves
}

// add puts a queue behind the others, if it is not among them and there is something to do.
func (m *mover) add(name string, what moves) {
	if what == (moves{}) {
		return
	}
	m.mu.Lock()
	is, known := m.moves[name]
	m.moves[name] = moves{is.due || what.due, is.expired || what.expired, is.unseen || what.unseen}
	if !known {
		m.order = append(m.order, name)
	}
	m.mu.Unlock()
	m.ask()
}

// take takes the next queue; the empty name if there is none.
func (m *mover) take() (name string, what moves) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.order) == 0 {
		return "", moves{}
	}
	name, m.order = m.order[0], m.order[1:]
	what = m.moves[name]
	delete(m.moves, name)
	return name, what
}

// runOnce moves blocks for half the term of the duty, if this host gets it, and then leaves the duty to others for a while.
func (m *mover) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	m.mu.Lock()
	idle := len(m.order) == 0
	m.mu.Unlock()
	if idle {
		return 0, untilAsked, errIdle
	}
	wait = 2 * dutyRetry // time for hosts that try again
	got, err := m.access.onDuty(ctx, "due", moveTerm, func() (more bool, err error) {
		name, what := m.take()
		if name == "" {
			wait = 0
			return false, nil
		}
		return true, m.move(ctx, name, what)
	})
	switch {
	case err != nil:
		return 0, 0, err
	case !got: // the host with the duty may die, or have looked before the last task was due
		wait = dutyAgain()
	}
	return wait, wait, nil
}

// move moves a block of each kind. What Redis refuses is tried again after the next poll.
func (m *mover) move(ctx context.Context, name string, what moves) error {
	fleet := listen.NewFleet(m.access.client)
	var left moves // to do in this queue
	var due, expired, unseen error
	if what.due {
		block, err := fleet.EnqueueDue(ctx, name)
		left.due, due = m.moved(name, block), err
	}
	if what.expired && !queue.IsUnavailable(due) {
		maxAge, dead := m.expiry(name)
		block, err := fleet.Expire(ctx, name, maxAge, dead)
		left.expired, expired = m.moved(name, block), err
	}
	if what.unseen && !queue.IsUnavailable(cmp.Or(due, expired)) {
		_, unseen = fleet.Recheck(ctx, name) // what it leaves is looked at after the next poll: it is much work for a rare case
	}
	switch err := cmp.Or(expired, due, unseen); {
	case err == nil:
		m.health.succeeded(opDue, name)
	case ctx.Err() != nil || queue.IsUnavailable(err):
		m.add(name, what)
		return err
	default:
		m.health.failed(opDue, name, err)
	}
	m.add(name, left)
	return nil
}

// moved notes a block that was moved, and tells whether there is another one to move now.
func (m *mover) moved(name string, block listen.Block) (more bool) {
	if block.Tasks > 0 {
		m.access.logger.Debug("moved tasks that are due or have expired", "queue", name, "tasks", block.Tasks)
		m.scheduler.wake(m.access.place(name)) // a host that may not publish is told nothing
	}
	m.health.noDeadLetter(opDue, name, block.DeadError)
	if !block.More && !block.Next.IsZero() {
		m.next(block.Next, block.Clock)
	}
	return block.More
}
