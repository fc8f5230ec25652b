package plugins

import "fmt"

// claims says which plugin has the right to each queue, in each tenant and among the common ones.
type claims struct {
	owners map[place]*plugin
	most   func(tenant string) queueBound
	// all counts the queues of each tenant that have an owner, and own those of each plugin.
	all map[string]int
	own map[*plugin]int
}

type place struct{ tenant, queue string }

// queueBound is how many queues the plugins of a tenant may serve all together, 0 for any number, and where that can be
// changed.
type queueBound struct {
	queues int
	remedy string
}

// newClaims gives every queue to the plugin that serves it, and what is left to the first in the order
// of names that wants it. A plugin that does not get all that it wants gets none of it.
func newClaims(plugins []*plugin, most func(tenant string) queueBound) *claims {
	c := &claims{owners: make(map[place]*plugin, len(plugins)), most: most, all: map[string]int{}, own: map[*plugin]int{}}
	for _, p := range plugins {
		if p.current != nil {
			c.give(p, p.current.Manifest.Queues)
		}
	}
	for _, p := range plugins {
		if !p.fresh {
			continue
		}
		if blocker, _ := c.blocker(p, p.queues()); blocker == nil && c.excess(p, p.queues()) == nil {
			c.give(p, p.queues())
		}
	}
	return c
}

func (c *claims) give(p *plugin, queues []string) {
	for _, queue := range queues {
		if at := (place{p.tenant, queue}); c.owners[at] == nil {
			c.owners[at] = p
			c.all[p.tenant]++
			c.own[p]++
		}
	}
}

// blocker is another plugin that has the right to one of the queues, and that queue.
func (c *claims) blocker(p *plugin, queues []string) (*plugin, string) {
	for _, queue := range queues {
		if owner := c.owners[place{p.tenant, queue}]; owner != nil && owner != p {
			return owner, queue
		}
	}
	return nil, ""
}

// excess is the error of a plugin with whose queues, in the place of those that it has, its tenant would have more than it
// may; else nil.
func (c *claims) excess(p *plugin, queues []string) error {
	most, others := c.most(p.tenant), c.all[p.tenant]-c.own[p]
	if most.queues == 0 || others+len(queues) <= most.queues {
		return nil
	}
	whose := fmt.Sprintf("the plugins of the tenant %q", p.tenant)
	if p.tenant == "" {
		whose = "the plugins of every tenant"
	}
	noun := "queues"
	if len(queues) == 1 {
		noun = "queue"
	}
	return fmt.Errorf("the plugin %q serves %d %s, with which %s would serve %d, more than the %d that the host gives them: "+
		"serve fewer queues, or %s", p.name, len(queues), noun, whose, others+len(queues), most.queues, most.remedy)
}

func conflict(dir, queue string, owner *plugin) error {
	return fmt.Errorf("the queue %q is served by the plugin %q (%s): remove one of the two, or give them different queues in their manifests",
		queue, owner.shown(), owner.path(dir, moduleSuffix))
}
