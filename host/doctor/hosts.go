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

	"github.com/quern-project/quern/sdk/queue"
)

const (
	clockSkew  = 5 * time.Second
	longWait   = 10 * time.Minute // of the oldest pending task
	stuck      = time.Minute      // likewise, while no slot has got a task for as long
	memoryWait = 30 * time.Second // likewise, if a host has no memory for it: slots are free
)

var hostChecks = []check{
	{"host-lease", func(p *patient) (f []Finding) {
		for _, node := range p.nodes {
			if node.Kind == queue.KindPython || node.LeaseEnd.After(p.now) {
				continue
			}
			held := 0
			for _, ids := range node.Holds {
				held += len(ids)
			}
			if held > 0 {
				f = append(f, found(Error, "start a host, which takes its tasks over, or return them by hand", "the listener %s is dead and holds %d tasks", node.ID, held).
					by("node", "reclaim", node.ID).hurts(int64(held)).since(node.LeaseEnd))
			}
		}
		return f
	}},
	{"host-version", func(p *patient) []Finding {
		versions := map[string]bool{}
		for _, node := range p.alive() {
			versions[cmp.Or(node.About["version"], "unknown")] = true
		}
		if len(versions) < 2 {
			return nil
		}
		return []Finding{found(Warning, "finish the upgrade: restart the hosts of the older version", "hosts of several versions are running: %s", strings.Join(slices.Sorted(maps.Keys(versions)), ", "))}
	}},
	{"host-clock", func(p *patient) (f []Finding) {
		for _, node := range p.alive() {
			lease, err := strconv.ParseFloat(node.About["lease"], 64)
			clock, missing := strconv.ParseFloat(node.About["clock"], 64)
			if err != nil || missing != nil {
				continue // of an older version
			}
			renewed := node.LeaseEnd.Add(-time.Duration(lease * float64(time.Second)))
			skew := time.UnixMilli(int64(clock * 1000)).Sub(renewed).Round(time.Second)
			if skew.Abs() > clockSkew {
				f = append(f, found(Warning, "let NTP set both clocks: tasks run by that of Redis, logs and handlers have that of the host", "the clock of %s differs by %s from that of Redis", node.ID, skew))
			}
		}
		return f
	}},
	{"host-busy", busy},
	{"host-memory", func(p *patient) (f []Finding) {
		for _, node := range p.alive() {
			if node.About["memory"] == "0" {
				f = append(f, found(Warning, "start it with --memory, such as 75%", "%s has no bound for the memory of its tasks", node.ID))
			}
			var waits []string
			_ = json.Unmarshal([]byte(node.About["waits_for_memory"]), &waits) // none of a listener that publishes none
			for _, name := range waits {
				if i := slices.Index(p.queues, name); i >= 0 && p.stats[i].OldestPendingAge > memoryWait {
					f = append(f, found(Warning, "cancel what holds it, give the host more by --memory, lower limits.memory of the plugin, or start more hosts",
						"%s has no memory left for a task of the queue %s, whose oldest one waits for %s", node.ID, name, p.stats[i].OldestPendingAge.Round(time.Second)).in(name))
				}
			}
		}
		return f
	}},
	{"host-reset", func(p *patient) (f []Finding) {
		for _, one := range p.plugins {
			if one.ResetMode == "new" {
				f = append(f, found(Warning, "see why in its log at the start; --reset auto chooses the fastest mode that works", "the plugin %s on %s gets a new instance for each task, which is slow", one.Plugin, one.Node))
			}
		}
		return f
	}},
}

// busy finds that all slots are in use while tasks wait, and what has them.
func busy(p *patient) []Finding {
	hosts := p.alive()
	slots, held, idle, serves := 0, 0, time.Duration(math.MaxInt64), make(map[string]bool)
	running := make(map[string]queue.Running)
	for _, node := range hosts {
		has, err := strconv.Atoi(node.About["slots"])
		if err != nil || node.About["slots"] != node.About["slots_in_use"] {
			return nil
		}
		slots += has
		clock, _ := strconv.ParseFloat(node.About["clock"], 64)
		began, err := strconv.ParseFloat(node.About["began"], 64)
		if err != nil { // of an older version
			began = clock
		}
		idle = min(idle, max(0, time.Duration((clock-began)*float64(time.Second))))
		for _, name := range node.Queues {
			serves[name] = true
		}
		held += runs(node, running)
	}
	var waiting int64
	var oldest time.Duration
	for i, stats := range p.stats {
		if serves[p.queues[i]] && !stats.Paused && stats.Depth[queue.Pending] > 0 {
			waiting, oldest = waiting+stats.Depth[queue.Pending], max(oldest, stats.OldestPendingAge)
		}
	}
	if len(hosts) == 0 || oldest < stuck || idle < stuck && oldest < longWait {
		return nil
	}
	parts, most := []string(nil), ""
	for _, name := range slices.SortedFunc(maps.Keys(running), func(a, b string) int {
		return cmp.Or(cmp.Compare(running[b].Tasks, running[a].Tasks), cmp.Compare(a, b))
	}) {
		if len(parts) < mostAlike {
			most = cmp.Or(most, name)
			parts = append(parts, fmt.Sprintf("%d by the queue %s, the longest for %s", running[name].Tasks, name, p.now.Sub(time.UnixMilli(int64(running[name].Since*1000))).Round(time.Second)))
		}
	}
	if others := slots - held; others > 0 {
		parts = append(parts, fmt.Sprintf("%d by other tenants, or just beginning", others))
	}
	problem := fmt.Sprintf("all %d slots of %d hosts are in use (%s), and %s, the oldest for %s", slots, len(hosts), strings.Join(parts, "; "), wait(waiting), oldest.Round(time.Second))
	const remedy = "start more hosts, or raise --concurrency and --memory where cores and memory are free"
	if idle < stuck { // tasks begin and end: there are too many
		return []Finding{found(Warning, remedy, "%s", problem).hurts(waiting).since(p.now.Add(-oldest))}
	}
	f := found(Warning, remedy, "%s; none has begun for %s", problem, idle.Round(time.Second)).hurts(waiting).since(p.now.Add(-idle))
	if most != "" {
		f.Remedy = "cancel what hangs and bound it with limits.timeout, or " + remedy
		f = f.by("task", "ls", most, "--status", "started").in(most)
	}
	return []Finding{f}
}

// runs adds what runs on a host, by queue, and returns how many tasks that are.
func runs(node queue.NodeInfo, to map[string]queue.Running) (tasks int) {
	var all map[string]queue.Running
	_ = json.Unmarshal([]byte(node.About["running"]), &all) // none of an older version
	for name, one := range all {
		sum := to[name]
		if sum.Since == 0 || one.Since < sum.Since {
			sum.Since = one.Since
		}
		sum.Tasks += one.Tasks
		to[name] = sum
		tasks += one.Tasks
	}
	return tasks
}
