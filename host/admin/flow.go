package admin

import (
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Dependency is a task that another one waits for, or waited for.
type Dependency struct {
	ID   string `json:"id"`
	End  string `json:"end,omitempty" enum:"complete,failed,gone,open" doc:"Missing while it goes on; gone: it does not exist any more; open: it could not be waited for."`
	Size int64  `json:"result_size,omitempty" doc:"Bytes of its result."`
}

// TreeNode is a task with what came of it.
type TreeNode struct {
	Task      *Task       `json:"task,omitempty" doc:"Without payloads; missing if it is deleted."`
	ID        string      `json:"id"`
	Dependent bool        `json:"dependent,omitempty" doc:"It waits, or waited, for the task above it; otherwise that enqueued it."`
	Again     bool        `json:"again,omitempty" doc:"It is elsewhere in the tree too, and what is below it only there."`
	Children  []*TreeNode `json:"children,omitempty"`
	Left      int         `json:"left_out,omitempty" doc:"How many below it are left out: ask for its own tree."`
}

// NewTree shows a tree.
func NewTree(tenant string, node *manage.TreeNode) *TreeNode {
	shape := &TreeNode{ID: node.ID, Dependent: node.Dependent, Again: node.Again, Left: node.Left}
	if node.Task != nil {
		task := NewTask(tenant, node.Task, nil)
		shape.Task = &task
	}
	for _, child := range node.Children {
		shape.Children = append(shape.Children, NewTree(tenant, child))
	}
	return shape
}

// Redact takes out what a Task's does.
func (n *TreeNode) Redact(v View) {
	if n.Task != nil {
		n.Task.Redact(v)
	}
	for _, child := range n.Children {
		child.Redact(v)
	}
}

// Tree is a tree in the types of package queue.
func (n *TreeNode) Tree() *manage.TreeNode {
	node := &manage.TreeNode{ID: n.ID, Dependent: n.Dependent, Again: n.Again, Left: n.Left}
	if n.Task != nil {
		node.Task = n.Task.Task()
	}
	for _, child := range n.Children {
		node.Children = append(node.Children, child.Tree())
	}
	return node
}
