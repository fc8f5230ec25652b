package doctor

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/plugins/spelling"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

const (
	nearlyFull = 0.9 // share of its limit at which a queue is a finding
	failing    = 3   // minimum number of failed tasks for a finding, if no task is complete
	lastFailed = 20  // maximum number of failed tasks of a queue whose reasons are read

	recentMinutes = 10   // minutes in which failures are counted
	latestMinutes = 2    // if tasks were complete and none failed in these minutes, the failures are over
	fewFailures   = 5    // minimum number of failures in recentMinutes for a finding
	recentQueues  = 1000 // maximum number of queues whose failures are counted
	maxLetters    = 100  // maximum number of queues whose oldest task is read
)

var queueChecks = []check{
	{"queue-unserved", func(p *patient) {
		for i, stats := range p.stats {
			waiting := stats.Depth[queue.Pending] + stats.Depth[queue.Scheduled]
			if waiting == 0 || p.dead(p.queues[i]) || p.served[p.queues[i]] ||
				p.unread["the hosts"] != nil && stats.Listeners > 0 {
				continue
			}
			name := p.queues[i]
			remedy := p.serving(name)
			if len(p.alive()) == 0 {
				remedy = "start a host with `quern serve`; none runs"
			} else if refused := slices.IndexFunc(p.plugins, func(one plugin) bool {
				return one.Error != "" && (one.Plugin == name || slices.Contains(one.Queues, name))
			}); refused >= 0 {
				remedy = fmt.Sprintf("mend the plugin %s, which would serve it: it is %s", p.plugins[refused].Plugin,
					p.plugins[refused].State)
			} else if has := slices.IndexFunc(p.plugins, func(one plugin) bool {
				return slices.Contains(one.LeftOut,
					name)
			}); has >= 0 {
				remedy = fmt.Sprintf("name it in --queues of %s, which has the plugin %s, but leaves the queue out",
					p.plugins[has].Node, p.plugins[has].Plugin)
			}
			p.found(Error, remedy, "%s in the queue %s, which nobody serves", wait(waiting),
				name).in(name).hurts(waiting).since(p.pendingSince(i)).
				like("%d queues with tasks are served by nobody")
		}
	}},
	{"dead-letters", func(p *patient) {
		for i, stats := range p.stats {
			waiting := stats.Depth[queue.Pending] + stats.Depth[queue.Scheduled]
			if name := p.queues[i]; waiting > 0 && p.dead(name) {
				p.found(Note, "see why their tasks failed, and retry or delete them", "%d dead letters wait in the queue %s",
					waiting, name).
					by("task", "ls", name).in(name).hurts(waiting).since(p.pendingSince(i)).like("dead letters wait in %d queues")
			}
		}
	}},
	{"tenant-paused", pausesOf(func(one manage.Pause) bool { return one.Queue == "" })},
	{"tenant-quota", func(p *patient) {
		for _, use := range p.quotas {
			waiting := int64(0)
			for i, stats := range p.stats {
				if use.Holds(p.queues[i]) {
					waiting += stats.Depth[queue.Pending]
				}
			}
			if waiting == 0 {
				continue
			}
			level := Note // a busy tenant uses up a rate, or what may run at once
			if strings.HasPrefix(use.Name, "fuel_") {
				level = Warning
			}
			p.found(level, "wait, or raise the quota with `quern tenant set`", "the quota %s of %s is used up, and %s", use.Name, use.Value,
				wait(waiting)).by("tenant", "show", p.tenant).hurts(waiting).named(use.Name)
		}
	}},
	{"queue-shut", pausesOf(func(one manage.Pause) bool { return one.Queue != "" && (one.Accepting || one.Key != "") })},
	{"queue-paused", func(p *patient) {
		for i, stats := range p.stats {
			if waiting := stats.Depth[queue.Pending]; stats.Paused && waiting > 0 && !p.tenantPaused() {
				at := slices.IndexFunc(p.pauses, func(one manage.Pause) bool {
					return one.Queue == p.queues[i] && one.Key == "" && !one.Accepting
				})
				why := ""
				if at >= 0 {
					why = p.pauses[at].Why()
				}
				p.found(Warning, "end the pause", "the queue %s is paused%s, and %s in it", p.queues[i], why, wait(waiting)).
					by("queue", "resume", p.queues[i]).in(p.queues[i]).hurts(waiting).like("%d queues with tasks are paused")
			}
		}
	}},
	{"queue-held", func(p *patient) {
		for i, stats := range p.stats {
			if waiting := stats.Depth[queue.Pending] + stats.Depth[queue.Scheduled]; stats.Held.After(p.now) && waiting > 0 {
				p.found(Note, "wait until then; resume the queue if the server did not mean it",
					"the queue %s is held until %s, because its server asked for a pause, and %s in it",
					p.queues[i], stats.Held.UTC().Format(time.RFC3339), wait(waiting)).by("queue", "resume",
					p.queues[i]).in(p.queues[i]).hurts(waiting).like("%d queues are held")
			}
		}
	}},
	{"queue-stuck", stuckQueues},
	{"queue-full", func(p *patient) {
		for i, stats := range p.stats {
			waiting := stats.Depth[queue.Pending] + stats.Depth[queue.Scheduled]
			if stats.Limit > 0 && float64(waiting) >= nearlyFull*float64(stats.Limit) {
				p.found(Warning, "start more hosts, or raise the limit",
					"%s in the queue %s, whose limit is %d: above it enqueueing is refused",
					wait(waiting), p.queues[i], stats.Limit).by("queue", "limit", p.queues[i],
					strconv.FormatInt(2*stats.Limit, 10)).in(p.queues[i]).hurts(waiting).
					like("%d queues are full, or nearly so")
			}
		}
	}},
	{"queue-failing", func(p *patient) {
		for i, name := range p.queues {
			recent, fails := p.failures(i)
			fails = fails && 2*recent.Failed >= recent.Complete
			reasons := slices.Compact(slices.Sorted(slices.Values(p.failed[name])))
			switch {
			case p.told[name]:
			case queue.ReservedQueue(name) && fails:
				p.found(Warning, "see what the server answers, and mend it",
					"%s of the queue %s failed in the last %d minutes, %s complete",
					units.Count(recent.Failed, "delivery", "deliveries"), name, recentMinutes,
					units.Count(recent.Complete, "was", "were")).by("subscription", "deliveries",
					strings.TrimPrefix(name, queue.WebhookQueues)).in(name).
					hurts(recent.Failed).like("the deliveries of %d webhooks fail")
			case queue.ReservedQueue(name):
			case fails:
				p.found(Error, "see the errors of its tasks, and the version that made them; replace the plugin, or pause the queue",
					"%s of the queue %s failed in the last %d minutes, %s complete",
					units.Count(recent.Failed, "run", "runs"), name, recentMinutes,
					units.Count(recent.Complete, "was", "were")).
					by("task", "ls", name, "--status", "failed").in(name).hurts(recent.Failed).like("the tasks of %d queues fail")
			case len(p.failed[name]) >= failing && !slices.Contains(reasons, string(queue.ReasonCancelled)):
				p.found(Warning, "look at their errors", "no task of the queue %s is complete, and the last %d have failed: %s",
					name, len(p.failed[name]), strings.Join(reasons, ", ")).by("task", "ls", name, "--status", "failed").in(name).
					hurts(p.stats[i].Depth[queue.Failed]).like("no task of %d queues is complete, and the last have failed")
			}
		}
	}},
	{"queue-damaged", func(p *patient) {
		for i, stats := range p.stats {
			if stats.Err != nil {
				p.found(Error, "delete the key that is of another type, or take another tenant", "%v", stats.Err).in(p.queues[i])
			}
		}
	}},
	{"queues-many", func(p *patient) {
		if most := p.maxQueues; most > 0 && len(p.queues) > most {
			p.found(Warning, "find who enqueues to so many, or raise --max-queues of the hosts: nothing else makes a new one until there are fewer",
				"the tenant has %d queues, more than the maximum of %d: hosts look at the others in turn, and metrics leave them out",
				len(p.queues), most)
		}
	}},
}

