// Package doctor looks for problems of Redis and of a tenant's hosts, plugins and queues, for `quern doctor`.
//
// The checks are entries in lists. Each check looks at data that was read once for all checks, and returns findings
// with remedies. No check writes anything.
//
// # Failure
//
// Data that the Redis user may not read is not checked; that is itself a finding. If Redis cannot be reached, Examine
// returns the error.
package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/release"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	Error   Level = "error"   // tasks do not run, or may be lost
	Warning Level = "warning" // tasks may stop or be lost soon, or run worse than they could
	Note    Level = "note"    // nothing is broken, but somebody may have forgotten it
)

// Finding is a problem that a check found, with its remedy.
type Finding struct {
	Check   string `json:"check"`
	Level   Level  `json:"level"`
	Tenant  string `json:"tenant,omitempty"` // "" for a finding about Redis itself
	Queue   string `json:"queue,omitempty"`
	Problem string `json:"problem"`
	Remedy  string `json:"remedy"`
	// Command has the arguments of the `quern` command that carries out the remedy. It is empty if no command does.
	Command []string `json:"command,omitempty"`
	// Tasks is how many tasks wait or have failed because of the problem. Since is when the problem began, in seconds
	// since 1970. Both are 0 if unknown.
	Tasks int64   `json:"tasks,omitempty"`
	Since float64 `json:"since,omitempty"`
	// Queues lists the queues of the findings that this one replaces, at most 1,000. Those of the worst findings come
	// first.
	Queues []string `json:"queues,omitempty"`

	alike string // format of Problem for several findings of this kind, with %d for their number; "": never merged
	about string // the name of the thing with the problem, if it is not a queue
}

// by sets the arguments of the `quern` command that carries out the remedy.
func (f *Finding) by(command ...string) *Finding {
	f.Command = command
	return f
}

// in sets the queue.
func (f *Finding) in(queue string) *Finding {
	f.Queue = queue
	return f
}

// hurts sets how many tasks wait or have failed because of the problem.
func (f *Finding) hurts(tasks int64) *Finding {
	f.Tasks = tasks
	return f
}

// since sets when the problem began.
func (f *Finding) since(t time.Time) *Finding {
	if !t.IsZero() {
		f.Since = float64(t.UnixMilli()) / 1000
	}
	return f
}

// named sets the name of the thing with the problem, if it is not a queue.
func (f *Finding) named(name string) *Finding {
	f.about = name
	return f
}

// like marks a finding of a kind that may be frequent. More than maxAlike findings with the same format are merged
// into one. The problem of that finding is the format, with their number for %d.
func (f *Finding) like(format string) { f.alike = format }

// maxAlike is the maximum number of findings of one kind that are shown separately.
const maxAlike = 3

// sorted returns the findings of one tenant, or of Redis, with the worst first: by level, then by the number of tasks
// that they hurt. If a kind has many findings, they are merged into one.
func sorted(all []Finding) []Finding {
	alike := make(map[string][]Finding)
	for _, f := range all {
		alike[f.alike] = append(alike[f.alike], f)
	}
	var list []Finding
	for format, some := range alike {
		slices.SortStableFunc(some, worse)
		if format != "" && len(some) > maxAlike {
			some = []Finding{together(format, some)}
		}
		list = append(list, some...)
	}
	slices.SortStableFunc(list, worse)
	return list
}

// worse compares two findings for sorting. It returns a negative number if a is worse.
func worse(a, b Finding) int {
	levels := []Level{Error, Warning, Note}
	return cmp.Or(cmp.Compare(slices.Index(levels, a.Level), slices.Index(levels, b.Level)), cmp.Compare(b.Tasks, a.Tasks),
		cmp.Compare(a.Check, b.Check), cmp.Compare(a.Problem, b.Problem))
}

// together merges all findings of one kind into one. They must be sorted, with the worst first.
func together(format string, all []Finding) Finding {
	const shown, listed = 3, 1000
	f := all[0]
	f.Queue, f.Command, f.Tasks = "", nil, 0
	var names []string
	queues := make(map[string]bool)
	for _, one := range all {
		f.Tasks += one.Tasks
		if one.Since > 0 && (f.Since == 0 || one.Since < f.Since) {
			f.Since = one.Since
		}
		if len(names) < shown {
			names = append(names, cmp.Or(one.about, one.Queue))
		}
		if !queues[one.Queue] && one.Queue != "" && len(f.Queues) < listed {
			queues[one.Queue] = true
			f.Queues = append(f.Queues, one.Queue)
		}
	}
	f.Problem = fmt.Sprintf(format, len(all)) + ": " + strings.Join(names, ", ") +
		fmt.Sprintf(" and %d more", len(all)-shown)
	f.Remedy = "for " + names[0] + ": " + f.Remedy
	return f
}

// check is one check. find adds its findings to the patient.
type check struct {
	name string
	find func(p *patient)
}

