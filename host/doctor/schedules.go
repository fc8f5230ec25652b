package doctor

import (
	"slices"
	"time"

	"github.com/quern-project/quern/plugins/cron"
	"github.com/quern-project/quern/sdk/queue"
)

// lateTick is how late a tick may be. The time is ample: if the host that fires ticks dies, another host takes over
// within seconds.
const lateTick = time.Minute

var scheduleChecks = []check{
	{"schedule-unserved", func(p *patient) {
		for _, s := range p.schedules {
			switch {
			case p.unread["the hosts"] != nil, !s.Paused.IsZero() && s.Absent.IsZero():
			case !s.Absent.IsZero():
				if slices.ContainsFunc(p.plugins, func(one plugin) bool { return one.Plugin == s.PluginOwner() }) {
					p.found(Note, "delete it, unless a version with it comes back; it goes a week after that one",
						"the schedule %s stands still, because the plugin %s does without it now", s.ID, s.PluginOwner()).
						by("schedule", "delete", s.ID).in(s.Queue).named(s.ID).since(s.Absent).like("%d schedules stand still, because their plugins do without them now")
					continue
				}
				p.found(Warning, "put the plugin "+s.PluginOwner()+" into the plugin directory of a host, or delete the schedule",
					"the schedule %s stands still, because no host has its plugin", s.ID).by("schedule", "delete", s.ID).in(s.Queue)
			case !p.served[s.Queue]:
				p.found(Warning, p.serving(s.Queue)+", or pause the schedule",
					"the schedule %s fills the queue %s, which nobody serves", s.ID, s.Queue).by("schedule", "pause",
					s.ID).in(s.Queue).named(s.ID).
					like("%d schedules fill queues that nobody serves")
			}
		}
	}},
	{"schedule-paused", func(p *patient) {
		for _, s := range p.schedules {
			if !s.Paused.IsZero() && s.Absent.IsZero() {
				p.found(Note, "resume it", "the schedule %s is paused", s.ID).by("schedule", "resume",
					s.ID).in(s.Queue).named(s.ID).since(s.Paused).
					like("%d schedules are paused")
			}
		}
	}},
	{"schedule-late", func(p *patient) {
		for _, s := range p.schedules {
			due := s.Next
			if due.IsZero() {
				due = s.Since
			}
			late := p.now.Sub(due)
			if !s.Paused.IsZero() || !s.Absent.IsZero() || late < lateTick {
				continue
			}
			late = late.Round(time.Second)
			look := func(one *Finding) { one.by("schedule", "show", s.ID).in(s.Queue) }
			switch {
			case len(p.alive()) == 0:
				look(p.found(Error, "start a host with `quern serve`; none runs", "a tick of the schedule %s is late by %s", s.ID,
					late))
			case s.Overlap == queue.OverlapQueue && s.LastID != "":
				look(p.found(Warning, "see why that task takes so long, or choose --overlap skip",
					"a tick of the schedule %s has waited for %s for the task %s to finish", s.ID, late, s.LastID))
			default:
				look(p.found(Error, "see the log of the hosts for op=tick: they cannot read its expression, or its queue is full or damaged",
					"a tick of the schedule %s is late by %s", s.ID, late))
			}
		}
	}},
	{"schedule-ahead", func(p *patient) {
		for _, s := range p.schedules {
			rule, err := cron.Parse(s.Cron, s.Timezone)
			if err != nil || !s.Paused.IsZero() || !s.Absent.IsZero() {
				continue
			}
			due := rule.Next(p.now.Add(lateTick)) // a tick may have been fired since the clock was read
			if due.IsZero() || !s.Next.After(due) {
				continue
			}
			p.found(Warning, "pause it and resume it: then its ticks count from now",
				"the next tick of the schedule %s comes only in %s, and would be due in %s: Redis's clock was set back",
				s.ID, s.Next.Sub(p.now).Round(time.Second), rule.Next(p.now).Sub(p.now).Round(time.Second)).by("schedule", "pause",
				s.ID).in(s.Queue)
		}
	}},
}