// pausesOf reports the pauses that are meant, other than those of taking from a queue.
func pausesOf(meant func(manage.Pause) bool) func(*patient) {
	return func(p *patient) {
		for _, one := range p.pauses {
			if !meant(one) {
				continue
			}
			verb := "is paused"
			if one.Accepting {
				verb = "accepts no new tasks"
			}
			f := p.found(Warning, "end the pause", "%s %s%s", one.What(), verb, one.Why()).by(one.ResumeCommand(p.tenant)...)
			if one.Queue != "" {
				f.in(one.Queue)
			}
		}
	}
}

// tenantPaused reports whether hosts take no tasks of the tenant because it is paused.
func (p *patient) tenantPaused() bool {
	return slices.ContainsFunc(p.pauses, func(one manage.Pause) bool {
		return one.Queue == "" && one.Plugin == "" && !one.Accepting
	})
}

// pendingSince returns when the oldest pending task of the queue with index i began to wait. It returns the zero time
// if no task is pending.
func (p *patient) pendingSince(i int) time.Time {
	if p.stats[i].OldestPendingAge == 0 {
		return time.Time{}
	}
	return p.now.Add(-p.stats[i].OldestPendingAge)
}

// dead reports whether a queue has dead letters that wait for people: nobody serves the queue, and its name or its
// oldest task shows that it has dead letters.
func (p *patient) dead(name string) bool {
	return !p.served[name] && (p.letters[name] || strings.HasSuffix(name, ".dead"))
}