var tenantChecks = slices.Concat(hostChecks, pluginChecks, scheduleChecks, flowChecks, timedChecks, topicChecks,
	webhookChecks, relayChecks, queueChecks)

// Checks lists the names of all checks.
func Checks() []string {
	var names []string
	for _, c := range slices.Concat(redisChecks, tenantChecks) {
		names = append(names, c.name)
	}
	return append(names, access.name)
}

// patient has the data that the checks look at, about Redis or about one tenant, and takes the findings.
type patient struct {
	findings []*Finding // findings of the running check

	unread map[string]error // by reading.what: why the data could not be read

	info     map[string]string // fields of Redis's INFO
	warnings []string          // warnings about the settings of Redis
	latency  time.Duration     // median response time of Redis

	now         time.Time // the time by Redis's clock
	nodes       []listen.NodeInfo
	served      map[string]bool // the queues to which a live listener listens
	plugins     []plugin
	quarantines []listen.Quarantine
	stopped     map[string]release.Stopped // by plugin
	tenant      string
	pauses      []manage.Pause
	quotas      []manage.QuotaUse
	queues      []string
	maxQueues   int // how many queues the tenant may have; 0: any number
	stats       []manage.Stats
	letters     map[string]bool     // queues that nobody serves and whose next task is a dead letter
	told        map[string]bool     // queues whose failing tasks are a finding already
	near        int                 // how many names serving has been asked about
	names       []string            // the names of served queues, sorted
	failed      map[string][]string // by queue without a complete task: why its last tasks failed
	versions    []manage.VersionTally
	recent      []manage.Minute   // counts of each queue in the last recentMinutes
	latest      []manage.Minute   // counts of each queue in the last latestMinutes
	schedules   []*queue.Schedule // without parameters and options
	backlogs    []listen.Backlog  // one backlog for each queue
	blocked     []*queue.Task     // some blocked tasks of each queue that has any
	timed       [][]*queue.Task   // by queue, in the order of queues: some tasks that wait for a time
	undelivered []*queue.Task     // for each queue of a webhook: the delivery that failed for good last

	topics        []manage.Topic // except topics whose subscriptions are all active
	subscriptions []queue.Subscription
	damaged       error    // names subscriptions that cannot be read
	unpublished   []string // unfinished publications that nobody continues

	relays []listen.RelayState
}

// plugin is what one host published about one plugin. Node is the host's listener.
type plugin struct {
	Node      string   `json:"-"`
	Plugin    string   `json:"plugin"`
	Version   string   `json:"version"`
	Release   int      `json:"release"`
	Digest    string   `json:"digest"`
	Queues    []string `json:"queues"`
	LeftOut   []string `json:"left_out"`
	State     string   `json:"state"`
	Error     string   `json:"error"`
	Unfetched bool     `json:"unfetched"`
	ResetMode string   `json:"reset_mode"`
}

