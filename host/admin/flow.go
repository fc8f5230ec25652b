package admin

import (
	"github.com/quern-project/quern/sdk/queue/manage"
)

// TreeNode is a task with the tasks that it enqueued and the tasks that depend on it.
type TreeNode struct {
	Task      *Task       `json:"task,omitempty" doc:"Without payloads; missing if it is deleted."`
	ID        string      `json:"id"`
	Dependent bool        `json:"dependent,omitempty" doc:"It waits, or waited, for the task above it; otherwise that enqueued it."`
	Again     bool        `json:"again,omitempty" doc:"It is elsewhere in the tree too, and what is below it only there."`
	Children  []*TreeNode `json:"children,omitempty"`
	Left      int         `json:"left_out,omitempty" doc:"How many below it are left out: ask for its own tree."`
}

func newTree(tenant string, node *manage.TreeNode) *TreeNode {
	shape := &TreeNode{ID: node.ID, Dependent: node.Dependent, Again: node.Again, Left: node.Left}
	if node.Task != nil {
		shape.Task = NewTask(tenant, node.Task, nil)
	}
	for _, child := range node.Children {
		shape.Children = append(shape.Children, newTree(tenant, child))
	}
	return shape
}

// Each calls visit for each task of the tree that still exists.
func (n *TreeNode) Each(visit func(*Task)) {
	if n.Task != nil {
		visit(n.Task)
	}
	for _, child := range n.Children {
		child.Each(visit)
	}
}

// Redact redacts the node's task and the tasks of all nodes below it.
func (n *TreeNode) Redact(v View) { n.Each(func(t *Task) { t.Redact(v) }) }
