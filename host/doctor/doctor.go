// Package doctor looks for what is wrong with Redis, the hosts, the plugins and the queues of a tenant, for `quern doctor`.
//
// Each check is a row of a list, which looks at what was read once and says what it found with a remedy. It writes nothing.
//
// # Failure
//
// What the Redis user may not read is not checked: that is a finding itself. If Redis is away, Examine returns its error.
package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	Error   Level = "error"   // tasks do not run, or may be lost
	Warning Level = "warning" // they may soon, or run worse than they could
)

// Finding is something that is wrong.
type Finding struct {
	Check   string `json:"check"`
	Level   Level  `json:"level"`
	Tenant  string `json:"tenant,omitempty"` // "" for what concerns all tenants of a Redis
	Queue   string `json:"queue,omitempty"`
	Problem string `json:"problem"`
	Remedy  string `json:"remedy"`
	// Command are the words behind `quern` that do what the remedy says; none if no command does.
	Command []string `json:"command,omitempty"`
}

// by is the finding with the command of its remedy.
func (f Finding) by(command ...string) Finding {
	f.Command = command
	return f
}

// in is the finding about a queue.
func (f Finding) in(queue string) Finding {
	f.Queue = queue
	return f
}

// check is one thing to look at.
type check struct {
	name string
	find func(p *patient) []Finding
}

var tenantChecks = slices.Concat(hostChecks, pluginChecks, scheduleChecks, flowChecks, topicChecks, webhookChecks, queueChecks)

// wait tells how many tasks wait.
func wait(tasks int64) string {
	if tasks == 1 {
		return "1 task waits"
	}
	return fmt.Sprintf("%d tasks wait", tasks)
}

// fileName is the name of a queue that a plugin of that name serves, whose file has it, too.
var fileName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// Serving is the remedy for a queue that nobody serves.
func Serving(queue string) string {
	if !fileName.MatchString(queue) {
		return "put a plugin whose manifest names the queue into a host's plugin directory"
	}
	return fmt.Sprintf("put a plugin that serves it, such as %s.wasm, into a host's plugin directory", queue)
}

// Checks lists the names of all checks.
func Checks() []string {
	var names []string
	for _, c := range slices.Concat(redisChecks, tenantChecks) {
		names = append(names, c.name)
	}
	return append(names, access.name)
}

// patient is what the checks look at: Redis, or a tenant in it.
type patient struct {
	unread map[string]error // what could not be read, by what it is

	info     map[string]string // INFO of Redis
	warnings []string          // of its settings
	latency  time.Duration

	now         time.Time // by Redis's clock
	nodes       []queue.NodeInfo
	served      map[string]bool // the queues to which a live listener listens
	plugins     []plugin
	quarantines []queue.Quarantine
	queues      []string
	maxQueues   int // how many the tenant may have; 0: any number
	stats       []queue.Stats
	failed      map[string][]string // why the last ones failed of the queues in which none is complete
	recent      []queue.Minute      // of each queue
	latest      []queue.Minute      // the last of these
	schedules   []*queue.Schedule   // without parameters and options
	backlogs    []queue.Backlog     // of the queues
	blocked     []*queue.Task       // some of each queue that has any

	topics        []queue.Topic // but those of which all subscriptions are active
	subscriptions []queue.Subscription
	damaged       error    // names subscriptions that cannot be read
	unpublished   []string // publications that nobody goes on with
}

// plugin is what one host published of one plugin.
type plugin struct {
	Node      string   `json:"-"`
	Plugin    string   `json:"plugin"`
	Queues    []string `json:"queues"`
	LeftOut   []string `json:"left_out"`
	State     string   `json:"state"`
	Error     string   `json:"error"`
	ResetMode string   `json:"reset_mode"`
}

