package manifest

import (
	"slices"

	"github.com/quern-project/quern/runtime/egress"
)

// Capabilities are what a plugin is allowed to use in addition to its input and its output.
type Capabilities struct {
	// Env are environment variables; none of them begins with TASK_.
	Env map[string]string
	// Files are the files that a task can read, in the manifest's order.
	Files []FileGrant
	// HTTP are the hosts to which a handler is allowed to send requests.
	HTTP []egress.Grant
	// KV are the buckets that a handler is allowed to use.
	KV []KVGrant
	// Secrets are the names of the secrets that a handler is allowed to ask for.
	Secrets []string
	// SQL are the databases on which a handler is allowed to run statements.
	SQL []SQLGrant
	// Enqueue lets a handler enqueue tasks; nil for none.
	Enqueue *EnqueueGrant
	// Publish lets a handler publish to topics; nil for none.
	Publish *PublishGrant
}

// FileGrant is a file that a plugin's tasks can read. The host reads it when the plugin is loaded, and its content
// belongs to the version.
type FileGrant struct {
	// From is the file's path inside the folder of the manifest, with slashes.
	From string
	// To is the path at which guests find the file: absolute and clean, such as /data/model.bin.
	To string

	line int // the line of From in the manifest
}

// KVGrant is a bucket of the tenant's key-value store that a handler is allowed to use.
type KVGrant struct {
	// Bucket is the bucket's name.
	Bucket string
	// Write lets the handler change the bucket as well.
	Write bool
	// Quota bounds the bytes of keys and values in the bucket when this plugin writes.
	Quota int64
}

// allowsBucket reports whether a handler is allowed to read a bucket and, if write is true, to change it.
func (c *Capabilities) allowsBucket(bucket string, write bool) bool {
	return slices.ContainsFunc(c.KV, func(g KVGrant) bool { return g.Bucket == bucket && (g.Write || !write) })
}

// EnqueueGrant lets a handler enqueue tasks.
type EnqueueGrant struct {
	// Queues are the names, or patterns of names, of the queues to which the handler is allowed to enqueue: see Allows.
	Queues []string `json:"queues"`
	// After says when tasks are enqueued: "complete" with the completion of the task that enqueues them, "call" at the
	// call.
	After string `json:"after"`
	// Depth bounds the length of a chain of tasks, each enqueued by the one before.
	Depth int `json:"depth"`
	// Tasks is the maximum number of tasks that one run of a task can enqueue. Bytes bounds their total size, which
	// includes queues, IDs, keys, labels and headers.
	Tasks int   `json:"tasks"`
	Bytes int64 `json:"bytes"`
}

// AfterCall reports whether tasks are enqueued when the handler calls the function, not when its task completes.
func (g *EnqueueGrant) AfterCall() bool { return g != nil && g.After == afterCall }

// PublishGrant lets a handler publish to topics. The depth, number and size of publications have the default bounds
// of an EnqueueGrant.
type PublishGrant struct {
	// Topics are the names, or patterns of names, of the topics to which the handler is allowed to publish: see Allows.
	Topics []string `json:"topics"`
	// After says when publications take effect: "complete" with the completion of the task, "call" at the call.
	After string `json:"after"`
}

// AfterCall reports whether publications take effect when the handler calls the function, not when its task
// completes.
func (g *PublishGrant) AfterCall() bool { return g != nil && g.After == afterCall }

// Allows reports whether the handler is allowed to publish to a topic. A nil grant allows none.
func (g *PublishGrant) Allows(topic string) bool {
	return g != nil && slices.ContainsFunc(g.Topics, func(pattern string) bool { return matches(pattern, topic) })
}

// The bounds on what one run of a task can publish, and on a chain of tasks that publications make.
const (
	MaxPublications     = defaultTasks
	MaxPublicationBytes = defaultBytes
	MaxPublicationDepth = defaultDepth
)

