package host

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// reserveTimeout bounds a reserve, and what is compared before it. The connection's own time-outs bound each answer.
const reserveTimeout = 5 * time.Second

// intake reserves tasks for the slots that the scheduler grants, one round trip at a time for each
// session, and begins them.
type intake struct {
	scheduler *scheduler
	metrics   observer
	workers   *workers
}

// Run reserves until ctx ends. It returns when the last reserve has come back; the workers are waited
// for by who made them.
func (in *intake) Run(ctx context.Context) {
	var rounds sync.WaitGroup
	defer rounds.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-in.scheduler.poke:
		}
		for ctx.Err() == nil && in.runOnce(ctx, &rounds) {
		}
	}
}

// runOnce begins a round trip for each session that may reserve and has none on its way, and tells whether there was one.
// A session whose Redis hangs keeps no other one waiting.
func (in *intake) runOnce(ctx context.Context, rounds *sync.WaitGroup) bool {
	grants := in.scheduler.pick()
	bySession := make(map[*session][]*grant)
	for _, g := range grants {
		bySession[g.session] = append(bySession[g.session], g)
	}
	for s, list := range bySession {
		if !s.underway.begin() {
			for _, g := range list {
				in.scheduler.putBack(g)
			}
			continue
		}
		round := func() {
			in.serve(ctx, s, list)
			s.underway.reserved()
			in.scheduler.wakeIntake()
		}
		if len(s.host.tenants) == 1 {
			round() // here, where the stack is large by now
		} else {
			rounds.Go(round)
		}
	}
	return len(grants) > 0
}

// serve does what one session's grants ask for: first it compares the suspect queues. What it does
// not come to, because ctx ended or Redis does not serve, it puts back.
func (in *intake) serve(ctx context.Context, s *session, grants []*grant) {
	var fresh []*grant
	for _, g := range grants {
		switch {
		case !g.suspect:
			fresh = append(fresh, g)
		case ctx.Err() != nil || !s.available(time.Now()):
			in.scheduler.putBack(g)
		default:
			in.compare(ctx, g)
		}
	}
	if ctx.Err() == nil && s.available(time.Now()) {
		in.reserve(ctx, s, fresh)
		return
	}
	for _, g := range fresh {
		in.scheduler.putBack(g)
	}
}

// reserve asks Redis for the tasks of one session's grants. Once sent it is not cut off: that would
// leave tasks that nobody knows of.
func (in *intake) reserve(ctx context.Context, s *session, grants []*grant) {
	if len(grants) == 0 {
		return
	}
	ctx, cancel := outlive(ctx)
	defer cancel()
	wants := make([]queue.ReserveRequest, len(grants))
	for i, g := range grants {
		wants[i] = g.want()
	}
	for i, batch := range s.node.Reserve(ctx, wants) {
		in.take(grants[i], batch)
		if batch.Err != nil {
			continue
		}
		s.succeeded(opReserve, wants[i].Queue)
		s.quarantine(&wants[i], batch.Quarantined)
		s.unburied(opReserve, wants[i].Queue, batch.DeadError)
		if !batch.NextETA.IsZero() {
			s.due.at(batch.NextETA, batch.Clock)
		}
	}
}

// compare looks into the reserved list of a suspect queue, takes on what the host does not know, from the oldest on, and
// gives back what there is no slot for: it must not wait for one beside a host that has some. No reserve of the queue is on its way meanwhile, because only the intake sends them.
func (in *intake) compare(ctx context.Context, g *grant) {
	ctx, cancel := outlive(ctx)
	defer cancel()
	ids, err := g.session.unknown(ctx, g.served.queue) // newest first
	over := max(0, len(ids)-len(g.shares))
	if err == nil {
		err = g.session.giveBack(ctx, g.served.queue, ids[:over])
	}
	if err != nil {
		in.take(g, queue.ReserveReply{Err: err})
		return
	}
	var batch queue.ReserveReply
	if ids = ids[over:]; len(ids) > 0 {
		slices.Reverse(ids)
		batch = g.session.node.Adopt(ctx, g.want(), ids)
	}
	if over > 0 {
		g.session.logger.Warn("gave back tasks whose reserve was not answered", "queue", g.served.queue, "tasks", over)
	}
	if len(batch.Tasks) > 0 {
		g.session.logger.Warn("took on tasks whose reserve was not answered", "queue", g.served.queue, "tasks", len(batch.Tasks))
	}
	in.take(g, batch)
}

func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), reserveTimeout)
}

// take begins the tasks of a batch and gives back what the grant has over.
func (in *intake) take(g *grant, batch queue.ReserveReply) {
	begun := make([]*task, len(batch.Tasks))
	for i, reservation := range batch.Tasks {
		g.version.Retain()
		begun[i] = &task{
			Reservation: reservation, served: g.served, session: g.session, version: g.version, share: g.shares[i],
			reserved: batch.Clock, taken: time.Now(),
		}
		g.session.add(begun[i])
	}
	in.scheduler.settleGrant(g, len(begun), batch)
	switch {
	case errors.Is(batch.Err, queue.ErrLeaseLost): // whatever renewals say, which may go to another server
		poke(g.session.lost)
	case batch.Err != nil:
		g.session.failed(opReserve, g.served.queue, batch.Err)
	}
	in.metrics.dropped(g.served.place, batch.Dropped)
	for _, t := range begun {
		in.workers.begin(t)
	}
}
