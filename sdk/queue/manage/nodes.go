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

// Drain asks a Quern listener to reserve no more tasks, finish the running ones and leave. It returns listen.ErrNoNode
// if no listener of that ID is alive.
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

// EndQuarantine lets hosts run a version of a plugin again. It also deletes the list of hosts that the version has
// crashed, and closes its circuit breaker.
func (m *Manager) EndQuarantine(ctx context.Context, plugin, digest string) error {
	return store.Wrap(fmt.Sprintf("release plugin %q", plugin),
		m.store.RDB.HDel(ctx, m.store.Keys.Crashes(), plugin+" "+digest, plugin+" "+digest+store.Failures).Err())
}

// ReclaimNode reclaims all tasks of a listener when an operator asks for it. A Quern listener's lease must be over. A
// Python listener has no lease: only the operator can know that it is dead, and Blueque may already have removed it
// from the queue's set of listeners. The error is queue.ErrStatus while the lease runs, and listen.ErrNoNode if there
// is no such listener. For maxCrashes see listen.Fleet.Reclaim.
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

// spliced returns an error if the reserved list of a Python listener has the same key as that of another listener of
// another queue. Keys join names by underscores: listener b_c_1 of queue a and listener c_1 of queue a_b share one key.
// So the tasks in the list may be the other listener's.
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
				return fmt.Errorf("%w: listener %s: its tasks of queue %q have the same key as the tasks of listener %s in queue %q: end listener %s first",
					queue.ErrInvalid, listener, ours, n.ID, theirs, n.ID)
			}
		}
	}
	return nil
}