// Examine looks at the tenants of the clients, all in one Redis.
func Examine(ctx context.Context, clients ...*queue.Client) ([]Finding, error) {
	findings := []Finding{}
	look := func(p *patient, tenant string, checks []check) {
		for _, check := range append(checks[:len(checks):len(checks)], access) {
			for _, finding := range check.find(p) {
				finding.Check, finding.Tenant = check.name, tenant
				findings = append(findings, finding)
			}
		}
	}
	for i, client := range clients {
		if i == 0 {
			p, err := readRedis(ctx, client)
			if err != nil {
				return nil, err
			}
			look(p, "", redisChecks)
		}
		p, err := readTenant(ctx, client)
		if err != nil {
			return nil, err
		}
		look(p, client.Tenant(), tenantChecks)
	}
	return findings, nil
}

// reading is a part of what is read.
type reading struct {
	what string
	read func() error
}

// try reads all that it may. The error says that Redis is away, or that ctx has ended.
func (p *patient) try(readings ...reading) error {
	p.unread = map[string]error{}
	for _, one := range readings {
		if err := one.read(); queue.IsUnavailable(err) || errors.Is(err, context.Canceled) {
			return err
		} else if err != nil {
			p.unread[one.what] = err
		}
	}
	return nil
}

// readRedis reads what concerns all tenants, by the client of any.
func readRedis(ctx context.Context, client *queue.Client) (*patient, error) {
	p := &patient{}
	return p, p.try(
		reading{"INFO", func() (err error) { p.info, err = client.Info(ctx); return err }},
		reading{"PING", func() (err error) { p.latency, err = latency(ctx, client); return err }},
		reading{"CONFIG GET", func() (err error) { p.warnings, err = client.Warnings(ctx); return err }},
	)
}

// readTenant reads what concerns the tenant of a client.
func readTenant(ctx context.Context, client *queue.Client) (*patient, error) {
	p := &patient{}
	var err error
	if p.now, err = client.Clock(ctx); err != nil {
		return nil, err
	}
	err = p.try(
		reading{"the hosts", func() (err error) { p.nodes, err = client.Fleet().Nodes(ctx, nodeFields...); return err }},
		reading{"what the hosts published", func() error { return p.readPlugins(ctx, client) }},
		reading{"the quarantines", func() (err error) { p.quarantines, err = client.Fleet().Quarantines(ctx); return err }},
		reading{"the queues", func() error {
			known, err := client.Queues(ctx)
			if err != nil {
				return err
			}
			p.queues = slices.Sorted(maps.Keys(known))
			if p.maxQueues, err = client.MaxQueues(ctx); err != nil {
				return err
			}
			p.stats, err = client.Stats(ctx, p.queues...)
			return err
		}},
		reading{"the tasks that wait for others", func() error { return p.readFlows(ctx, client) }},
		reading{"the schedules", func() (err error) { p.schedules, err = client.ScheduleHeads(ctx); return err }},
		reading{"the counts by minute", func() (err error) {
			counted := p.queues[:min(len(p.queues), recentQueues)]
			if p.recent, err = client.Recent(ctx, recentMinutes, counted...); err == nil {
				p.latest, err = client.Recent(ctx, latestMinutes, counted...)
			}
			return err
		}},
		reading{"the topics", func() error {
			topics, err := client.Topics(ctx)
			if err != nil {
				return err
			}
			subscriptions, err := client.Subscriptions(ctx)
			if errors.Is(err, queue.ErrInvalid) {
				p.damaged, err = err, nil
			}
			p.readTopics(topics, subscriptions)
			return err
		}},
		reading{"the publications", func() (err error) { p.unpublished, err = client.Fleet().Unpublished(ctx); return err }},
	)
	known := min(len(p.stats), len(p.queues)) // fewer if they could not be counted
	p.stats, p.queues = p.stats[:known], p.queues[:known]
	p.failed, p.served = make(map[string][]string), make(map[string]bool)
	for i, stats := range p.stats {
		if stats.Depth[queue.Failed] >= failing && stats.Depth[queue.Complete] == 0 {
			tasks, _ := client.Queue(p.queues[i]).List(ctx, queue.ListOptions{Status: queue.Failed, Limit: lastFailed})
			for _, task := range tasks {
				p.failed[p.queues[i]] = append(p.failed[p.queues[i]], string(cmp.Or(task.Failure().Reason, "no reason")))
			}
		}
	}
	for _, node := range p.nodes {
		if !p.counts(&node) {
			continue
		}
		for _, name := range node.Queues {
			p.served[name] = true
		}
	}
	return p, err
}