// limitTo returns what both grants allow; nil if that is nothing.
func (g *PublishGrant) limitTo(ceiling *PublishGrant) *PublishGrant {
	if g == nil || ceiling == nil || g.AfterCall() && !ceiling.AfterCall() {
		return nil
	}
	topics := commonNames(g.Topics, ceiling.Topics)
	if len(topics) == 0 {
		return nil
	}
	return &PublishGrant{Topics: topics, After: g.After}
}

// The words of a bucket's access and of capabilities.enqueue.after.
const (
	accessRead    = "r"
	accessWrite   = "rw"
	afterComplete = "complete"
	afterCall     = "call"
)

// Allows reports whether the handler is allowed to enqueue to a queue. A nil grant allows none.
func (g *EnqueueGrant) Allows(queue string) bool {
	return g != nil && slices.ContainsFunc(g.Queues, func(pattern string) bool { return matches(pattern, queue) })
}

// LimitTo returns what both the capabilities and a ceiling allow. A nil ceiling allows everything. Names in a ceiling
// can be patterns. Variables and files have no ceiling: they give a plugin nothing that its module could not contain.
//
// If several entries of the ceiling match one name, the name gets what any of them allows. If a manifest enqueues or
// publishes at the call and the ceiling allows that only with the completion, the grant is denied: otherwise the
// handler would believe that its tasks exist already.
func (c Capabilities) LimitTo(ceiling *Capabilities) Capabilities {
	if ceiling == nil {
		return c
	}
	c.HTTP = egress.Common(c.HTTP, ceiling.HTTP)
	c.KV = limitBuckets(c.KV, ceiling.KV)
	c.Secrets = slices.DeleteFunc(slices.Clone(c.Secrets), func(name string) bool {
		return !slices.ContainsFunc(ceiling.Secrets, func(pattern string) bool { return matches(pattern, name) })
	})
	c.SQL = limitDatabases(c.SQL, ceiling.SQL)
	c.Enqueue = c.Enqueue.limitTo(ceiling.Enqueue)
	c.Publish = c.Publish.limitTo(ceiling.Publish)
	return c
}

// limitBuckets returns the granted buckets that the ceiling allows, each with the access and the quota that both
// allow.
func limitBuckets(grants, ceiling []KVGrant) (limited []KVGrant) {
	for _, g := range grants {
		granted, quota := false, int64(0) // 0 if no entry of the ceiling allows writing
		for _, most := range ceiling {
			if matches(most.Bucket, g.Bucket) {
				granted = true
				if most.Write {
					quota = max(quota, most.Quota)
				}
			}
		}
		if g.Write = g.Write && quota > 0; g.Write {
			g.Quota = min(g.Quota, quota)
		}
		if granted {
			limited = append(limited, g)
		}
	}
	return limited
}

// limitTo returns what both grants allow; nil if that is nothing.
func (g *EnqueueGrant) limitTo(ceiling *EnqueueGrant) *EnqueueGrant {
	if g == nil || ceiling == nil || g.AfterCall() && !ceiling.AfterCall() {
		return nil
	}
	both := &EnqueueGrant{
		After: g.After, Depth: min(g.Depth, ceiling.Depth), Tasks: min(g.Tasks, ceiling.Tasks),
		Bytes: min(g.Bytes, ceiling.Bytes),
	}
	if both.Queues = commonNames(g.Queues, ceiling.Queues); len(both.Queues) == 0 {
		return nil
	}
	return both
}

// commonNames returns patterns for the names that both lists of patterns match.
func commonNames(a, b []string) (both []string) {
	for _, pattern := range a {
		for _, most := range b {
			for _, name := range common(pattern, most) {
				// name replaces the patterns that it covers
				if !slices.ContainsFunc(both, func(other string) bool { return matches(other, name) }) {
					both = append(slices.DeleteFunc(both, func(other string) bool { return matches(name, other) }), name)
				}
			}
		}
	}
	return both
}
