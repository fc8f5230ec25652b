package manage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// TreeOptions bound what Tree reads.
type TreeOptions struct {
	Depth int // maximum number of levels below the task (default 8)
	Width int // maximum number of tasks below each task (default 100, at most 1,000)
	Total int // maximum number of tasks in all (default 1,000, at most 10,000), read level by level: see also TreeBytes
}

// TreeBytes is the maximum size in bytes of the summaries of a tree's tasks. Their sizes are estimated, and are about
// those in JSON.
const TreeBytes = 8 << 20

// TreeNode is a task in a tree, with its children and dependents below it.
type TreeNode struct {
	ID   string
	Task *queue.Task // as queue.Client.Summary reads it; nil if the task is gone
	// Dependent is true if the task waits, or waited, for the task above it. Otherwise the task above it has enqueued it.
	Dependent bool
	// Again is true if the task is in the tree twice, and its children and dependents are only below the other node.
	Again    bool
	Children []*TreeNode
	// Left is the number of children and dependents that the tree leaves out.
	Left int
}

// Tree reads a task, its children and dependents, their children and dependents, and so on, each list oldest first. It
// returns queue.ErrNoTask if there is no such task. Redis keeps only the first 10,000 children of a task, but all its
// dependents.
func (m *Manager) Tree(ctx context.Context, id string, options TreeOptions) (*TreeNode, error) {
	depth, width := cmp.Or(options.Depth, 8), min(cmp.Or(options.Width, 100), store.PageTasks)
	total := min(cmp.Or(options.Total, 1000), 10*store.PageTasks)
	if depth < 0 || width < 1 || total < 1 {
		return nil, fmt.Errorf("%w: tree of depth %d, width %d and %d tasks: use 1 or more", queue.ErrInvalid, depth, width,
			total)
	}
	task, err := m.client.Summary(ctx, id)
	if err != nil {
		return nil, err
	}
	root := &TreeNode{ID: id, Task: task}
	seen := map[string]bool{id: true}
	total--
	bytes := TreeBytes
	for level := []*TreeNode{root}; len(level) > 0; depth-- {
		if depth == 0 {
			width = 0 // the last pass only counts the tasks that are left out
		}
		below, err := m.readLevel(ctx, level, width, total, &bytes)
		if err != nil {
			return nil, err
		}
		if total -= len(below); bytes <= 0 {
			total = 0
		}
		level = level[:0:0]
		for _, node := range below {
			if node.Again = seen[node.ID]; !node.Again {
				seen[node.ID] = true
				level = append(level, node)
			}
		}
	}
	return root, nil
}

// readLevel reads the children and dependents of the nodes of a level and returns their nodes. It reads up to width
// tasks per node and up to total tasks together, and ends when *bytes are used up. It subtracts the bytes that it read
// from *bytes.
func (m *Manager) readLevel(ctx context.Context, level []*TreeNode, width, total int,
	bytes *int,
) (below []*TreeNode, err error) {
	type family struct {
		ids   *redis.StringSliceCmd
		count *redis.IntCmd
	}
	families, err := store.Pipelined(ctx, m.store, level, func(p redis.Pipeliner, node *TreeNode) family {
		key := m.store.Keys.Children(node.ID)
		return family{p.LRange(ctx, key, 0, int64(max(width, 1)-1)), p.LLen(ctx, key)}
	})
	if err != nil {
		return nil, store.Wrap("read children", err)
	}
	var ids []string
	for i, node := range level {
		some := families[i].ids.Val()
		node.Left = int(families[i].count.Val())
		for j, id := range some[:min(len(some), width, total-len(below))] {
			node.Left--
			if slices.Contains(some[:j], id) || strings.Contains(id, " ") {
				continue // listed twice: it is both a child and a dependent of the node; or no task, but a list of reports
			}
			child := &TreeNode{ID: id}
			node.Children, below, ids = append(node.Children, child), append(below, child), append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	tasks, passed, size, err := m.client.Summaries(ctx, "", "", ids, *bytes)
	if err != nil {
		return nil, err
	}
	*bytes -= size
	below = below[:passed]
	for _, node := range level { // Summaries read only the first `passed` tasks: leave out the others
		most := min(len(node.Children), passed)
		node.Left += len(node.Children) - most
		node.Children = node.Children[:most]
		passed -= most
	}
	known := make(map[string]*queue.Task, len(tasks))
	for _, task := range tasks {
		known[task.ID] = task
	}
	for _, node := range level {
		for _, child := range node.Children {
			if child.Task = known[child.ID]; child.Task != nil {
				child.Dependent = child.Task.After != nil && child.Task.Parent != node.ID
			}
		}
	}
	return below, nil
}
