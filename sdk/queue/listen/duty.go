package listen

import (
	"context"
	"fmt"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// TakeDuty takes a duty, which one node at a time does for the whole fleet, if the duty is free. It returns false if a
// node has the duty already, even if that is this node. The node has the duty until it calls YieldDuty, or until ttl
// has passed (at least a millisecond). All nodes must use the same ttl for a duty: a duty that would last for more than
// ttl from now counts as free (see PROTOCOL.md, Clock).
func (n *Node) TakeDuty(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	return n.duty(ctx, "take", name, max(1, ttl.Milliseconds()))
}

// KeepDuty extends the node's duty to ttl from now, at least a millisecond. It returns false if this node does not have
// the duty any more.
func (n *Node) KeepDuty(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	return n.duty(ctx, "keep", name, max(1, ttl.Milliseconds()))
}

// YieldDuty gives up a duty, if this node still has it.
func (n *Node) YieldDuty(ctx context.Context, name string) error {
	_, err := n.duty(ctx, "yield", name)
	return err
}

func (n *Node) duty(ctx context.Context, script, name string, args ...any) (bool, error) {
	answer, err := n.client.Store().Eval(ctx, store.NewCall(script, n.client.Store().Keys.Duty(name),
		append([]any{n.id}, args...)...))
	return store.AsInt(answer) == 1, store.Wrap(fmt.Sprintf("%s duty %q", script, name), err)
}