// Examine runs all checks on the tenants of the clients and on Redis. All clients must use the same Redis.
func Examine(ctx context.Context, clients ...*queue.Client) ([]Finding, error) {
	findings := []Finding{}
	look := func(p *patient, tenant string, checks []check) {
		var all []Finding
		for _, check := range append(checks[:len(checks):len(checks)], access) {
			p.findings = nil
			check.find(p)
			for _, f := range p.findings {
				f.Check, f.Tenant = check.name, tenant
				all = append(all, *f)
			}
		}
		findings = append(findings, sorted(all)...)
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

// reading reads one part of the data that the checks need. what names that part in the finding if read fails.
type reading struct {
	what string
	read func() error
}

// try runs all readings, and keeps their errors in unread. It returns an error only if Redis cannot be reached, or
// ctx has ended.
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

// readRedis reads the data about Redis itself, with the client of any tenant.
func readRedis(ctx context.Context, client *queue.Client) (*patient, error) {
	p := &patient{}
	return p, p.try(
		reading{"INFO", func() (err error) { p.info, err = manage.New(client).Info(ctx); return err }},
		reading{"PING", func() (err error) { p.latency, err = latency(ctx, client); return err }},
		reading{"CONFIG GET", func() (err error) { p.warnings, err = manage.New(client).Warnings(ctx); return err }},
	)
}

// readTenant reads the data about the client's tenant.
func readTenant(ctx context.Context, client *queue.Client) (*patient, error) {
	p := &patient{told: make(map[string]bool), tenant: client.Tenant()}
	var err error
	if p.now, err = client.Clock(ctx); err != nil {
		return nil, err
	}
	err = p.try(
		reading{"the hosts", func() (err error) {
			p.nodes, err = listen.NewFleet(client).Nodes(ctx,
				nodeFields...)
			return err
		}},
		reading{"what the hosts published", func() error { return p.readPlugins(ctx, client) }},
		reading{"the quarantines", func() (err error) { p.quarantines, err = listen.NewFleet(client).Quarantines(ctx); return err }},
		reading{"the stopped releases", func() (err error) {
			p.stopped, err = release.NewStore(client).Stopped(ctx)
			return err
		}},
		reading{"the pauses", func() (err error) { p.pauses, err = manage.New(client).Pauses().List(ctx); return err }},
		reading{"the quotas", func() (err error) { p.quotas, err = manage.QuotaUses(ctx, client); return err }},
		reading{"the queues", func() error {
			known, err := client.Queues(ctx)
			if err != nil {
				return err
			}
			p.queues = slices.Sorted(maps.Keys(known))
			if p.maxQueues, err = manage.New(client).MaxQueues(ctx); err != nil {
				return err
			}
			p.stats, err = manage.New(client).Stats(ctx, p.queues...)
			return err
		}},
		reading{"the tasks that wait for others", func() error { return p.readFlows(ctx, client) }},
		reading{"the tasks that wait for a time", func() error { return p.readTimed(ctx, client) }},
		reading{"the schedules", func() (err error) { p.schedules, err = client.ScheduleHeads(ctx); return err }},
		reading{"the counts by minute", func() (err error) {
			counted := p.queues[:min(len(p.queues), recentQueues)]
			if p.recent, err = manage.New(client).Recent(ctx, recentMinutes, counted...); err == nil {
				p.latest, err = manage.New(client).Recent(ctx, latestMinutes, counted...)
			}
			return err
		}},
		reading{"the counts of versions", func() (err error) { p.versions, err = manage.New(client).Versions(ctx); return err }},
		reading{"the topics", func() error {
			topics, err := manage.New(client).Topics(ctx)
			if err != nil {
				return err
			}
			p.subscriptions, err = client.Subscriptions(ctx)
			if errors.Is(err, queue.ErrInvalid) {
				p.damaged, err = err, nil
			}
			p.topics = slices.DeleteFunc(topics, func(t manage.Topic) bool {
				return t.Subscriptions == t.Active &&
					t.Active > 0
			})
			return err
		}},
		reading{"the publications", func() (err error) { p.unpublished, err = listen.NewFleet(client).Unpublished(ctx); return err }},
		reading{"the relays", func() (err error) { p.relays, err = listen.NewFleet(client).Relays(ctx); return err }},
	)
	known := min(len(p.stats), len(p.queues)) // stats is shorter than queues if it could not be read
	p.stats, p.queues = p.stats[:known], p.queues[:known]
	p.failed, p.served = make(map[string][]string), make(map[string]bool)
	for i, stats := range p.stats {
		if stats.Depth[queue.Failed] >= failing && stats.Depth[queue.Complete] == 0 {
			tasks, _ := manage.New(client).Queue(p.queues[i]).List(ctx,
				manage.ListOptions{Status: queue.Failed, Limit: lastFailed})
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
	p.letters = make(map[string]bool)
	for i, stats := range p.stats {
		if name := p.queues[i]; err == nil && stats.Depth[queue.Pending] > 0 && !p.served[name] &&
			len(p.letters) < maxLetters {
			next := int(stats.Depth[queue.Pending]) - 1 // the list begins with the task that runs last
			tasks, _ := manage.New(client).Queue(name).List(ctx,
				manage.ListOptions{Status: queue.Pending, Offset: next, Limit: 1, Bytes: 1})
			p.letters[name] = len(tasks) > 0 && queue.IsLetter(tasks[0].ID)
		}
	}
	return p, err
}

// nodeFields names the published fields of listeners that the checks read, in addition to the plugins.
var nodeFields = []string{
	"version", "lease", "clock", "slots", "slots_in_use", "began", "running", "memory",
	"waits_for_memory", "databases_away", "destinations_off",
}

// readPlugins reads the plugins of the listeners that are alive.
func (p *patient) readPlugins(ctx context.Context, client *queue.Client) error {
	alive := slices.DeleteFunc(slices.Clone(p.nodes), func(node listen.NodeInfo) bool { return !p.counts(&node) })
	return listen.NewFleet(client).Published(ctx, alive, "plugins", func(node *listen.NodeInfo, text string) {
		var published []plugin
		_ = json.Unmarshal([]byte(text), &published) // a listener may publish none
		for _, one := range published {
			one.Node = node.ID
			p.plugins = append(p.plugins, one)
		}
	})
}

// counts reports whether a listener counts as alive. A Python listener always does, because it has no lease.
func (p *patient) counts(node *listen.NodeInfo) bool {
	return node.Kind == listen.KindPython || node.LeaseEnd.After(p.now)
}

// alive lists the hosts whose lease runs.
func (p *patient) alive() (hosts []listen.NodeInfo) {
	for _, node := range p.nodes {
		if node.Kind == listen.KindQuern && node.LeaseEnd.After(p.now) {
			hosts = append(hosts, node)
		}
	}
	return hosts
}

// found adds a finding of the running check.
func (p *patient) found(level Level, remedy, format string, args ...any) *Finding {
	f := &Finding{Level: level, Problem: fmt.Sprintf(format, args...), Remedy: remedy}
	p.findings = append(p.findings, f)
	return f
}
