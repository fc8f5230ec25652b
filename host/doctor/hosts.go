package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

const (
	// clockSkew is how much the clock of a host may differ from that of Redis.
	clockSkew = 5 * time.Second
	// longWait is how long the oldest pending task may wait while all slots are in use.
	longWait = 10 * time.Minute
	// stuck is how long the oldest pending task may wait if no task has begun for that time.
	stuck = time.Minute
	// memoryWait is how long the oldest pending task may wait if a host has no memory for it.
	memoryWait = 30 * time.Second
)

var hostChecks = []check{
	{"host-lease", func(p *patient) {
		for _, node := range p.nodes {
			if node.Kind == listen.KindPython || node.LeaseEnd.After(p.now) {
				continue
			}
			held := 0
			for _, ids := range node.Holds {
				held += len(ids)
			}
			if held > 0 {
				p.found(Error, "start a host, which takes its tasks over, or return them by hand",
					"the listener %s is dead and holds %s", node.ID, units.Count(held, "task", "tasks")).
					by("node", "reclaim", node.ID).hurts(int64(held)).since(node.LeaseEnd)
			}
		}
	}},
	{"host-version", func(p *patient) {
		versions := map[string]bool{}
		for _, node := range p.alive() {
			versions[cmp.Or(node.About["version"], "unknown")] = true
		}
		if len(versions) > 1 {
			p.found(Warning, "finish the upgrade: restart the hosts of the older version",
				"hosts of several versions are running: %s", strings.Join(slices.Sorted(maps.Keys(versions)), ", "))
		}
	}},
	{"host-clock", func(p *patient) {
		for _, node := range p.alive() {
			lease, err := strconv.ParseFloat(node.About["lease"], 64)
			clock, missing := strconv.ParseFloat(node.About["clock"], 64)
			if err != nil || missing != nil {
				continue // the host has an older version
			}
			renewed := node.LeaseEnd.Add(-time.Duration(lease * float64(time.Second)))
			skew := time.UnixMilli(int64(clock * 1000)).Sub(renewed).Round(time.Second)
			if skew.Abs() > clockSkew {
				p.found(Warning, "let NTP set both clocks: tasks run by that of Redis, logs and handlers have that of the host",
					"the clock of %s differs by %s from that of Redis", node.ID, skew)
			}
		}
	}},
	{"host-busy", busy},
	{"host-database", func(p *patient) {
		for _, node := range p.alive() {
			var away []listen.DatabaseAway
			_ = json.Unmarshal([]byte(node.About["databases_away"]), &away) // none if the listener publishes none
			if len(away) > 0 {
				p.found(Error, away[0].Remedy+"; the log of the host tells more",
					"%s for handlers on %s, so tasks that use it are put off: the first is %s: %s",
					units.Count(len(away), "database does not serve", "databases do not serve"), node.ID, away[0].Secret, away[0].Why)
			}
		}
	}},
	{"host-memory", func(p *patient) {
		for _, node := range p.alive() {
			if node.About["memory"] == "0" {
				p.found(Warning, "start it with --memory, such as 75%", "%s has no bound for the memory of its tasks", node.ID)
			}
			for _, name := range waitsForMemory(node) {
				if i := slices.Index(p.queues, name); i >= 0 && p.stats[i].OldestPendingAge > memoryWait {
					p.found(Warning, "cancel what holds it, give the host more by --memory, lower limits.memory of the plugin, or start more hosts",
						"%s has no memory left for a task of the queue %s, whose oldest one waits for %s", node.ID, name,
						p.stats[i].OldestPendingAge.Round(time.Second)).in(name)
				}
			}
		}
	}},
	{"host-reset", func(p *patient) {
		for _, one := range p.plugins {
			if one.ResetMode == "new" {
				p.found(Warning, "see why in its log at the start; --reset auto chooses the fastest mode that works",
					"the plugin %s on %s gets a new instance for each task, which is slow", one.Plugin, one.Node)
			}
		}
	}},
}

// waitsForMemory returns the queues for whose next task a host has no memory.
func waitsForMemory(node listen.NodeInfo) (queues []string) {
	_ = json.Unmarshal([]byte(node.About["waits_for_memory"]), &queues) // no queues if the listener publishes none
	return queues
}

