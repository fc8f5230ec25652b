package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Children may wait for their siblings, and for others; one that waits for nothing there is fails.
func TestChildrenThatWait(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node, hold := w.begun(t, "p")
		settlement := listen.Settlement{Claim: hold, Children: []listen.Child{
			child("q", "a", "", queue.Options{Parent: hold.ID}),
			child("r", "b", "", queue.Options{Parent: hold.ID, After: []string{"a"}}),
			child("q", "c", "", queue.Options{Parent: hold.ID, After: []string{"b", hold.ID}}),
			child("q", "d", "", queue.Options{Parent: hold.ID, After: []string{"none"}}),
		}}
		for range 2 {
			w.settle(t, node, "p", settlement)
		}
		w.is(t, map[string]string{"a": "pending", "b": "scheduled", "c": "scheduled", "d": "failed dependency"})
		other := w.node(t, "q", "r")
		w.run(t, other, "a", "", nil)
		w.is(t, map[string]string{"b": "pending", "c": "scheduled"})
		w.settle(t, other, "r", listen.Settlement{Claim: new(w.reserve(t, other, "r", true)).Claim()})
		w.advance(t)
		w.run(t, other, "c", "", nil)

		tree := must[*manage.TreeNode](t)(manage.New(w.Client).Tree(w.ctx, hold.ID, manage.TreeOptions{}))
		if got := outline(tree); got != hold.ID+"(a(b*) b(c*) c d)" {
			t.Errorf("tree %s", got)
		}
		if got := outline(must[*manage.TreeNode](t)(manage.New(w.Client).Tree(w.ctx, hold.ID, manage.TreeOptions{Width: 2, Depth: 1}))); got != hold.ID+"(a+1 b+1 +3)" {
			t.Errorf("tree %s", got)
		}
		if got := outline(must[*manage.TreeNode](t)(manage.New(w.Client).Tree(w.ctx, hold.ID, manage.TreeOptions{Total: 4}))); got != hold.ID+"(a+1 b+1 c +2)" {
			t.Errorf("tree %s", got)
		}
	})
}

// outline writes a tree: + and a number for what is left out, * for what stands elsewhere.
func outline(node *manage.TreeNode) string {
	text := node.ID
	if node.Again {
		return text + "*"
	}
	var below []string
	for _, child := range node.Children {
		below = append(below, outline(child))
	}
	left := ""
	if node.Left > 0 {
		left = fmt.Sprintf("+%d", node.Left)
	}
	if len(below) == 0 {
		return text + left
	}
	if left != "" {
		below = append(below, left)
	}
	return text + "(" + strings.Join(below, " ") + ")"
}

// A flow is cancelled with all that waits, so that nothing of it starts, and nothing that is not of it ends.
func TestCancelFlow(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		flow := func(of string) {
			for _, id := range []string{"a", "b", "other"} {
				w.enqueue(t, "q", "", queue.Options{ID: of + id})
			}
			w.after(t, of+"c", queue.WhenEnded, of+"a", of+"b")
			w.after(t, of+"d", queue.WhenEnded, of+"c")
			w.enqueue(t, "r", "", queue.Options{ID: of + "e", After: []string{of + "b"}, When: queue.WhenEnded})
		}
		node := w.node(t, "q")
		flow("1")
		held := w.reserve(t, node, "q", true) // 1a
		got := must[manage.FlowCancelled](t)(manage.New(w.Client).CancelFlow(w.ctx, "1a", false))
		if got.Cancelled != 2 || !slices.Equal(got.Running, []string{"1a"}) || got.Finished != 0 {
			t.Errorf("%+v", got)
		}
		w.is(t, map[string]string{"1a": "started", "1b": "pending", "1c": "failed cancelled", "1d": "failed cancelled", "1e": "scheduled"})
		got = must[manage.FlowCancelled](t)(manage.New(w.Client).CancelFlow(w.ctx, "1d", true))
		if got.Cancelled != 2 || !slices.Equal(got.Running, []string{"1a"}) || got.Finished != 2 {
			t.Errorf("%+v", got)
		}
		w.settle(t, node, "q", listen.Settlement{Claim: held.Claim(), Failure: &queue.Failure{Reason: queue.ReasonCancelled}})
		w.advance(t)
		w.is(t, map[string]string{"1b": "failed cancelled", "1d": "failed cancelled", "1e": "failed cancelled", "1other": "pending"})
		if _, err := manage.New(w.Client).CancelFlow(w.ctx, "none", true); !errors.Is(err, queue.ErrNoTask) {
			t.Error(err)
		}
	})
}
