package plugins

import (
	"slices"

	"github.com/quern-project/quern/runtime/egress"
)

// Under is what both the manifest grants and a ceiling, which is written alike, but with patterns as names; nil is no
// ceiling. Variables and files have none: they give a plugin nothing that its module could not hold.
//
// Where several grants of the ceiling are for one name, each of them allows what it allows. Tasks that come into being at
// once are denied where the ceiling has them come with the completion: the handler would believe that they are there.
func (c Capabilities) Under(ceiling *Capabilities) Capabilities {
	if ceiling == nil {
		return c
	}
	c.HTTP = egress.Common(c.HTTP, ceiling.HTTP)
	c.KV = bucketsUnder(c.KV, ceiling.KV)
	c.Secrets = slices.DeleteFunc(slices.Clone(c.Secrets), func(name string) bool {
		return !slices.ContainsFunc(ceiling.Secrets, func(pattern string) bool { return matches(pattern, name) })
	})
	c.Enqueue = c.Enqueue.under(ceiling.Enqueue)
	return c
}

// bucketsUnder are the buckets that the ceiling has, each with the access and the quota that both allow.
func bucketsUnder(grants, ceiling []KVGrant) (under []KVGrant) {
	for _, g := range grants {
		granted, write, quota := false, false, int64(0)
		for _, most := range ceiling {
			if matches(most.Bucket, g.Bucket) {
				granted, write = true, write || most.Write
				if most.Write {
					quota = max(quota, most.Quota)
				}
			}
		}
		if !granted {
			continue
		}
		if g.Write = g.Write && write; g.Write {
			g.Quota = min(g.Quota, quota)
		}
		under = append(under, g)
	}
	return under
}

// under is what both grants allow; nil if that is nothing.
func (g *EnqueueGrant) under(ceiling *EnqueueGrant) *EnqueueGrant {
	if g == nil || ceiling == nil || g.AfterCall && !ceiling.AfterCall {
		return nil
	}
	both := &EnqueueGrant{
		AfterCall: g.AfterCall, Depth: min(g.Depth, ceiling.Depth), Tasks: min(g.Tasks, ceiling.Tasks), Bytes: min(g.Bytes, ceiling.Bytes),
	}
	for _, pattern := range g.Queues {
		for _, most := range ceiling.Queues {
			for _, queue := range common(pattern, most) {
				both.add(queue)
			}
		}
	}
	if len(both.Queues) == 0 {
		return nil
	}
	return both
}

// add adds a pattern, unless another one has all of it, and leaves out those of which it has all.
func (g *EnqueueGrant) add(pattern string) {
	if slices.ContainsFunc(g.Queues, func(other string) bool { return matches(other, pattern) }) {
		return
	}
	g.Queues = append(slices.DeleteFunc(g.Queues, func(other string) bool { return matches(pattern, other) }), pattern)
}