// busy adds a finding if queues have waiting tasks and none of their hosts has a free slot. The finding names the
// queues whose tasks use the slots.
func busy(p *patient) {
	hosts, waiting, oldest := p.starved()
	slots, held, idle := 0, 0, time.Duration(math.MaxInt64)
	running := make(map[string]listen.Running)
	for _, node := range hosts {
		has, _ := strconv.Atoi(node.About["slots"])
		slots += has
		clock, _ := strconv.ParseFloat(node.About["clock"], 64)
		began, err := strconv.ParseFloat(node.About["began"], 64)
		if err != nil { // the host has an older version
			began = clock
		}
		idle = min(idle, max(0, time.Duration((clock-began)*float64(time.Second))))
		held += runs(node, running)
	}
	if len(hosts) == 0 || oldest < stuck || idle < stuck && oldest < longWait {
		return
	}
	parts, most := []string(nil), ""
	for _, name := range slices.SortedFunc(maps.Keys(running), func(a, b string) int {
		return cmp.Or(cmp.Compare(running[b].Tasks, running[a].Tasks), cmp.Compare(a, b))
	}) {
		if len(parts) < maxAlike {
			most = cmp.Or(most, name)
			parts = append(parts, fmt.Sprintf("%d by the queue %s, the longest for %s", running[name].Tasks, name,
				p.now.Sub(time.UnixMilli(int64(running[name].Since*1000))).Round(time.Second)))
		}
	}
	if others := slots - held; others > 0 {
		parts = append(parts, fmt.Sprintf("%d by other tenants, or just beginning", others))
	}
	problem := fmt.Sprintf("all slots are in use: %s on %s (%s), and %s, the oldest for %s",
		units.Count(slots, "slot", "slots"), units.Count(len(hosts), "host", "hosts"),
		strings.Join(parts, "; "), wait(waiting), oldest.Round(time.Second))
	const remedy = "start more hosts, or raise --concurrency and --memory where cores and memory are free"
	if idle < stuck { // tasks begin and end: the hosts have too many tasks
		p.found(Warning, remedy, "%s", problem).hurts(waiting).since(p.now.Add(-oldest))
		return
	}
	f := p.found(Warning, remedy, "%s; none has begun for %s", problem,
		idle.Round(time.Second)).hurts(waiting).since(p.now.Add(-idle))
	if most != "" {
		f.Remedy = "cancel what hangs and bound it with limits.timeout, or " + remedy
		f.by("task", "ls", most, "--status", "started").in(most)
	}
}

// starved looks for queues that have waiting tasks, and whose hosts all have no free slot. It returns these hosts, how
// many tasks wait in these queues, and how long the oldest of these tasks has waited.
func (p *patient) starved() (hosts []listen.NodeInfo, waiting int64, oldest time.Duration) {
	alive := p.alive()
	hurt := make(map[string]bool) // IDs of the hosts of such queues
	for i, stats := range p.stats {
		if stats.Paused || stats.Depth[queue.Pending] == 0 {
			continue
		}
		if all, full := p.hostsOf(alive, p.queues[i]); len(all) > 0 && full == len(all) {
			waiting, oldest = waiting+stats.Depth[queue.Pending], max(oldest, stats.OldestPendingAge)
			for _, node := range all {
				hurt[node.ID] = true
			}
		}
	}
	return slices.DeleteFunc(alive, func(node listen.NodeInfo) bool { return !hurt[node.ID] }), waiting, oldest
}

// hostsOf returns the hosts in alive that serve a queue, and how many of them have no free slot.
func (p *patient) hostsOf(alive []listen.NodeInfo, name string) (hosts []listen.NodeInfo, full int) {
	for _, node := range alive {
		if slices.Contains(node.Queues, name) {
			hosts = append(hosts, node)
			if slots := node.About["slots"]; slots != "" && slots == node.About["slots_in_use"] {
				full++
			}
		}
	}
	return hosts, full
}

// stuckQueues adds findings for queues whose tasks wait although slots are free, and in which no task has begun for
// long. Such queues already run as many tasks as their plugin may run.
func stuckQueues(p *patient) {
	alive := p.alive()
	for i, stats := range p.stats {
		name, waiting := p.queues[i], stats.Depth[queue.Pending]
		hosts, full := p.hostsOf(alive, name)
		if stats.Paused || stats.Held.After(p.now) || waiting == 0 || stats.OldestPendingAge < stuck || full == len(hosts) {
			continue
		}
		running := make(map[string]listen.Running)
		memory := false // the queue waits for memory: see host-memory
		for _, node := range hosts {
			runs(node, running)
			memory = memory || slices.Contains(waitsForMemory(node), name)
		}
		now := running[name]
		idle := p.now.Sub(time.UnixMilli(int64(now.Last * 1000)))
		if now.Last == 0 || idle < stuck || memory {
			continue
		}
		p.found(Warning, "cancel what hangs and bound it with limits.timeout, or raise max_running or concurrency in its manifest",
			"the queue %s runs %d of its tasks, the longest for %s, and %s though slots are free: its plugin may not run more; none has begun for %s",
			name, now.Tasks, p.now.Sub(time.UnixMilli(int64(now.Since*1000))).Round(time.Second), wait(waiting),
			idle.Round(time.Second)).
			by("task", "ls", name, "--status", "started").in(name).hurts(waiting).since(p.now.Add(-idle)).like("%d queues run as many tasks as they may")
	}
}

// runs adds the running tasks of a host to the map to, by queue, and returns their number.
func runs(node listen.NodeInfo, to map[string]listen.Running) (tasks int) {
	var all map[string]listen.Running
	_ = json.Unmarshal([]byte(node.About["running"]), &all) // an older version publishes none
	for name, one := range all {
		sum := to[name]
		if sum.Since == 0 || one.Since < sum.Since {
			sum.Since = one.Since
		}
		sum.Tasks, sum.Last = sum.Tasks+one.Tasks, max(sum.Last, one.Last)
		to[name] = sum
		tasks += one.Tasks
	}
	return tasks
}
