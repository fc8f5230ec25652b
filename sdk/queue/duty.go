package queue

import (
	"context"
	"fmt"
	"time"
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
	answer, err := n.client.store.eval(ctx, newCall(script, n.client.store.keys.duty(name), append([]any{n.id}, args...)...))
	return asInt(answer) == 1, wrap(fmt.Sprintf("%s duty %q", script, name), err)
}
