package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// send enqueues the tasks of claimed rows.
func (l *claims) send(ctx context.Context) error {
	if l.since() > forgetAfter/2 { // it was stopped, and what another leader has sent may be forgotten
		return errNotLeader
	}
	groups := make(map[string][]*claim)
	var publications []*claim // of an earlier leader: they are pending again, and copied anew
	for _, c := range l.unsent {
		switch {
		case l.hand[c.spec.ID] != c || c.sent || l.isAlone(c.row):
		case c.failure != nil:
			if err := l.refuseWith(ctx, c, *c.failure); err != nil {
				return err
			}
		case c.publication:
			publications = append(publications, c)
		default:
			groups[c.queue] = append(groups[c.queue], c)
		}
	}
	if err := l.giveBack(ctx, publications); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		for _, block := range blocks(groups[name], func(c *claim) int64 { return c.size }) {
			block, err := l.readUnread(ctx, block)
			if err != nil {
				return err
			}
			if err := l.enqueue(ctx, name, block, true); err != nil {
				return err
			}
		}
	}
	l.unsent = nil
	return nil
}

// readUnread reads what is unread of rows. It drops those that are not ours any more, refuses those that cannot be read
// or are too large, and returns the others.
func (l *claims) readUnread(ctx context.Context, block []*claim) (ours []*claim, err error) {
	var unread []*claim
	refused := make(map[*claim]bool)
	for _, c := range block {
		if c.unread {
			unread = append(unread, c)
		}
	}
	if len(unread) > 0 {
		err := l.rows.read(ctx, unread, func(c *claim, why error) error {
			refused[c] = true
			return l.refuse(ctx, c, fmt.Errorf("the row cannot be read: %w", why))
		})
		if err != nil {
			return nil, err
		}
	}
	for _, c := range block {
		switch {
		case refused[c]:
		case c.unread:
			err = l.drop(ctx, c)
		case c.size > maxPayload:
			err = l.refuse(ctx, c, tooLarge(c.size))
		default:
			ours = append(ours, c)
		}
		if err != nil {
			return nil, err
		}
	}
	return ours, nil
}

// enqueue enqueues the tasks of claimed rows of a queue. first is false in the second attempt, after the IDs of earlier
// tasks were forgotten.
func (l *claims) enqueue(ctx context.Context, name string, block []*claim, first bool) error {
	specs := make([]queue.Spec, len(block))
	for i, c := range block {
		specs[i] = c.spec
	}
	receipts, err := l.client.Queue(name).EnqueueMany(ctx, specs)
	switch {
	case errors.Is(err, queue.ErrQueueFull), errors.Is(err, queue.ErrManyQueues), errors.Is(err, queue.ErrDamaged):
		l.queue(name).full = time.Now().Add(fullPause)
		l.noteFailure(err)
		return l.giveBack(ctx, block) // some may be enqueued, and even run
	case errors.Is(err, queue.ErrInvalid) && len(block) > 1:
		for i := range block {
			if err := l.enqueue(ctx, name, block[i:i+1], first); err != nil {
				return err
			}
		}
		return nil
	case errors.Is(err, queue.ErrInvalid) && len(block) == 1:
		return l.refuse(ctx, block[0], err)
	case err != nil:
		return err
	}
	l.relay.config.Metrics.RelayRows(l.relay.config.Name, "relayed", len(block))
	var known []*claim
	for i, receipt := range receipts {
		c := block[i]
		c.sent = true
		if receipt.Existed {
			known = append(known, c)
		} else {
			c.spec.Parameters = nil
			delete(l.stopped, c.spec.ID) // that was an earlier task
		}
	}
	return l.resume(ctx, name, known, first)
}

// resume continues rows whose task was enqueued before: by an earlier leader, by a call whose answer was lost, or
// before the row was given back or lost.
func (l *claims) resume(ctx context.Context, name string, known []*claim, first bool) error {
	if len(known) == 0 {
		return nil
	}
	byTask := byTask(known)
	ended, again, err := l.back.Ends(ctx, slices.Collect(maps.Keys(byTask)))
	if err != nil {
		return err
	}
	// The relay cancelled the task of a row that is not adopted, when the row was lost or given back.
	ended, deleted, err := l.deleteStopped(ctx, ended, func(task string) bool {
		return !byTask[task].adopted || l.stopped[task]
	})
	if err != nil {
		return err
	}
	again = append(again, deleted...)
	if len(again) > 0 && first {
		if err := l.back.ForgetOnce(ctx, again, 0); err != nil {
			return err
		}
		anew := make([]*claim, len(again))
		for i, id := range again {
			anew[i] = byTask[id]
			anew[i].sent = false
		}
		if err := l.enqueue(ctx, name, anew, false); err != nil {
			return err
		}
	}
	for _, c := range known {
		c.spec.Parameters = nil
	}
	ends := make([]string, len(ended))
	for i, task := range ended {
		ends[i] = task.ID
	}
	return l.end(ctx, ends)
}

// refuse ends a row that can be no task.
func (l *claims) refuse(ctx context.Context, c *claim, why error) error {
	code := listen.ExitFatal
	return l.refuseWith(ctx, c, queue.Failure{Reason: queue.ReasonError, Message: why.Error(), ExitCode: &code})
}

func (l *claims) refuseWith(ctx context.Context, c *claim, failure queue.Failure) error {
	if c.failure == nil {
		c.failure = &failure
		l.relay.log.Error("row refused", "id", c.row, "error", failure.Message)
		l.relay.config.Metrics.RelayRows(l.relay.config.Name, "refused", 1)
		l.damaged.refuse()
	}
	_, err := l.finish(ctx, []listen.Ended{{ID: c.spec.ID, Queue: c.queue, Status: queue.Failed, Failure: &failure}})
	return err
}

func byTask(some []*claim) map[string]*claim {
	all := make(map[string]*claim, len(some))
	for _, c := range some {
		all[c.spec.ID] = c
	}
	return all
}
