package listen

import (
	"context"
	"fmt"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// TakeDuty asks for a duty that one node does for the fleet. It ends with YieldDuty, or by itself after ttl, of a millisecond
// at least. All nodes use the same ttl for a duty: one that would last longer counts as free (see PROTOCOL.md, Clock).
func (n *Node) TakeDuty(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	return n.duty(ctx, "take", name, max(1, ttl.Milliseconds()))
}

// KeepDuty keeps a duty for another ttl, of a millisecond at least; false if it is not this node's any more.
func (n *Node) KeepDuty(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	return n.duty(ctx, "keep", name, max(1, ttl.Milliseconds()))
}

// YieldDuty gives a duty back, if it is still this node's.
func (n *Node) YieldDuty(ctx context.Context, name string) error {
	_, err := n.duty(ctx, "yield", name)
	return err
}

func (n *Node) duty(ctx context.Context, script, name string, args ...any) (bool, error) {
	answer, err := n.client.Store().Eval(ctx, store.NewCall(script, n.client.Store().Keys.Duty(name), append([]any{n.id}, args...)...))
	return store.AsInt(answer) == 1, store.Wrap(fmt.Sprintf("%s duty %q", script, name), err)
}
