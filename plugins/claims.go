package plugins

import "fmt"

// claims says which plugin has the right to each queue, in each tenant and among the common ones.
type claims map[place]*plugin

type place struct{ tenant, queue string }

// newClaims gives every queue to the plugin that serves it, and what is left to the first in the order
// of names that wants it. A plugin that does not get all that it wants gets none of it.
func newClaims(plugins []*plugin) claims {
	c := make(claims, len(plugins))
	for _, p := range plugins {
		if p.current == nil {
			continue
		}
		for _, queue := range p.current.Manifest.Queues {
			c[place{p.tenant, queue}] = p
		}
	}
	for _, p := range plugins {
		if !p.fresh {
			continue
		}
		if blocker, _ := c.blocker(p, p.queues()); blocker != nil {
			continue
		}
		for _, queue := range p.queues() {
			c[place{p.tenant, queue}] = p
		}
	}
	return c
}

// blocker is another plugin that has the right to one of the queues, and that queue.
func (c claims) blocker(p *plugin, queues []string) (*plugin, string) {
	for _, queue := range queues {
		if owner := c[place{p.tenant, queue}]; owner != nil && owner != p {
			return owner, queue
		}
	}
	return nil, ""
}

func conflict(dir, queue string, owner *plugin) error {
	return fmt.Errorf("the queue %q is served by the plugin %q (%s): remove one of the two, or give them different queues in their manifests",
		queue, owner.shown(), owner.path(dir, moduleSuffix))
}
