package manage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Drain tells a Quern listener to take nothing more, finish what it runs and end: listen.ErrNoNode if none of that ID lives.
func (m *Manager) Drain(ctx context.Context, listener string) error {
	answer, err := m.store.Eval(ctx, store.NewCall("drain", m.store.Keys.Nodes(), m.store.Clock, listener))
	if err != nil {
		return fmt.Errorf("drain %s: %w", listener, err)
	}
	if answer != "ok" {
		return fmt.Errorf("listener %s: %w", listener, listen.ErrNoNode)
	}
	return nil
}

// EndQuarantine lets hosts run a version of a plugin again, and forgets the hosts that it killed.
func (m *Manager) EndQuarantine(ctx context.Context, plugin, digest string) error {
	return store.Wrap("release plugin "+plugin, m.store.RDB.HDel(ctx, m.store.Keys.Crashes(), plugin+" "+digest).Err())
}

// ReclaimNode takes all tasks from a listener at an operator's command: from one of Quern whose lease is over, or from one of
// Python, which only the operator can know to be dead. queue.ErrStatus while the lease runs, listen.ErrNoNode if there is no such listener.
// maxCrashes is that of listen.Fleet.Reclaim. It also moves the tasks of a listener that Blueque took out of the queue's set as dead.
func (m *Manager) ReclaimNode(ctx context.Context, listener string, maxCrashes int) (listen.Reclaimed, error) {
	fleet := listen.NewFleet(m.client)
	nodes, err := fleet.Nodes(ctx, "kind")
	if err != nil {
		return listen.Reclaimed{}, err
	}
	known := slices.ContainsFunc(nodes, func(n listen.NodeInfo) bool { return n.ID == listener })
	if store.IsQuernListener(listener) && known {
		return fleet.Reclaim(ctx, listener, maxCrashes)
	}
	var got listen.Reclaimed
	if !store.IsQuernListener(listener) {
		queues, unread := m.client.Queues(ctx)
		if err := cmp.Or(unread, spliced(listener, nodes, queues)); err != nil {
			return listen.Reclaimed{}, err
		}
		got, err = fleet.ReclaimForced(ctx, listener, maxCrashes)
	}
	if err == nil && !known && got == (listen.Reclaimed{}) {
		err = fmt.Errorf("listener %s: %w", listener, listen.ErrNoNode)
	}
	return got, err
}

// spliced refuses a listener of Python whose key of reserved tasks in some queue is that of another one in another queue: names
// are joined by underscores, so that listener b_c_1 of queue a has the key of c_1 of queue a_b. Its tasks may be the other's.
func spliced(listener string, nodes []listen.NodeInfo, queues map[string]int64) error {
	for _, n := range nodes {
		for _, theirs := range n.Queues {
			ours := ""
			if between, ok := strings.CutSuffix(listener, "_"+n.ID); ok {
				ours = strings.TrimSuffix(theirs, "_"+between)
			} else if between, ok := strings.CutSuffix(n.ID, "_"+listener); ok {
				ours = theirs + "_" + between
			}
			if _, exists := queues[ours]; exists && ours != theirs {
				return fmt.Errorf("%w: listener %s: its tasks of queue %q cannot be told from those that listener %s has of queue %q: end that one first",
					queue.ErrInvalid, listener, ours, n.ID, theirs)
			}
		}
	}
	return nil
}
