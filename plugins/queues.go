package plugins

import (
	"fmt"

	"github.com/quern-project/quern/plugins/manifest"
)

// queueOwners records which plugin owns each queue in each tenant's folder and in the common folder.
type queueOwners struct {
	cfg    Config
	owners map[tenantQueue]*plugin
	// all counts the owned queues in each tenant's folder, own those of each plugin.
	all map[string]int
	own map[*plugin]int
	// declared counts the schedules and subscriptions of each plugin that serves or is to serve. If a plugin has two
	// versions, the larger numbers count. sums has the sums for each tenant.
	declared map[*plugin]manifest.Declared
	sums     map[string]manifest.Declared
}

type tenantQueue struct{ tenant, queue string }

// assignQueues gives each served queue to the plugin that serves it, and each other queue to the first plugin by name
// that claims it. A plugin that cannot have all the queues that it claims gets no further queue.
func assignQueues(cfg Config, plugins []*plugin) *queueOwners {
	o := &queueOwners{
		cfg, make(map[tenantQueue]*plugin, len(plugins)),
		map[string]int{},
		map[*plugin]int{},
		map[*plugin]manifest.Declared{},
		map[string]manifest.Declared{},
	}
	for _, p := range plugins {
		if p.current != nil && p.beside == 0 {
			o.give(p, &p.current.Manifest)
		}
	}
	for _, p := range plugins {
		if !p.state.claims() || p.beside > 0 {
			continue
		}
		if _, why := o.refuse(p, &p.manifest.manifest); why == nil {
			o.give(p, &p.manifest.manifest)
		}
	}
	return o
}

func (o *queueOwners) give(p *plugin, m *manifest.Manifest) {
	// Most manifests declare nothing. Skipping them saves time: give runs for every plugin whenever one is loaded.
	if has := m.Declared(); has != (manifest.Declared{}) {
		before := o.declared[p]
		has.Schedules, has.Subscriptions = max(has.Schedules, before.Schedules), max(has.Subscriptions, before.Subscriptions)
		o.declared[p], o.sums[p.tenant] = has, o.sums[p.tenant].Plus(before, -1).Plus(has, 1)
	}
	for _, queue := range m.Queues {
		if at := (tenantQueue{p.tenant, queue}); o.owners[at] == nil {
			o.owners[at] = p
			o.all[p.tenant]++
			o.own[p]++
		}
	}
}

// refuse returns why a plugin cannot exchange its queues and declarations for those of a manifest; why is nil if it
// can. Either another plugin, owner, has one of the queues, or the folder would have too many queues, or the host does
// not allow the declarations.
func (o *queueOwners) refuse(p *plugin, m *manifest.Manifest) (owner *plugin, why error) {
	queues := m.Queues
	for _, queue := range queues {
		if owner := o.owners[tenantQueue{p.tenant, queue}]; owner != nil && owner != p {
			return owner, fmt.Errorf("the queue %q is served by the plugin %q (%s): remove one of the two, or give them different queues in their manifests",
				queue, owner.shown(), owner.path(owner.seen.dir(o.cfg.Dir), manifest.ModuleSuffix))
		}
	}
	most, remedy := o.cfg.maxQueues(p.tenant)
	sum := o.all[p.tenant] - o.own[p] + len(queues)
	if most == 0 || sum <= most {
		if m.Declared() == (manifest.Declared{}) {
			return nil, nil
		}
		path := p.path(p.seen.dir(o.cfg.Dir), manifest.Suffix)
		return nil, m.CheckDeclared(path, o.others(p), o.cfg.Grants, p.tenant, o.cfg.Ceilings)
	}
	whose, noun, suffix := fmt.Sprintf("the plugins of the tenant %q", p.tenant), "queues", manifest.Suffix
	if p.tenant == "" {
		whose = "the plugins of every tenant"
	}
	if len(queues) == 1 {
		noun = "queue"
	}
	if p.manifest.digest == "" {
		suffix = manifest.ModuleSuffix
	}
	return nil, fmt.Errorf("%s: the plugin %q serves %d %s, with which %s would serve %d, more than the %d that the host gives them: "+
		"serve fewer queues, or %s", p.path(p.seen.dir(o.cfg.Dir), suffix), p.name, len(queues), noun, whose, sum, most, remedy)
}

// refuseBeside returns why a release cannot run beside the plugin main: a canary has a queue that main does not serve,
// or declares more than the host allows. main is nil if nothing has its name.
func (o *queueOwners) refuseBeside(p, main *plugin, m *manifest.Manifest) error {
	if !p.seen.canary {
		return nil
	}
	path := p.path(p.seen.dir(o.cfg.Dir), manifest.Suffix)
	for _, queue := range m.Queues {
		if main == nil || o.owners[tenantQueue{p.tenant, queue}] != main {
			return fmt.Errorf("%s: the plugin that serves has no queue %q, and a canary gets a share of its tasks: push without --canary",
				path, queue)
		}
	}
	if m.Declared() == (manifest.Declared{}) {
		return nil
	}
	return m.CheckDeclared(path, o.others(main), o.cfg.Grants, p.tenant, o.cfg.Ceilings)
}

// others counts what all other plugins in a plugin's folder declare.
func (o *queueOwners) others(than *plugin) manifest.Declared {
	return o.sums[than.tenant].Plus(o.declared[than], -1)
}

// MaxQueues returns the maximum number of queues that the plugins in a tenant's folder serve together; 0 means no
// bound.
func (d *Directory) MaxQueues(tenant string) int {
	most, _ := d.cfg.maxQueues(tenant)
	return most
}

// maxQueues returns the maximum number of queues that the plugins in a tenant's folder serve together, and how to
// raise that number. A tenant of "" means the common folder, a number of 0 no bound.
func (c *Config) maxQueues(tenant string) (most int, remedy string) {
	own := c.Grants.Of(tenant)
	if tenant != "" && own.MaxQueues > 0 && (c.MaxQueues == 0 || own.MaxQueues < c.MaxQueues) {
		return own.MaxQueues, "raise max_queues of " + own.Where
	}
	return c.MaxQueues, "raise --max-queues"
}