// wait returns the part of a message that says how many tasks wait.
func wait(tasks int64) string { return units.Count(tasks, "task waits", "tasks wait") }

// fileName matches the name of a queue that can also be the name of a plugin's file.
var fileName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// serving returns the remedy for a queue that nobody serves. If a served queue has a similar name, the remedy names
// that queue. If a plugin has a similar name or serves that queue, it also names the line of the manifest that makes
// the plugin serve the queue.
func (p *patient) serving(name string) string {
	const most = 50 // maximum number of names that are compared with the names of all served queues
	if p.near++; p.near > most || p.served[name] {
		return Serving(name, nil)
	}
	if p.names == nil {
		p.names = slices.Sorted(maps.Keys(p.served))
	}
	near := spelling.Nearest(name, p.names)
	could := p.couldServe(name, near)
	var ways []string
	if len(near) == 0 && could != nil {
		near = could.Queues[:min(len(could.Queues), 3)]
	}
	if len(near) > 0 {
		again := "enqueue to that"
		if i := slices.IndexFunc(p.schedules, func(s *queue.Schedule) bool { return s.Queue == name }); i >= 0 {
			again = fmt.Sprintf("create the schedule %s again with --queue %s,", p.schedules[i].ID, near[0])
		}
		cancel := "cancel these"
		if fileName.MatchString(name) {
			cancel += fmt.Sprintf(": `quern task cancel --queue %s`, then `quern queue purge %s --all`", name, name)
		}
		ways = append(ways, fmt.Sprintf("if %s was meant, %s and %s", strings.Join(near, " or "), again, cancel))
	}
	if could != nil {
		ways = append(ways, fmt.Sprintf("if the plugin %s is to serve it, write queues: [%s] into %s%s", could.Plugin,
			strings.Join(append(slices.Clone(could.Queues), name), ", "), could.Plugin, manifest.Suffix))
	}
	return strings.Join(append(ways, Serving(name, nil)), "; else ")
}

// couldServe returns a plugin without an error that may be meant for a queue: its own name is that of the queue or
// similar, or it serves one of the similar queues. It returns nil if there is none.
func (p *patient) couldServe(name string, near []string) *plugin {
	names := map[string]*plugin{}
	for i, one := range p.plugins {
		if one.Error == "" {
			names[one.Plugin] = &p.plugins[i]
		}
	}
	if one := names[name]; one != nil {
		return one
	}
	if alike := spelling.Nearest(name, slices.Sorted(maps.Keys(names))); len(alike) > 0 {
		return names[alike[0]]
	}
	for _, one := range slices.Sorted(maps.Keys(names)) {
		if slices.ContainsFunc(names[one].Queues, func(q string) bool { return slices.Contains(near, q) }) {
			return names[one]
		}
	}
	return nil
}

// Serving returns the remedy for a queue that nobody serves: the names among those of served queues that are most
// similar, or else how to serve it.
func Serving(queue string, served []string) string {
	if near := spelling.Nearest(queue, served); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	if !fileName.MatchString(queue) {
		return "put a plugin whose manifest names the queue into a host's plugin directory"
	}
	return fmt.Sprintf("put a plugin that serves it, such as %s.wasm, into a host's plugin directory", queue)
}
