package plugins

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// EnqueueGrant lets a handler enqueue tasks.
type EnqueueGrant struct {
	// Queues are those that it may enqueue to, by name or by pattern: see Allows.
	Queues []string
	// AfterCall tells whether the tasks come into being at once. Default: with the completion of the task that enqueues
	// them.
	AfterCall bool
	// Depth is how long a chain of tasks may become of which each was enqueued by the one before.
	Depth int
	// Tasks is how many one run of a task may enqueue, and Bytes how many these may have, with all that they are enqueued
	// with.
	Tasks int
	Bytes int64
}

// What a manifest may grant at most, and what holds where it says nothing.
const (
	defaultDepth = 16
	maxDepth     = 1000

	defaultTasks  = 256     // what may come with a completion
	maxTasks      = 100_000 // after: call
	defaultBytes  = 16 << 20
	maxTasksBytes = maxPayload
)

// The words of capabilities.enqueue.after.
const (
	afterComplete = "complete"
	afterCall     = "call"
)

// Allows tells whether tasks may be enqueued to a queue. Nothing allows none.
func (g *EnqueueGrant) Allows(queue string) bool {
	return g != nil && slices.ContainsFunc(g.Queues, func(pattern string) bool { return matches(pattern, queue) })
}

// enqueue reads capabilities.enqueue.
func (d *decoder) enqueue(n node) *EnqueueGrant {
	grant := &EnqueueGrant{Depth: defaultDepth, Tasks: defaultTasks, Bytes: defaultBytes}
	var tasks node
	d.entry(n, enqueueField, func(key string, value node) {
		switch key {
		case "queues":
			if value.Kind == yaml.SequenceNode && len(value.Content) == 0 {
				d.wrong(value, "names no queue", "name one, such as thumbnails.done, or leave out "+enqueueField)
			}
			d.list(value, `[thumbnails.done, "mail.*"]`, func(at node) {
				queue, ok := d.word(at)
				switch {
				case !ok || !d.pattern(at, queue):
				case slices.Contains(grant.Queues, queue):
					d.wrong(at, quote(queue)+" stands in the list twice", "name it once")
				default:
					grant.Queues = append(grant.Queues, queue)
				}
			})
		case "after":
			grant.AfterCall = d.choice(value, afterComplete, afterCall) == afterCall
		case "depth":
			grant.Depth = d.count(value, maxDepth, strconv.Itoa(defaultDepth))
		case "tasks":
			grant.Tasks, tasks = d.count(value, maxTasks, strconv.Itoa(defaultTasks)), value
		case "bytes":
			grant.Bytes = d.size(value, 1, maxTasksBytes)
		}
	})
	if grant.Tasks > defaultTasks && !grant.AfterCall {
		d.wrong(tasks, fmt.Sprintf("%d tasks cannot come with one completion", grant.Tasks), fmt.Sprintf("write at most %d, or after: call", defaultTasks))
	}
	if n.Kind == yaml.MappingNode && !has(n, "queues") {
		d.wrong(n, "has no queues", "write to which queues tasks may go, such as queues: [thumbnails.done]")
	}
	return grant
}

// pattern reports a name with more wildcards than one.
func (d *decoder) pattern(n node, name string) bool {
	if strings.Count(name, wildcard) <= 1 {
		return true
	}
	d.wrong(n, fmt.Sprintf("%s has more than one %s", quote(name), wildcard), "write a name, or one with a single * for any text, such as mail.*")
	return false
}
