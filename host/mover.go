package host

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	// dutyTerm is how long a host may have a duty before another one may. The mover gives it up at half of that.
	dutyTerm = 5 * time.Second
	// dutyRetry is when a host tries again that did not get a duty, up to half of it sooner or later.
	dutyRetry = 200 * time.Millisecond
)

// moves are what is to be done in a queue.
type moves struct{ due, expired bool }

// mover moves the scheduled tasks that are due to the pending lists, and fails the waiting ones whose time is over. It
// goes round the queues that have such tasks, a block of each at a time, so that none waits for another one to be done.
type mover struct {
	session *session
	// next is told when the next task of a queue is due, or expires, and Redis's clock.
	next func(at, clock time.Time)
	// poke has a token when there is a queue; never closed.
	poke chan struct{}

	mu    sync.Mutex
	order []string // queues, the next one first; guarded by mu
	moves map[string]moves
}

func newMover(s *session, next func(at, clock time.Time)) *mover {
	return &mover{session: s, next: next, poke: make(chan struct{}, 1), moves: make(map[string]moves)}
}

// add puts a queue behind the others, if it is not among them and there is something to do.
func (m *mover) add(name string, what moves) {
	if what == (moves{}) {
		return
	}
	m.mu.Lock()
	is, known := m.moves[name]
	m.moves[name] = moves{is.due || what.due, is.expired || what.expired}
	if !known {
		m.order = append(m.order, name)
	}
	m.mu.Unlock()
	poke(m.poke)
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

func (m *mover) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.order) == 0
}

// Run moves until ctx ends.
func (m *mover) Run(ctx context.Context) {
	var pause backoff
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.poke:
		}
		for !m.idle() {
			wait, err := m.turn(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				m.session.failed(opDue, "", err)
				wait = pause.failed(time.Now())
			default:
				m.session.succeeded(opDue, "")
				pause.succeeded()
			}
			if !sleep(ctx, wait) {
				return
			}
		}
	}
}

// turn moves blocks for half the term of the duty, if this host gets it, and tells how long to leave the duty to others.
func (m *mover) turn(ctx context.Context) (wait time.Duration, err error) {
	got, err := m.session.node.TakeDuty(ctx, "due", dutyTerm)
	if err != nil {
		return 0, err
	}
	if !got { // who has the duty may die over it, or have looked before the last task was due
		return dutyRetry/2 + rand.N(dutyRetry), nil
	}
	wait = 2 * dutyRetry // time for whoever tries again
	for over := time.Now().Add(dutyTerm / 2); err == nil && time.Now().Before(over); {
		name, what := m.take()
		if name == "" {
			wait = 0
			break
		}
		err = m.move(ctx, name, what)
	}
	return wait, errors.Join(err, m.session.yieldDuty(ctx, "due"))
}

// move moves a block of each kind. What Redis refuses is tried again after the next look.
func (m *mover) move(ctx context.Context, name string, what moves) error {
	s := m.session
	var left moves // to do in this queue
	var err error
	if what.due {
		left.due, err = m.block(name, func(q *queue.Queue) (queue.Block, error) { return q.EnqueueDueBlock(ctx) })
	}
	if what.expired && !queue.IsUnavailable(err) {
		more, also := m.block(name, func(q *queue.Queue) (queue.Block, error) {
			maxAge, dead := s.host.expiry(s.tenant, name)
			return q.ExpireBlock(ctx, maxAge, dead)
		})
		left.expired = more
		if also != nil {
			err = also
		}
	}
	switch {
	case err == nil:
		s.succeeded(opDue, name)
	case ctx.Err() != nil || queue.IsUnavailable(err):
		m.add(name, what)
		return err
	default:
		s.failed(opDue, name, err)
	}
	m.add(name, left)
	return nil
}

// block moves a block and tells whether there is another one to move now.
func (m *mover) block(name string, move func(*queue.Queue) (queue.Block, error)) (more bool, err error) {
	s := m.session
	block, err := move(s.client.Queue(name))
	if err != nil {
		return false, err
	}
	if block.Tasks > 0 {
		s.logger.Debug("tasks are due, or have expired", "queue", name, "tasks", block.Tasks)
		s.scheduler.wake(place{s.tenant, name}) // who may not publish is told nothing
	}
	s.unburied(opDue, name, block.DeadError)
	if !block.More && !block.Next.IsZero() {
		m.next(block.Next, block.Clock)
	}
	return block.More, nil
}