// nodeFields are what the checks read of nodes, beside their plugins.
var nodeFields = []string{"version", "lease", "clock", "slots", "slots_in_use", "memory", "waits_for_memory", "destinations_off"}

// readPlugins reads the plugins of the listeners that are alive.
func (p *patient) readPlugins(ctx context.Context, client *queue.Client) error {
	alive := slices.DeleteFunc(slices.Clone(p.nodes), func(node queue.NodeInfo) bool { return !p.counts(&node) })
	return client.Fleet().Published(ctx, alive, "plugins", func(node *queue.NodeInfo, text string) {
		var published []plugin
		_ = json.Unmarshal([]byte(text), &published) // a listener may have none
		for _, one := range published {
			one.Node = node.ID
			p.plugins = append(p.plugins, one)
		}
	})
}

// has tells whether a live host has a plugin.
func (p *patient) has(name string) bool {
	return slices.ContainsFunc(p.plugins, func(one plugin) bool { return one.Plugin == name })
}

// counts tells whether a listener counts as alive: a Python one has no lease.
func (p *patient) counts(node *queue.NodeInfo) bool {
	return node.Kind == queue.KindPython || node.LeaseEnd.After(p.now)
}

// latency is the median time of an answer.
func latency(ctx context.Context, client *queue.Client) (time.Duration, error) {
	var times []time.Duration
	for range 11 {
		begun := time.Now()
		if err := client.Ping(ctx); err != nil {
			return 0, err
		}
		times = append(times, time.Since(begun))
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// alive lists the hosts whose lease runs.
func (p *patient) alive() (hosts []queue.NodeInfo) {
	for _, node := range p.nodes {
		if node.Kind == queue.KindQuern && node.LeaseEnd.After(p.now) {
			hosts = append(hosts, node)
		}
	}
	return hosts
}

func found(level Level, remedy, format string, args ...any) Finding {
	return Finding{Level: level, Problem: fmt.Sprintf(format, args...), Remedy: remedy}
}

// number reads a field of INFO, 0 if it is not there.
func (p *patient) number(field string) int64 {
	n, _ := strconv.ParseInt(p.info[field], 10, 64)
	return n
}

// leastRedis is the oldest version of Redis that the scripts run on.
var leastRedis = [2]int{6, 2}

const (
	slowRedis  = 5 * time.Millisecond
	fullRedis  = 0.85 // of maxmemory
	clockSkew  = 5 * time.Second
	longWait   = 10 * time.Minute // of the oldest pending task
	memoryWait = 30 * time.Second // likewise, if a host has no memory for it: slots are free
	nearlyFull = 0.9              // of a queue's limit
	failing    = 3                // tasks that have failed, and none complete
	lastFailed = 20               // of which the reasons are read

	recentMinutes = 10 // in which failures count
	latestMinutes = 2  // in which tasks were complete and none failed: it is over
	fewFailures   = 5  // fewer say nothing
	recentQueues  = 1000
)

var redisChecks = []check{
	{"redis-version", func(p *patient) []Finding {
		var version [2]int
		if _, err := fmt.Sscanf(p.info["redis_version"], "%d.%d", &version[0], &version[1]); err != nil || slices.Compare(version[:], leastRedis[:]) >= 0 {
			return nil // what answers as another server is not refused
		}
		return []Finding{found(Error, fmt.Sprintf("upgrade it to %d.%d or later", leastRedis[0], leastRedis[1]), "Redis is version %s", p.info["redis_version"])}
	}},
	{"redis-settings", func(p *patient) (f []Finding) {
		for _, warning := range p.warnings {
			problem, remedy, _ := strings.Cut(warning, ": ")
			f = append(f, found(Error, remedy, "%s", problem))
		}
		return f
	}},
	{"redis-disk", func(p *patient) (f []Finding) {
		for _, field := range []string{"rdb_last_bgsave_status", "aof_last_bgrewrite_status", "aof_last_write_status"} {
			if status := p.info[field]; status != "" && status != "ok" {
				f = append(f, found(Error, "look for the cause in the log of Redis: disk, memory for a fork, permissions", "Redis cannot write to its disk (%s is %s)", field, status))
			}
		}
		return f
	}},
	{"redis-memory", func(p *patient) []Finding {
		used, most := p.number("used_memory"), p.number("maxmemory")
		if most == 0 || float64(used) < fullRedis*float64(most) {
			return nil
		}
		if used >= most {
			return []Finding{found(Error, "raise maxmemory, or delete finished tasks: see `quern queue purge --help`", "Redis is full: it uses %d %% of its maxmemory, and nothing can be enqueued", 100*used/most)}
		}
		return []Finding{found(Warning, "raise maxmemory, or delete finished tasks: see `quern queue purge --help`", "Redis uses %d %% of its maxmemory: when it is full, nothing can be enqueued", 100*used/most)}
	}},
	{"redis-latency", func(p *patient) []Finding {
		if p.latency < slowRedis {
			return nil
		}
		return []Finding{found(Warning, "run it near Redis; look for slow commands with `SLOWLOG GET`", "Redis answers in %s from here, the median of 11", p.latency.Round(100*time.Microsecond))}
	}},
	{"redis-role", func(p *patient) []Finding {
		if p.info["role"] != "slave" {
			return nil
		}
		return []Finding{found(Error, "name the primary with --redis", "this Redis is a replica, which takes no tasks")}
	}},
}

// access tells what could not be read, of Redis or of a tenant.
var access = check{"redis-access", func(p *patient) (f []Finding) {
	for _, what := range slices.Sorted(maps.Keys(p.unread)) {
		f = append(f, found(Warning, "give the Redis user the commands that ACL.md names, or look as another one: see `quern help redis`", "%s cannot be read, and is not checked: %v", what, p.unread[what]))
	}
	return f
}}

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
					by("node", "reclaim", node.ID))
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
	{"host-busy", func(p *patient) []Finding {
		waiting := int64(0)
		for _, stats := range p.stats {
			if !stats.Paused && stats.Listeners > 0 && stats.OldestPendingAge > longWait {
				waiting += stats.Depth[queue.Pending]
			}
		}
		hosts := p.alive()
		busy := len(hosts) > 0 && waiting > 0
		for _, node := range hosts {
			busy = busy && node.About["slots"] != "" && node.About["slots"] == node.About["slots_in_use"]
		}
		if !busy {
			return nil
		}
		return []Finding{found(Warning, "start more hosts, or raise --concurrency and --memory where cores and memory are free", "all slots of all %d hosts are in use, and %s in queues whose oldest one waits for more than %s", len(hosts), wait(waiting), longWait)}
	}},
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

var pluginChecks = []check{
	{"plugin-refused", func(p *patient) (f []Finding) {
		for _, one := range p.plugins {
			if one.Error != "" {
				f = append(f, found(Error, "mend it, and try it with `quern plugin check FILE`", "the plugin %s is %s on %s: %s", one.Plugin, one.State, one.Node, one.Error))
			}
		}
		return f
	}},
	{"plugin-quarantined", func(p *patient) (f []Finding) {
		for _, q := range p.quarantines {
			f = append(f, found(Error, "replace it, or end the quarantine", "the plugin %s is quarantined until %s: its tasks ended the hosts %s",
				q.Plugin, q.Until.UTC().Format(time.RFC3339), strings.Join(q.Listeners, ", ")).by("plugin", "release", q.Plugin))
		}
		return f
	}},
	{"queue-unserved", func(p *patient) (f []Finding) {
		for i, stats := range p.stats {
			waiting := stats.Depth[queue.Pending] + stats.Depth[queue.Scheduled]
			if waiting == 0 || p.served[p.queues[i]] || p.unread["the hosts"] != nil && stats.Listeners > 0 {
				continue
			}
			name := p.queues[i]
			remedy := Serving(name)
			if len(p.alive()) == 0 {
				remedy = "start a host with `quern serve`; none runs"
			} else if refused := slices.IndexFunc(p.plugins, func(one plugin) bool {
				return one.Error != "" && (one.Plugin == name || slices.Contains(one.Queues, name))
			}); refused >= 0 {
				remedy = fmt.Sprintf("mend the plugin %s, which would serve it: it is %s, as told above", p.plugins[refused].Plugin, p.plugins[refused].State)
			} else if has := slices.IndexFunc(p.plugins, func(one plugin) bool { return slices.Contains(one.LeftOut, name) }); has >= 0 {
				remedy = fmt.Sprintf("name it in --queues of %s, which has the plugin %s, but leaves the queue out", p.plugins[has].Node, p.plugins[has].Plugin)
			}
			f = append(f, found(Error, remedy, "%s in the queue %s, which nobody serves", wait(waiting), name).in(name))
		}
		return f
	}},
	{"queue-paused", func(p *patient) (f []Finding) {
		for i, stats := range p.stats {
			if waiting := stats.Depth[queue.Pending]; stats.Paused && waiting > 0 {
				f = append(f, found(Warning, "end the pause", "the queue %s is paused, and %s in it", p.queues[i], wait(waiting)).
					by("queue", "resume", p.queues[i]).in(p.queues[i]))
			}
		}
		return f
	}},
	{"queue-full", func(p *patient) (f []Finding) {
		for i, stats := range p.stats {
			waiting := stats.Depth[queue.Pending] + stats.Depth[queue.Scheduled]
			if stats.Limit > 0 && float64(waiting) >= nearlyFull*float64(stats.Limit) {
				f = append(f, found(Warning, "start more hosts, or raise the limit", "%s in the queue %s, whose limit is %d: above it enqueueing is refused",
					wait(waiting), p.queues[i], stats.Limit).by("queue", "limit", p.queues[i], strconv.FormatInt(2*stats.Limit, 10)).in(p.queues[i]))
			}
		}
		return f
	}},
	{"queue-failing", func(p *patient) (f []Finding) {
		for i, name := range p.queues {
			list := func(one Finding) Finding { return one.by("task", "ls", name, "--status", "failed").in(name) }
			over := i < len(p.latest) && p.latest[i].Failed == 0 && p.latest[i].Complete > 0
			if i < len(p.recent) && !over && p.recent[i].Failed >= fewFailures && 2*p.recent[i].Failed >= p.recent[i].Complete {
				f = append(f, list(found(Error, "see the errors of its tasks, and the version that made them; replace the plugin, or pause the queue",
					"%d runs of the queue %s failed in the last %d minutes, %d were complete", p.recent[i].Failed, name, recentMinutes, p.recent[i].Complete)))
				continue
			}
			reasons := slices.Sorted(slices.Values(p.failed[name]))
			if reasons = slices.Compact(reasons); len(p.failed[name]) >= failing && !slices.Contains(reasons, string(queue.ReasonCancelled)) {
				f = append(f, list(found(Warning, "look at their errors", "no task of the queue %s is complete, and the last %d have failed: %s",
					name, len(p.failed[name]), strings.Join(reasons, ", "))))
			}
		}
		return f
	}},
	{"queue-damaged", func(p *patient) (f []Finding) {
		for i, stats := range p.stats {
			if stats.Err != nil {
				f = append(f, found(Error, "delete the key that is of another type, or take another tenant", "%v", stats.Err).in(p.queues[i]))
			}
		}
		return f
	}},
}
